"""Tables and figures over cells: the mean of each scenario over its seeds, and paired differences from a baseline.

A scenario and its baseline have the same jobs seed by seed (common random numbers), so the difference is taken within
a seed: seeds are replicas, with the intervals and verdicts of every comparison. Intervals of differences hold
simultaneously: the error rate is divided among all of them, pairs times metrics (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import stdev
from typing import Any, NamedTuple

import polars as pl

from fleetlab.core import Figure
from fleetlab.core.catalog import METRICS
from fleetlab.core.names import clip
from fleetlab.stats import (
    ANY,
    BETTER,
    NOT_DECIDED,
    POSITIVE,
    WORSE,
    Interval,
    bonferroni,
    no_interval,
    over_replicas,
    verdict,
)
from fleetlab.studies.sweep.plan import CaseWords

BySeed = Mapping[int, Mapping[str, float | None]]  # metrics by seed
Values = Mapping[CaseWords, BySeed]
OF_JOBS = {metric.name for metric in METRICS if metric.column}  # the lower the better
NUMBERS = {"baseline mean", "mean", "difference", "low", "high", "sd"}


class Pair(NamedTuple):
    """A scenario and its baseline."""

    case: CaseWords
    base: CaseWords


def values_of(values: BySeed, metric: str, seeds: Sequence[int]) -> list[float]:
    """Return a metric of each seed that has it."""
    return [x for s in seeds if s in values and (x := values[s].get(metric)) is not None]


def differences(values: Values, pair: Pair, metric: str, seeds: Sequence[int]) -> list[float]:
    """Return the difference within each seed that both have."""
    case, base = values.get(pair.case, {}), values.get(pair.base, {})
    both = [(case[s].get(metric), base[s].get(metric)) for s in seeds if s in case and s in base]
    return [x - y for x, y in both if x is not None and y is not None]


def _interval_and_verdict(apart: list[float], metric: str, level: float, confidence: float) -> tuple[Interval, str]:
    mean = over_replicas(apart)
    if mean.error == 0 and mean.value:  # the same difference in every seed says nothing about other jobs
        return no_interval(mean.value), NOT_DECIDED
    says, neutral = verdict(apart, level, confidence=confidence), metric.partition(" ")[2] not in OF_JOBS
    return mean.interval(confidence), {BETTER: "lower", WORSE: "higher"}.get(says, says) if neutral else says


def varying(cases: Sequence[CaseWords]) -> list[str]:
    """Return the words in which scenarios differ: the others need no column; of one scenario the first word.

    >>> varying([(("trace", "a"), ("load", 1.0)), (("trace", "a"), ("load", 2.0))])
    ['load']
    """
    values_by_word: dict[str, set[Any]] = {}
    for case in cases:
        for word, value in case:
            values_by_word.setdefault(word, set()).add(value)
    return [word for word, values in values_by_word.items() if len(values) > 1] or list(values_by_word)[:1]


class ComparedScenarios(NamedTuple):
    """Tables of differences and scenarios (those that have rows), their figures, and a sentence per metric."""

    frames: dict[str, pl.DataFrame]
    charts: dict[str, Figure]
    findings: tuple[str, ...]


def comparison(
    values: Values, pairs: Sequence[Pair], metrics: Sequence[str], units: Mapping[str, str],
    seeds_of: Callable[[Pair | CaseWords], Sequence[int]], confidence_of: Callable[[Pair | CaseWords], float],
) -> ComparedScenarios:  # fmt: skip
    """Compare scenarios with their baselines, over the seeds and with the confidence of each."""
    by_pair = difference_table(values, pairs, metrics, units, seeds_of, confidence_of)
    scenarios = scenario_table(values, metrics, units, seeds_of, confidence_of)
    frames = {"differences": by_pair, "scenarios": scenarios}
    return ComparedScenarios(
        {name: frame for name, frame in frames.items() if frame.height},
        {**load_figures(scenarios, metrics), **difference_figures(by_pair, metrics)},
        difference_findings(by_pair, metrics),
    )


def scenario_table(
    values: Values, metrics: Sequence[str], units: Mapping[str, str],
    seeds_of: Callable[[CaseWords], Sequence[int]], confidence_of: Callable[[CaseWords], float],
) -> pl.DataFrame:  # fmt: skip
    """Return a row per scenario and metric: its mean over seeds, the interval, and the standard deviation of a seed."""
    axes, rows = varying(list(values)), []
    for case, by_seed in values.items():
        words = dict(case)
        for metric in metrics:
            each = values_of(by_seed, metric, seeds_of(case))
            # A metric that is never negative has no interval below 0.
            least = min((x for one in by_seed.values() if (x := one.get(metric)) is not None), default=math.nan)
            value, low, high = over_replicas(each, POSITIVE if least >= 0 else ANY).interval(confidence_of(case))
            row = {axis: words.get(axis) for axis in axes} | {"metric": metric, "seeds": len(each)}
            numbers = {"mean": value, "low": low, "high": high, "sd": stdev(each) if len(each) > 1 else math.nan}
            rows.append(row | _finite(numbers) | {"unit": units.get(metric, "")})
    return _frame(rows, axes)


def difference_table(
    values: Values, pairs: Sequence[Pair], metrics: Sequence[str], units: Mapping[str, str],
    seeds_of: Callable[[Pair], Sequence[int]], confidence_of: Callable[[Pair], float],
) -> pl.DataFrame:  # fmt: skip
    """Return a row per pair and metric; `confidence_of` is the confidence that all comparisons hold."""
    axes, rows = varying([case for pair in pairs for case in pair]), []
    for pair in pairs:
        case, base = dict(pair.case), dict(pair.base)
        name = ", ".join(f"{word} {clip(str(base[word]))}" for word in case if base.get(word) not in (case[word], ""))
        for metric in metrics:
            apart = differences(values, pair, metric, seeds_of(pair))
            confidence = bonferroni(len(pairs) * len(metrics), confidence_of(pair))
            reference = over_replicas(values_of(values.get(pair.base, {}), metric, seeds_of(pair))).value
            (value, low, high), says = _interval_and_verdict(apart, metric, reference, confidence)
            row = {axis: case.get(axis) for axis in axes} | {"baseline": name, "metric": metric}
            row |= {"seeds": len(apart)}
            row |= _finite({"baseline mean": reference, "difference": value, "low": low, "high": high})
            rows.append(row | {"unit": units.get(metric, ""), "verdict": says})
    return _frame(rows, axes)


def _finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def _frame(rows: list[dict[str, Any]], axes: list[str]) -> pl.DataFrame:
    # A word may have names and numbers: then all are text. Rows without a value must not decide what a column is.
    mixed = {axis for axis in axes if len({isinstance(row[axis], str) for row in rows}) > 1}
    plain = [{k: clip(str(v)) if k in mixed or isinstance(v, str) else v for k, v in row.items()} for row in rows]
    kinds: dict[str, pl.DataType] = dict.fromkeys(NUMBERS & set(rows[0] if rows else ()), pl.Float64())
    return pl.DataFrame(plain, schema_overrides=kinds, infer_schema_length=None)


def load_figures(scenarios: pl.DataFrame, metrics: Sequence[str]) -> dict[str, Figure]:
    """Draw a metric over the load, a curve for each combination of the other words, where there are several loads."""
    figures: dict[str, Figure] = {}
    if "load" not in scenarios.columns or scenarios["load"].n_unique() < 2:
        return figures
    others = scenarios.columns[: scenarios.columns.index("metric")]
    others.remove("load")
    for metric in metrics:
        rows = scenarios.filter((pl.col("metric") == metric) & pl.col("mean").is_not_null())
        if rows.is_empty():
            continue
        series = pl.concat_str([pl.col(c).cast(pl.String) for c in others], separator=", ") if others else pl.lit("all")
        frame = rows.select(series=series, x="load", y="mean", low="low", high="high").sort("series", "x")
        unit = f", {rows['unit'][0]}" if rows["unit"][0] else ""
        alt = f"{metric} over the load, {frame['series'].n_unique()} curves"
        figures[metric] = Figure(f"{metric} by load", "line", frame, "load", f"{metric}{unit}", alt)
    return figures


def difference_figures(rows: pl.DataFrame, metrics: Sequence[str]) -> dict[str, Figure]:
    """Draw the differences of each metric from the baseline with their intervals."""
    figures: dict[str, Figure] = {}
    for metric in metrics if rows.height else ():
        some = rows.filter((pl.col("metric") == metric) & pl.col("difference").is_not_null())
        if some.is_empty():
            continue
        axes = some.columns[: some.columns.index("baseline")]
        name = pl.concat_str([pl.col(c).cast(pl.String) for c in axes], separator=", ")
        frame = some.select(x=name, y="difference", low="low", high="high")
        unit = f", {some['unit'][0]}" if some["unit"][0] else ""
        decided = int((some["verdict"] != NOT_DECIDED).sum())
        alt = f"difference of {metric} from the baseline in {some.height} scenarios; {decided} are decided"
        title = f"{metric}: difference from {some['baseline'][0]}"
        figures[f"{metric}, differences"] = Figure(title, "dots", frame, "scenario", f"difference{unit}", alt)
    return figures


def difference_findings(rows: pl.DataFrame, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence per metric: how many scenarios are lower or higher than their baseline."""
    lines = []
    for metric in metrics if rows.height else ():
        some = rows.filter(pl.col("metric") == metric)
        counts = [f"{n:,} {word}" for word in some["verdict"].unique(maintain_order=True)
                  if (n := int((some["verdict"] == word).sum()))]  # fmt: skip
        many = f"{some.height:,} scenario{'s' * (some.height > 1)}"
        lines.append(f"{metric} of {many} against the baseline ({some['baseline'][0]}): {', '.join(counts)}")
    return tuple(lines)
