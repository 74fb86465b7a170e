"""The files of a store: lines of the journal, and the snapshot that they add to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fleetlab.core.errors import FleetlabError
from fleetlab.core.files import atomic_write
from fleetlab.live.rows import Row

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
        except FileNotFoundError:
            return cls()
        except ValueError as e:
            msg = f"{folder / 'snapshot.json'}: damaged: {e}"
            raise FleetlabError(msg, hint="put it back from a backup, or begin with a new folder") from None
        if values.pop("layout", None) != LAYOUT:
            msg = f"{folder}: written by another version of fleetlab"
            raise FleetlabError(msg, hint="begin with a new folder")
        values["segments"] = [Segment(**one) for one in values["segments"]]
        values["cursor"] = Cursor(**values["cursor"])
        return cls(**values)

    def save(self, folder: Path) -> None:
        """Replace the one that is there."""
        atomic_write(folder / "snapshot.json", json.dumps({"layout": LAYOUT, **asdict(self)}))
        sync_folder(folder)


def row_line(row: Row, at: float) -> str:
    """Write a row."""
    seen = at if row.seen is None else row.seen
    return f"{ROW}\t{row.rank}\t{seen:.3f}\t{row.key}\t{row.mark}\t{row.text()}\n"


def missed_line(key: str, seen: float) -> str:
    """Write that a job is not listed any more, and when it last was."""
    return f"{MISSED}\t{seen:.3f}\t{key}\n"


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
