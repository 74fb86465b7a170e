"""How a table is shown, on a terminal and on a page: intervals in one column, durations in a readable unit.

What a column holds follows from its name, so that tables stay plain numbers for whoever computes with them. All
durations of a column have one unit, that of their median, so that they can be compared at a glance; only where the
rows of a table are different metrics, each has its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import polars as pl

from fleetlab.core.durations import number_text, readable_unit
from fleetlab.core.result import Estimate, amount_and_interval

UNKNOWN = "–"
INTERVAL = "95 % CI"
PREDICTION = re.compile(r"(\d+ %) low")  # a limit that says its confidence is that of a prediction
SIDES = "recorded|simulated|calibrated|configured|training"  # of one wait
STATISTIC = r"(mean|median|total|P\d+)"
DURATION = re.compile(
    rf"({STATISTIC} )?(({SIDES}) )?({STATISTIC} )?(wait|JCT|jct|runtime|submit|blocked|behind)( change| error)?"
)
IN_UNITS = {"value", "mean", "baseline mean", "sd", "baseline", "now", "difference"}  # of the column `unit`, row by row
IDENTIFIERS = ("job", "parent", "seed", "line", "year")  # numbers that name something: 12345, not 12,345


class ShownColumn(NamedTuple):
    """A column as it is shown: its heading, whether it is of numbers, its texts, and the values to sort by."""

    name: str
    numeric: bool
    texts: tuple[str, ...]
    values: tuple[Any, ...]


def display_columns(frame: pl.DataFrame, *, intervals: bool = True) -> list[ShownColumn]:
    """Return the columns of a table as they are shown; a low and a high limit become one column, or not.

    >>> waits = pl.DataFrame({"job": [12345], "mean wait": [7200.0], "low": [3600.0], "high": [10800.0]})
    >>> [(column.name, column.texts[0]) for column in display_columns(waits)]
    [('job', '12345'), ('mean wait', '2.0 h'), ('95 % CI', '1.0 to 3.0 h')]
    """
    limits = {value: (low, high) for value, low, high in triples(frame)} if intervals else {}
    inside = {name for pair in limits.values() for name in pair}
    in_units = IN_UNITS & set(frame.columns) if "unit" in frame.columns else set()
    columns = []
    for name in frame.columns:
        if name in inside or (name == "unit" and in_units):
            continue
        units = frame["unit"].to_list() if name in in_units else [unit_of(name, frame[name])] * frame.height
        values = frame[name].to_list()
        scale = None if name in in_units else _median(frame[name])
        texts = tuple(text_of(v, u, name, scale) for v, u in zip(values, units, strict=True))
        if name in limits:
            ends = [frame[limit].to_list() for limit in limits[name]]
            rows = zip(texts, values, *ends, units, [scale] * frame.height, strict=True)
            both = [_interval(*row) for row in rows]
            if _reordered([text for text, _ in both], values):  # by the digits of intervals, some wide and some narrow
                both = [(text, interval) for text, (_, interval) in zip(texts, both, strict=True)]
            columns.append(ShownColumn(name, numeric=True, texts=tuple(t for t, _ in both), values=tuple(values)))
            head = heading(limits[name][0])
            columns.append(ShownColumn(head, numeric=True, texts=tuple(i for _, i in both), values=tuple(ends[0])))
        else:
            columns.append(ShownColumn(name, frame[name].dtype.is_numeric(), texts, tuple(values)))
    return columns


def heading(low: str) -> str:
    """Return the heading of an interval, from the name of its lower limit.

    >>> heading("mae_low"), heading("90 % low")
    ('95 % CI', '90 % PI')
    """
    named = PREDICTION.fullmatch(low)
    return f"{named[1]} PI" if named else INTERVAL


def triples(frame: pl.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield neighboring columns that are a number, its low and its high: `low`, or `mean low` after `mean wait`.

    >>> list(triples(pl.DataFrame({"mae": [0.2], "mae_low": [0.1], "mae_high": [0.3]})))
    [('mae', 'mae_low', 'mae_high')]
    >>> list(triples(pl.DataFrame({"predicted": [0.2], "90 % low": [0.1], "90 % high": [0.3]})))
    [('predicted', '90 % low', '90 % high')]
    """
    for value, low, high in zip(frame.columns, frame.columns[1:], frame.columns[2:], strict=False):
        sides = low.removesuffix("low"), high.removesuffix("high")
        limits = low.endswith("low") and high.endswith("high") and sides[0] == sides[1]
        named = limits and (sides[0].strip(" _") in value or PREDICTION.fullmatch(low))
        if named and all(frame[c].dtype.is_numeric() for c in (value, low, high)):
            yield value, low, high


def unit_of(name: str, column: pl.Series) -> str:
    """Return the unit that the name of a column implies: seconds, a share of 1, or none."""
    if not column.dtype.is_float():
        return ""
    return "s" if DURATION.fullmatch(name) else "share" if name.split(" ")[0] == "share" else ""


def _median(column: pl.Series) -> float | None:
    """Return the median of what is not 0, without signs; None where there is nothing."""
    if not column.dtype.is_float():
        return None
    sizes = column.drop_nulls().abs()
    middle = sizes.filter(sizes.is_finite() & (sizes > 0)).median()
    return float(middle) if isinstance(middle, float) else None


def text_of(value: object, unit: str = "", name: str = "", scale: float | None = None) -> str:
    """Return one value as text; the unit of a duration is that in which `scale` seconds are shown.

    >>> text_of(1260920), text_of(12345, name="job"), text_of(0.123456), text_of(300.0, "s"), text_of(0.25, "share")
    ('1,260,920', '12345', '0.1235', '5 min', '25 %')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name in IDENTIFIERS:
        return str(value)
    if not isinstance(value, int | float):
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    if math.isinf(value):
        return number_text(value)  # forever has no unit
    by = value if scale is None else scale
    shown_unit, length = readable_unit(by) if unit == "s" else ("%", 0.01) if unit == "share" else (unit, 1.0)
    number = number_text(value if length == 1 else value / length, digits=3 if unit in ("s", "share") else 4)
    return f"{number} {shown_unit}" if shown_unit else number


def _reordered(texts: Sequence[str], values: Sequence[float | None]) -> bool:
    """Return whether numbers of one unit are in another order as texts than as values."""
    units = {text.partition(" ")[2] for text, value in zip(texts, values, strict=True) if value is not None}
    pairs = sorted((v, -float(t.partition(" ")[0].replace(",", "").replace("−", "-").replace("∞", "inf")))
                   for t, v in zip(texts, values, strict=True) if v is not None and t != UNKNOWN)  # fmt: skip
    return len(units) == 1 and any(before[1] < after[1] for before, after in pairwise(pairs))  # also of equal values


def _interval(
    text: str, value: float | None, low: float | None, high: float | None, unit: str, scale: float | None
) -> tuple[str, str]:
    """Return a number and its interval, with the digits of a summary and in one unit; no interval, as it is."""
    if value is None or low is None or high is None or math.isnan(high - low + value) or low == high:
        return text, UNKNOWN
    if unit == "share":
        value, low, high, unit = 100 * value, 100 * low, 100 * high, "%"
    text, interval = amount_and_interval(Estimate("", value, low, high, unit), scale or value or high)
    return text, f"{interval} {text.partition(' ')[2]}".rstrip()
