"""Find the fewest victims that make room for a group.

Victims are added one by one, those of the queue whose turn is last first; after each, what is on the nodes of the
latest is tried before all of them. Then victims are placed again where that is possible: one that stays where it is, or
moves, has lost nothing. Pods of the group are solved for one after the other, so that a gang over several nodes takes
no more than it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetlab.core.pod_groups import Amounts
from fleetlab.sim.gangs.tasks import Job, Status, Task, requests_of
from fleetlab.sim.kai.orders import turn
from fleetlab.sim.kai.session import Session
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


def nobody_loses(outcome: Outcome) -> bool:
    """Allow what moves groups alone."""
    return not outcome.lost


def solve(session: Session, job: Job, others: Sequence[Job], allows: Callable[[Outcome], bool]) -> bool:
    """Make room for a group, and keep it if there is a way that is allowed."""
    board, tasks = session.board, job.next_tasks
    mark = board.mark()
    recorded: list[Unit] = []
    states = {name: state.copy() for name, state in session.queues.items()}
    for count in range(1, len(tasks) + 1):
        asked = {n: a for n, a in requests_of(tasks[:count]).items() if n in RESOURCES}
        for units in _scenarios(session, tasks[count - 1], recorded, others):
            outcome = Outcome(asked, states, [task for unit in units for task in unit])
            if _works(session, job, tasks[:count], outcome, firm=allows is nobody_loses) and allows(outcome):
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


def _scenarios(session: Session, last: Task, recorded: list[Unit], others: Sequence[Job]) -> Iterator[list[Unit]]:
    """Sets of victims to try, the smallest first, from where the last pod to place has room on a node at all."""
    yield recorded
    known = {task for unit in recorded for task in unit}
    room = Room(session, last, known)
    potential: list[Unit] = []
    by_node: dict[int, list[int]] = {}  # which of them have pods on a node
    for unit in session.victims_in_turn(others):
        if known.intersection(unit):
            continue
        nodes = sorted({task.node for task in unit})
        for node in nodes:
            by_node.setdefault(node, []).append(len(potential))
        potential.append(unit)
        if room.gain(unit):
            sets = [by_node[node] for node in nodes]
            sets += [sorted({k for one in sets for k in one}), list(range(len(potential)))]
            for those in dict.fromkeys(map(tuple, sets)):
                yield [*recorded, *(potential[k] for k in those)]


class Room:
    """Whether a pod fits on some node once all victims so far have gone: with more of them it stays so."""

    def __init__(self, session: Session, task: Task, gone: Iterable[Task]) -> None:
        self._board, self._task = session.board, task
        self._allowed = session.board.allowed(task)
        self._gone: dict[int, list[Task]] = {}
        self._is_there = bool((self._allowed & self._board.fits_later(task, gone)).any())
        for one in gone:
            self._gone.setdefault(one.node, []).append(one)

    def gain(self, unit: Unit) -> bool:
        """Let further victims go."""
        for one in unit:
            self._gone.setdefault(one.node, []).append(one)
        if not self._is_there:
            nodes = {one.node for one in unit if self._allowed[one.node]}
            self._is_there = any(self._board.fits_on(node, self._task, self._gone[node]) for node in nodes)
        return self._is_there


def _works(session: Session, job: Job, tasks: Sequence[Task], outcome: Outcome, *, firm: bool) -> bool:
    """Whether pods fit once the victims have gone; those that still fit are placed again, with `firm` all of them."""
    board = session.board
    first = tasks[-1]
    if not (board.allowed(first) & board.fits_later(first, outcome.victims)).any():
        return False
    for victim in outcome.victims:
        board.evict(victim)
    if session.is_over_capacity(job, tasks) or not session.place(tasks):
        return False
    victims: dict[Job, list[Task]] = {}
    for task in outcome.victims:
        victims.setdefault(task.job, []).append(task)
    placed = (_place_again(session, victims[other], outcome) for other in sorted(victims, key=turn))
    return all(is_placed or not firm for is_placed in placed)


def _place_again(session: Session, victims: Sequence[Task], outcome: Outcome) -> bool:
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
        return True
    board.discard(mark)
    for task in moved.values():
        session.board.forget(task)
    return False
