"""A queue of cells: each is claimed and handed out once, and cells with the same jobs go to the same worker.

Two sweeps over one store share the work and never do it twice. A sweep holds a lock on a file of its own as long as it
lives: the system releases it with the process, however that ends. A claim is a file named after the cell that names its
sweep; it is valid as long as that sweep holds its lock. So a claim needs no timeout, and nothing has to be cleaned up
after a kill.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetlab.core import FleetlabError
from fleetlab.studies.runner import code_version
from fleetlab.studies.sweep.plan import CELL, StudyCell
from fleetlab.studies.sweep.store import Record, RunStore

# -- claims ------------------------------------------------------------------------------------------------------------

TAKEOVER = "takeover.lock"


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of one running sweep."""

    folder: Path
    sweep: str
    mine: set[str] = field(default_factory=set)

    def take(self, key: str) -> bool:
        """Claim a cell; False if a running sweep has it."""
        path = self.folder / key
        try:
            self._mark(path)
        except FileExistsError:
            with _lock(self.folder / TAKEOVER):  # else two sweeps might take over one after the other
                if self._valid(path):
                    return False
                path.unlink(missing_ok=True)
                try:
                    self._mark(path)
                except FileExistsError:  # another sweep took it in between, without taking over
                    return False
        except OSError as e:
            raise _write_error(self.folder, e) from None
        self.mine.add(key)
        return True

    def drop(self, key: str) -> None:
        """Give a cell back, finished or not."""
        self.mine.discard(key)
        (self.folder / key).unlink(missing_ok=True)

    def tables(self) -> Path:
        """Return a folder for what the workers of this sweep read; it goes with the sweep."""
        folder = self.folder / f"{self.sweep}.tables"
        try:
            folder.mkdir(exist_ok=True)
        except OSError as e:
            raise _write_error(self.folder, e) from None
        return folder

    def _mark(self, path: Path) -> None:
        # Written under another name and linked: a claim that is there names its sweep.
        own = self.folder / f".{self.sweep}"
        if not own.exists():
            own.write_text(self.sweep)
        os.link(own, path)

    def _valid(self, path: Path) -> bool:
        try:
            other = path.read_text()
        except FileNotFoundError:
            return False
        if other == self.sweep:
            return True
        try:
            with (self.folder / f"{other}.lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False


def _write_error(folder: Path, e: OSError) -> FleetlabError:
    msg = f"cannot write into the run store: {folder}: {e.strerror or e}"
    return FleetlabError(msg, hint="look at free space and permissions; finished cells are kept")


@contextmanager
def claiming(store: Path) -> Iterator[Claims]:
    """Register as a sweep that may claim cells, until the block is left or the process ends."""
    folder, sweep = store / "claims", uuid.uuid4().hex
    try:
        folder.mkdir(exist_ok=True)
        _remove_stale_locks(folder)
        (folder / f"{sweep}.lock").touch()
    except OSError as e:
        raise _write_error(folder, e) from None
    with _lock(folder / f"{sweep}.lock"):
        claims = Claims(folder, sweep)
        try:
            yield claims
        finally:
            for path in (*(folder / key for key in claims.mine), folder / f".{sweep}", folder / f"{sweep}.lock"):
                path.unlink(missing_ok=True)
            shutil.rmtree(folder / f"{sweep}.tables", ignore_errors=True)


def _remove_stale_locks(folder: Path) -> None:
    """Remove the locks of sweeps that were killed; without them their claims are not valid."""
    for path in folder.glob("*.lock"):
        if path.name == TAKEOVER:
            continue
        try:
            with path.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        except OSError:  # still running, or another process has removed it
            continue
        (folder / f".{path.stem}").unlink(missing_ok=True)
        shutil.rmtree(folder / f"{path.stem}.tables", ignore_errors=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    while True:
        with path.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # It may have been removed as stale before it was locked.
            if path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                yield
                return


# -- the queue ---------------------------------------------------------------------------------------------------------

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
