"""Flavor assignment: which flavor each resource of a workload gets, and what that takes.

The flavors of a resource group are tried in order, from where the last attempt ended. A flavor fits, or would after
preemption, or does not; fungibility says whether to stop at one that would do only by borrowing or preempting. All
resources of a group get the same flavor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from fleetlab.schedulers.kubernetes.config import Requirement, Selector
from fleetlab.schedulers.kueue.candidates import Need
from fleetlab.schedulers.kueue.config import (
    MAY_STOP,
    NEVER,
    PODS,
    TRY_NEXT,
    FlavorFungibility,
    FlavorResource,
    ResourceFlavor,
    ResourceGroup,
)
from fleetlab.schedulers.kueue.preemption import targets_of
from fleetlab.schedulers.kueue.state import Snapshot, reach
from fleetlab.schedulers.kueue.topology import KEEPS_OFF, Placement, TopologyNeed
from fleetlab.schedulers.kueue.workload import KueueWorkload, PodSet

# -- what a flavor assignment says: the flavor of each resource, and what that takes -----------------------------------

Tried = dict[tuple[int, str], int]  # by set and resource, the last flavor tried; -1: all were


class Mode(IntEnum):
    """What an assignment takes, the worst first."""

    NO_FIT = 0
    PREEMPT = 1
    FIT = 2


class Means(IntEnum):
    """How quota is got in one flavor, the worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1  # preemption might help, but there is nobody to preempt
    PREEMPT = 2  # of its own ClusterQueue
    RECLAIM = 3  # of others only
    FIT = 4

    @property
    def mode(self) -> Mode:
        """What it takes, in short."""
        return {Means.NO_FIT: Mode.NO_FIT, Means.FIT: Mode.FIT}.get(self, Mode.PREEMPT)


@dataclass(frozen=True)
class Grade:
    """How good a flavor is: by which means, and from how far away quota is borrowed."""

    means: Means = Means.FIT
    borrowing: int = 0

    def better(self, other: Grade, rule: FlavorFungibility) -> bool:
        """Whether it is preferred to another."""
        if Means.NO_FIT in (self.means, other.means):
            return other.means == Means.NO_FIT != self.means
        if rule.preference == "PreemptionOverBorrowing":
            return (-self.borrowing, self.means) > (-other.borrowing, other.means)
        return (self.means, -self.borrowing) > (other.means, -other.borrowing)

    def ends_search(self, rule: FlavorFungibility) -> bool:
        """Whether no further flavor is tried."""
        if self.means in (Means.NO_FIT, Means.NO_CANDIDATES):
            return False
        if self.means != Means.FIT and rule.when_can_preempt == TRY_NEXT:
            return False
        return self.borrowing == 0 or rule.when_can_borrow == MAY_STOP


@dataclass(frozen=True)
class Choice:
    """The flavor of one resource of a set of pods."""

    flavor: str
    mode: Mode
    borrowing: int


@dataclass
class PodSetAssignment:
    """The flavors of a set of pods; none: it does not fit."""

    name: str
    count: int
    requests: Mapping[str, int]  # of all its pods
    choices: dict[str, Choice] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    @property
    def mode(self) -> Mode:
        """The worst of its resources."""
        if not self.requests:
            return Mode.FIT
        return min((choice.mode for choice in self.choices.values()), default=Mode.NO_FIT)


@dataclass
class Assignment:
    """The flavors of a workload."""

    pod_sets: list[PodSetAssignment] = field(default_factory=list)
    usage: dict[FlavorResource, int] = field(default_factory=dict)
    tried: Tried = field(default_factory=dict)
    mode: Mode = Mode.NO_FIT
    placement: Placement = ()

    @property
    def borrowing(self) -> int:
        """From how far away quota is borrowed; 0: not at all."""
        return max((choice.borrowing for one in self.pod_sets for choice in one.choices.values()), default=0)

    @property
    def short(self) -> frozenset[FlavorResource]:
        """Of what there is too little."""
        return frozenset(
            (choice.flavor, resource)
            for one in self.pod_sets
            for resource, choice in one.choices.items()
            if choice.mode == Mode.PREEMPT
        )

    @property
    def reasons(self) -> list[str]:
        """Why it does not fit at once."""
        return [f"{one.name}: {reason}" for one in self.pod_sets for reason in sorted(one.reasons)]

    @property
    def more_flavors(self) -> bool:
        """Whether flavors are left that this attempt did not try."""
        return any(last >= 0 for last in self.tried.values())


# -- partial admission: the most pods of each set, between its minimum and its count, that can be ----------------------

T = TypeVar("T")


def reduced(pod_sets: Sequence[PodSet], amount: int) -> list[int]:
    """Counts with some pods fewer, off each set in proportion to how many it can do without."""
    spare = [_spare(one) for one in pod_sets]
    total = sum(spare)
    return [one.count - (each * amount // total if total else 0) for one, each in zip(pod_sets, spare, strict=True)]


def most_pods(pod_sets: Sequence[PodSet], fits: Callable[[list[int]], T | None]) -> T | None:
    """What `fits` returns for the most pods for which it returns anything, by halving."""
    total = sum(_spare(one) for one in pod_sets)
    if not total:
        return None
    low, high, best = 0, total + 1, None
    while low < high:
        middle = (low + high) // 2
        found = fits(reduced(pod_sets, middle)) if middle <= total else None
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best if low <= total else None


def _spare(one: PodSet) -> int:
    return one.count - (one.count if one.min_count is None else one.min_count)


@dataclass
class FlavorAssigner:
    """Assigns flavors to one workload."""

    state: Snapshot
    workload: KueueWorkload
    queued: float
    tried: Tried = field(default_factory=dict)  # by the attempt before

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Assign flavors to all sets, or to fewer pods of each."""
        made = Assignment()
        for k, pods in enumerate(self.workload.pod_sets):
            count = pods.count if counts is None else counts[k]
            one = self._pod_set(k, pods, count, made)
            made.pod_sets.append(one)
            for resource, choice in one.choices.items():
                at = (choice.flavor, resource)
                made.usage[at] = made.usage.get(at, 0) + one.requests[resource]
            if one.requests and not one.choices:
                return made
        made.mode = min((one.mode for one in made.pod_sets), default=Mode.NO_FIT)
        if made.mode != Mode.NO_FIT:
            self._place(made)
        return made

    def _pod_set(self, k: int, pods: PodSet, count: int, made: Assignment) -> PodSetAssignment:
        queue = self.state.queue(self.workload.cluster_queue)
        requests = {name: amount * count for name, amount in pods.requests.items()}
        if queue.group_of(PODS) is not None:
            requests[PODS] = count
        requests = {name: amount for name, amount in requests.items() if amount or queue.group_of(name) is not None}
        one = PodSetAssignment(pods.name, count, requests)
        for resource in requests:
            if resource in one.choices:
                continue
            group = queue.group_of(resource)
            if group is None:
                one.choices, one.reasons = {}, [f"resource {resource} unavailable in ClusterQueue"]
                return one
            found, reasons = GroupSearch(self, k, pods, group, made).run(requests, resource)
            if not found:
                one.choices, one.reasons = {}, reasons
                return one
            one.choices |= found
            one.reasons += reasons
        return one

    def _place(self, made: Assignment) -> None:
        """Place pods where flavors have a topology; what fits only in an empty topology takes preemption."""
        needs = topology_needs(self.state, self.workload, made)
        if not needs:
            return
        if made.mode == Mode.FIT:
            result = self.state.forests.place(needs)
            if result.placement is not None:
                made.placement = result.placement
                return
            self._degrade(made, Mode.PREEMPT, result.reason)
        result = self.state.forests.place(needs, empty=True)
        if result.placement is None:
            self._degrade(made, Mode.NO_FIT, result.reason)

    @staticmethod
    def _degrade(made: Assignment, mode: Mode, reason: str) -> None:
        made.mode = mode
        for one in made.pod_sets:
            one.choices = {name: Choice(c.flavor, mode, c.borrowing) for name, c in one.choices.items()}
        made.pod_sets[0].reasons.append(reason)


@dataclass
class GroupSearch:
    """The flavors of one resource group, for one set of pods."""

    assigner: FlavorAssigner
    index: int
    pods: PodSet
    group: ResourceGroup
    made: Assignment

    def run(self, requests: Mapping[str, int], resource: str) -> tuple[dict[str, Choice], list[str]]:
        """Return the choice for each resource of the group, and why it does not fit at once."""
        queue = self.assigner.state.queue(self.assigner.workload.cluster_queue)
        wanted = {name: amount for name, amount in requests.items() if name in self.group.covered}
        names, reasons = list(self.group.flavors), []
        best, choices, last = Grade(Means.NO_FIT), {}, -1
        for last in range(self.assigner.tried.get((self.index, resource), -1) + 1, len(names)):
            why_not = self._mismatch(self.assigner.state.site.flavor(names[last]))
            if why_not:
                reasons.append(why_not)
                continue
            grade, found, why = self._try(names[last], wanted)
            reasons += why
            ends = grade.ends_search(queue.fungibility)
            if ends or grade.better(best, queue.fungibility):
                best, choices = grade, found
            if ends:
                break
        for name in choices:
            self.made.tried[self.index, name] = -1 if last == len(names) - 1 else last
        return choices, [] if best.means == Means.FIT else reasons

    def _try(self, flavor: str, wanted: Mapping[str, int]) -> tuple[Grade, dict[str, Choice], list[str]]:
        rule = self.assigner.state.queue(self.assigner.workload.cluster_queue).fungibility
        worst, found, reasons = Grade(), {}, []
        for name, amount in wanted.items():
            grade, why = self._grade((flavor, name), amount + self.made.usage.get((flavor, name), 0))
            reasons += why
            if worst.better(grade, rule):
                worst = grade
            if worst.means == Means.NO_FIT:
                return worst, {}, reasons
            found[name] = Choice(flavor, grade.means.mode, grade.borrowing)
        return worst, found, reasons

    def _grade(self, at: FlavorResource, amount: int) -> tuple[Grade, list[str]]:
        state, workload = self.assigner.state, self.assigner.workload
        node = state.nodes[workload.cluster_queue]
        if amount > (most := node.potential(at)):
            return Grade(Means.NO_FIT), [f"insufficient quota for {at[1]} in flavor {at[0]}: {amount} > {most}"]
        distance, part_of_tree = reach(node, at, amount)
        free = state.available(workload.cluster_queue, at)
        if amount <= free:
            return Grade(Means.FIT, distance), []
        why = [f"insufficient unused quota for {at[1]} in flavor {at[0]}, {amount - free} more needed"]
        if amount <= node.quota(at).nominal or part_of_tree or self._preempts_while_borrowing():
            return self._simulate(at, amount), why
        return Grade(Means.NO_FIT, distance), why

    def _preempts_while_borrowing(self) -> bool:
        state = self.assigner.state
        policies = state.queue(self.assigner.workload.cluster_queue).preemption
        fair = state.site.fair_sharing.enable and policies.reclaim_within_cohort != NEVER
        return policies.borrows_and_preempts or fair

    def _simulate(self, at: FlavorResource, amount: int) -> Grade:
        """Preempt for one resource, to see whether that is possible and what is borrowed then."""
        state, workload = self.assigner.state, self.assigner.workload
        node = state.nodes[workload.cluster_queue]
        targets = targets_of(state, Need(workload, {at: amount}, frozenset([at]), self.assigner.queued))
        if not targets:
            return Grade(Means.NO_CANDIDATES, reach(node, at, amount)[0])
        with state.without(target.one for target in targets):
            distance = reach(node, at, amount)[0]
        own = any(target.one.workload.cluster_queue == workload.cluster_queue for target in targets)
        return Grade(Means.PREEMPT if own else Means.RECLAIM, distance)

    def _mismatch(self, flavor: ResourceFlavor) -> str:
        """Why the pods cannot use a flavor; empty if they can."""
        site = self.assigner.state.site
        if why := self._topology_mismatch(flavor):
            return why
        tolerated = (*self.pods.tolerations, *flavor.tolerations)
        for taint in flavor.taints:
            if taint.effect in KEEPS_OFF and not any(each.covers(taint) for each in tolerated):
                return f"untolerated taint {taint.key} in flavor {flavor.name}"
        keys = {key for name in self.group.flavors for key in site.flavor(name).labels}
        if not _matches(self.pods, flavor.labels, keys):
            return f"flavor {flavor.name} doesn't match node affinity"
        return ""

    def _topology_mismatch(self, flavor: ResourceFlavor) -> str:
        """Why a flavor is of no use by its topology: pods without a request use one only where there are no others."""
        state, asked = self.assigner.state, self.pods.topology
        if asked is not None and flavor.topology is None:
            return f"flavor {flavor.name} does not support topology-aware scheduling"
        if asked is None and flavor.topology is not None and not self._only_topologies():
            return f"flavor {flavor.name} supports only topology-aware scheduling"
        known = state.forests.by_flavor.get(flavor.name)
        wanted = () if asked is None else (asked.required, asked.preferred, asked.slice_required)
        if known and any(level and level not in known.topology.levels for level in wanted):
            return f"flavor {flavor.name} does not contain the requested level"
        return ""

    def _only_topologies(self) -> bool:
        site, groups = self.assigner.state.site, self.assigner.state.queue(self.assigner.workload.cluster_queue).groups
        return all(site.flavor(name).topology is not None for group in groups for name in group.flavors)


def _matches(pods: PodSet, labels: Mapping[str, str], keys: set[str]) -> bool:
    """Whether labels meet what pods ask of nodes, of which only the labels of flavors are looked at."""
    if not all(one.holds(labels) for one in _about(pods.selector, keys)):
        return False
    terms = [_about(term, keys) for term in pods.required]
    return not terms or any(all(one.holds(labels) for one in term) for term in terms)


def _about(selector: Selector, keys: set[str]) -> list[Requirement]:
    return [one for one in selector.labels if one.key in keys]


def topology_needs(state: Snapshot, workload: KueueWorkload, made: Assignment) -> list[TopologyNeed]:
    """The sets of pods that are placed on a topology."""
    needs = []
    for pods, one in zip(workload.pod_sets, made.pod_sets, strict=False):
        flavors: Iterable[str] = {choice.flavor for choice in one.choices.values()}
        on = next((name for name in sorted(flavors) if name in state.forests.by_flavor), None)
        if on is not None and one.count:
            needs.append(TopologyNeed(on, pods, one.count))
    return needs
