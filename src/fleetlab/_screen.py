"""What a person sees: tables that read without colour, progress on stderr, errors with a hint."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from fleetlab._table import GAP, TOGETHER, Column, layout, together
from fleetlab.core import Estimate, Provenance, Result, as_json, say
from fleetlab.core.progress import COMPILING, shown
from fleetlab.core.words import WORDS, as_options

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.traces import Progress

MOST = 40  # rows of a table that are printed; `--json` has them all
LINES = 40  # of a short answer
SENTENCES = 18  # lines of a short answer that are sentences
FEWEST = 3  # rows of a table that a short answer has
ROWS = 8  # of a table in a short answer, at most
PAGE = 100  # characters of a line in a file, beyond which headings are broken
LINE_EVERY = 10.0  # seconds between lines of progress where standard error is no terminal
WIDEST = 400  # characters of a cell: what is longer is not for reading
OF_INTERVALS = ("intervals are of", "intervals of mean waits", "one run of the log")  # notes of a short answer


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


_full = False


def print_everything() -> None:
    """Print answers whole from now on, as `--full` asks for."""
    global _full
    _full = True


def show(
    result: Result, *, json: bool = False, most: int = MOST, only: Sequence[str] = (), columns: Sequence[str] = (),
    short: bool = False, beside: Sequence[str] = (),
) -> None:  # fmt: skip
    """Print a result: as one JSON object, or as findings, a summary, tables and notes.

    Of the tables `only` some may be printed. With `columns`, those are printed in place of the summary and of all
    columns, where a table has them. A `short` answer is what fits a screen, unless everything is asked for. The lines
    `beside` the numbers are drawn already.
    """
    if json:
        print(as_json(result))
        return
    if short and not _full:
        print("\n".join(short_answer(result, only, columns, beside)))
        return
    covered = (result.coverage.line,) if result.coverage is not None else ()
    if sentences := (*covered, *result.findings):
        lines = "\n".join(prose(cell(as_options(line, WORDS), widest=10_000)) for line in sentences)
        print(lines, end="\n" if columns else "\n\n")
    if not columns and (numbers := result.summary()):
        print("\n".join(prose(say(e), "  ") for e in numbers))
    if beside:
        print("\n".join(("", *beside)))
    for name, frame in result.tables().items():
        if frame.height and (not only or name in only):
            chosen = [column for column in columns if column in frame.columns]
            print(f"\n{name}")
            print(table(frame.select(chosen) if chosen else frame, most))
    if result.notes:
        print(
            "\nnotes\n"
            + "\n".join(prose(f"- {cell(as_options(note, WORDS), widest=1000)}", "  ") for note in result.notes)
        )


def short_answer(
    result: Result, only: Sequence[str] = (), columns: Sequence[str] = (), beside: Sequence[str] = ()
) -> list[str]:
    """Return at most 40 lines of at most 100 characters: sentences, numbers, and the first tables that have room."""
    width = min(PAGE, screen_width() or PAGE)
    coverage = result.coverage
    line = () if coverage is None else (coverage.line,)
    partly = coverage is not None and (". " in coverage.line or coverage.covered.jobs < coverage.log.jobs)
    lines: list[str] = []
    left = 0
    for sentence in (*line, *result.findings) if partly else (*result.findings, *line):
        text = together(cell(as_options(sentence, WORDS), widest=10_000))
        more = [part.replace(TOGETHER, " ") for part in wrap(text, width, break_on_hyphens=False)]
        if left or len(lines) + len(more) > SENTENCES:
            left += 1
        else:
            lines += more
    if not columns and (numbers := result.summary()):
        lines += ["", *(say(e) for e in numbers[:4])]
    lines += ["", *beside] if beside else []
    of_what = [note for note in result.notes if note.startswith(OF_INTERVALS)]
    lines += [""] * bool(of_what) + [text for note in of_what for text in wrap(as_options(note, WORDS), width)]
    tables = {name: frame for name, frame in result.tables().items() if frame.height and (not only or name in only)}
    others = []
    for name, frame in tables.items():
        chosen = [column for column in columns if column in frame.columns]
        rows = min(frame.height, ROWS if len(tables) > 1 else LINES)
        while rows >= min(FEWEST, frame.height):
            drawn = _narrow(frame.select(chosen) if chosen else frame, rows, width)
            if len(lines) + len(drawn) + 2 <= LINES - 3:
                lines += ["", name, *drawn]
                break
            rows -= 1
        else:
            others.append(name)
    parts = [f"{left} more sentences"] * bool(left) + [f"tables {', '.join(others)}"] * bool(others)
    notes = [
        wrap(f"- {cell(as_options(note, WORDS), widest=1000)}", width, subsequent_indent="  ")
        for note in result.notes
        if note not in of_what
    ]
    if notes and len(lines) + sum(map(len, notes)) + 2 <= LINES - 2 * bool(parts):
        lines += ["", "notes", *(text for note in notes for text in note)]
    elif notes:
        parts.append(f"{len(notes)} notes")
    if parts:
        lines += ["", *wrap(f"--full prints all: {'; '.join(parts)}", width)[:2]]
    return lines[:LINES]


def _narrow(frame: pl.DataFrame, rows: int, width: int) -> list[str]:
    """Return a table with the first columns that fit into a width, and so many rows."""
    from fleetlab.core.display import display_columns

    columns = [Column(c.name, c.numeric, [cell(text) for text in c.texts]) for c in display_columns(frame.head(rows))]
    while len(columns) > 1 and sum(c.least + GAP for c in columns) - GAP > width:
        columns.pop()
    return [*layout(columns, width, whole_rows=False), *([f"… {frame.height - rows:,} more"] * (frame.height > rows))]


def table(frame: pl.DataFrame, most: int = MOST) -> str:
    """A frame as plain text: numbers to the right, names to the left, nothing that a terminal would obey.

    Headings of a table that is wider than the terminal are broken at their spaces; on a terminal, texts too. What
    goes into a file or another program has a line for each row.
    """
    from fleetlab.core.display import display_columns

    columns = [
        Column(c.name, c.numeric, [cell(text) for text in c.texts], joined=c.name.endswith((" % CI", " % PI")))
        for c in display_columns(frame.head(most))
    ]
    text = layout(columns, screen_width() or PAGE, whole_rows=screen_width() is None)
    if frame.height > most:
        text.append(f"… and {frame.height - most:,} more; --json has them all")
    return "\n".join(text)


def screen_width(stream: TextIO | None = None) -> int | None:
    """The columns of the terminal, or what COLUMNS says; None where the output goes into a file or a program."""
    has_width = os.environ.get("COLUMNS", "").isdigit() or (stream or sys.stdout).isatty()
    return get_terminal_size().columns if has_width else None


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


def progress_lines() -> Progress:
    """Return what writes a line to standard error, a file or a pipe, every ten seconds."""
    last = time.monotonic()

    def progress(what: str, done: int, share: float) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY:
            last = time.monotonic()
            print(f"{what}: {done:,} done, {share:.0%}", file=sys.stderr, flush=True)

    return progress


@contextmanager
def progress(unit: str = "rows") -> Iterator[Progress]:
    """A bar for each thing that is read, fetched or compiled, on a terminal; elsewhere a line now and then."""
    with _bars(unit) if sys.stderr.isatty() else nullcontext(progress_lines()) as draw:
        shown.append(draw)
        try:
            yield draw
        finally:
            shown.pop()


@contextmanager
def _bars(unit: str) -> Iterator[Progress]:
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
            counted = "functions" if what == COMPILING else unit
            bar.update(bars[what], completed=share, said=f"{done:,} {counted}{speed}")

        yield progress
