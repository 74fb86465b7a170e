"""Who is at work on which cell, so that two sweeps over one store share the work and never do it twice.

A sweep holds a lock on a file of its own as long as it lives: the system takes it away with the process, however that
ends. A claim is a file named by the cell that names its sweep; it counts as long as that sweep's lock is held. So a
claim needs no age, and nothing has to be cleaned up after a kill.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fleetlab.core import FleetlabError

TAKEOVER = "takeover.lock"


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of one living sweep."""

    folder: Path
    me: str
    mine: set[str] = field(default_factory=set)

    def take(self, key: str) -> bool:
        """Claim a cell; False if a living sweep has it."""
        path = self.folder / key
        try:
            self._mark(path)
        except FileExistsError:
            with _held(self.folder / TAKEOVER):  # else two might take over one after the other
                if self._alive(path):
                    return False
                path.unlink(missing_ok=True)
                try:
                    self._mark(path)
                except FileExistsError:  # somebody took it the quick way in between
                    return False
        except OSError as e:
            raise _refused(self.folder, e) from None
        self.mine.add(key)
        return True

    def drop(self, key: str) -> None:
        """Give a cell back, finished or not."""
        self.mine.discard(key)
        (self.folder / key).unlink(missing_ok=True)

    def _mark(self, path: Path) -> None:
        # Written beside and linked: a claim that is there names its sweep.
        beside = self.folder / f".{self.me}"
        if not beside.exists():
            beside.write_text(self.me)
        os.link(beside, path)

    def _alive(self, path: Path) -> bool:
        try:
            other = path.read_text()
        except FileNotFoundError:
            return False
        if other == self.me:
            return True
        try:
            with (self.folder / f"{other}.lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False


def _refused(folder: Path, e: OSError) -> FleetlabError:
    msg = f"cannot write into the run store: {folder}: {e.strerror or e}"
    return FleetlabError(msg, hint="look at free space and permissions; finished cells are kept")


@contextmanager
def claiming(store: Path) -> Iterator[Claims]:
    """Be a sweep that may claim cells, until the block is left or the process ends."""
    folder, me = store / "claims", uuid.uuid4().hex
    try:
        folder.mkdir(exist_ok=True)
        _forget_the_dead(folder)
        (folder / f"{me}.lock").touch()
    except OSError as e:
        raise _refused(folder, e) from None
    with _held(folder / f"{me}.lock"):
        claims = Claims(folder, me)
        try:
            yield claims
        finally:
            for path in (*(folder / key for key in claims.mine), folder / f".{me}", folder / f"{me}.lock"):
                path.unlink(missing_ok=True)


def _forget_the_dead(folder: Path) -> None:
    """Take away the locks of sweeps that were killed; their claims count no more without."""
    for path in folder.glob("*.lock"):
        if path.name == TAKEOVER:
            continue
        try:
            with path.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        except OSError:  # alive, or somebody else has taken it away
            continue
        (folder / f".{path.stem}").unlink(missing_ok=True)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    while True:
        with path.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # It may have been taken for a dead one's before it was locked.
            if path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                yield
                return
