"""What a person sees: tables that read without colour, progress on stderr, errors with a hint."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetlab.core import Estimate, Provenance, Result, as_json, say

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.traces import Progress

MOST = 40  # rows of a table that are printed; `--json` has them all
WIDEST = 72  # characters of a cell


@dataclass(frozen=True, slots=True)
class Rows(Result):
    """One table of a result by itself."""

    name: str
    frame: pl.DataFrame
    provenance: Provenance

    def summary(self) -> list[Estimate]:
        """How many rows there are."""
        return [Estimate.exact(self.name, self.frame.height)]

    def tables(self) -> dict[str, pl.DataFrame]:
        """The rows."""
        return {self.name: self.frame}


def show(result: Result, *, json: bool = False, most: int = MOST, only: Sequence[str] = ()) -> None:
    """Print a result: as one JSON object, or as a summary and its tables, or `only` some of them."""
    if json:
        print(as_json(result))
        return
    if result.findings:
        print("\n".join(cell(line, widest=10_000) for line in result.findings), end="\n\n")
    print("\n".join(say(e) for e in result.summary()))
    for name, frame in result.tables().items():
        if frame.height and (not only or name in only):
            print(f"\n{name}")
            print(table(frame, most))
    if result.notes:
        print("\nnotes\n" + "\n".join(f"- {cell(note, widest=1000)}" for note in result.notes))


def table(frame: pl.DataFrame, most: int = MOST) -> str:
    """A frame as plain text: numbers to the right, names to the left, nothing that a terminal would obey."""
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    rows = [[cell(v) for v in row] for row in frame.head(most).iter_rows()]
    width = [max(len(line[k]) for line in [frame.columns, *rows]) for k in range(frame.width)]
    lines = [frame.columns, ["-" * w for w in width], *rows]
    text = [
        "  ".join(v.rjust(w) if n else v.ljust(w) for v, w, n in zip(line, width, numeric, strict=True))
        for line in lines
    ]
    if frame.height > most:
        text.append(f"… and {frame.height - most:,} more; --json has them all")
    return "\n".join(line.rstrip() for line in text)


def cell(value: object, widest: int = WIDEST) -> str:
    """One value; what a log brought in is text, never control codes."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    text = "".join(c if c.isprintable() else "?" for c in str(value))
    return text if len(text) <= widest else text[: widest - 1] + "…"


def complain(message: str, hint: str | None) -> None:
    """Say on stderr what went wrong and what to do next."""
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"\nhint: {hint}", file=sys.stderr)


@contextmanager
def progress(unit: str = "rows") -> Iterator[Progress]:
    """A bar for each thing that is read or fetched, on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn()]
    bars: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def progress(what: str, done: int, share: float) -> None:
            if what not in bars:
                bars[what] = bar.add_task(what, total=1.0, said="")
            took = bar.tasks[bars[what]].elapsed or 0.0
            speed = f", {done / took:,.0f}/s" if took > 0.2 else ""
            bar.update(bars[what], completed=share, said=f"{done:,} {unit}{speed}")

        yield progress
