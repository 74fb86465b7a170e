"""A folder in which rows of jobs survive any kill: a journal that is only appended to, and what it is folded into.

Rows of a poll are appended to `journal-N.log`, then a line that says the poll is complete, then all of it is synced.
From time to time the journal is folded: jobs that have ended go to a file of their own that never changes again, those
that are there go to `snapshot.json`, which also lists the files and says which journal comes next. Replacing the
snapshot is the one step that counts: killed before it, the old journal is read again; after it, the new one.
A job is known by its key, so that a row written twice, before and after a kill, is one job.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO, Any

from fleetlab.core.errors import FleetlabError, TraceError
from fleetlab.core.files import atomic_write
from fleetlab.core.sources import PRESENT, UNSEEN, Row
from fleetlab.live.journal import (
    DONE,
    MISSED,
    ROW,
    Cursor,
    Segment,
    Snapshot,
    damaged,
    done_line,
    is_whole,
    journal_of,
    missed_line,
    parsed,
    row_line,
    sync_folder,
)  # fmt: skip

RECENT_S = 4 * 3600.0  # s for which the key of an ended job is remembered, so that it is not written again
MOST_SEGMENTS = 60  # files of ended jobs; beyond, small ones become one
LARGE = 64 << 20  # bytes of such a file that is not joined with others any more


@dataclass(slots=True)
class StoredJob:
    """What the store holds of a job."""

    rank: int
    mark: str
    at: float  # when this was last so
    line: str  # "": in a file of ended jobs

    def data(self) -> dict[str, Any]:
        """Return the row of a job that is there."""
        return dict(json.loads(self.line.split("\t", 5)[5]))


class Store:
    """The rows of one cluster; only one process has it open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in (folder, *folder.iterdir()):  # lines of submission may hold what PrivateData hides
                path.chmod(0o700 if path.is_dir() else 0o600)
            self._lock = _locked(folder)
        except OSError as e:
            msg = f"cannot write into {folder}: {e.strerror or e}"
            raise FleetlabError(msg, hint="--out takes a folder that you may write into") from None
        try:
            self.snapshot = Snapshot.load(folder)
            self.cursor = self.snapshot.cursor
            self.jobs: dict[str, StoredJob] = {
                key: StoredJob(rank, mark, at, "") for key, rank, at, mark in self.snapshot.recent
            }
            self.missed: dict[str, float] = {}  # jobs that are not listed any more: when they were last
            self._take(parsed(self.snapshot.lines))
            self._journal = self._recover()
        except BaseException:
            self._lock.close()
            raise
        self._sweep()

    # -- what is there -------------------------------------------------------------------------------------------------

    @property
    def journal(self) -> Path:
        """The file that rows are appended to."""
        return journal_of(self.folder, self.snapshot.number)

    def present(self) -> dict[str, StoredJob]:
        """Return the jobs that were there when the list was last complete, or are missed since."""
        return {key: job for key, job in self.jobs.items() if job.rank == PRESENT}

    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.stat().st_size for f in self.folder.iterdir() if f.is_file())

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, rows: Iterable[Row], missed: dict[str, float], cursor: Cursor) -> list[Row]:
        """Append what is new of a poll, and sync; return those rows. Nothing is taken over if this fails."""
        at = cursor.polled or 0.0
        new = [row for row in rows if self._is_new(row)]
        lines = [row_line(row, at) for row in new]
        newly_missed = {key: last_seen for key, last_seen in missed.items() if key not in self.missed}
        lines += [missed_line(key, last_seen) for key, last_seen in newly_missed.items()]
        cursor.rows += len(new)
        lines.append(done_line(cursor))
        self._append("".join(lines).encode("utf-8"))
        for row, line in zip(new, lines, strict=False):
            self.jobs[row.key] = StoredJob(row.rank, row.mark, at, line)
        self.missed = missed
        self.cursor = cursor
        return new

    def _is_new(self, row: Row) -> bool:
        """Whether a row knows more, or as much and something else: accounting fills rows in after their job ended."""
        stored = self.jobs.get(row.key)
        if stored is None or row.rank > stored.rank:
            return True
        return row.rank == stored.rank != UNSEEN and row.mark != stored.mark

    def _append(self, data: bytes) -> None:
        before = self._journal.tell()
        try:
            self._journal.write(data)
            self._journal.flush()
            os.fsync(self._journal.fileno())
        except OSError:
            self._journal.close()
            self._journal = self.journal.open("r+b")
            self._journal.truncate(before)
            self._journal.seek(before)
            raise

    def fold(self, *, keep: float | None = None) -> None:
        """Fold the journal into the files beside it; with `keep`, forget jobs that ended so many seconds ago."""
        now = self.cursor.polled or 0.0
        ended = {key: job for key, job in self.jobs.items() if job.rank != PRESENT and job.line}
        segments = list(self.snapshot.segments)
        if ended:
            segments.append(self._segment([job.line for job in ended.values()], now))
        if keep is not None:
            segments = [s for s in segments if s.until >= now - keep]
        segments = self._joined(segments)
        present = [job.line for job in self.jobs.values() if job.rank == PRESENT]
        present += [missed_line(key, last_seen) for key, last_seen in self.missed.items()]
        ended_of_late = (item for item in self.jobs.items() if item[1].rank != PRESENT and item[1].at > now - RECENT_S)
        recent = [(key, job.rank, job.at, job.mark) for key, job in ended_of_late]
        snapshot = Snapshot(self.snapshot.number + 1, segments, self.cursor, present, recent)
        snapshot.save(self.folder)
        self.snapshot = snapshot
        self._journal.close()
        self._journal = self.journal.open("ab")
        for job in ended.values():
            job.line = ""
        recent_keys = {key for key, *_ in recent}
        self.jobs = {k: v for k, v in self.jobs.items() if v.rank == PRESENT or k in recent_keys}
        self._sweep()

    def _segment(self, lines: list[str], until: float) -> Segment:
        name = f"ended-{self.snapshot.number:08d}.gz"
        data = gzip.compress("".join(lines).encode("utf-8"), compresslevel=6, mtime=0)
        atomic_write(self.folder / name, data)
        return Segment(name, len(lines), until, len(data), sha256(data).hexdigest())

    def _joined(self, segments: list[Segment]) -> list[Segment]:
        """Make one file of the oldest small ones, where there are many."""
        small = [s for s in segments if s.size < LARGE]
        if len(small) <= MOST_SEGMENTS:
            return segments
        old = small[: MOST_SEGMENTS // 2]
        name = f"ended-{self.snapshot.number:08d}-{len(old)}.gz"

        def join(path: Path) -> None:  # a file of several gzip members is one gzip file
            with path.open("wb") as out:
                for one in old:
                    with one.checked(self.folder).open("rb") as part:
                        shutil.copyfileobj(part, out)

        try:
            atomic_write(self.folder / name, join)
        except TraceError:
            return segments  # whoever reads them names the one that is damaged
        with (self.folder / name).open("rb") as file:
            digest, size = file_digest(file, "sha256").hexdigest(), (self.folder / name).stat().st_size
        one = Segment(name, sum(s.rows for s in old), max(s.until for s in old), size, digest)
        return [one, *(s for s in segments if s not in old)]

    def close(self) -> None:
        """Let others open it."""
        self._journal.close()
        self._lock.close()

    # -- recovering ----------------------------------------------------------------------------------------------------

    def _recover(self) -> IO[bytes]:
        """Read the journal, and cut off what a kill left half-written."""
        path = self.journal
        path.touch()
        good = 0
        with path.open("rb") as journal:
            for number, line in enumerate(journal, 1):
                if not line.endswith(b"\n") or not is_whole(line):
                    if journal.read(1):
                        raise damaged(path, number)
                    break
                good += len(line)
                self._take(parsed([line.decode("utf-8")]))
        stream = path.open("r+b")
        stream.truncate(good)
        stream.seek(good)
        os.fsync(stream.fileno())
        sync_folder(self.folder)
        return stream

    def _take(self, lines: Iterator[tuple[list[str], str]]) -> None:
        for parts, line in lines:
            if parts[0] == ROW:
                rank, at, key = int(parts[1]), float(parts[2]), parts[3]
                before = self.jobs.get(key)
                if before is None or rank >= before.rank:
                    self.jobs[key] = StoredJob(rank, parts[4], at, line)
                    self.missed.pop(key, None)
            elif parts[0] == MISSED:
                self.missed[parts[2]] = float(parts[1])
            elif parts[0] == DONE:
                self.cursor = Cursor(**json.loads(parts[1]))

    def _sweep(self) -> None:
        """Delete files that the snapshot does not know: those of folds that were killed, and those that were joined."""
        ours = {segment.name for segment in self.snapshot.segments} | {self.journal.name}
        for path in self.folder.iterdir():
            stale = path.name.startswith(("journal-", "ended-", ".ended-", ".snapshot.json.")) and path.is_file()
            if stale and path.name not in ours:
                path.unlink(missing_ok=True)


def _locked(folder: Path) -> IO[str]:
    """Hold the folder's lock, which the system lets go when the process ends, however it does."""
    lock = (folder / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        who = lock.read(20).strip() or "unknown"
        lock.close()
        msg = f"another watcher writes into {folder}: process {who}"
        raise FleetlabError(msg, hint="end that one, or name another folder with --out") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock
