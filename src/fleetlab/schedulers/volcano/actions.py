"""The actions of a cycle, in the order a site configures them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from fleetlab.schedulers.gangs.tasks import Job, Status, Task, UnschedulableCache, requests_of
from fleetlab.schedulers.kubernetes.state import Bools
from fleetlab.schedulers.volcano.orders import (
    first_queue,
    sorted_jobs,
    sorted_queues,
    sorted_tasks,
    sorted_victims,
    turn,
)
from fleetlab.schedulers.volcano.session import Session


def cycle(session: Session) -> None:
    """Run all actions; what they decide is on the board."""
    for action in session.site.actions:
        if action in ACTIONS:
            ACTIONS[action](session)


# -- enqueue and allocate ----------------------------------------------------------------------------------------------


def enqueue(session: Session) -> None:
    """Admit groups, one of each queue in turn."""
    waiting = Turns(session, (job for job in session.jobs if not job.admitted))
    by_age = session.site.plugin("sla") is not None
    rejected: set[object] = set()  # groups with these requests do not fit: admitted resources only grow
    while name := waiting.queue():
        job = waiting.pop(name)
        least = job.group.min_resources
        kind = (name, *sorted((least or {}).items()))
        if least is None or ((by_age or kind not in rejected) and session.admits(job)):
            session.admit(job)
        else:
            rejected.add(kind)


def allocate(session: Session) -> None:
    """Place groups, one of each queue in turn; one that is complete and has more pods gets its next turn later."""
    if "enqueue" not in session.site.actions:
        for job in session.jobs:
            if not job.admitted:
                session.board.admit(job)
    waiting = Turns(session, (job for job in _eligible(session) if _pending(job)))
    held_up: dict[str, int] = {}
    unschedulable = UnschedulableCache()
    while name := waiting.queue():
        if session.is_overused(name):
            waiting.drop(name)
            continue
        job = waiting.pop(name)
        if _is_held_up(session, job, held_up):
            continue
        if job in unschedulable or not _place(session, job):
            unschedulable.add(job)
            held_up[name] = max(held_up.get(name, job.group.priority), job.group.priority)
        elif _pending(job) and session.is_ready(job) and job.ready > 0 and _still_fits(session, job):
            waiting.push(job)


def _is_held_up(session: Session, job: Job, held_up: dict[str, int]) -> bool:
    """Whether an earlier group of its queue that did not fit keeps it waiting."""
    strategy, bound = session.queues[job.group.queue].queue.dequeue, held_up.get(job.group.queue)
    if bound is None or strategy == "traverse":
        return False
    return job.group.priority <= bound if strategy == "fifo" else job.group.priority < bound


def _pending(job: Job) -> list[Task]:
    return [task for task in job.pending if not task.is_best_effort]


def _still_fits(session: Session, job: Job) -> bool:
    return any(session.is_allocatable(t) and session.board.fits_later(t).any() for t in _pending(job))


def _place(session: Session, job: Job) -> bool:
    """Bind pods until the group is complete; what is only promised is held to the end of the cycle, not bound."""
    mark = session.board.mark()
    failed: set[tuple[tuple[str, float], ...]] = set()
    placed = False
    for task in sorted_tasks(session, _pending(job)):
        kind = tuple(sorted(task.requests.items()))
        if not session.is_allocatable(task) or (kind in failed and not task.pod.selector):
            continue
        if not _seat(session, task):
            failed.add(kind)
            continue
        placed = True
        if session.is_ready(job):
            break
    if session.is_ready(job):
        session.board.commit(mark)
        return placed
    if session.is_pipelined(job):
        session.board.leave_open(mark)
    else:
        session.board.discard(mark)
    return False


def _seat(session: Session, task: Task) -> bool:
    """Bind a pod to the best node, or pipeline it to one that others leave; first to the one it was nominated to."""
    board = session.board
    allowed, later = board.allowed(task), board.fits_later(task)
    now = np.flatnonzero(allowed & board.fits_now(task))
    if task.nominated >= 0 and allowed[task.nominated] and later[task.nominated]:
        now = now[now == task.nominated]
        later = np.arange(len(later)) == task.nominated
    if len(now):
        board.bind(task, session.best_node(task, now))
        return True
    coming = np.flatnonzero(allowed & later)
    if len(coming):
        board.pipeline(task, session.best_node(task, coming))
    return len(coming) > 0


def backfill(session: Session) -> None:
    """Place pods that ask for nothing."""
    some = [job for job in _eligible(session) if any(one.is_best_effort for one in job.pending)]
    for job in sorted_jobs(session, some):
        for task in [one for one in job.pending if one.is_best_effort]:
            mark = session.board.mark()
            if _seat(session, task) and task.status is Status.BOUND:
                session.board.commit(mark)
            else:
                session.board.discard(mark)


# -- reclaim and preempt -----------------------------------------------------------------------------------------------


def reclaim(session: Session) -> None:
    """Take back for starving groups what other queues hold over what they deserve."""
    starving = Turns(session, (job for job in _eligible(session) if session.is_starving(job)))
    unschedulable = UnschedulableCache()
    while name := starving.queue():
        if session.is_overused(name):
            starving.drop(name)
            continue
        for job in starving.drop(name):
            if job in unschedulable:
                continue
            mark = session.board.mark()
            for task in sorted_tasks(session, job.pending):
                if session.is_starving(job) and task.pod.preempts and session.may_reclaim(task):
                    _reclaim_for(session, task)
            if not _settle(session, job, mark) or session.is_starving(job):
                unschedulable.add(job)


def _reclaim_for(session: Session, task: Task) -> bool:
    board, givers = session.board, session.givers(task.job.group.queue)
    for node in np.flatnonzero(board.allowed(task) & board.fits_without(task, givers)):
        those = [one for one in board.on(int(node)) if _may_be_reclaimed(session, one, task)]
        if those and _evict_for(session, task, int(node), session.evictable("reclaimable", task, those)):
            return True
    return False


def _may_be_reclaimed(session: Session, one: Task, task: Task) -> bool:
    queue = session.queues.get(one.job.group.queue)
    if one.status is not Status.RUNNING or not one.may_be_evicted or queue is None:
        return False
    return queue.name != task.job.group.queue and queue.queue.reclaimable


def _evict_for(session: Session, task: Task, node: int, those: list[Task], *, queue_too: bool = False) -> bool:
    """Evict on a node until a pod fits, and pipeline it there; nothing is evicted where it would not be enough."""
    board = session.board
    if not board.fits_on(node, task, those):
        return False
    if queue_too and not session.is_allocatable(task, requests_of(those)):
        return False
    mark = board.mark()
    for one in sorted_victims(session, those, task):
        if board.fits_on(node, task) and (not queue_too or session.is_allocatable(task)):
            break
        board.evict(one)
    if board.fits_on(node, task) and (not queue_too or session.is_allocatable(task)):
        board.pipeline(task, node)
        return True
    board.discard(mark)
    return False


def preempt(session: Session) -> None:
    """Evict in the same queue for starving groups, then within groups for pods of a higher priority."""
    starving = [job for job in _eligible(session) if session.is_starving(job)]
    waiting: dict[str, list[Job]] = {}
    for job in sorted_jobs(session, starving):
        waiting.setdefault(job.group.queue, []).append(job)
    unschedulable, board = UnschedulableCache(), session.board
    for name in sorted_queues(session, list(waiting)):
        for job in waiting[name]:
            if job in unschedulable:
                continue
            mark = session.board.mark()
            for task in sorted_tasks(session, job.pending):
                if session.is_starving(job):
                    _preempt_for(session, task, partial(_is_rival, job), board.fits_without(task, [name]))
            if not _settle(session, job, mark) or session.is_starving(job):
                unschedulable.add(job)
        for job in waiting[name]:
            for task in sorted_tasks(session, job.pending):
                mark = session.board.mark()
                fits = board.fits_later(task, job.those(Status.RUNNING))
                if not _preempt_for(session, task, partial(_is_own, job), fits):
                    break
                session.board.commit(mark)


def _is_rival(job: Job, one: Task) -> bool:
    return one.job is not job and one.job.group.queue == job.group.queue


def _is_own(job: Job, one: Task) -> bool:
    return one.job is job


def _preempt_for(session: Session, task: Task, concerns: Callable[[Task], bool], fits: Bools) -> bool:
    """Evict some of those it concerns; only where it `fits` without any of them can that be enough."""
    board = session.board
    allowed = board.allowed(task)
    if not task.pod.preempts or not (allowed & fits).any():
        return False
    for node in session.ranked_nodes(task, np.flatnonzero(allowed)):
        if not fits[node]:
            continue
        those = [
            one
            for one in board.on(node)
            if one.status is Status.RUNNING
            and one.may_be_evicted
            and concerns(one)
            and (one.is_best_effort or not task.is_best_effort)
        ]
        if _evict_for(session, task, node, session.evictable("preemptable", task, those), queue_too=True):
            return True
    return False


def _settle(session: Session, job: Job, mark: int) -> bool:
    if session.is_pipelined(job):
        session.board.commit(mark)
        return True
    session.board.discard(mark)
    return False


# -- whose turn it is --------------------------------------------------------------------------------------------------


def _eligible(session: Session) -> list[Job]:
    return [job for job in session.waiting() if job.admitted and session.is_valid(job)]


class Turns:
    """Groups that wait for their turn, by queue."""

    def __init__(self, session: Session, jobs: Iterable[Job]) -> None:
        self._session = session
        self._waiting: dict[str, list[tuple[tuple[float | str, ...], int, Job]]] = {}
        self._serial = 0
        for job in jobs:
            self.push(job)

    def push(self, job: Job) -> None:
        """Let a group wait; its place is by what it holds now."""
        line = self._waiting.setdefault(job.group.queue, [])
        self._serial += 1
        heapq.heappush(line, (turn(self._session, job), self._serial, job))

    def queue(self) -> str:
        """The queue whose turn it is; none if nobody waits."""
        return first_queue(self._session, self._waiting) if self._waiting else ""

    def pop(self, name: str) -> Job:
        """The next group of a queue; a queue without any is done."""
        job = heapq.heappop(self._waiting[name])[2]
        if not self._waiting[name]:
            del self._waiting[name]
        return job

    def drop(self, name: str) -> list[Job]:
        """All groups of a queue, in order."""
        return [job for *_, job in sorted(self._waiting.pop(name))]


ACTIONS: dict[str, Callable[[Session], None]] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
    "reclaim": reclaim,
    "preempt": preempt,
}
