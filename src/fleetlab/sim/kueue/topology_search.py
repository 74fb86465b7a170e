"""The search for places: which domains, and how many pods in each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetlab.core.kueue import PODS
from fleetlab.core.kueue_workload import TopologyRequest
from fleetlab.sim.kueue.domains import (
    KEEPS_OFF,
    LEAST_FREE,
    MIXED,
    DoesNotFit,
    Domain,
    Forest,
    Placement,
    Seats,
    TopologyNeed,
)


@dataclass
class Search:
    """One set of pods on one forest."""

    forest: Forest
    need: TopologyNeed
    level: int
    slice_level: int
    slice_size: int
    required: bool
    unconstrained: bool
    least_free: bool

    @classmethod
    def of(cls, forest: Forest, need: TopologyNeed, request: TopologyRequest, profile: str) -> Search:
        """Find the levels that a request names."""
        levels = forest.topology.levels
        only_slices = request.slice_required is not None and not (request.required or request.preferred)
        unconstrained = request.unconstrained or only_slices
        key = request.required or request.preferred or (levels[0] if only_slices else levels[-1])
        slice_key = request.slice_required or levels[-1]
        for name in (key, slice_key):
            if name not in levels:
                msg = f"no requested topology level: {name}"
                raise DoesNotFit(msg)
        if levels.index(key) > levels.index(slice_key):
            msg = f"podset slice topology {slice_key} is above the podset topology {key}"
            raise DoesNotFit(msg)
        size = request.slice_size or 1 if request.slice_required else 1
        least = profile == LEAST_FREE or (unconstrained and profile == MIXED)
        level, slice_level = levels.index(key), levels.index(slice_key)
        return cls(forest, need, level, slice_level, size, request.required is not None, unconstrained, least)

    def run(self, *, empty: bool) -> Placement:
        """Count the room from the narrowest level up, choose domains, and go down into them."""
        for domain in self.forest.levels[0].values():
            self._count(domain, 0, empty=empty)
        depth, chosen = self._choose(self.level)
        chosen = self._fill(chosen, self.need.count // self.slice_size, in_slices=True)
        for below in range(depth, len(self.forest.levels) - 1):
            if below < self.slice_level:
                children = [child for domain in chosen for child in domain.children]
                chosen = self._fill(self._sorted(children), self.need.count // self.slice_size, in_slices=True)
            else:
                parts = [self._fill(self._sorted(each.children), each.pods, in_slices=False) for each in chosen]
                chosen = [domain for part in parts for domain in part]
        requests = self.need.pod_set.taken
        seats = [Seats(self.need.flavor, each.values, requests, each.pods) for each in chosen if each.pods]
        return tuple(sorted(seats, key=lambda each: each.domain))

    def _count(self, domain: Domain, depth: int, *, empty: bool) -> None:
        if not domain.children:
            domain.pods = self._room(domain, empty=empty)
        for child in domain.children:
            self._count(child, depth + 1, empty=empty)
        if domain.children:
            domain.pods = sum(child.pods for child in domain.children)
        if depth == self.slice_level:
            domain.slices = domain.pods // self.slice_size
        else:
            domain.slices = sum(child.slices for child in domain.children)

    def _room(self, leaf: Domain, *, empty: bool) -> int:
        pods, flavor = self.need.pod_set, self.forest.flavor
        tolerated = (*pods.tolerations, *flavor.tolerations)
        if any(t.effect in KEEPS_OFF and not any(each.covers(t) for each in tolerated) for t in leaf.taints):
            return 0
        if self.forest.ends_at_nodes and not self._selects(leaf):
            return 0
        free = {name: amount - (0 if empty else leaf.used.get(name, 0)) for name, amount in leaf.capacity.items()}
        wanted = {**pods.taken, PODS: 1}
        return max(0, min(free.get(name, 0) // amount for name, amount in wanted.items() if amount > 0))

    def _selects(self, node: Domain) -> bool:
        """Whether the pods may go to a node by their selector and their required node affinity."""
        pods = self.need.pod_set
        name = node.values[-1]
        terms = [term.matches(node.labels, name) for term in pods.required]
        return pods.selector.matches(node.labels, name) and (not terms or any(terms))

    def _sorted(self, domains: Iterable[Domain]) -> list[Domain]:
        sign = 1 if self.least_free else -1
        return sorted(domains, key=lambda each: (sign * each.slices, each.pods, each.values))

    def _choose(self, level: int) -> tuple[int, list[Domain]]:
        """The level, and the domains on it, that have room for all."""
        slices = self.need.count // self.slice_size
        ranked = self._sorted(self.forest.levels[level].values())
        if not ranked:
            msg = f"no topology domains at level: {self.forest.topology.levels[level]}"
            raise DoesNotFit(msg)
        enough = [domain for domain in ranked if domain.slices >= slices]
        if enough:
            return level, [min(enough, key=lambda each: each.slices)]  # the first of those with the least room
        if self.required:
            raise DoesNotFit(self._message(max(domain.slices for domain in ranked), slices))
        if level > 0 and not self.unconstrained:
            return self._choose(level - 1)
        return level, self._several(ranked, slices)

    def _several(self, ranked: list[Domain], slices: int) -> list[Domain]:
        chosen: list[Domain] = []
        left = slices
        for k, domain in enumerate(ranked):
            if left <= 0:
                break
            one = self._last(ranked[k:], left, in_slices=True) if domain.slices >= left else domain
            chosen.append(one)
            left -= one.slices
        if left > 0:
            raise DoesNotFit(self._message(slices - left, slices))
        return chosen

    def _last(self, ranked: list[Domain], left: int, *, in_slices: bool) -> Domain:
        """The domain for what is left: with BestFit the first of those with the least room that is enough."""
        if self.least_free:
            return ranked[0]
        room = {id(each): each.slices if in_slices else each.pods for each in ranked}
        return min((each for each in ranked if room[id(each)] >= left), key=lambda each: room[id(each)])

    def _fill(self, ranked: list[Domain], count: int, *, in_slices: bool) -> list[Domain]:
        """Take as few of the domains as hold a count, and write into each what it gets."""
        chosen: list[Domain] = []
        size = self.slice_size if in_slices else 1
        left = count
        for k, domain in enumerate(ranked):
            room = domain.slices if in_slices else domain.pods
            if room >= left:
                last = self._last(ranked[k:], left, in_slices=in_slices)
                last.pods, last.slices = left * size, left if in_slices else last.slices
                return [*chosen, last]
            domain.pods = room * size
            left -= room
            chosen.append(domain)
        return chosen

    def _message(self, fits: int, wanted: int) -> str:
        what = "pod(s)" if self.slice_size == 1 else "slice(s)"
        name = self.forest.topology.name
        if not fits:
            return f'topology "{name}" doesn\'t allow to fit any of {wanted} {what}'
        return f'topology "{name}" allows to fit only {fits} out of {wanted} {what}'
