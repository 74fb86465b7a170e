"""Find the fewest victims that have to go for a group.

Victims are added one by one, those of the queue whose turn is last first; after each, what is on the nodes of the
latest is tried before all of them. Then victims are placed again where that is possible: one that stays where it is, or
moves, has lost nothing. Pods of the group are solved for one after the other, so that a gang over several nodes takes
no more than it needs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fleetlab.schedulers.gangs.pod_groups import Amounts, add
from fleetlab.schedulers.gangs.tasks import Job, Status, Task, requests_of
from fleetlab.schedulers.kai.config import UNLIMITED
from fleetlab.schedulers.kai.session import Session, Space, turn
from fleetlab.schedulers.kai.shares import RESOURCES, QueueState

# -- a scenario in numbers: whether those that may not lose find a place again, before it is played on -----------------
# Most sets of victims fail there. The steps are those of the solver, on what nodes have free; to move each pod on the
# board and back takes many times as long.

FreeByName = dict[str, list[int]]  # by resource, what each node has free


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
        back: FreeByName = {name: [0] * len(board.cache.nodes) for name in self._names}
        jobs: dict[Job, list[Task]] = {}
        for task in victims:
            jobs.setdefault(task.job, []).append(task)
            for name, amount in self._needs[task]:
                back[name][task.node] += amount
        freed = {name: np.array(amounts, np.int64) for name, amounts in back.items()}
        mark = board.mark()
        fits = self._session.place(self._tasks, freed)
        space = {name: (board.free_on_nodes(name) + freed[name]).tolist() for name in self._names}
        board.discard(mark)
        return fits and all(
            self._place_again(jobs[job], space) or job.group.queue in self._losers
            for job in sorted(jobs, key=self._rank.__getitem__)
        )

    def _place_again(self, victims: Sequence[Task], space: FreeByName) -> bool:
        placed: list[tuple[Task, int]] = []
        for task in victims:
            node = self._node(task, space)
            if node < 0:
                for other, where in placed:
                    _add(space, self._needs[other], where, 1)
                return not any(task.requests.values() for task in victims)  # who holds nothing loses nothing
            _add(space, self._needs[task], node, -1)
            placed.append((task, node))
        return True

    def _node(self, task: Task, space: FreeByName) -> int:
        """Its own node if it fits there, or the first on which it fits; -1: none."""
        needs = [(space[name], amount) for name, amount in self._needs[task]]
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


def _add(space: Mapping[str, list[int]], needs: Sequence[tuple[str, int]], node: int, sign: int) -> None:
    for name, amount in needs:
        space[name][node] += sign * amount


Unit = list[Task]  # pods that go together


@dataclass
class Outcome:
    """What a scenario led to: who would have to go, who of them finds another node, and how queues stood before."""

    request: Amounts
    states: dict[str, QueueState]
    victims: list[Task]
    moved: dict[Task, Task] = field(default_factory=dict)  # a victim, and what stands for it elsewhere

    @property
    def lost(self) -> list[Task]:
        """Victims that find no place."""
        return [task for task in self.victims if task.status is Status.RELEASING and task not in self.moved]

    def losses(self, *, moved_too: bool = False) -> dict[str, list[Amounts]]:
        """By queue, what its victims hold: extra pods one by one, what a gang needs at least together."""
        grouped: dict[str, list[Amounts]] = {}
        gone = {t for t in self.victims if t.status is Status.RELEASING} if moved_too else set(self.lost)
        for job, tasks in by_job(self.victims).items():
            extra, core = tasks[job.group.min_member :], tasks[: job.group.min_member]
            sums = [requests_of([t]) for t in extra if t in gone]
            sums.append(requests_of(task for task in core if task in gone))
            grouped.setdefault(job.group.queue, []).extend(one for one in sums if any(one.values()))
        return {queue: those for queue, those in grouped.items() if those}


class Rule(Protocol):
    """What an action allows."""

    def may_lose(self, states: Mapping[str, QueueState], request: Amounts, queue: str) -> bool:
        """Whether a queue may lose anything for what is asked; if not, its victims have to find a place again."""

    def allows(self, outcome: Outcome) -> bool:
        """Whether an outcome may be kept."""


class NobodyLoses:
    """Groups may be moved, and no more than that."""

    def may_lose(self, states: Mapping[str, QueueState], request: Amounts, queue: str) -> bool:
        """Return that none may."""
        return False

    def allows(self, outcome: Outcome) -> bool:
        """Return whether all found a place again."""
        return not outcome.lost


def by_job(tasks: Iterable[Task]) -> dict[Job, list[Task]]:
    """Pods by their group."""
    grouped: dict[Job, list[Task]] = {}
    for task in tasks:
        grouped.setdefault(task.job, []).append(task)
    return grouped


def solve(session: Session, job: Job, space: Space, rule: Rule) -> bool:
    """Evict for a group, and keep it if there is a way that is allowed; `space` has who may be asked."""
    board, tasks, others = session.board, job.next_tasks, space.others
    if session.is_over_quota(job, tasks) or not space.may_fit(job):
        return False
    mark = board.mark()
    recorded: list[Unit] = []
    all_of_it = Shortage(session, tasks, (rule, others))
    if not all_of_it.ends_with(task for other in others for task in other.those(Status.RUNNING)):
        return False
    states = {name: state.copy() for name, state in session.queues.items()}
    for count in range(1, len(tasks) + 1):
        shortage = all_of_it if count == len(tasks) else Shortage(session, tasks[:count], (rule, others))
        rehearsal = Rehearsal(session, tasks[:count], others, shortage.losers)
        for units in _scenarios(session, tasks[count - 1], recorded, (others, shortage)):
            outcome = Outcome(shortage.request, states, [task for unit in units for task in unit])
            if not rehearsal.may_work(outcome.victims):
                continue
            if _works(session, job, tasks[:count], outcome, shortage.losers) and rule.allows(outcome):
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


class Shortage:
    """What pods ask for over what is free on all nodes together: queues that may lose have to give at least this.

    Whoever is moved holds as much elsewhere: a set of victims in which those queues do not hold it need not be tried.
    """

    def __init__(self, session: Session, tasks: Sequence[Task], search: tuple[Rule, Sequence[Job]]) -> None:
        rule, others = search
        self.request = {n: a for n, a in requests_of(tasks).items() if n in RESOURCES}
        queues = {other.group.queue for other in others}
        self.losers = {queue for queue in queues if rule.may_lose(session.queues, self.request, queue)}
        short = {name: amount - session.board.free(name) for name, amount in self.request.items()}
        self._short = {name: amount for name, amount in short.items() if amount > 0}

    def given(self, tasks: Iterable[Task]) -> dict[str, float]:
        """What victims can give."""
        if not self._short:
            return {}
        return requests_of(task for task in tasks if task.job.group.queue in self.losers)

    def is_met(self, given: Amounts) -> bool:
        """Whether so much is enough."""
        return all(given.get(name, 0) >= amount for name, amount in self._short.items())

    def ends_with(self, tasks: Iterable[Task]) -> bool:
        """Whether these victims can give enough."""
        return self.is_met(self.given(tasks))


def _scenarios(
    session: Session, last: Task, recorded: list[Unit], search: tuple[Sequence[Job], Shortage]
) -> Iterator[list[Unit]]:
    """Sets of victims to try, the smallest first, from where the last pod to place fits on a node at all."""
    others, shortage = search
    chosen = {task for unit in recorded for task in unit}
    base = shortage.given(chosen)
    if shortage.is_met(base):
        yield recorded
    space = FreeOnNodes(session, last, chosen)
    potential: list[Unit] = []
    gains: list[Amounts] = []
    every = base  # what all of them can give
    by_node: dict[int, list[int]] = {}  # which of them have pods on a node
    for unit in session.victims_in_turn(others):
        if chosen.intersection(unit):
            continue
        nodes = sorted({task.node for task in unit})
        for node in nodes:
            by_node.setdefault(node, []).append(len(potential))
        potential.append(unit)
        gains.append(shortage.given(unit))
        every = add(every, gains[-1])
        if space.gain(unit) and shortage.is_met(every):
            sets = [by_node[node] for node in nodes]
            sets += [sorted({k for one in sets for k in one}), list(range(len(potential)))]
            for those in dict.fromkeys(map(tuple, sets)):
                if len(those) == len(potential) or shortage.is_met(add(base, *(gains[k] for k in those))):
                    yield [*recorded, *(potential[k] for k in those)]


class FreeOnNodes:
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


def _works(session: Session, job: Job, tasks: Sequence[Task], outcome: Outcome, losers: Container[str]) -> bool:
    """Whether pods fit once the victims have gone; those that still fit are placed again, all but `losers` have to."""
    board = session.board
    first = tasks[-1]
    if not (board.allowed(first) & board.fits_later(first, outcome.victims)).any():
        return False
    for victim in outcome.victims:
        board.evict(victim)
    if session.is_over_capacity(job, tasks) or not session.place(tasks):
        return False
    victims = by_job(outcome.victims)
    for other in sorted(victims, key=turn):
        is_placed = _place_again(session, victims[other], outcome)
        if not is_placed and other.group.queue not in losers and any(requests_of(victims[other]).values()):
            return False
    return True


def _place_again(session: Session, victims: Sequence[Task], outcome: Outcome) -> bool:
    board, mark = session.board, session.board.mark()
    moved: dict[Task, Task] = {}
    fits = not session.is_over_capacity(victims[0].job, victims)
    for victim in victims if fits else ():
        nodes = np.flatnonzero(board.allowed(victim) & board.fits_later(victim))
        if victim.node in nodes:
            board.stay(victim)
        elif len(nodes):
            moved[victim] = board.placeholder(victim)
            board.pipeline(moved[victim], int(nodes[0]))
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
