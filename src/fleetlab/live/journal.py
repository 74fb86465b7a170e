"""The jobs of a store: lines of the journal, the snapshot that they add to, and the trace that they are read as.

Rows go through the reader of their format, as any log does.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from fleetlab.core import Trace, TraceError
from fleetlab.core.durations import plural
from fleetlab.core.errors import FleetlabError
from fleetlab.core.files import atomic_write
from fleetlab.core.sources import UNSEEN, Row, Source
from fleetlab.traces import read

LAYOUT = 1
ROW, MISSED, DONE = "R", "M", "P"  # how a line begins, and how many parts it has
PARTS = {ROW: 6, MISSED: 3, DONE: 2}


@dataclass(slots=True)
class Cursor:
    """How far reading has come, in Unix time."""

    begun: float | None = None  # when the first poll was
    polled: float | None = None  # the last complete list of jobs
    accounted: float | None = None  # up to when accounting has been read
    polls: int = 0
    rows: int = 0


@dataclass(slots=True)
class Segment:
    """A file of jobs that have ended."""

    name: str
    rows: int
    until: float
    size: int
    sha256: str = ""  # of the file; none: written before there were any

    def checked(self, folder: Path) -> Path:
        """Return the file, once it is found to be what was written.

        Raises
        ------
        TraceError
            If it is another.
        """
        path = folder / self.name
        with path.open("rb") as file:
            same = path.stat().st_size == self.size and self.sha256 in ("", file_digest(file, "sha256").hexdigest())
        if not same:
            msg = f"{path}: damaged: it is not the file of {plural(self.rows, 'row')} that was written"
            raise TraceError(msg, hint="put it back from a backup; the trace that was made before is left as it is")
        return path


@dataclass(slots=True)
class Snapshot:
    """What the journal adds to."""

    number: int = 1  # of the journal
    segments: list[Segment] = field(default_factory=list)
    cursor: Cursor = field(default_factory=Cursor)
    lines: list[str] = field(default_factory=list)  # rows of jobs that are there
    recent: list[tuple[str, int, float, str]] = field(default_factory=list)  # key, rank, when, mark of ended jobs

    @classmethod
    def load(cls, folder: Path) -> Snapshot:
        """Read it; a folder without one is new."""
        try:
            values = json.loads((folder / "snapshot.json").read_text("utf-8"))
            if values.pop("layout", None) != LAYOUT:
                raise FleetlabError(f"{folder}: written by another version of fleetlab", hint="begin with a new folder")
            values["segments"] = [Segment(**one) for one in values["segments"]]
            values["cursor"] = Cursor(**values["cursor"])
            return cls(**values)
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            msg = f"{folder / 'snapshot.json'}: damaged: {e}"
            raise FleetlabError(msg, hint="put it back from a backup, or begin with a new folder") from None

    def save(self, folder: Path) -> None:
        """Replace the one that is there."""
        atomic_write(folder / "snapshot.json", json.dumps({"layout": LAYOUT, **asdict(self)}))
        sync_folder(folder)


def row_line(row: Row, at: float) -> str:
    """Write a row."""
    last_seen = at if row.last_seen is None else row.last_seen
    return f"{ROW}\t{row.rank}\t{last_seen:.3f}\t{row.key}\t{row.mark}\t{row.text()}\n"


def missed_line(key: str, last_seen: float) -> str:
    """Write that a job is not listed any more, and when it last was."""
    return f"{MISSED}\t{last_seen:.3f}\t{key}\n"


def done_line(cursor: Cursor) -> str:
    """Write that a poll is complete."""
    return f"{DONE}\t{json.dumps(asdict(cursor))}\n"


def journal_of(folder: Path, number: int) -> Path:
    """Return the name of a journal."""
    return folder / f"journal-{number:08d}.log"


def is_whole(line: bytes) -> bool:
    """Tell whether a line of a journal is one that was written to its end."""
    try:
        parts = line.decode("utf-8").rstrip("\n").split("\t")
        if parts[0] == ROW:
            json.loads(parts[5])
        elif parts[0] == DONE:
            json.loads(parts[1])
        return len(parts) == PARTS.get(parts[0])
    except (ValueError, IndexError):
        return False


def damaged(journal: Path, line: int) -> TraceError:
    """Return the error of a line that no kill explains: one that has others behind it."""
    msg = f"{journal}: damaged in line {line}, with others behind it"
    return TraceError(msg, hint="put it back from a backup; the trace that was made before is left as it is")


def parsed(lines: Iterable[str]) -> Iterator[tuple[list[str], str]]:
    """Take lines apart at their tabs."""
    for line in lines:
        yield line.rstrip("\n").split("\t"), line


def sync_folder(folder: Path) -> None:
    """Make sure that names of files are on the disk, as their contents are."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@dataclass(frozen=True, slots=True)
class Stored:
    """One job of a store."""

    key: str
    rank: int
    at: float
    data: dict[str, Any]


def stored_rows(folder: Path, since: float | None = None) -> tuple[Cursor, Iterator[Stored]]:
    """Return how far a store has come, and each job once.

    It may be open elsewhere: if its journal is folded just now, this begins again. With `since`, files of jobs that
    all ended before are passed over.
    """
    while True:
        snapshot = Snapshot.load(folder)
        try:
            journal = journal_of(folder, snapshot.number).read_bytes()
        except FileNotFoundError:
            if Snapshot.load(folder).number == snapshot.number:
                journal = b""  # nothing has been written since
            else:
                continue
        break
    *lines, torn = journal.split(b"\n")  # behind the last line end is what is written just now, or was when killed
    if bad := next((k for k, line in enumerate(lines, 1) if not is_whole(line)), None):
        raise damaged(journal_of(folder, snapshot.number), bad)
    tail = [line.decode("utf-8") + "\n" for line in (*lines, torn) if is_whole(line)]
    cursor = snapshot.cursor
    for parts, _ in parsed(tail):
        if parts[0] == DONE:
            cursor = Cursor(**json.loads(parts[1]))
    files = [s for s in snapshot.segments if since is None or s.until >= since]
    return cursor, _once(folder, files, [*snapshot.lines, *tail])


def _once(folder: Path, files: list[Segment], tail: list[str]) -> Iterator[Stored]:
    """Give the row of each job that knows most of it; two passes, so that no row is held."""
    best: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(_lines(folder, files, tail)):
        parts = line.split("\t", 5)
        if parts[0] == ROW:
            rank, key = int(parts[1]), parts[3]
            if rank >= best.get(key, (-1, 0))[0]:
                best[key] = (rank, number)
    for number, line in enumerate(_lines(folder, files, tail)):
        parts = line.split("\t", 5)
        if parts[0] == ROW and best[parts[3]][1] == number:
            yield Stored(parts[3], int(parts[1]), float(parts[2]), json.loads(parts[5]))


def _lines(folder: Path, files: list[Segment], tail: list[str]) -> Iterator[str]:
    for file in files:
        with gzip.open(file.checked(folder), "rt", encoding="utf-8", newline="\n") as stream:
            yield from stream
    yield from tail


# -- as a trace ------------------------------------------------------------------------------------------------------


STORE, SITE, NODES, TRACE = "store", "site", "nodes.txt", "trace"  # in the folder of a watch
PREDICTED = "predicted.json"  # in its store
TRIES = 3  # of reading a store that is folded meanwhile


def read_rows(source: type[Source], rows: Iterable[Mapping[str, Any]], nodes: str, site: Path | None) -> Trace:
    """Read rows as the log that they came from."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "log"
        shutil.copytree(site, folder) if site is not None and site.is_dir() else folder.mkdir()
        source.write_log(rows, nodes, folder)
        return read(folder, source.format)


def queue_of(source: type[Source]) -> pl.Expr:
    """Return where a job waits, of the columns of a workload."""
    first = {"partitions": pl.col("partitions").list.first()}
    return pl.coalesce(first.get(name, pl.col(name).cast(pl.String)) for name in source.queue)


def trace_of(folder: Path, source: type[Source], *, since: float | None = None) -> Trace:
    """Return the trace of a watched cluster; with `since`, without jobs that ended long before."""
    for attempt in range(TRIES):
        try:
            return _trace(folder, source, since)
        except FileNotFoundError:  # the watcher has joined files just now
            if attempt == TRIES - 1:
                raise
    raise AssertionError


def _trace(folder: Path, source: type[Source], since: float | None) -> Trace:
    cursor, rows = stored_rows(folder / STORE, since)
    if cursor.polled is None:
        raise TraceError(f"{folder}: no complete poll yet", hint="wait for the first one")
    unseen: dict[str, float] = {}

    def data() -> Iterable[Mapping[str, Any]]:
        for row in rows:
            if row.rank == UNSEEN:
                unseen.update(dict.fromkeys(source.job_names(row.data), row.at))
            yield row.data

    nodes = folder / STORE / NODES
    text = nodes.read_text("utf-8") if nodes.is_file() else ""
    trace = read_rows(source, data(), text, folder / STORE / SITE)
    return _with_times(trace, cursor, unseen)


def _with_times(trace: Trace, cursor: Cursor, unseen: dict[str, float]) -> Trace:
    """Say how long jobs were seen to run: those that run, to the last poll; those that are gone, to their last one."""
    epoch = trace.workload.epoch or 0.0
    until = max(0.0, (cursor.polled or 0.0) - epoch)
    names = trace.names.collect() if trace.names is not None else pl.DataFrame({"job": [], "name": []})
    last_seen = pl.DataFrame(
        {"name": list(unseen), "seen": [at - epoch for at in unseen.values()]},
        schema={"name": pl.String, "seen": pl.Float64},
    )
    unseen_ends = names.join(last_seen, on="name").select("job", "seen")
    frame = trace.workload.frame.join(unseen_ends, on="job", how="left", maintain_order="left")
    ended_unseen = pl.col("seen").is_not_null() & pl.col("end").is_null()
    last = pl.when(pl.col("status") == "running").then(until).when(ended_unseen).then("seen")
    ran = pl.max_horizontal(last - pl.col("start"), 0.0)
    frame = frame.with_columns(
        runtime_at_least=pl.when(last.is_not_null() & pl.col("start").is_not_null())
        .then(ran)
        .otherwise("runtime_at_least")
    ).drop("seen")
    begun = max(0.0, (cursor.begun or 0.0) - epoch)
    notes = [f"watched: complete from {begun:,.0f} s on; earlier jobs are those that waited or ran then"]
    if unseen_ends.height:
        notes.append(f"{plural(unseen_ends.height, 'job')} ended unseen: their runtime is at least what was seen of it")
    series = {**trace.series, "end_not_seen": unseen_ends.lazy()} if unseen_ends.height else trace.series
    settings = {**trace.provenance.settings, "watched_from": begun, "watched_until": until}
    return replace(
        trace,
        workload=replace(trace.workload, frame=frame),
        provenance=replace(trace.provenance, settings=settings),
        notes=(*trace.notes, *notes),
        series=series,
    )
