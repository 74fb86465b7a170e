"""A scenario in numbers: whether those that may not lose find a place again, before it is played on the board.

Most sets of victims fail there. The steps are those of the solver, on what nodes have free; to move each pod on the
board and back takes many times as long.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np

from fleetlab.core.kai import UNLIMITED
from fleetlab.sim.gangs.tasks import Job, Status, Task
from fleetlab.sim.kai.orders import turn
from fleetlab.sim.kai.session import Session

Room = dict[str, list[int]]  # by resource, what each node has free


class Rehearsal:
    """Scenarios of one search; `losers` are the queues that may lose."""

    def __init__(self, session: Session, tasks: Sequence[Task], others: Sequence[Job], losers: Container[str]) -> None:
        self._session, self._tasks, self._losers = session, tasks, losers
        self._rank = {job: k for k, job in enumerate(sorted(others, key=turn))}
        pods = [task for job in others for task in job.those(Status.RUNNING)]
        self._needs = {task: session.board.needs(task) for task in pods}
        self._allowed: dict[Task, list[bool]] = {}
        self._names = list(dict.fromkeys(name for needs in self._needs.values() for name, _ in needs))
        self._is_exact = (
            any(job.group.queue not in losers for job in others)
            and not any(task.pod.spread for task in (*tasks, *pods))
            and all(name in session.board.cache.allocatable for name in self._names)
            and not self._is_limited(others)
        )

    def _is_limited(self, others: Sequence[Job]) -> bool:
        """Whether a queue's limit may keep victims of some that may lose from being placed again."""
        shares = [share for state in self._session.queues.values() for share in state.shares.values()]
        return any(job.group.queue in self._losers for job in others) and any(s.limit != UNLIMITED for s in shares)

    def may_work(self, victims: Sequence[Task]) -> bool:
        """Return whether a scenario has to be played; False: it fails."""
        if not self._is_exact:
            return True
        board = self._session.board
        back: Room = {name: [0] * len(board.cache.nodes) for name in self._names}
        jobs: dict[Job, list[Task]] = {}
        for task in victims:
            jobs.setdefault(task.job, []).append(task)
            for name, amount in self._needs[task]:
                back[name][task.node] += amount
        freed = {name: np.array(amounts, np.int64) for name, amounts in back.items()}
        mark = board.mark()
        fits = self._session.place(self._tasks, freed)
        room = {name: (board.room(name) + freed[name]).tolist() for name in self._names}
        board.discard(mark)
        return fits and all(
            self._place_again(jobs[job], room) or job.group.queue in self._losers
            for job in sorted(jobs, key=self._rank.__getitem__)
        )

    def _place_again(self, victims: Sequence[Task], room: Room) -> bool:
        placed: list[tuple[Task, int]] = []
        for task in victims:
            node = self._node(task, room)
            if node < 0:
                for other, where in placed:
                    _add(room, self._needs[other], where, 1)
                return not any(task.requests.values() for task in victims)  # who holds nothing loses nothing
            _add(room, self._needs[task], node, -1)
            placed.append((task, node))
        return True

    def _node(self, task: Task, room: Room) -> int:
        """Its own node if it has room, or the first that has; -1: none has."""
        needs = [(room[name], amount) for name, amount in self._needs[task]]
        allowed = self._allowed.get(task)
        if allowed is None:
            allowed = self._allowed[task] = self._session.board.allowed(task).tolist()
        nodes: tuple[int, ...] = (task.node, *range(len(allowed)))
        for node in nodes:
            if allowed[node]:
                for free, amount in needs:
                    if free[node] < amount:
                        break
                else:
                    return node
        return -1


def _add(room: Mapping[str, list[int]], needs: Sequence[tuple[str, int]], node: int, sign: int) -> None:
    for name, amount in needs:
        room[name][node] += sign * amount
