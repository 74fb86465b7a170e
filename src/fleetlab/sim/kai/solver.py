"""Find the fewest victims that make room for a group.

Victims are added one by one, those of the queue whose turn is last first; after each, what is on the nodes of the
latest is tried before all of them. Then victims are placed again where that is possible: one that stays where it is, or
moves, has lost nothing. Pods of the group are solved for one after the other, so that a gang over several nodes takes
no more than it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from fleetlab.core.pod_groups import Amounts
from fleetlab.sim.gangs.tasks import Job, Status, Task, requests_of
from fleetlab.sim.kai.orders import turn
from fleetlab.sim.kai.session import Session, to_allocate
from fleetlab.sim.kai.shares import RESOURCES, QueueState

Unit = list[Task]  # pods that go together


@dataclass
class Outcome:
    """What a scenario led to: who would have to go, who of them finds another node, and how queues stood before."""

    asked: Amounts
    states: dict[str, QueueState]
    victims: list[Task]
    moved: dict[Task, Task] = field(default_factory=dict)  # a victim, and what stands for it elsewhere

    @property
    def lost(self) -> list[Task]:
        """Victims that find no place."""
        return [task for task in self.victims if task.status is Status.RELEASING and task not in self.moved]

    def losses(self, *, moved_too: bool = False) -> dict[str, list[Amounts]]:
        """By queue, what its victims hold: extra pods one by one, what a gang needs at least together."""
        found: dict[str, list[Amounts]] = {}
        gone = [t for t in self.victims if t.status is Status.RELEASING] if moved_too else self.lost
        for job in dict.fromkeys(task.job for task in self.victims):
            tasks = [task for task in self.victims if task.job is job]
            extra, core = tasks[job.group.min_member :], tasks[: job.group.min_member]
            sums = [requests_of([t]) for t in extra if t in gone]
            sums.append(requests_of(task for task in core if task in gone))
            found.setdefault(job.group.queue, []).extend(one for one in sums if any(one.values()))
        return {queue: those for queue, those in found.items() if those}


def solve(session: Session, job: Job, others: Sequence[Job], allows: Callable[[Outcome], bool]) -> bool:
    """Make room for a group, and keep it if there is a way that is allowed."""
    board, tasks = session.board, to_allocate(job)
    mark = board.mark()
    recorded: list[Unit] = []
    states = deepcopy(session.queues)
    for count in range(1, len(tasks) + 1):
        asked = {n: a for n, a in requests_of(tasks[:count]).items() if n in RESOURCES}
        for units in _scenarios(session, recorded, others):
            outcome = Outcome(asked, states, [task for unit in units for task in unit])
            if _works(session, job, tasks[:count], outcome) and allows(outcome):
                break
            _undo(session, mark, outcome)
        else:
            return False
        recorded = units
        if count < len(tasks):
            _undo(session, mark, outcome)
    board.commit(mark)
    return True


def _undo(session: Session, mark: int, outcome: Outcome) -> None:
    session.board.discard(mark)
    for task in outcome.moved.values():
        session.board.forget(task)
    outcome.moved.clear()


def _scenarios(session: Session, recorded: list[Unit], others: Sequence[Job]) -> Iterator[list[Unit]]:
    """Sets of victims to try, the smallest first."""
    yield recorded
    known = {task for unit in recorded for task in unit}
    tried: set[frozenset[str]] = set()
    potential: list[Unit] = []
    for unit in list(session.victims_in_turn(others)):
        if known & set(unit):
            continue
        potential.append(unit)
        nodes = sorted({task.node for task in unit})
        for those in ([node] for node in nodes), (nodes, range(len(session.board.cache.nodes))):
            for where in those:
                found = [one for one in potential if any(task.node in where for task in one)]
                key = frozenset(task.pod.name for one in found for task in one)
                if key not in tried:
                    tried.add(key)
                    yield [*recorded, *found]


def _works(session: Session, job: Job, tasks: Sequence[Task], outcome: Outcome) -> bool:
    """Whether pods fit once the victims have gone; those that still fit somewhere are then placed again."""
    board = session.board
    first = tasks[-1]
    if not (board.allowed(first) & board.fits_later(first, outcome.victims)).any():
        return False
    for victim in outcome.victims:
        board.evict(victim)
    if session.is_over_capacity(job, tasks) or not session.place(tasks):
        return False
    for other in sorted({task.job for task in outcome.victims}, key=turn):
        _place_again(session, [task for task in outcome.victims if task.job is other], outcome)
    return True


def _place_again(session: Session, victims: Sequence[Task], outcome: Outcome) -> None:
    board, mark = session.board, session.board.mark()
    moved: dict[Task, Task] = {}
    fits = not session.is_over_capacity(victims[0].job, victims)
    for victim in victims if fits else ():
        nodes = np.flatnonzero(board.allowed(victim) & board.fits_later(victim))
        if victim.node in nodes:
            board.stay(victim)
        elif len(nodes):
            moved[victim] = board.stand_in(victim)
            board.promise(moved[victim], int(nodes[0]))
        else:
            fits = False
            break
    if fits:
        outcome.moved.update(moved)
        return
    board.discard(mark)
    for task in moved.values():
        session.board.forget(task)
