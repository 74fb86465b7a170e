"""A cycle of KAI: queues with their shares, whose turn it is, and where pods go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np

from fleetlab.schedulers.gangs.board import Board
from fleetlab.schedulers.gangs.pod_groups import Amounts, add, minus
from fleetlab.schedulers.gangs.tasks import Job, Status, Task, Ties, requests_of
from fleetlab.schedulers.kai.config import UNLIMITED, Kai
from fleetlab.schedulers.kai.shares import RESOURCES, QueueState, at_most, charge, line, parts_of, queue_states
from fleetlab.schedulers.kubernetes.config import GPU
from fleetlab.schedulers.kubernetes.state import Ints

# -- Whose turn it is: the order of queues next to each other, and of groups in a queue --------------------------------

Change = tuple[Amounts, Amounts]  # what a queue's next group asks for, and what its victims hold


Rank = tuple[float, ...]


def compare_queues(left: QueueState, right: QueueState, changes: tuple[Change, Change], total: Amounts) -> int:
    """Negative where the left queue comes first: by fair share, quota, priority, and dominant share; then by age."""
    return compare_ranked(left, right, (rank(left, changes[0], total), rank(right, changes[1], total)))


def rank(state: QueueState, change: Change, total: Amounts) -> Rank:
    """What queues are ordered by first, the lowest first, as far as it is of one queue alone."""
    request = change[0]
    return (
        _is_over(state),
        not _is_starved(state, request),
        -state.queue.priority,
        _has_no_share(state, request),
        state.dominant(total, minus(*change)),
        state.dominant(total),
    )


def compare_ranked(left: QueueState, right: QueueState, ranks: tuple[Rank, Rank]) -> int:
    """Negative where the left queue comes first."""
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    if smaller := _smaller_share(left, right):
        return smaller
    mine, yours = (left.queue.created, left.name), (right.queue.created, right.name)
    return -1 if mine < yours else 1


def _is_over(state: QueueState) -> bool:
    """Whether it holds more than its fair share of everything."""
    return all(share.fair < share.allocated for share in state.shares.values())


def _is_starved(state: QueueState, request: Amounts) -> bool:
    """Whether it stays within its quota with its next group."""
    return at_most(add(state.amounts("allocated"), request), state.amounts("deserved"))


def _has_no_share(state: QueueState, request: Amounts) -> bool:
    """Whether it would hold something that it has no share of."""
    allocation: Mapping[str, float] = add(state.amounts("allocated"), request)
    return any(state.shares[name].allocatable == 0 and allocation.get(name, 0) > 0 for name in RESOURCES)


def _smaller_share(left: QueueState, right: QueueState) -> int:
    mine, yours = left.amounts("allocatable"), right.amounts("allocatable")
    if at_most(mine, yours) and not at_most(yours, mine):
        return -1
    return int(at_most(yours, mine) and not at_most(mine, yours))


def turn(job: Job) -> tuple[float, float, str]:
    """The order of groups in a queue: by priority, then by age."""
    return -job.group.priority, job.group.created, job.name


class Session:
    """Queues, groups and nodes in one cycle."""

    def __init__(
        self,
        site: Kai,
        board: Board,
        usage: Mapping[str, Amounts] | None = None,
        draw: np.random.Generator | None = None,
        now: float = 0.0,
    ) -> None:
        self.site, self.board, self.now = site, board, now
        self.total = board.total
        self.queues = queue_states(site, board.sums(parts_of), self.total, usage or {})
        self.jobs = [job for job in board.jobs if job.group.queue in self.queues]
        self._draw = draw
        self._ties = None if draw is None else Ties(draw)
        self.charges = 0  # how often what a queue holds has changed
        board.listeners.append(self._charge)

    def _charge(self, task: Task, sign: int) -> None:
        if task.job.group.queue in self.queues:
            self.charges += 1
            charge(self.queues, task, sign)

    # -- whose turn it is --------------------------------------------------------------------------------------------

    def in_turn(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Groups in the order of their queues, from the top of the tree down; each changes whose turn is next."""
        waiting: dict[str, list[Job]] = {}
        for job in sorted(jobs, key=turn, reverse=True):
            waiting.setdefault(job.group.queue, []).append(job)
        order = QueueOrder(self, lambda one: (waiting[one][-1].next_requests, {}))
        while waiting:
            name = order.first(waiting)
            job = waiting[name].pop()
            order.forget(name)
            if not waiting[name]:
                del waiting[name]
            yield job

    def victims_in_turn(self, jobs: Iterable[Job]) -> Iterator[list[Task]]:
        """What to evict next, of the queue whose turn is last its last group: its extra pods, then all of the gang."""
        remaining: dict[str, list[tuple[Job, list[Task]]]] = {}
        for job in sorted(jobs, key=turn):
            running = sorted(job.those(Status.RUNNING), key=lambda task: (-task.pod.priority, task.pod.name))
            remaining.setdefault(job.group.queue, []).append((job, running))
        taken: dict[str, dict[str, float]] = {name: {} for name in remaining}
        order = QueueOrder(self, lambda one: ({}, taken[one]), sign=-1)
        while remaining:
            name = order.first(remaining)
            job, tasks = remaining[name].pop()
            unit = tasks[-1:] if len(tasks) > job.group.min_member else tasks
            taken[name] = add(taken[name], requests_of(unit))
            order.forget(name)
            if len(unit) < len(tasks):
                remaining[name].append((job, tasks[:-1]))
            if not remaining[name]:
                del remaining[name]
            yield unit

    @cached_property
    def _by_queue(self) -> dict[str, dict[int, list[Job]]]:
        """Groups by queue and priority."""
        found: dict[str, dict[int, list[Job]]] = {}
        for job in self.jobs:
            found.setdefault(job.group.queue, {}).setdefault(job.group.priority, []).append(job)
        return found

    def lower(self, job: Job) -> list[Job]:
        """Groups of the same queue with a lower priority."""
        by_priority = self._by_queue[job.group.queue]
        return [one for priority, those in by_priority.items() if priority < job.group.priority for one in those]

    def movable(self, job: Job) -> list[Job]:
        """Groups that may be moved for one; KAI takes so many of them as they come, which is in no order."""
        found = [one for one in self.jobs if one is not job and may_be_evicted(one)]
        most = self.site.consolidation_preemptees
        if most < 0 or len(found) <= most + 1:  # it stops once it has counted more than that
            return found
        if self._draw is None:
            return found[: most + 1]
        return [found[k] for k in sorted(self._draw.choice(len(found), most + 1, replace=False))]

    # -- bounds ------------------------------------------------------------------------------------------------------

    def is_over_quota(self, job: Job, tasks: Iterable[Task]) -> bool:
        """Whether a queue, or one above it, would be over its quota with what is not preemptible.

        Whoever leaves is preemptible: no victim changes that.
        """
        if job.group.preemptible:
            return False
        request = {n: a for n, a in requests_of(tasks).items() if a and n in RESOURCES}
        return any(
            UNLIMITED != state.shares[name].deserved < state.shares[name].fixed + amount
            for state in line(self.queues, job.group.queue)
            for name, amount in request.items()
        )

    def is_over_capacity(self, job: Job, tasks: Iterable[Task]) -> bool:
        """Whether a queue, or one above it, would be over its limit, or over its quota with what is not preemptible."""
        request = {n: a for n, a in requests_of(tasks).items() if a and n in RESOURCES}
        return any(
            is_over(state, request, fixed=not job.group.preemptible) for state in line(self.queues, job.group.queue)
        )

    # -- nodes -------------------------------------------------------------------------------------------------------

    def place(self, tasks: Iterable[Task], freed: Mapping[str, Ints] | None = None) -> bool:
        """Give each pod a node, the fullest that fits; if one has to wait for others to leave, all of them wait.

        `freed`: what nodes would have free besides, by resource.
        """
        board, placed = self.board, []
        for task in tasks:
            allowed = board.allowed(task)
            nodes = np.flatnonzero(allowed & board.fits_now(task, freed))
            if len(nodes):
                board.bind(task, self._fullest(task, nodes))
            else:
                nodes = np.flatnonzero(allowed & board.fits_with(task, freed or {}))
                if not len(nodes):
                    return False
                board.pipeline(task, self._fullest(task, nodes))
            placed.append(task)
        if any(task.status is Status.PIPELINED for task in placed):
            for task in placed:
                if task.status is Status.BOUND:
                    board.pipeline(task, task.node)
        return True

    def _fullest(self, task: Task, nodes: Ints) -> int:
        """The node it was promised, or the one with the fewest free GPUs, for a pod without any the least free CPU."""
        if task.nominated in nodes:
            return task.nominated
        name = GPU if task.requests.get(GPU) else "cpu"
        cache = self.board.cache
        if name not in cache.allocatable:
            return int(nodes[0])
        free = (cache.allocatable[name] - cache.requested[name])[nodes]
        best = nodes[free == free.min()]
        return int(best[0]) if self._ties is None else self._ties.pick(task, best)


def is_over(state: QueueState, request: Amounts, *, fixed: bool) -> bool:
    """Whether a queue would be over its limit, or with what is not preemptible over its quota."""
    for name, amount in request.items():
        share = state.shares[name]
        if UNLIMITED != share.limit < share.allocated + amount:
            return True
        if fixed and UNLIMITED != share.deserved < share.fixed + amount:
            return True
    return False


def may_be_evicted(job: Job) -> bool:
    """Whether it may, and runs; what was bound a moment ago is left where it is."""
    return job.group.preemptible and bool(job.those(Status.RUNNING)) and not job.those(Status.BOUND)


class QueueOrder:
    """Whose turn it is of queues in a tree, by what their next group changes; what is known is worked out once."""

    def __init__(self, session: Session, change: Callable[[str], Change], sign: int = 1) -> None:
        self._session, self._change, self._sign = session, change, sign
        self._ranks: dict[str, tuple[str, Rank]] = {}
        self._charges = session.charges

    def forget(self, name: str) -> None:
        """Note that another group of a queue is next."""
        for one in (*self._session.queues[name].ancestors, name):
            self._ranks.pop(one, None)

    def first(self, names: Iterable[str]) -> str:
        """The queue whose turn is first, or with a negative sign last."""
        if self._charges != self._session.charges:
            self._charges = self._session.charges
            self._ranks.clear()
        return self._lead(list(names), 0)

    def _lead(self, names: list[str], level: int) -> str:
        """Level by level, each queue by what the queue below it that leads asks."""
        queues = self._session.queues
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault((*queues[name].ancestors, name)[level], []).append(name)
        best, leader = "", ""
        for top, those in groups.items():
            one = those[0] if those == [top] else self._lead(those, level + 1)
            if best:
                ranks = self._rank(top, one), self._rank(best, leader)
            if not best or self._sign * compare_ranked(queues[top], queues[best], ranks) < 0:
                best, leader = top, one
        return leader

    def _rank(self, name: str, leader: str) -> Rank:
        cached = self._ranks.get(name)
        if cached is None or cached[0] != leader:
            cached = leader, rank(self._session.queues[name], self._change(leader), self._session.total)
            self._ranks[name] = cached
        return cached[1]
