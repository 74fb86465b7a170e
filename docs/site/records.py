"""Tables of every result, and of the files that commands write: what a row is, and what each column means.

The records are in `table_records`, a file a subject: per result its tables, and the columns whose meaning is its own.
`columns` of a whole file hold for all its results, and those of `shared.toml` for all results.

The columns of a table are written as `policy | mean wait ± | preemptions?`: `±` adds the two ends of the 95 % interval
(`mean wait low`, `mean wait high`; `±_` adds `…_low` and `…_high`), `?` marks a column that is left out where it does
not apply. `{…}` in the name of a table or a column stands for a text that differs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.site.columns import Column

DATA = Path(__file__).with_name("table_records")
ORDER = (
    "traces", "describe", "simulation", "questions", "studies", "sweeps", "planning", "queueing", "sharing", "bench",
)  # fmt: skip
SEPARATOR = " | "
VARIES = re.compile(r"\{[^}]*\}")
INTERVALS = {" ±_": "_", " ±": " "}
ENDS = {"low": "lower end of the 95 % interval of", "high": "upper end of the 95 % interval of"}
DERIVED = {
    **{f"{gap}{end}": text for end, text in ENDS.items() for gap in INTERVALS.values()},
    " change": "difference to the baseline of",
    ", published": "published value of",
}


@dataclass(frozen=True, slots=True)
class Table:
    """One table: what a row is, and its columns as they are written here."""

    name: str
    row: str
    columns: str

    def parts(self) -> list[str]:
        """Return the columns as written: those with `±` are three."""
        return self.columns.split(SEPARATOR)

    def names(self) -> Iterator[tuple[str, bool]]:
        """Yield every column, and whether the table always has it.

        >>> list(Table("x", "a policy", "policy | mean ± | note?").names())
        [('policy', True), ('mean', True), ('mean low', True), ('mean high', True), ('note', False)]
        """
        for part in self.parts():
            name, always = part.removesuffix("?"), not part.endswith("?")
            gap = next((gap for mark, gap in INTERVALS.items() if name.endswith(mark)), None)
            column = without_mark(name)
            yield column, always
            if gap is not None:
                yield from ((f"{column}{gap}{end}", always) for end in ENDS)

    def column(self, name: str) -> str | None:
        """Return the column here that a column of a result is; None if there is none."""
        return closest([column for column, _ in self.names()], name)


@dataclass(frozen=True, slots=True)
class Described:
    """The tables of one result, or of the files of one command, with the columns whose meaning is its own."""

    name: str
    tables: tuple[Table, ...]
    columns: Mapping[str, Column]

    def table(self, name: str) -> Table | None:
        """Return the table of this name, or that whose name allows it."""
        by_name = {t.name: t for t in self.tables}
        pattern = closest(by_name, name)
        return None if pattern is None else by_name[pattern]

    def column(self, table: str, name: str, shared: Mapping[str, Column]) -> Column | None:
        """Return what a column of a table means: by the table's own record, the result's own, or the shared one."""
        meaning = self.columns.get(f"{table}: {name}") or self.columns.get(name) or shared.get(name)
        if meaning is not None:
            return meaning
        for suffix, text in DERIVED.items():
            if name.endswith(suffix) and (of := self.column(table, name.removesuffix(suffix), shared)):
                return Column(name, f"{text} `{of.name}`", of.unit)
        return None


def described(name: str, tables: Mapping[str, Mapping[str, str]], columns: Mapping[str, Column]) -> Described:
    """Build the record of a result: tables by name, with what a row is and the columns."""
    return Described(name, tuple(Table(key, **table) for key, table in tables.items()), columns)


def meanings(columns: Mapping[str, Any]) -> dict[str, Column]:
    """Return columns by name, from their meanings alone or with their units.

    >>> meanings({"wait": ["submission to start", "s"], "by user: jobs": "jobs of the user"})["by user: jobs"].name
    'jobs'
    """
    pairs = {name: (of, "") if isinstance(of, str) else of for name, of in columns.items()}
    return {name: Column(name.rpartition(": ")[2], meaning, unit) for name, (meaning, unit) in pairs.items()}


def results(file: str) -> Iterator[Described]:
    """Yield the results that a file of records describes."""
    records = tomllib.loads((DATA / f"{file}.toml").read_text("utf-8"))
    common = meanings(records.pop("columns", {}))
    for name, record in records.items():
        yield described(name, record["tables"], common | meanings(record.get("columns", {})))


def without_mark(name: str) -> str:
    """Return the name of a column without the marks of its interval and of its absence."""
    name = name.removesuffix("?")
    for mark in INTERVALS:
        name = name.removesuffix(mark)
    return name


def closest(patterns: Iterable[str], name: str) -> str | None:
    """Return the name itself if it is there, else the pattern that allows it and says most.

    >>> closest(["{upper}", "new, {upper}", "now"], "new, P90"), closest(["now"], "P90")
    ('new, {upper}', None)
    """
    candidates = [pattern for pattern in patterns if pattern == name or fits(pattern, name)]
    return max(candidates, key=lambda pattern: (pattern == name, len(VARIES.sub("", pattern))), default=None)


def fits(pattern: str, name: str) -> bool:
    """Is this a name that the pattern allows?

    >>> fits("by {class}", "by user"), fits("by {class}", "waiting")
    (True, False)
    """
    parts = (re.escape(part) for part in VARIES.split(pattern))
    return re.fullmatch(".+".join(parts), name) is not None


SHARED = meanings(tomllib.loads((DATA / "shared.toml").read_text("utf-8")))
RESULTS = tuple(one for file in ORDER for one in results(file))
FILES = tuple(results("files"))
