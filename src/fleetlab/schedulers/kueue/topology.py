"""Topology-aware scheduling: the pods of a set in as few, and as close, domains of nodes as possible.

Domains are the values of labels of nodes, from wide to narrow. Where a level is required or preferred, the domain with
the least room that is enough is taken (BestFit); pods that may lie anywhere fill the domains with the least room first
(LeastFreeCapacity). The profile that does both is Kueue's TASProfileMixed, its default since release 0.15.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleetlab.schedulers.kubernetes.config import HOSTNAME, SchedulingNode, Taint
from fleetlab.schedulers.kueue.config import PODS, ResourceFlavor, Topology
from fleetlab.schedulers.kueue.workload import PodSet, TopologyRequest

# -- domains of a topology, and pods that are placed in them -----------------------------------------------------------

MIXED, BEST_FIT, LEAST_FREE = "Mixed", "BestFit", "LeastFreeCapacity"
KEEPS_OFF = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class TopologyNeed:
    """Pods that are to be placed in a flavor."""

    flavor: str
    pod_set: PodSet
    count: int


@dataclass(frozen=True)
class Seats:
    """Pods of a set in one domain."""

    flavor: str
    domain: tuple[str, ...]
    requests: Mapping[str, int]  # of each pod
    count: int


Placement = tuple[Seats, ...]


@dataclass(frozen=True)
class PlacementResult:
    """Where pods go, or why they do not fit."""

    placement: Placement | None
    reason: str = ""


@dataclass(eq=False)
class Domain:
    """A place, with its room while pods are being placed: in pods, and in slices of several."""

    values: tuple[str, ...]
    children: list[Domain] = field(default_factory=list)
    capacity: dict[str, int] = field(default_factory=dict)  # of a narrowest domain
    used: dict[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # of a node
    taints: tuple[Taint, ...] = ()
    pods: int = 0
    slices: int = 0


class DoesNotFit(Exception):
    """Pods cannot be placed; the message says why."""


@dataclass
class Forest:
    """The domains of one flavor."""

    topology: Topology
    flavor: ResourceFlavor
    levels: list[dict[tuple[str, ...], Domain]]

    @classmethod
    def of(cls, topology: Topology, flavor: ResourceFlavor, nodes: Iterable[SchedulingNode]) -> Forest:
        """Build the domains of the nodes that have the flavor's labels, and all labels of the topology."""
        made = cls(topology, flavor, [{} for _ in topology.levels])
        for node in nodes:
            made.count(node)
        return made

    def count(self, node: SchedulingNode, sign: int = 1) -> None:
        """Count a node that takes pods, or (-1) no longer count it; one without the labels never counts."""
        wanted = {**dict.fromkeys(self.topology.levels), **self.flavor.labels}
        if node.cordoned or any(node.labels.get(k) is None or (v and node.labels[k] != v) for k, v in wanted.items()):
            return
        self._add(node, sign)

    @property
    def ends_at_nodes(self) -> bool:
        """Whether the narrowest level is the node."""
        return self.topology.levels[-1] == HOSTNAME

    def domain_of(self, node: SchedulingNode) -> tuple[str, ...]:
        """Return the narrowest domain that a node is in."""
        return tuple(node.labels[key] for key in self.topology.levels)

    def _add(self, node: SchedulingNode, sign: int) -> None:
        values = self.domain_of(node)
        for depth, level in enumerate(self.levels):
            if values[: depth + 1] not in level:
                level[values[: depth + 1]] = Domain(values[: depth + 1])
                if depth:
                    self.levels[depth - 1][values[:depth]].children.append(level[values[: depth + 1]])
        leaf = self.levels[-1][values]
        for name, amount in node.allocatable.items():
            leaf.capacity[name] = leaf.capacity.get(name, 0) + sign * amount
        if self.ends_at_nodes:
            leaf.labels, leaf.taints = node.labels, node.taints


# -- the search for places: which domains, and how many pods in each ---------------------------------------------------


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


@dataclass
class Forests:
    """The domains of all flavors that have a topology."""

    by_flavor: dict[str, Forest] = field(default_factory=dict)
    profile: str = MIXED

    def use(self, placement: Placement, sign: int = 1) -> None:
        """Take the room of pods."""
        for seats in placement:
            leaf = self.by_flavor[seats.flavor].levels[-1].get(seats.domain)
            if leaf is not None:
                for name, amount in {**seats.requests, PODS: 1}.items():
                    leaf.used[name] = leaf.used.get(name, 0) + sign * amount * seats.count

    def release(self, placement: Placement) -> None:
        """Give the room of pods back."""
        self.use(placement, -1)

    def fits(self, placement: Placement) -> bool:
        """Whether there is still room for pods where they were placed."""
        self.use(placement)
        leaves = [self.by_flavor[seats.flavor].levels[-1].get(seats.domain) for seats in placement]
        fits = all(leaf and all(leaf.used[k] <= leaf.capacity.get(k, 0) for k in leaf.used) for leaf in leaves)
        self.release(placement)
        return fits

    def place(self, needs: Sequence[TopologyNeed], *, empty: bool = False) -> PlacementResult:
        """Place all sets of a workload, one after the other; `empty`: as if nobody else were there."""
        placed: list[Seats] = []
        try:
            for need in needs:
                request = need.pod_set.topology or TopologyRequest(unconstrained=True)
                seats = Search.of(self.by_flavor[need.flavor], need, request, self.profile).run(empty=empty)
                if not empty:
                    self.use(seats)
                placed += seats
        except DoesNotFit as e:
            return PlacementResult(None, str(e))
        finally:
            if not empty:
                self.release(tuple(placed))
        return PlacementResult(tuple(placed))
