"""A cycle of KAI: queues with their shares, whose turn it is, and where pods go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from fleetlab.schedulers.gangs.board import Board
from fleetlab.schedulers.gangs.pod_groups import Amounts, add
from fleetlab.schedulers.gangs.tasks import Job, Status, Task, Ties, requests_of
from fleetlab.schedulers.kai.config import UNLIMITED, Kai
from fleetlab.schedulers.kai.shares import (
    NO_SHARE,
    RESOURCES,
    QueueState,
    at_most,
    charge,
    line,
    parts_of,
    queue_states,
)
from fleetlab.schedulers.kubernetes.config import GPU
from fleetlab.schedulers.kubernetes.state import Ints

# -- Whose turn it is: the order of queues next to each other, and of groups in a queue --------------------------------

Change = tuple[Amounts, Amounts]  # what a queue's next group asks for, and what its victims hold


Rank = tuple[float, ...]
T = TypeVar("T")
Victims = tuple[list[list[Task]], Iterator[list[Task]]]  # as far as they were needed, and those that come next


def compare_queues(left: QueueState, right: QueueState, changes: tuple[Change, Change], total: Amounts) -> int:
    """Negative where the left queue comes first: by fair share, quota, priority, and dominant share; then by age."""
    return compare_ranked(left, right, (rank(left, changes[0], total), rank(right, changes[1], total)))


def rank(state: QueueState, change: Change, total: Amounts) -> Rank:
    """What queues are ordered by first, the lowest first, as far as it is of one queue alone.

    Over its fair share of everything; over its quota with its next group; its priority; whether it would hold
    something that it has no share of; and the largest part of what it may hold that it holds, after and before.
    """
    request, lost = change
    is_over, is_over_quota, has_no_share = True, False, False
    after = before = 0.0
    for name, share in state.shares.items():
        held, asked, allocatable, deserved = share.allocated, request.get(name, 0.0), share.allocatable, share.deserved
        is_over = is_over and share.fair < held
        is_over_quota = is_over_quota or UNLIMITED != deserved < held + asked
        has_no_share = has_no_share or (allocatable == 0 and held + asked > 0)
        most = total.get(name, 0.0) if allocatable == UNLIMITED else allocatable
        left = held + (asked - lost.get(name, 0.0))
        after = max(after, left / most if most else left * NO_SHARE)
        before = max(before, held / most if most else held * NO_SHARE)
    return is_over, is_over_quota, -state.queue.priority, has_no_share, after, before


def compare_ranked(left: QueueState, right: QueueState, ranks: tuple[Rank, Rank]) -> int:
    """Negative where the left queue comes first."""
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    if smaller := _smaller_share(left, right):
        return smaller
    mine, yours = (left.queue.created, left.name), (right.queue.created, right.name)
    return -1 if mine < yours else 1


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
        self._known: dict[object, Any] = {}  # what is worked out once between two decisions that are kept
        self._known_at = 0
        board.listeners.append(self._charge)

    def _charge(self, task: Task, sign: int) -> None:
        if task.job.group.queue in self.queues:
            charge(self.queues, task, sign)

    @property
    def decisions(self) -> int:
        """How many were kept; between two of them all that is tried is taken back, so that nothing changes."""
        return len(self.board.committed)

    def once(self, key: object, work: Callable[[], T]) -> T:
        """Work something out once between two decisions that are kept."""
        if self._known_at != self.decisions:
            self._known_at = self.decisions
            self._known.clear()
        if key not in self._known:
            self._known[key] = work()
        value: T = self._known[key]
        return value

    # -- who may succeed ---------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[Job]:
        """Groups with pods that wait, of which enough are there."""
        return self.once("waiting", self._waiting)

    def _waiting(self) -> list[Job]:
        groups = (job for job in self.board.waiting() if job.group.queue in self.queues)
        return [job for job in groups if job.present >= job.group.min_member]

    def tries(self, jobs: Iterable[Job], may_succeed: Callable[[Job], bool]) -> Iterator[Job]:
        """Groups in turn, until none of the rest may succeed: then it does not matter whose turn it is."""
        rest = dict.fromkeys(jobs)
        order = self.in_turn(rest)
        hopeful, decisions = filter(may_succeed, list(rest)), self.decisions
        while (one := next(hopeful, None)) is not None:
            while one in rest and decisions == self.decisions:
                job = next(order)
                del rest[job]
                yield job
            if decisions != self.decisions:
                hopeful, decisions = filter(may_succeed, list(rest)), self.decisions

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

    def victims_in_turn(self, jobs: Sequence[Job]) -> Iterator[list[Task]]:
        """What to evict next, of the queue whose turn is last its last group: its extra pods, then all of the gang."""
        known: Victims = self.once(("victims", tuple(jobs)), lambda: ([], self._victims(jobs)))
        found, order = known
        yield from found
        while (unit := next(order, None)) is not None:
            found.append(unit)
            yield unit

    def _victims(self, jobs: Iterable[Job]) -> Iterator[list[Task]]:
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

    @property
    def running(self) -> list[Job]:
        """Groups that may be evicted."""
        return self.once("running", lambda: [one for one in self.jobs if may_be_evicted(one)])

    def movable(self, job: Job) -> list[Job]:
        """Groups that may be moved for one; KAI takes so many of them as they come, which is in no order."""
        found = [one for one in self.running if one is not job]
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


class Space:
    """What nodes have free once those that leave have left, and some groups that run; until the next decision."""

    def __init__(self, board: Board, others: Sequence[Job] = ()) -> None:
        self.others, self._board = others, board
        self._gpus = board.free(GPU) + sum(other.allocated.get(GPU, 0) for other in others)
        self._room: dict[int, int] = {}

    @cached_property
    def _freed(self) -> dict[str, Ints]:
        return self._board.sum_on_nodes(task for other in self.others for task in other.those(Status.RUNNING))

    def may_fit(self, job: Job) -> bool:
        """Whether the next pods of a group may fit there."""
        tasks, gpus = job.next_tasks, job.next_requests.get(GPU, 0)
        if gpus and gpus > self._gpus:
            return False
        if job.is_uniform:
            return self._room_of(tasks[0]) >= len(tasks)
        return all(task.pod.spread or self._room_of(task) for task in tasks)  # one that spreads changes what is allowed

    def _room_of(self, task: Task) -> int:
        shape = self._board.shape(task)
        if shape not in self._room:
            self._room[shape] = self._board.room(task, self._freed)
        return self._room[shape]


def may_be_evicted(job: Job) -> bool:
    """Whether it may, and runs; what was bound a moment ago is left where it is."""
    return job.group.preemptible and bool(job.those(Status.RUNNING)) and not job.those(Status.BOUND)


class QueueOrder:
    """Whose turn it is of queues in a tree, by what their next group changes; what is known is worked out once."""

    def __init__(self, session: Session, change: Callable[[str], Change], sign: int = 1) -> None:
        self._session, self._change, self._sign = session, change, sign
        self._ranks: dict[str, tuple[str, Rank]] = {}
        self._decisions = session.decisions

    def forget(self, name: str) -> None:
        """Note that another group of a queue is next."""
        for one in (*self._session.queues[name].ancestors, name):
            self._ranks.pop(one, None)

    def first(self, names: Iterable[str]) -> str:
        """The queue whose turn is first, or with a negative sign last."""
        if self._decisions != self._session.decisions:
            self._decisions = self._session.decisions
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
