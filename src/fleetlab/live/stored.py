"""The jobs of a store, read by processes other than the one that writes it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetlab.live.journal import DONE, ROW, Cursor, Snapshot, is_whole, journal_of, parsed


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
    tail = [line.decode("utf-8") + "\n" for line in journal.split(b"\n") if is_whole(line)]
    cursor = snapshot.cursor
    for parts, _ in parsed(tail):
        if parts[0] == DONE:
            cursor = Cursor(**json.loads(parts[1]))
    files = [folder / s.name for s in snapshot.segments if since is None or s.until >= since]
    return cursor, _once(files, [*snapshot.lines, *tail])


def _once(files: list[Path], tail: list[str]) -> Iterator[Stored]:
    """Give the row of each job that knows most of it; two passes, so that no row is held."""
    best: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(_lines(files, tail)):
        parts = line.split("\t", 5)
        if parts[0] == ROW:
            rank, key = int(parts[1]), parts[3]
            if rank >= best.get(key, (-1, 0))[0]:
                best[key] = (rank, number)
    for number, line in enumerate(_lines(files, tail)):
        parts = line.split("\t", 5)
        if parts[0] == ROW and best[parts[3]][1] == number:
            yield Stored(parts[3], int(parts[1]), float(parts[2]), json.loads(parts[5]))


def _lines(files: list[Path], tail: list[str]) -> Iterator[str]:
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as stream:
            yield from stream
    yield from tail
