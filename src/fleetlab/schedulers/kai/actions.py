"""The actions of a cycle: allocate, consolidation, reclaim and preempt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fleetlab.schedulers.gangs.pod_groups import Amounts, add, minus, wanted
from fleetlab.schedulers.gangs.tasks import Job, Status, UnschedulableCache
from fleetlab.schedulers.kai.config import UNLIMITED, Kai, KaiQueue
from fleetlab.schedulers.kai.session import Session, Space
from fleetlab.schedulers.kai.shares import RESOURCES, QueueState, at_most, line
from fleetlab.schedulers.kai.solver import NobodyLoses, Outcome, solve
from fleetlab.schedulers.kubernetes.config import GPU

# -- how long a group runs before others may take its place: KAI's plugin minruntime, against groups -------------------
# Within a queue the first of it and the queues above that sets preemptMinRuntime counts. Between queues it is that of
# the lost group's queue just below where the two part, or of the first above that sets reclaimMinRuntime.


class MinRuntime:
    """The least run times of a site."""

    def __init__(self, site: Kai) -> None:
        self._site = site
        self._queues: Mapping[str, KaiQueue] = {queue.name: queue for queue in site.queues}
        self._known: dict[tuple[str, str], float] = {}

    @cached_property
    def longest(self) -> tuple[float, ...]:
        """All that are set: when one of them is over, a decision may change."""
        own = [one for queue in self._site.queues for one in (queue.preempt_min_runtime, queue.reclaim_min_runtime)]
        times = {self._site.preempt_min_runtime, self._site.reclaim_min_runtime, *(one for one in own if one)}
        return tuple(sorted(one for one in times if one))

    def against(self, taker: str, giver: str) -> float:
        """Seconds that groups of one queue run before those of another, or of the same, may take their place."""
        if (taker, giver) not in self._known:
            self._known[taker, giver] = self._against(taker, giver)
        return self._known[taker, giver]

    def _against(self, taker: str, giver: str) -> float:
        path = self._path(giver)
        if taker == giver:
            set_ = (self._queues[name].preempt_min_runtime for name in reversed(path))
            return next((one for one in set_ if one is not None), self._site.preempt_min_runtime)
        other = self._path(taker)
        common = next((k for k, pair in enumerate(zip(path, other, strict=False)) if pair[0] != pair[1]), len(other))
        reach = path[: common + 1]
        set_ = (self._queues[name].reclaim_min_runtime for name in reversed(reach))
        return next((one for one in set_ if one is not None), self._site.reclaim_min_runtime)

    def _path(self, name: str) -> list[str]:
        path = [name]
        while above := self._queues[path[0]].parent:
            path.insert(0, above)
        return path

    def protects(self, one: Job, taker: str, now: float) -> bool:
        """Whether a group has not run long enough yet."""
        return now < one.started + self.against(taker, one.group.queue)

    def candidates(self, those: Iterable[Job], taker: str, now: float) -> list[Job]:
        """Groups that may be asked; one with more pods than it needs may lose those at any time."""
        if not self.longest:
            return list(those)
        return [one for one in those if _is_elastic(one) or not self.protects(one, taker, now)]

    def allows(self, outcome: Outcome, taker: str, now: float) -> bool:
        """Whether groups that have not run long enough keep the pods they need."""
        elastic = {task.job for task in outcome.victims if _is_elastic(task.job)}
        return all(
            len(one.those(Status.RUNNING)) >= one.group.min_member for one in elastic if self.protects(one, taker, now)
        )


def _is_elastic(job: Job) -> bool:
    return len(job.group.pods) > job.group.min_member


# -- when a queue may take from another: below its fair share, from those over theirs, and never past ------------------

States = Mapping[str, QueueState]


def can_reclaim(states: States, queue: str, request: Amounts, *, preemptible: bool) -> bool:
    """Return whether a queue stays within its fair share, and with a group that is not preemptible within its quota."""
    for name, share in states[queue].shares.items():
        asked = request.get(name, 0.0)
        if UNLIMITED != share.fair < share.allocated + asked:
            return False
        if not preemptible and UNLIMITED != share.deserved < share.fixed + asked:
            return False
    return True


def fits_strategy(request: Amounts, taker: QueueState, giver: QueueState, remaining: Amounts) -> bool:
    """Return whether a queue may lose: it is over its share, or it is over its quota and the other within its own."""
    if not at_most(remaining, giver.amounts("allocatable")):
        return True
    after = add(taker.amounts("allocated"), request)
    return at_most(after, taker.amounts("deserved")) and not at_most(remaining, giver.amounts("deserved"))


def may_lose(states: States, queue: str, request: Amounts, loser: str) -> bool:
    """Return whether a queue may lose anything to another; what it has lost before only makes that harder."""
    taker, giver = _side_by_side(states, queue, loser)
    return fits_strategy(request, taker, giver, giver.amounts("allocated"))


def may_reclaim(
    states: States, queue: str, request: Amounts, losses: Mapping[str, Sequence[Amounts]], rule: tuple[bool, float]
) -> bool:
    """Return whether a group of a queue may take what others lose; `rule` is (preemptible, saturation multiplier)."""
    remaining: dict[str, dict[str, float]] = {}
    involved: dict[str, set[str]] = {}
    for loser, lost in losses.items():
        taker, giver = _side_by_side(states, queue, loser)
        names = {name for one in lost for name in wanted(one) if name in RESOURCES}
        for one in lost:
            now = remaining.setdefault(giver.name, giver.amounts("allocated"))
            if not fits_strategy(request, taker, giver, now):
                return False
            for state in line(states, loser):
                before = remaining.get(state.name) or state.amounts("allocated")
                remaining[state.name] = minus(before, {n: a for n, a in one.items() if n in RESOURCES})
                involved.setdefault(state.name, set()).update(names)
    return _stays_in_bounds(states, queue, request, (remaining, involved), rule)


def _stays_in_bounds(
    states: States,
    queue: str,
    request: Amounts,
    lost: tuple[dict[str, dict[str, float]], dict[str, set[str]]],
    rule: tuple[bool, float],
) -> bool:
    """Whether, on each level, the taker's part of its fair share stays below that of those that lost."""
    remaining, involved = lost
    preemptible, multiplier = rule
    mine = {name for name in wanted(request) if name in RESOURCES}
    for state in reversed(line(states, queue)):
        allocation = add(remaining.get(state.name) or state.amounts("allocated"), request)
        for name in remaining:
            other = states[name]
            if other.queue.parent == state.queue.parent and name != state.name:
                names = involved[name] | mine
                if not _is_less_saturated(names, (allocation, state), (remaining[name], other), multiplier):
                    return False
        if not preemptible and not at_most(add(state.amounts("fixed"), request), state.amounts("deserved")):
            return False
    return True


def _is_less_saturated(
    names: set[str], mine: tuple[Amounts, QueueState], theirs: tuple[Amounts, QueueState], multiplier: float
) -> bool:
    for name in names:
        fair, other = mine[1].shares[name].fair, theirs[1].shares[name].fair
        if fair == other == UNLIMITED:
            continue
        ratio = saturation(mine[0].get(name, 0.0), fair)
        if ratio > 1 and other > 0 and ratio * multiplier >= saturation(theirs[0].get(name, 0.0), other):
            return False
    return True


def saturation(allocated: float, fair: float) -> float:
    """What is held as a part of the fair share."""
    if fair == UNLIMITED:
        return 0.0
    if fair == 0:
        return math.inf if allocated > 0 else 0.0
    return allocated / fair


def _side_by_side(states: States, one: str, other: str) -> tuple[QueueState, QueueState]:
    """The queues above two queues, or they themselves, that first differ."""
    pair = states[one], states[other]
    for pair in zip(line(states, one), line(states, other), strict=False):
        if pair[0] is not pair[1]:
            break
    return pair


def cycle(session: Session) -> None:
    """Run all actions; what they decide is on the board."""
    for action in session.site.actions:
        if action in ACTIONS:
            ACTIONS[action](session)


def allocate(session: Session) -> None:
    """Place groups on what is free; one that runs gets its further pods one by one."""
    again, unschedulable = session.waiting, UnschedulableCache()

    def may_succeed(job: Job) -> bool:
        space = session.once("space", lambda: Space(session.board))
        return space.may_fit(job) and not session.is_over_capacity(job, job.next_tasks)

    while again:
        done = [job for job in session.tries(again, may_succeed) if _allocate(session, job, unschedulable)]
        again = [job for job in done if job.pending]


def _allocate(session: Session, job: Job, unschedulable: UnschedulableCache) -> bool:
    if job in unschedulable:
        return False
    tasks, mark = job.next_tasks, session.board.mark()
    if not session.is_over_capacity(job, tasks) and session.place(tasks):
        session.board.commit(mark)
        return True
    session.board.discard(mark)
    unschedulable.add(job)
    return False


def consolidation(session: Session) -> None:
    """Move preemptible groups to other nodes, so that one that waits fits; nobody loses its place."""
    if not session.site.consolidation_preemptees:
        return
    unschedulable = UnschedulableCache()
    waiting = [job for job in session.waiting if job.group.preemptible]
    for job in session.tries(waiting, lambda job: _is_enough(session, job)):  # each of these draws whom it may move
        is_possible = job not in unschedulable and _is_enough(session, job)
        if is_possible and not solve(session, job, Space(session.board, session.movable(job)), NobodyLoses()):
            unschedulable.add(job)


def _is_enough(session: Session, job: Job) -> bool:
    """Whether all nodes together have the GPUs free that a group needs next."""
    cache, request = session.board.cache, job.next_requests.get(GPU, 0)
    if not request or GPU not in cache.allocatable:
        return not request
    coming = session.board.coming.get(GPU)
    free = int((cache.allocatable[GPU] - cache.requested[GPU]).sum())
    return request <= free + (0 if coming is None else int(coming.sum()))


def reclaim(session: Session) -> None:
    """Take for groups within their queue's fair share from queues over theirs."""
    unschedulable, least = UnschedulableCache(), MinRuntime(session.site)

    def is_allowed(job: Job) -> bool:
        return can_reclaim(session.queues, job.group.queue, job.next_requests, preemptible=job.group.preemptible)

    def without_others(job: Job) -> Space:
        queue = job.group.queue
        others = (one for one in session.running if one.group.queue != queue)
        return session.once(
            ("others", queue), lambda: Space(session.board, least.candidates(others, queue, session.now))
        )

    for job in session.tries(session.waiting, lambda job: is_allowed(job) and without_others(job).may_fit(job)):
        if job not in unschedulable and is_allowed(job):
            space = without_others(job)
            if not space.others or not solve(session, job, space, Reclaims(session, least, job)):
                unschedulable.add(job)


def preempt(session: Session) -> None:
    """Take for a group from groups of its own queue with a lower priority."""
    unschedulable, least = UnschedulableCache(), MinRuntime(session.site)

    def without_lower(job: Job) -> Space:
        queue, priority = job.group.queue, job.group.priority
        others = (one for one in session.running if one.group.queue == queue and one.group.priority < priority)
        return session.once(
            ("lower", queue, priority), lambda: Space(session.board, least.candidates(others, queue, session.now))
        )

    def may_succeed(job: Job) -> bool:
        return without_lower(job).may_fit(job) and not session.is_over_quota(job, job.next_tasks)

    for job in session.tries(session.waiting, may_succeed):
        if job not in unschedulable and not session.is_over_quota(job, job.next_tasks):
            space = without_lower(job)
            if space.others and not solve(session, job, space, Preempts(session, least, job)):
                unschedulable.add(job)


@dataclass(frozen=True)
class Preempts:
    """What preempt allows a group: to take all from those that have run long enough."""

    session: Session
    least: MinRuntime
    job: Job

    def may_lose(self, states: Mapping[str, QueueState], request: Amounts, queue: str) -> bool:
        """Return that its own queue may."""
        return True

    def allows(self, outcome: Outcome) -> bool:
        """Return whether those that have not run long enough keep what they need."""
        return self.least.allows(outcome, self.job.group.queue, self.session.now)


class Reclaims(Preempts):
    """What reclaim allows a group: as preempt, from queues that may lose."""

    def may_lose(self, states: Mapping[str, QueueState], request: Amounts, queue: str) -> bool:
        """Return whether a queue is over its share, or over its quota and that of the group is not."""
        return may_lose(states, self.job.group.queue, request, queue)

    def allows(self, outcome: Outcome) -> bool:
        """Return whether all that lose may, and the group's queue is not better off than they are."""
        if not super().allows(outcome):
            return False
        losses = outcome.losses(moved_too=not self.session.site.consolidating_reclaim)
        rule = (self.job.group.preemptible, self.session.site.saturation_multiplier)
        return may_reclaim(outcome.states, self.job.group.queue, outcome.request, losses, rule)


ACTIONS: dict[str, Callable[[Session], None]] = {
    "allocate": allocate,
    "consolidation": consolidation,
    "reclaim": reclaim,
    "preempt": preempt,
}
