"""Cells that are still to be played, handed out one at a time: claimed, never twice, and those of one draw together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetlab.studies.sweep._cases import Cell
from fleetlab.studies.sweep._claims import Claims
from fleetlab.studies.sweep._store import Record, Store

Group = tuple[str, int]  # cells with the same trace and seed have the same jobs
Done = Callable[[Cell, Record], None]
DEATHS = 2  # of workers over one cell: then it is recorded as the one that kills


@dataclass(slots=True)
class Queue:
    """What is left of a sweep."""

    store: Store
    claims: Claims
    done: Done  # told of each cell with its record, whoever played it
    most_deaths: int = DEATHS
    groups: dict[Group, deque[Cell]] = field(default_factory=dict)
    elsewhere: deque[Cell] = field(default_factory=deque)  # another sweep is at work on them
    at: dict[object, Group] = field(default_factory=dict)  # which draw a worker has at hand
    deaths: dict[str, int] = field(default_factory=dict)
    played: list[float] = field(default_factory=list)  # seconds that each cell took that was played for us

    def add(self, cells: Iterable[Cell]) -> None:
        """Cells to be played."""
        for cell in cells:
            self.groups.setdefault((cell.case.trace, cell.seed), deque()).append(cell)

    @property
    def left(self) -> bool:
        """Is there anything that was not handed out?"""
        return bool(self.groups or self.elsewhere)

    @property
    def count(self) -> int:
        """How many cells there are that nobody else is at work on."""
        return sum(map(len, self.groups.values()))

    def take(self, worker: object) -> Cell | None:
        """A cell for a worker, of the draw it has at hand if there is one; None: there is none just now."""
        while (group := self._next(worker)) is not None:
            cell = self.groups[group].popleft()
            if not self.groups[group]:
                del self.groups[group]
            if self._mine(cell):
                self.at[worker] = group
                return cell
        return None

    def look(self) -> None:
        """What has become of the cells that other sweeps had? Done, or given up: then they are ours again."""
        for _ in range(len(self.elsewhere)):
            cell = self.elsewhere.popleft()
            if self._mine(cell):
                self.back(cell)

    def _next(self, worker: object) -> Group | None:
        if (group := self.at.get(worker)) in self.groups:
            return group
        taken = set(self.at.values())
        return next((g for g in self.groups if g not in taken), next(iter(self.groups), None))

    def _mine(self, cell: Cell) -> bool:
        """Claim a cell, unless it was done by somebody else, or is being done."""
        mine = self.claims.take(cell.key)
        # Looked for after the claim: whoever had it has written its record before giving it back.
        record = self.store.get(cell.key)
        if record is not None and not record.get("died"):
            if mine:
                self.claims.drop(cell.key)
            self.done(cell, record)
            return False
        if not mine:
            self.elsewhere.append(cell)
        return mine

    def finish(self, cell: Cell, record: Record) -> None:
        """A cell was played: keep its record, and only then give it back."""
        self.store.put(record)
        self.claims.drop(cell.key)
        self.played.append(record["made"]["seconds"].get("all", 0.0))
        self.done(cell, record)

    def died(self, cell: Cell, worker: object, why: str) -> str | None:
        """A worker died over a cell: it is played again, or, if it was not the first, said to kill. Then why."""
        self.at.pop(worker, None)
        self.deaths[cell.key] = self.deaths.get(cell.key, 0) + 1
        if self.deaths[cell.key] >= self.most_deaths:
            return f"{self.deaths[cell.key]} workers died over it: {why}"
        self.back(cell)
        return None

    def back(self, cell: Cell) -> None:
        """A cell that was handed out and not played."""
        self.claims.drop(cell.key)
        group = (cell.case.trace, cell.seed)
        self.groups.setdefault(group, deque()).appendleft(cell)


def answered(ask: Mapping[str, Any], answer: Mapping[str, Any], made: Mapping[str, Any]) -> Record:
    """The record of a cell: what was asked, what came, and how it was made."""
    said = {k: answer[k] for k in ("metrics", "units", "schedule", "failed", "hint") if k in answer}
    died = {"died": True} if answer.get("died") else {}
    return {
        "key": ask["key"],
        "cell": {k: v for k, v in ask.items() if k != "key"},
        **said,
        **died,
        "made": {**made, "seconds": answer.get("seconds", {})},
    }
