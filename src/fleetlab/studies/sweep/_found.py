"""What cells say together: the mean of each case over its seeds, and paired differences between cases.

A pair of cases has the same jobs seed by seed (common random numbers), so what is averaged is the difference within a
seed; its interval is Student's. Intervals of differences hold all at once: the chance to be wrong is shared out among
all of them (Bonferroni), pairs times metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.studies._spread import Mean, over_runs

Words = tuple[tuple[str, Any], ...]  # of a case, all of its axes
Values = Mapping[int, Mapping[str, float | None]]  # metrics by seed
Found = Mapping[Words, Values]
SAME, STUCK = "the same", "seeds change nothing"
NUMBERS = {"before", "value", "low", "high", "sd"}


class Pair(NamedTuple):
    """A case, and the one that it is held against."""

    case: Words
    base: Words


def mean_of(values: Values, metric: str, seeds: Sequence[int]) -> Mean:
    """The mean of a metric over the seeds that have it."""
    return _over([x for s in seeds if s in values and (x := values[s].get(metric)) is not None])


def difference(found: Found, pair: Pair, metric: str, seeds: Sequence[int]) -> Mean:
    """The mean difference within a seed, over the seeds that both have."""
    case, base = found.get(pair.case, {}), found.get(pair.base, {})
    both = [(case[s].get(metric), base[s].get(metric)) for s in seeds if s in case and s in base]
    return _over([x - y for x, y in both if x is not None and y is not None])


def _least(values: Values, metric: str) -> float:
    """The smallest value: what is never negative has no interval below zero."""
    return min((x for told in values.values() if (x := told.get(metric)) is not None), default=math.nan)


def _over(values: list[float]) -> Mean:
    return over_runs(values) if values else Mean(math.nan, math.nan, 0)


def _count(mean: Mean) -> int:
    return 0 if math.isnan(mean.value) else mean.freedom + 1


def between(mean: Mean, wrong: float) -> tuple[float, float]:
    """The interval that misses with this chance; none of less than two seeds."""
    return mean.between(1 - wrong) if mean.freedom > 0 else (math.nan, math.nan)


def verdict(mean: Mean, low: float, high: float) -> str:
    """Is it less or more for sure?"""
    if mean.freedom > 0 and mean.error == 0:
        return STUCK if mean.value else SAME
    return "less" if high < 0 else "more" if low > 0 else "not sure"


def varying(groups: Sequence[Words]) -> list[str]:
    """The axes on which cases differ: the others need no column; of one case the first axis.

    >>> varying([(("trace", "a"), ("load", 1.0)), (("trace", "a"), ("load", 2.0))])
    ['load']
    """
    seen: dict[str, set[Any]] = {}
    for group in groups:
        for word, value in group:
            seen.setdefault(word, set()).add(value)
    return [word for word, values in seen.items() if len(values) > 1] or list(seen)[:1]


def case_table(
    found: Found, metrics: Sequence[str], units: Mapping[str, str], seeds_of: Callable[[Words], Sequence[int]],
    wrong_of: Callable[[Words], float],
) -> pl.DataFrame:  # fmt: skip
    """A row for each case and metric: its mean over the seeds, how sure it is, and how far one seed is from another."""
    axes, rows = varying(list(found)), []
    for case, values in found.items():
        told = dict(case)
        for metric in metrics:
            mean = mean_of(values, metric, seeds_of(case))
            low, high = between(mean, wrong_of(case))
            low = max(0.0, low) if low < 0 <= _least(values, metric) else low
            spread = mean.error * math.sqrt(mean.freedom + 1)
            row = {axis: told.get(axis) for axis in axes} | {"metric": metric, "seeds": _count(mean)}
            rows.append(row | _numbers(mean.value, low, high) | {"sd": _null(spread), "unit": units.get(metric, "")})
    return _frame(rows, axes)


def difference_table(
    found: Found, pairs: Sequence[Pair], metrics: Sequence[str], units: Mapping[str, str],
    seeds_of: Callable[[Pair], Sequence[int]], wrong_of: Callable[[Pair], float],
) -> pl.DataFrame:  # fmt: skip
    """A row for each pair and metric; `wrong_of` is the chance to be wrong of the whole family, shared out here."""
    axes = varying([g for pair in pairs for g in pair])
    lines, rows = max(1, len(pairs) * len(metrics)), []
    for pair in pairs:
        case, base = dict(pair.case), dict(pair.base)
        other = ", ".join(f"{word} {base[word]}" for word in case if base.get(word) not in (case[word], ""))
        for metric in metrics:
            mean = difference(found, pair, metric, seeds_of(pair))
            # The same difference in every seed says nothing about other jobs.
            stuck = mean.error == 0 and mean.value != 0
            low, high = (math.nan, math.nan) if stuck else between(mean, wrong_of(pair) / lines)
            reference = mean_of(found.get(pair.base, {}), metric, seeds_of(pair)).value
            row = {axis: case.get(axis) for axis in axes} | {"instead of": other, "metric": metric}
            row |= {"seeds": _count(mean), "before": _null(reference)} | _numbers(mean.value, low, high)
            rows.append(row | {"unit": units.get(metric, ""), "verdict": verdict(mean, low, high)})
    return _frame(rows, axes)


def _numbers(value: float, low: float, high: float) -> dict[str, float | None]:
    return {"value": _null(value), "low": _null(low), "high": _null(high)}


def _null(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _frame(rows: list[dict[str, Any]], axes: list[str]) -> pl.DataFrame:
    # An axis may have names and numbers; rows without a value must not decide what a column is.
    plain = [{k: str(v) if k in axes and not isinstance(v, str | float) else v for k, v in row.items()} for row in rows]
    kinds: dict[str, pl.DataType] = dict.fromkeys(NUMBERS & set(rows[0] if rows else ()), pl.Float64())
    return pl.DataFrame(plain, schema_overrides=kinds, infer_schema_length=None)


def load_figures(cases: pl.DataFrame, metrics: Sequence[str]) -> dict[str, Figure]:
    """A curve over the load for each combination of the other words, where there are several loads."""
    drawn: dict[str, Figure] = {}
    if "load" not in cases.columns:
        return drawn
    others = cases.columns[: cases.columns.index("metric")]
    others.remove("load")
    for metric in metrics:
        rows = cases.filter((pl.col("metric") == metric) & pl.col("value").is_not_null())
        if rows.is_empty():
            continue
        series = pl.concat_str([pl.col(c).cast(pl.String) for c in others], separator=", ") if others else pl.lit("all")
        frame = rows.select(series=series, x="load", y="value", low="low", high="high").sort("series", "x")
        unit = f", {rows['unit'][0]}" if rows["unit"][0] else ""
        alt = f"{metric} over the load, a curve for each of {frame['series'].n_unique()} cases"
        drawn[metric] = Figure(f"{metric} by load", "line", frame, "load", f"{metric}{unit}", alt)
    return drawn


def difference_figures(rows: pl.DataFrame, metrics: Sequence[str]) -> dict[str, Figure]:
    """The differences of a metric with their intervals, beside each other."""
    drawn: dict[str, Figure] = {}
    for metric in metrics if rows.height else ():
        some = rows.filter((pl.col("metric") == metric) & pl.col("value").is_not_null())
        if some.is_empty():
            continue
        axes = some.columns[: some.columns.index("instead of")]
        name = pl.concat_str([pl.col(c).cast(pl.String) for c in axes], separator=", ")
        frame = some.select(x=name, y="value", low="low", high="high")
        unit = f", {some['unit'][0]}" if some["unit"][0] else ""
        sure = int(np.sum(some["verdict"].is_in(["less", "more"]).to_numpy()))
        alt = f"how far {metric} is from what it is held against in {some.height} cases; {sure} differ for sure"
        drawn[f"{metric}, differences"] = Figure(
            f"{metric}: difference from `{some['instead of'][0]}`", "dots", frame, "case", f"difference{unit}", alt
        )
    return drawn
