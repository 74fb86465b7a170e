"""A first look at a log before it is read: what it looks like, its first rows, and which column would become which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleetlab.core import TraceError
from fleetlab.traces.input.format import Peek
from fleetlab.traces.table.mapping import TARGETS
from fleetlab.traces.table.reader import first_look

ROWS = 5
COLUMNS = 60  # that are shown
CELL = 60  # characters of a cell that are shown
TABLE = "csv"


@dataclass(frozen=True, slots=True)
class Preview:
    """What is known of a log before it is read."""

    formats: tuple[str, ...]  # that it looks like, the likeliest first
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    spelled: tuple[str, ...] = ()  # the columns as an expression has them; empty: this is no table
    map: Mapping[str, str] = field(
        default_factory=dict
    )  # expressions by column of a workload, as they would be guessed
    targets: tuple[str, ...] = ()  # columns of a workload that can be mapped
    note: str = ""  # why nothing was guessed


def preview(path: Path | str) -> Preview:
    """Look at the beginning of a file, or of the files of a folder."""
    from fleetlab.traces import READERS

    peek = Peek(Path(path))
    formats = tuple(f.name for f in READERS.values() if f.fits(peek))
    if len(peek.files) != 1:
        rows = [(source.name, line[:CELL]) for source, line in zip(peek.files.values(), peek.first_lines, strict=True)]
        return Preview(formats, ("file", "first line"), tuple(rows))
    lines = tuple((line[: 2 * CELL],) for line in peek.beginning(next(iter(peek.files.values()))).splitlines()[:ROWS])
    try:
        look = first_look(Path(path))
    except TraceError as e:
        return Preview(formats, ("first lines",), lines, note=str(e))
    if not all(look.header):  # no names of columns: a log of another kind
        return Preview(formats, ("first lines",), lines)
    return Preview(
        formats or (TABLE,), tuple(look.header[:COLUMNS]),
        tuple(tuple(cell[:CELL] for cell in row[:COLUMNS]) for row in look.rows[:ROWS]),
        tuple(look.spelled[:COLUMNS]), look.map, TARGETS, look.note,
    )  # fmt: skip
