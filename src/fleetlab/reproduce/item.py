"""A published number, where ours is, when it counts as reproduced, and the row that compares the two.

A tolerance depends on how a number was published, never on how far ours is from it, and is the same for all numbers
that were published in that way. Where ours comes from random runs, its 95 % interval is compared, not its mean: a wide
interval lies neither inside a tolerance nor outside of it, and so decides nothing, for success or against it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, NamedTuple

import polars as pl

from fleetlab.core.durations import minus
from fleetlab.describe.published import PAI, published_values
from fleetlab.stats import ANY, Range, Statistic

REPRODUCED, FITTED, DIFFERENT, NOT_POSSIBLE = "reproduced", "fitted", "different", "not possible"
UNDECIDED, UNEXPLAINED = "not decided", "different, unexplained"
VERDICTS = (REPRODUCED, FITTED, DIFFERENT, UNDECIDED, NOT_POSSIBLE, UNEXPLAINED)
HOW = (
    "A number is reproduced if ours, with its 95 % interval where it comes from random runs, lies inside the tolerance "
    "around the published one, different if it lies outside, and not decided if the interval reaches across."
)
HAIR = 1e-9  # so that 0.5 of the last digit is not lost in binary fractions


@dataclass(frozen=True, slots=True)
class Rule:
    """How far ours may be: a part of the published value, or points where it is a percentage."""

    words: str
    part: float = 0.0
    points: float | None = None  # of percentages, in place of a part of the value
    least: bool = False  # the published value is a lower bound
    most: bool = False  # the published value is an upper bound
    farthest: float | None = None  # ours is a distance from what was published, and at most this

    def tolerance(self, published: float, digits: int, unit: str) -> float:
        """Return the difference that is accepted; half of the last printed digit always is."""
        last = 0.5 * 10.0**-digits
        wide = self.points if unit == "%" and self.points is not None else self.part * abs(published)
        return max(last, wide) + HAIR * max(1.0, abs(published))


def rules_table() -> pl.DataFrame:
    """Return every rule, as it is printed with a result."""
    return pl.DataFrame({"rule": list(RULES), "a number is reproduced if it is": [r.words for r in RULES.values()]})


LOG, SYNTHETIC = "log", "built-in"
UNREAD = ("", "none")
SIGNIFICANT = 4  # digits of ours where the published value has none after the point


class SourceTable(NamedTuple):
    """A table of ours, and which data it is of."""

    frame: pl.DataFrame
    on: str = LOG
    random: bool = False  # means of random runs, so that their intervals count


class Value(NamedTuple):
    """A number of ours with its 95 % interval, if it has one."""

    value: float
    low: float = math.nan
    high: float = math.nan
    on: str = LOG
    text: str = ""  # in place of the number, where the table has a column for it
    random: bool = False

    @property
    def limits(self) -> Range:
        """Between what the value lies: its interval, if it is random; of one random run it may be anything."""
        if not self.random:
            return self.value, self.value
        return (self.low, self.high) if math.isfinite(self.low + self.high) else ANY


class Cell(NamedTuple):
    """A cell of a table: its column, in the row with these values; times `scale`."""

    table: str
    row: Mapping[str, object]
    column: str
    scale: float = 1.0

    def read(self, tables: Mapping[str, SourceTable]) -> Value | None:
        """Return the value, or None where there is no such table, row, column or number."""
        if self.table not in tables:
            return None
        frame, on, random = tables[self.table]
        for name, value in self.row.items():
            if name not in frame.columns:
                return None
            frame = frame.filter(pl.col(name).cast(pl.String) == str(value))
        if frame.height != 1 or self.column not in frame.columns or frame[self.column][0] is None:
            return None
        names = (self.column, *self._interval(frame))
        numbers = [float(frame[n][0]) * self.scale if n and frame[n][0] is not None else math.nan for n in names]
        text_column = f"{self.column}, text"
        text = str(frame[text_column][0]) if text_column in frame.columns else ""
        value, low, high = numbers
        return Value(value, low, high, on, text, random) if math.isfinite(value) else None

    def _interval(self, frame: pl.DataFrame) -> tuple[str, str]:
        for low, high in ((f"{self.column} low", f"{self.column} high"), ("low", "high")):
            if low in frame.columns and high in frame.columns:
                return low, high
        return "", ""


@dataclass(frozen=True, slots=True)
class Item:
    """What was published: where, in which words, and what is known of why ours may differ or cannot be."""

    item: str  # figure, table, or kind of text
    what: str
    published: str
    source: str
    rule: str = "none"
    unit: str = ""
    ours: Cell | None = None
    why: str = ""
    why_on: str = ""  # the data of which the reason speaks, where it is not of any
    not_possible: str = ""
    fitted: bool = False  # the built-in trace is made from it, so that meeting it there is no evidence
    whole: bool = False  # only of the whole trace

    @property
    def number(self) -> float:
        """The published value; digits are those that were printed."""
        return float(self.published.replace(",", ""))

    @property
    def digits(self) -> int:
        """How many digits were printed after the point."""
        return len(self.published.partition(".")[2])

    def compare(self, tables: Mapping[str, SourceTable]) -> dict[str, object]:
        """Return the row of this item."""
        value = None if self.ours is None or self.not_possible else self.ours.read(tables)
        if value is None:
            why = self.not_possible or "not in the data given"
            return self._row("", "", NOT_POSSIBLE, why)
        return self._row(self._text(value), value.on, *self.judge(value))

    def judge(self, value: Value) -> tuple[str, str]:
        """Return the verdict, and the reason where one is needed."""
        agrees = self.agrees(value)
        if agrees is None:
            return UNDECIDED, self._vague()
        if agrees:
            return FITTED if self.fitted and value.on == SYNTHETIC else REPRODUCED, ""
        why = self.why if self.why_on in ("", value.on) else ""
        return DIFFERENT if why else UNEXPLAINED, why

    def agrees(self, value: Value) -> bool | None:
        """Whether ours is as near as the rule asks; None if its interval is partly so."""
        (least, most), (low, high) = self.accepted, value.limits
        if least <= low and high <= most:
            return True
        return None if low <= most and high >= least else False

    @property
    def accepted(self) -> Range:
        """What the rule accepts."""
        rule = RULES[self.rule]
        if rule.farthest is not None:
            return -math.inf, rule.farthest
        if rule.least or rule.most:
            return (self.number, math.inf) if rule.least else (-math.inf, self.number)
        tolerance = rule.tolerance(self.number, self.digits, self.unit)
        return self.number - tolerance, self.number + tolerance

    def _vague(self) -> str:
        digits = max(self.digits, 1)
        least, most = (rounded(x, digits) if math.isfinite(x) else "" for x in self.accepted)
        near = f"{least} to {most}" if least and most else f"from {least}" if least else f"up to {most}"
        return f"the interval is too wide to tell: {near} would be near enough"

    def _text(self, value: Value) -> str:
        if value.text:
            return value.text
        sure = value.random and value.low < value.high  # neither is NaN
        digits = self.digits
        if not self.digits and not value.value.is_integer():
            digits = max(0, SIGNIFICANT - 1 - math.floor(math.log10(abs(value.value))))
        texts = [rounded(x, digits) for x in value[:3]]
        return f"{texts[0]} ({texts[1]} to {texts[2]})" if sure else texts[0]

    def _row(self, ours: str, on: str, verdict: str, why: str) -> dict[str, object]:
        unit = f" {self.unit}" if self.unit else ""
        return {
            "item": self.item, "what": self.what, "published": f"{self.published}{unit}", "ours": ours, "on": on,
            "verdict": verdict, "why": why, "rule": self.rule, "source": self.source,
        }  # fmt: skip


def with_limits(statistics: Mapping[str, Statistic]) -> dict[str, float]:
    """Return each value and the limits of its interval, by the names of columns that a cell reads."""
    return {column: v for name, x in statistics.items() for column, v in x.interval().columns(name).items()}


def rounded(value: float, digits: int) -> str:
    """Return a number with so many digits after the point.

    >>> rounded(187.9274, 1), rounded(12390.0, 0), rounded(-0.5, 3)
    ('187.9', '12,390', '−0.500')
    """
    return minus(f"{value:,.{digits}f}")


def catalogue(name: str) -> dict[str, Any]:
    """Return what was published of a study, as the file of its name has it."""
    return json.loads(files("fleetlab.reproduce").joinpath(f"published/{name}.json").read_text("utf-8"))  # type: ignore[no-any-return]


RULES = {name: Rule(**about) for name, about in catalogue("rules").items()}


def items(name: str) -> list[Item]:
    """Return the items of a catalogue; a section of it has what its rows share."""
    entries = catalogue(name)
    return [
        item(values, {"source": entries["sources"][values.get("source", section.get("source"))]})
        for section in entries["sections"]
        for values in (_whole(section, row) for row in section["rows"])
    ]


def _whole(section: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    shared = {key: value for key, value in section.items() if key != "rows"}
    return shared | dict(row)


def item(values: Mapping[str, Any], more: Mapping[str, Any]) -> Item:
    """Build an item from a row of the file; `ours` is [table, {column: value}, column] and `scale` a factor."""
    fields = {key.replace(" ", "_"): value for key, value in values.items() if key not in ("ours", "scale")} | dict(
        more
    )
    cell = values.get("ours")
    ours = None if cell is None else Cell(cell[0], cell[1], cell[2], values.get("scale", 1.0))
    return Item(ours=ours, **fields)


def without(listed: Iterable[Item], why: str) -> list[Item]:
    """Return items that need the whole trace as not possible, for this reason."""
    return [replace(x, not_possible=x.not_possible or why) if x.whole else x for x in listed]


TABLE = "published"  # of `describe`: a row for each curve, with the number of points that are within what is known
WHOLE = ("jobs per user", "runs of a group")  # how many jobs a user has depends on how long one looks


WORK = re.compile(r"(.*?(?:\)|v20\d\d)), (.*)")  # of a source: the work, and the place in it


class Place(NamedTuple):
    """Where `describe` has our value of a published number: the column `key` of a table has its name."""

    table: str
    key: str
    column: str
    rule: str = "figure"
    row: Mapping[str, object] = {}
    names: Mapping[str, str] = {}  # where a value is called otherwise in the table
    unit: str = "%"
    scale: float = 1.0
    why: Mapping[str, str] = {}  # by name, or "" for all
    fitted: bool = True


def places(name: str) -> dict[str, Place]:
    """Return where ours are of the numbers that were published of a study, as its catalogue has it."""
    return {what: Place(**about) for what, about in catalogue(name)["places"].items()}


def curve_items(trace: str, *, missing: Mapping[str, str] | None = None) -> Iterator[Item]:
    """Yield an item for each curve that was published of a trace; `missing` says by figure why it is not possible."""
    for figure, curves in published_values()["curves"].items():
        for series, curve in curves.items():
            if curve.get("trace", PAI) == trace:
                yield _curve(figure, series, curve, (missing or {}).get(figure, ""))


def _curve(figure: str, series: str, curve: Mapping[str, Any], not_possible: str) -> Item:
    work, _, place = curve["source"].rpartition(", ")
    printed = curve["read"] == "printed"
    points = ", ".join(f"P{y:g} {x:g}" for x, y in curve["points"]) if printed else f"{len(curve['points'])} points"
    cell = Cell(TABLE, {"figure": figure, "series": series}, "outside")
    return Item(
        place, f"{figure}: {series}", points, work, "curve", ours=cell, not_possible=not_possible, fitted=not printed,
        whole=figure in WHOLE,
    )  # fmt: skip


def outside(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table of `describe` with the number of points that are farther off than can be told."""
    gap = pl.col("KS distance, points").round(2).cast(pl.String)
    return frame.with_columns(
        (pl.col("points") - pl.col("within")).alias("outside"),
        pl.format("{} of {} met, within {} points of level", "within", "points", gap).alias("outside, text"),
    )


def number_items(trace: str, places: Mapping[str, Place]) -> Iterator[Item]:
    """Yield an item for each number that was published of a trace; all of them must have a place."""
    for name, group in published_values()["numbers"].items():
        if group.get("trace", PAI) == trace:
            yield from (
                _number(name, key, value, group["source"], places[name]) for key, value in group["values"].items()
            )


def _number(name: str, key: str, value: float, source: str, place: Place) -> Item:
    work, where = parts.groups() if (parts := WORK.fullmatch(source)) else (source, "text")
    cell = Cell(place.table, {place.key: place.names.get(key, key), **place.row}, place.column, place.scale)
    published = f"{value * place.scale:.10g}" if place.scale != 1 else f"{value:g}"
    return Item(
        where, f"{name}: {key}", published, work, place.rule, place.unit, cell,
        why=place.why.get(key, place.why.get("", "")), fitted=place.fitted,
        why_on=SYNTHETIC, whole=place.rule in ("printed", "allocated"),
    )  # fmt: skip
