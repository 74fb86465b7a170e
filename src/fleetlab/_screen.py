"""What a person sees: tables that read without colour, progress on stderr, errors with a hint."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from fleetlab._table import TOGETHER, Column, layout, together
from fleetlab.core import Estimate, Provenance, Result, as_json, say
from fleetlab.core.words import WORDS, as_options

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.traces import Progress

MOST = 40  # rows of a table that are printed; `--json` has them all
PAGE = 100  # characters of a line in a file, beyond which headings are broken
WIDEST = 400  # characters of a cell: what is longer is not for reading


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


def show(
    result: Result, *, json: bool = False, most: int = MOST, only: Sequence[str] = (), columns: Sequence[str] = ()
) -> None:
    """Print a result: as one JSON object, or as findings, a summary, tables and notes.

    Of the tables `only` some may be printed. With `columns`, those are printed in place of the summary and of all
    columns, where a table has them.
    """
    if json:
        print(as_json(result))
        return
    covered = (result.coverage.line,) if result.coverage is not None else ()
    if said := (*covered, *result.findings):
        lines = "\n".join(prose(cell(as_options(line, WORDS), widest=10_000)) for line in said)
        print(lines, end="\n" if columns else "\n\n")
    if not columns:
        print("\n".join(prose(say(e), "  ") for e in result.summary()))
    for name, frame in result.tables().items():
        if frame.height and (not only or name in only):
            known = [column for column in columns if column in frame.columns]
            print(f"\n{name}")
            print(table(frame.select(known) if known else frame, most))
    if result.notes:
        print(
            "\nnotes\n"
            + "\n".join(prose(f"- {cell(as_options(note, WORDS), widest=1000)}", "  ") for note in result.notes)
        )


def table(frame: pl.DataFrame, most: int = MOST) -> str:
    """A frame as plain text: numbers to the right, names to the left, nothing that a terminal would obey.

    Headings of a table that is wider than the terminal are broken at their spaces; on a terminal, texts too. What
    goes into a file or another program has a line for each row.
    """
    from fleetlab.core.display import shown

    columns = [
        Column(c.name, c.numeric, [cell(text) for text in c.texts], joined=c.name.endswith((" % CI", " % PI")))
        for c in shown(frame.head(most))
    ]
    text = layout(columns, screen_width() or PAGE, whole_rows=screen_width() is None)
    if frame.height > most:
        text.append(f"… and {frame.height - most:,} more; --json has them all")
    return "\n".join(text)


def screen_width(stream: TextIO | None = None) -> int | None:
    """The columns of the terminal, or what COLUMNS says; None where the output goes into a file or a program."""
    known = os.environ.get("COLUMNS", "").isdigit() or (stream or sys.stdout).isatty()
    return get_terminal_size().columns if known else None


def prose(text: str, indent: str = "", first: str = "", stream: TextIO | None = None) -> str:
    """A line of text, broken between words where the terminal ends; `indent` begins the lines after the first."""
    width = screen_width(stream)
    if width is None or len(first) + len(text) <= width:
        return first + text
    whole = together(text)
    # What is longer than a line, such as a path or a list of columns, stays whole on stderr: it may be copied.
    lines = wrap(
        whole, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False,
        break_long_words=stream is None,
    )  # fmt: skip
    return "\n".join(lines).replace(TOGETHER, " ")


def cell(text: str, widest: int = WIDEST) -> str:
    """One text; what a log brought in is never control codes."""
    plain = "".join(c if c.isprintable() else "?" for c in text)
    return plain if len(plain) <= widest else plain[: widest - 1] + "…"


def complain(message: str, hint: str | None) -> None:
    """Say on stderr what went wrong and what to do next."""
    print(_lines(message, "error: "), file=sys.stderr)
    if hint:
        print("\n" + _lines(hint, "hint: "), file=sys.stderr)


def _lines(message: str, first: str) -> str:
    begin, *more = message.split("\n")
    return "\n".join((prose(begin, "  ", first, sys.stderr), *(prose(line, "  ", "", sys.stderr) for line in more)))


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
