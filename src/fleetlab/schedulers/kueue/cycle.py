"""A scheduling cycle: the heads of all ClusterQueues, each with its flavors, one after the other in a fair order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from fleetlab.schedulers.kueue.candidates import Need
from fleetlab.schedulers.kueue.config import ANY, FlavorResource
from fleetlab.schedulers.kueue.fair import share
from fleetlab.schedulers.kueue.flavors import Assignment, FlavorAssigner, Mode, Tried, most_pods, topology_needs
from fleetlab.schedulers.kueue.preemption import Target, targets_of
from fleetlab.schedulers.kueue.state import Admitted, QuotaNode, Snapshot
from fleetlab.schedulers.kueue.topology import Placement
from fleetlab.schedulers.kueue.workload import KueueWorkload


class Status(Enum):
    """What became of a head."""

    ADMITTED = "admitted"
    PREEMPTING = "waits for those it preempts"
    SKIPPED = "would fit, but another of this cycle came first"
    INADMISSIBLE = "does not fit"


@dataclass
class Head:
    """The first workload of a ClusterQueue."""

    workload: KueueWorkload
    queued: float
    tried: Tried = field(default_factory=dict)


@dataclass
class Entry:
    """A head with its assignment and, after the cycle, what became of it."""

    head: Head
    assignment: Assignment
    targets: list[Target]
    status: Status = Status.INADMISSIBLE
    reasons: list[str] = field(default_factory=list)

    @property
    def queue(self) -> str:
        """The ClusterQueue."""
        return self.head.workload.cluster_queue

    @property
    def order(self) -> tuple[int, float, str]:
        """Higher priority first, then who has waited longest."""
        return (-self.head.workload.priority, self.head.queued, self.head.workload.tie)


Nominations = dict[tuple[object, ...], tuple[Assignment, list[Target]]]


@dataclass
class Cycle:
    """One cycle; admissions and evictions change the state, what is only reserved is given back at the end."""

    state: Snapshot
    now: float
    known: Nominations = field(default_factory=dict)  # what was found before in the same state
    preempted: dict[str, Admitted] = field(default_factory=dict)
    _reserved: list[tuple[str, dict[FlavorResource, int], Placement]] = field(default_factory=list)

    def run(self, heads: Sequence[Head]) -> list[Entry]:
        """Decide on each head; return them in the order in which they were decided on."""
        entries = [self.nominate(head) for head in heads if self._is_active(head)]
        decided = []
        for entry in self._ordered(entries):
            self._decide(entry)
            decided.append(entry)
        for queue, amounts, placement in self._reserved:
            self.state.release(queue, amounts)
            self.state.forests.release(placement)
        return decided

    def _is_active(self, head: Head) -> bool:
        return self.state.queue(head.workload.cluster_queue).stop_policy == "None"

    def nominate(self, head: Head) -> Entry:
        """Find flavors and whom to preempt, for all pods or else for fewer; what is alike is found once."""
        one = head.workload
        newer = self.state.queue(one.cluster_queue).preemption.depends_on_time
        alike = (one.cluster_queue, one.shape, one.priority, tuple(head.tried.items()), newer and head.queued)
        if alike not in self.known:
            found = self._nominate(head)
            self.known[alike] = (found.assignment, found.targets)
        assignment, targets = self.known[alike]
        return Entry(head, assignment, targets, reasons=assignment.reasons)

    def _nominate(self, head: Head) -> Entry:
        assigner = FlavorAssigner(self.state, head.workload, head.queued, head.tried)
        whole = assigner.assign()
        entry = self._with_targets(head, whole)
        if entry is None and head.workload.shrinks:
            entry = most_pods(head.workload.pod_sets, lambda counts: self._with_targets(head, assigner.assign(counts)))
        if entry is None and whole.mode == Mode.PREEMPT:
            needs = topology_needs(self.state, head.workload, whole)
            whole.placement = self.state.forests.place(needs, empty=True).placement or ()
        return entry or Entry(head, whole, [])

    def _with_targets(self, head: Head, made: Assignment) -> Entry | None:
        """The assignment if it fits, at once or by preemption."""
        if made.mode == Mode.FIT:
            return Entry(head, made, [])
        if made.mode == Mode.NO_FIT:
            return None
        needs = topology_needs(self.state, head.workload, made)
        targets = targets_of(self.state, Need(head.workload, made.usage, made.short, head.queued), needs)
        if not targets:
            return None
        with self.state.without(target.one for target in targets):
            made.placement = self.state.forests.place(needs).placement or ()
        return Entry(head, made, targets)

    # -- order ------------------------------------------------------------------------------------------------------

    def _ordered(self, entries: list[Entry]) -> Iterator[Entry]:
        if not self.state.site.fair_sharing.enable:
            yield from sorted(entries, key=lambda each: (each.assignment.borrowing, *each.order))
            return
        waiting = {entry.queue: entry for entry in entries}
        while waiting:
            root = self.state.nodes[next(iter(waiting))].root
            winner = self._tournament(root, waiting)
            assert winner is not None
            del waiting[winner.queue]
            yield winner

    def _tournament(self, node: QuotaNode, waiting: dict[str, Entry]) -> Entry | None:
        """Of each cohort's children, the one whose share is smallest with its workload admitted."""
        if node.is_queue:
            return waiting.get(node.name)
        contenders = [(child, best) for child in node.children if (best := self._tournament(child, waiting))]
        if not contenders:
            return None
        return min(contenders, key=lambda each: (self._share_with(*each), *each[1].order))[1]

    def _share_with(self, child: QuotaNode, entry: Entry) -> tuple[bool, float]:
        self.state.use(entry.queue, entry.assignment.usage)
        key = share(child).key
        self.state.release(entry.queue, entry.assignment.usage)
        return key

    # -- decision ---------------------------------------------------------------------------------------------------

    def _decide(self, entry: Entry) -> None:
        made = entry.assignment
        if made.mode == Mode.NO_FIT:
            return
        if made.mode == Mode.PREEMPT and not entry.targets:
            if self.state.queue(entry.queue).preemption.reclaim_within_cohort != ANY:
                self._reserve(entry, self._to_reserve(entry))
            return
        if any(target.one.name in self.preempted for target in entry.targets):
            entry.status, entry.reasons = Status.SKIPPED, ["another workload of this cycle preempts the same"]
            return
        if not self._still_fits(entry):
            entry.status, entry.reasons = Status.SKIPPED, ["no longer fits after another workload of this cycle"]
            return
        if made.mode == Mode.FIT:
            admitted = Admitted(entry.head.workload, made.usage, self.now, entry.head.queued, placement=made.placement)
            self.state.add(admitted)
            entry.status = Status.ADMITTED
            return
        for target in entry.targets:
            self.preempted[target.one.name] = target.one
            target.one.evicted = True
        self._reserve(entry, made.usage)
        entry.status = Status.PREEMPTING

    def _still_fits(self, entry: Entry) -> bool:
        gone = {**self.preempted, **{target.one.name: target.one for target in entry.targets}}
        made = entry.assignment
        with self.state.without(gone.values()):
            return self.state.fits(entry.queue, made.usage) and self.state.forests.fits(made.placement)

    def _reserve(self, entry: Entry, amounts: dict[FlavorResource, int]) -> None:
        self.state.use(entry.queue, amounts)
        self.state.forests.use(entry.assignment.placement)
        self._reserved.append((entry.queue, amounts, entry.assignment.placement))

    def _to_reserve(self, entry: Entry) -> dict[FlavorResource, int]:
        """What a workload keeps from others while it waits: up to its borrowing limit, or its nominal quota."""
        node, kept = self.state.nodes[entry.queue], {}
        for at, amount in entry.assignment.usage.items():
            quota, used = node.quota(at), node.usage[at]
            if not entry.assignment.borrowing:
                kept[at] = max(0, min(amount, quota.nominal - used))
            elif quota.borrowing_limit is None:
                kept[at] = amount
            else:
                kept[at] = min(amount, quota.nominal + quota.borrowing_limit - used)
        return kept
