"""Which sweep runs which cell, so that two sweeps over one store share the work and never do it twice.

A sweep holds a lock on a file of its own as long as it lives: the system releases it with the process, however that
ends. A claim is a file named after the cell that names its sweep; it is valid as long as that sweep holds its lock. So
a claim needs no timeout, and nothing has to be cleaned up after a kill.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fleetlab.core import FleetlabError

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
