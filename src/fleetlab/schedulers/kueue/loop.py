"""Simulate Kueue in time: workloads come, are admitted, run, are preempted and come again, and end.

A cycle takes no time. A preempted workload keeps its quota until its pods are gone, `grace` seconds later, then waits
again in its old place, by when it was created: Kueue backs off after pods that never became ready, not after
preemption. It runs from the beginning again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fleetlab.core.catalog.reasons import MOST_EVICTIONS
from fleetlab.core.progress import Progress, silent
from fleetlab.schedulers.kubernetes.config import SchedulingNode
from fleetlab.schedulers.kueue.config import Amounts, Kueue
from fleetlab.schedulers.kueue.cycle import Cycle, Head, Nominations, Status
from fleetlab.schedulers.kueue.queue import PendingQueue
from fleetlab.schedulers.kueue.state import Admitted, Snapshot
from fleetlab.schedulers.kueue.topology import MIXED, Forest, Forests, Placement
from fleetlab.schedulers.kueue.workload import KueueWorkload
from fleetlab.sim.kernel.events import EventQueue
from fleetlab.sim.kernel.run_log import RunLog, Stay
from fleetlab.sim.kernel.work import Checkpoints, JobWork

NODE, END, GONE, REPLACED, CHECKED, ARRIVE = range(6)  # at one moment workloads leave before others come
REPORT = 200  # ends between two reports of progress


@dataclass(frozen=True)
class KueueSite:
    """A cluster's Kueue; `nodes` are looked at only by flavors with a topology."""

    kueue: Kueue
    nodes: Sequence[SchedulingNode] = ()
    grace: float = 30.0  # what a preempted workload takes to leave
    check_seconds: Mapping[str, float] = field(default_factory=dict)  # what an AdmissionCheck takes, by its name
    profile: str = MIXED

    def forests(self) -> Forests:
        """The topologies with all nodes empty."""
        flavors = [flavor for flavor in self.kueue.flavors.values() if flavor.topology in self.kueue.topologies]
        made = {one.name: Forest.of(self.kueue.topologies[one.topology or ""], one, self.nodes) for one in flavors}
        return Forests(made, self.profile)


@dataclass
class WorkloadRun:
    """A time in which a workload held quota."""

    workload: int
    admitted: float
    begin: float  # of its pods; infinity: they never began
    end: float
    count: int  # pods
    usage: Amounts = field(default_factory=dict)
    placement: Placement = ()
    preempted: bool = False
    failed: bool = False  # a node failed, which its topology assignment names
    stretch: float = 1.0  # how many times as long it takes, with fewer pods than it asks for


@dataclass
class KueuePlayed:
    """What became of each workload: infinity where it never began or ended."""

    start: list[float]
    end: list[float]
    evictions: list[int]
    runs: list[WorkloadRun] = field(default_factory=list)
    withdrawn: set[int] = field(default_factory=set)  # workloads that others preempt without end
    cycles: int = 0


def play(
    site: KueueSite, workloads: Sequence[KueueWorkload], submit: Sequence[float], run: Sequence[float], seed: int
) -> KueuePlayed:
    """Simulate workloads with given submission and run times; the seed orders those that are equal."""
    return Loop(site, workloads, run, seed).play(submit)


class Loop:
    """The state of a simulation."""

    def __init__(
        self, site: KueueSite, workloads: Sequence[KueueWorkload], run: Sequence[float], seed: int = 0,
        rules: Checkpoints | None = None,
    ) -> None:  # fmt: skip
        uids = np.random.default_rng(seed).permutation(len(workloads))
        self.site, self.rules = site, rules or Checkpoints()
        self.work = [JobWork(seconds) for seconds in run]
        self.workloads = [replace(one, uid=f"{uid:012d}") for one, uid in zip(workloads, uids, strict=True)]
        self.number = {one.name: k for k, one in enumerate(workloads)}
        self.state = Snapshot.of(site.kueue, forests=site.forests())
        self.queues = {name: PendingQueue(queue) for name, queue in site.kueue.cluster_queues.items()}
        self.events, self.log = EventQueue(), RunLog()  # the tag of an event: how often it was evicted before
        self.now, self._open = 0.0, 0  # workloads that have not ended
        self.holding: dict[int, tuple[Admitted, WorkloadRun]] = {}
        never = [math.inf] * len(workloads)
        self.played = KueuePlayed(never.copy(), never.copy(), [0] * len(workloads))
        self._known: Nominations = {}

    def play(self, submit: Sequence[float], until: float = math.inf, progress: Progress = silent) -> KueuePlayed:
        """Run until nothing can change any more, or until a moment."""
        self.events = EventQueue([*((at, ARRIVE, k, 0) for k, at in enumerate(submit)), *self.strokes()])
        self._open = count = sum(at < math.inf for at in submit)
        reported = 0
        while self._open and self.events and self.events.next_time <= until:
            self.now = self.events.next_time
            for kind, k, evictions in self.events.pop_until(self.now):
                if kind in (NODE, REPLACED):
                    self.apply_event(kind, k)
                elif evictions == self.played.evictions[k]:  # else it is of a run that was cut short
                    self._happen(kind, k)
            self._schedule()
            if count - self._open >= reported + REPORT:
                reported = count - self._open
                progress("simulating workloads", reported, reported / len(submit))
        return self.played

    def _at(self, time: float, kind: int, k: int) -> None:
        self.events.push(time, kind, k, self.played.evictions[k])

    def strokes(self) -> list[tuple[float, int, int, int]]:
        """Return the events of nodes: none here."""
        return []

    def apply_event(self, kind: int, number: int) -> None:
        """Let an event of nodes happen: there is none here."""

    # -- what happens -----------------------------------------------------------------------------------------------

    def _happen(self, kind: int, k: int) -> None:
        if kind == ARRIVE:
            one = replace(self.workloads[k], created=self.now)
            self.workloads[k] = one
            self.queues[one.cluster_queue].push(Head(one, self.now))
        elif kind == CHECKED and k in self.holding and not self.holding[k][0].evicted:
            self.begin(k)
        elif kind == END and k in self.holding and self.holding[k][1].end == self.now:
            self.played.end[k] = self.now
            self.work[k].finish(self.rules)
            self.log.end(k, self.now)
            self._open -= 1
            self._give_back(k)
        elif kind == GONE and k in self.holding and self.holding[k][1].end == self.now:
            self.played.evictions[k] += 1
            self.work[k].preemptions += not self.holding[k][1].failed
            if self.log.running(k):
                self.interrupt(k, saved=self.rules.on_signal and self.grace(k) >= self.rules.save)
            self._give_back(k)
            if self.work[k].preemptions >= MOST_EVICTIONS:
                self.played.withdrawn.add(k)
                self._open -= 1
                return
            self.queues[self.workloads[k].cluster_queue].push(Head(self.workloads[k], self.workloads[k].created))

    def begin(self, k: int, stays: Sequence[Stay] = ()) -> None:
        """Begin the pods of a workload that is admitted, or those that a failed node had: all run on."""
        _, run = self.holding[k]
        length = self.work[k].begin(self.now, self.rules)
        seconds = self.seconds(k, length, run.stretch)
        if run.stretch != 1.0:
            self.work[k].speed = length / seconds
        run.begin, run.end = min(run.begin, self.now), self.now + seconds
        self.log.begin(k, self.now, stays)
        self.played.start[k] = min(self.played.start[k], self.now)
        self._at(run.end, END, k)

    def interrupt(self, k: int, *, saved: bool) -> None:
        """End a run early."""
        self.work[k].interrupt(self.now, self.rules, saved=saved)
        self.log.end(k, self.now)

    def seconds(self, k: int, length: float, stretch: float) -> float:
        """How long a workload runs that takes so many times as long as with all its pods."""
        return length * stretch

    def grace(self, _: int) -> float:
        """How long a workload takes to leave."""
        return self.site.grace

    def left(self, k: int) -> None:
        """Follow what a workload leaves behind: nothing here."""

    def _give_back(self, k: int) -> None:
        one, _ = self.holding.pop(k)
        self.state.remove(one)
        self.left(k)
        name = self.workloads[k].cluster_queue
        self.queues[name].forget_flavors()
        node = self.state.nodes[name]
        mine = [node] if node.parent is None else node.root.queues()
        # Quota is given back in one tree, room in a topology to every queue that has the flavor.
        for each in self.queues if one.placement else [node.name for node in mine]:
            self.queues[each].retry()
        self._known = {}

    # -- cycles -----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Run cycles until one changes nothing, and none that comes after it would."""
        seen: set[tuple[object, ...]] = set()
        while True:
            heads = [head for queue in self.queues.values() if (head := queue.head()) is not None]
            looks = tuple((head.workload.name, tuple(head.tried.items())) for head in heads)
            if not heads or looks in seen:
                return
            seen.add(looks)
            if self._cycle(heads):
                seen = set()
                self._known = {}

    def _cycle(self, heads: list[Head]) -> bool:
        """Run one cycle; return whether quota was given or taken."""
        self.played.cycles += 1
        changed = False
        active = [head for head in heads if self.queues[head.workload.cluster_queue].queue.stop_policy == "None"]
        for entry in Cycle(self.state, self.now, self._known).run(active):
            self.queues[entry.queue].decided(entry)
            k = self.number[entry.head.workload.name]
            if entry.status == Status.ADMITTED:
                self._admit(k, [one.count for one in entry.assignment.pod_sets])
                changed = True
            elif entry.status == Status.PREEMPTING:
                asked = [self._evict(target.one) for target in entry.targets]
                changed |= any(asked)
        return changed

    def _admit(self, k: int, counts: list[int]) -> None:
        one = self.state.admitted[self.workloads[k].cluster_queue][self.workloads[k].name]
        run = WorkloadRun(k, self.now, math.inf, math.inf, sum(counts), one.usage, one.placement)
        run.stretch = max(of.stretch(n) for of, n in zip(one.workload.pod_sets, counts, strict=True))
        self.holding[k] = (one, run)
        self.played.runs.append(run)
        checks = self.state.queue(self.workloads[k].cluster_queue).admission_checks
        wait = max((self.site.check_seconds.get(name, 0.0) for name in checks), default=0.0)
        if wait > 0:
            self._at(self.now + wait, CHECKED, k)
        else:
            self.begin(k)

    def _evict(self, one: Admitted) -> bool:
        """Ask a workload to go; return whether it was not asked before."""
        k = self.number[one.name]
        run = self.holding[k][1]
        if run.preempted:
            return False
        run.preempted = True
        leaves = self.now + self.grace(k)
        if leaves < run.end:  # one that ends before is not cut short
            run.end = leaves
            self._at(leaves, GONE, k)
        return True
