"""A queue of cells: each is claimed and handed out once, and cells with the same jobs go to the same worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetlab.studies.code_version import code_version
from fleetlab.studies.sweep.claims import Claims
from fleetlab.studies.sweep.plan import CELL, StudyCell
from fleetlab.studies.sweep.store import Record, RunStore

Group = tuple[int, int]  # cells with the same sample


@dataclass(slots=True)
class CellQueue:
    """The cells that a sweep still has to run."""

    store: RunStore
    claims: Claims
    question: Callable[[StudyCell], Mapping[str, Any]]  # what a worker is asked of a cell
    done: Callable[[StudyCell, Record], None]  # called with each cell and its record, whoever ran it
    engine: str = "local"  # where cells are run, for their records
    most_deaths: int = 2  # of workers that ran one cell: then that is recorded as its result
    groups: dict[Group, deque[StudyCell]] = field(default_factory=dict)
    elsewhere: deque[StudyCell] = field(default_factory=deque)  # another sweep runs them
    at: dict[object, Group] = field(default_factory=dict)  # the sample that a worker has
    deaths: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # that each cell took that was run for us

    def add(self, cells: Iterable[StudyCell]) -> None:
        """Add cells to be run."""
        for cell in cells:
            self.groups.setdefault(cell.sample, deque()).append(cell)

    @property
    def unsent(self) -> bool:
        """Whether there are cells that were not handed out."""
        return bool(self.groups or self.elsewhere)

    @property
    def count(self) -> int:
        """The number of cells that no other sweep runs."""
        return sum(map(len, self.groups.values()))

    def take(self, worker: object) -> StudyCell | None:
        """Return a cell for a worker, with the sample that it has if possible; None: there is none at the moment."""
        while (group := self._next(worker)) is not None:
            cell = self.groups[group].popleft()
            if not self.groups[group]:
                del self.groups[group]
            if self._claim(cell):
                self.at[worker] = group
                return cell
        return None

    def look(self) -> None:
        """Look at the cells that other sweeps ran: they are done, or given up and ours again."""
        for _ in range(len(self.elsewhere)):
            cell = self.elsewhere.popleft()
            if self._claim(cell):
                self.back(cell)

    def _next(self, worker: object) -> Group | None:
        if (group := self.at.get(worker)) in self.groups:
            return group
        in_progress = set(self.at.values())
        return next((g for g in self.groups if g not in in_progress), next(iter(self.groups), None))

    def _claim(self, cell: StudyCell) -> bool:
        """Claim a cell, unless another sweep has run it or runs it now."""
        mine = self.claims.take(cell.key)
        # After the claim: another sweep writes the record before it gives the cell back.
        record = self.store.get(cell.key)
        if record is not None and not record.get("died"):
            if mine:
                self.claims.drop(cell.key)
            self.done(cell, record)
            return False
        if not mine:
            self.elsewhere.append(cell)
        return mine

    def message(self, item: StudyCell) -> Mapping[str, Any]:
        """Return a cell as workers take it."""
        return self.question(item)

    def finish(self, item: StudyCell, answer: Mapping[str, Any]) -> None:
        """Keep the record of a cell."""
        about = {"engine": self.engine, "code": code_version(CELL)}
        self._keep(item, record_of(self.question(item), answer, about))

    def _keep(self, cell: StudyCell, record: Record) -> None:
        """Keep the record of a cell, and only then give it back."""
        self.store.put(record)
        self.claims.drop(cell.key)
        self.seconds.append(record["made"]["seconds"].get("all", 0.0))
        self.done(cell, record)

    def died(self, item: StudyCell, worker: object, reason: str) -> None:
        """Put a cell back whose worker died; after some deaths, that is recorded as its result."""
        self.at.pop(worker, None)
        self.deaths[item.key] = self.deaths.get(item.key, 0) + 1
        if self.deaths[item.key] < self.most_deaths:
            self.back(item)
            return
        failure = f"{self.deaths[item.key]} workers died while running it: {reason}"
        self.finish(item, {"failed": failure, "died": True})

    def back(self, cell: StudyCell) -> None:
        """Put back a cell that was handed out and not run."""
        self.claims.drop(cell.key)
        self.groups.setdefault(cell.sample, deque()).appendleft(cell)


def record_of(question: Mapping[str, Any], answer: Mapping[str, Any], about: Mapping[str, Any]) -> Record:
    """Return the record of a cell: its words, its result, and how it was made."""
    result = {k: answer[k] for k in ("metrics", "units", "schedule", "failed", "hint", "died") if k in answer}
    cell = {k: v for k, v in question.items() if k not in ("key", "run", "scenario")}
    provenance = {**about, "seconds": answer.get("seconds", {})}
    return {"key": question["key"], "cell": cell, **result, "made": provenance}
