"""A cycle of KAI: queues with their shares, whose turn it is, and where pods go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from fleetlab.core.kai import UNLIMITED, Kai
from fleetlab.core.pod_groups import Amounts
from fleetlab.sim.gangs.amounts import add
from fleetlab.sim.gangs.board import Board
from fleetlab.sim.gangs.tasks import CHARGED, Job, Status, Task, requests_of
from fleetlab.sim.kai.orders import Change, compare_queues, turn
from fleetlab.sim.kai.shares import GPU, RESOURCES, QueueState, charge, line, queue_states
from fleetlab.sim.kubernetes.state import Ints


class Session:
    """Queues, groups and nodes in one cycle."""

    def __init__(
        self,
        site: Kai,
        board: Board,
        usage: Mapping[str, Amounts] | None = None,
        draw: np.random.Generator | None = None,
    ) -> None:
        self.site, self.board = site, board
        self.total = board.total
        self.queues = queue_states(site, board.jobs, self.total, usage or {})
        self.jobs = [job for job in board.jobs if job.group.queue in self.queues]
        self._draw = draw
        board.listeners.append(self._charge)

    def _charge(self, task: Task, sign: int) -> None:
        if task.job.group.queue in self.queues:
            charge(self.queues, task, sign)

    # -- whose turn it is --------------------------------------------------------------------------------------------

    def in_turn(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Groups in the order of their queues, from the top of the tree down; each changes whose turn is next."""
        waiting: dict[str, list[Job]] = {}
        for job in sorted(jobs, key=turn, reverse=True):
            waiting.setdefault(job.group.queue, []).append(job)
        while waiting:
            name = self._first(waiting, lambda one: (requests_of(to_allocate(waiting[one][-1])), {}))
            job = waiting[name].pop()
            if not waiting[name]:
                del waiting[name]
            yield job

    def victims_in_turn(self, jobs: Iterable[Job]) -> Iterator[list[Task]]:
        """What to evict next, of the queue whose turn is last its last group: its extra pods, then all of the gang."""
        left = {job: self._by_name(job) for job in sorted(jobs, key=turn)}
        taken: dict[str, dict[str, float]] = {}
        while left:
            waiting: dict[str, list[Job]] = {}
            for job in left:
                waiting.setdefault(job.group.queue, []).append(job)
            name = self._first(waiting, lambda one: ({}, taken.get(one, {})), last=True)
            job = waiting[name][-1]
            tasks = left.pop(job)
            unit = tasks[-1:] if len(tasks) > job.group.min_member else tasks
            taken[name] = add(taken.get(name, {}), requests_of(unit))
            if len(unit) < len(tasks):
                left = dict(sorted({**left, job: tasks[:-1]}.items(), key=lambda item: turn(item[0])))
            yield unit

    @staticmethod
    def _by_name(job: Job) -> list[Task]:
        return sorted(job.those(Status.RUNNING), key=lambda task: (-task.pod.priority, task.pod.name))

    def _first(self, waiting: Mapping[str, list[Job]], change: Callable[[str], Change], *, last: bool = False) -> str:
        """The queue whose turn is first, or last: level by level, each by what the queue below it that leads asks."""
        sign = -1 if last else 1

        def lead(names: list[str], level: int) -> str:
            groups: dict[str, list[str]] = {}
            for name in names:
                groups.setdefault((*self.queues[name].ancestors, name)[level], []).append(name)
            best, leader = "", ""
            for top, those in groups.items():
                one = those[0] if those == [top] else lead(those, level + 1)
                if not best or sign * self._compare(top, best, (change(one), change(leader))) < 0:
                    best, leader = top, one
            return leader

        return lead(list(waiting), 0)

    def _compare(self, left: str, right: str, changes: tuple[Change, Change]) -> int:
        return compare_queues(self.queues[left], self.queues[right], changes, self.total)

    # -- bounds ------------------------------------------------------------------------------------------------------

    def is_over_capacity(self, job: Job, tasks: Iterable[Task]) -> bool:
        """Whether a queue, or one above it, would be over its limit, or over its quota with what is not preemptible."""
        asked = {n: a for n, a in requests_of(tasks).items() if a and n in RESOURCES}
        return any(
            _is_over(state, asked, fixed=not job.group.preemptible) for state in line(self.queues, job.group.queue)
        )

    # -- nodes -------------------------------------------------------------------------------------------------------

    def place(self, tasks: Iterable[Task]) -> bool:
        """Give each pod a node, the fullest that fits; if one has to wait for others to leave, all of them wait."""
        board, placed = self.board, []
        for task in tasks:
            nodes = np.flatnonzero(board.allowed(task) & board.fits_now(task))
            if len(nodes):
                board.bind(task, self._fullest(task, nodes))
            else:
                nodes = np.flatnonzero(board.allowed(task) & board.fits_later(task))
                if not len(nodes):
                    return False
                board.promise(task, self._fullest(task, nodes))
            placed.append(task)
        if any(task.status is Status.PIPELINED for task in placed):
            for task in placed:
                if task.status is Status.BOUND:
                    board.promise(task, task.node)
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
        return int(best[0] if self._draw is None else self._draw.choice(best))


def _is_over(state: QueueState, asked: Amounts, *, fixed: bool) -> bool:
    for name, amount in asked.items():
        share = state.shares[name]
        if UNLIMITED != share.limit < share.allocated + amount:
            return True
        if fixed and UNLIMITED != share.deserved < share.fixed + amount:
            return True
    return False


def to_allocate(job: Job) -> list[Task]:
    """The pods that are placed at once: what a gang lacks, or one more of a group that already runs."""
    waiting = sorted(job.pending, key=lambda task: (-task.pod.priority, task.pod.name))
    return waiting[: max(1, job.group.min_member - len(job.those(*CHARGED)))]
