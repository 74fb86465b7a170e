"""Arrivals: per hour, by hour of the day and weekday, and burstiness."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.core.durations import number
from fleetlab.describe import published
from fleetlab.describe.curves import Bools, ecdf
from fleetlab.describe.section import Section
from fleetlab.describe.trace_view import HOUR, WHOLE, TraceView
from fleetlab.stats import (
    POSITIVE,
    BlockBootstrap,
    Floats,
    Interval,
    Ints,
    mean_of_runs,
    no_interval,
    quantile_ranks,
    samples_needed,
)

MOST_POINTS = 1500  # of a series over time
WINDOWS = (1, 10, 60, 600, HOUR)  # seconds, in which arrivals are counted
MOST_WINDOWS = 20_000_000  # of one length
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SUNDAY = 6
NO_CLOCK = "the log has no date or time zone"
BURSTY = 1.5  # squared variation of gaps, from which on they are
WHOLE_HOUR = 0.95  # of an hour must lie in the trace for its count to be one of an hour


def arrivals(view: TraceView, section: Section) -> None:
    """Describe arrivals."""
    came = ~view.frame["older"].to_numpy()
    if older := int((~came).sum()):
        section.absent(f"submit times of {older:,} jobs", "they are older than the log: not counted as arrivals")
    if view.span <= 0:
        section.absent("arrivals", "all jobs are submitted at one instant")
        return
    hours, sums, inside = _hourly(view, came)
    _over_time(section, hours, sums, inside, view)
    _bursts(section, view, np.sort(view.submit[came]))
    if not view.clocked:
        section.absent("hour of the day and weekday", NO_CLOCK)
        return
    if len(hours) < 2 * 24:
        section.absent("hour of the day and weekday", "the trace is shorter than two days")
        return
    _by_hour_of_day(section, hours, sums["jobs"])
    _by_hour_of_week(section, hours, sums["jobs"])
    _by_weekday(section, hours, sums["jobs"])


def _hourly(view: TraceView, came: Bools) -> tuple[Ints, dict[str, Floats], Floats]:
    """The hours of the trace, requests submitted in each, and the covered fraction of each hour."""
    hour = view.local_hour[came]
    first, count = int(hour.min()), int(hour.max() - hour.min()) + 1
    many = view.instances[came]
    requested: dict[str, Floats] = {
        "jobs": np.ones(len(hour)),
        "instances": many,
        "GPUs": many * view.milli[came] / WHOLE,
        "CPUs": many * view.floats("cpu_milli")[came] / WHOLE,
        "memory, TiB": many * view.floats("memory_mib")[came] / 2**20,
    }
    sums = {
        name: np.bincount(hour - first, weights=w, minlength=count).astype(np.float64)
        for name, w in requested.items()
        if w.any()
    }
    hours = first + np.arange(count)
    inside = _inside(hours, view.local[came])
    covered = _whole_hours(inside)
    return hours[covered], {name: values[covered] for name, values in sums.items()}, inside[covered]


def _inside(hours: Ints, local: Floats) -> Floats:
    """Which part of each hour lies between the first and the last submission; nearly all of it is all."""
    begin, end = np.maximum(hours * HOUR, local.min()), np.minimum((hours + 1) * HOUR, local.max())
    part = (end - begin) / HOUR
    return np.where(part >= WHOLE_HOUR, 1.0, part)


def _whole_hours(inside: Floats) -> slice:
    """Without a first or last hour of which the trace has but a part, if it has others."""
    late, early = inside[0] < 1, inside[-1] < 1
    return slice(int(late), len(inside) - int(early)) if len(inside) > 2 + late + early else slice(None)


# -- over time ---------------------------------------------------------------------------------------------------------


def _over_time(section: Section, hours: Ints, sums: dict[str, Floats], inside: Floats, view: TraceView) -> None:
    blocks = BlockBootstrap.of_series(len(hours))
    rows, whole = [], inside == 1
    for name, values in sums.items():
        interval = blocks.ratio(blocks.sums(values), blocks.sums(inside), POSITIVE).interval()
        if whole.sum() < 2:  # one hour does not tell how hours differ
            interval = no_interval(interval.value)
        rows.append(_hour_row(name, values[whole], interval))
        section.figures[f"{name.split(',')[0]} per hour"] = _series(name, hours - hours[0], values)
        if name == "jobs":
            section.say("arrival rate", interval, "jobs/h")
    section.tables["per hour"] = pl.DataFrame(rows, infer_schema_length=None)
    mean, most = section.estimates[-1].value, float(sums["jobs"][whole].max(initial=0.0))
    if mean > 0:
        many = f"the busiest hour has {number(most / mean)} times that"
        rest = many if whole.sum() > 1 else "the log has less than two full hours"
        section.findings.append(f"The mean arrival rate is {number(mean)} jobs per hour; {rest}.")


def _hour_row(name: str, values: Floats, interval: Interval) -> dict[str, object]:
    """The mean, and of whole hours how they differ; nothing of that where there is none."""
    row: dict[str, object] = {"what": name, "mean": interval[0], "low": interval[1], "high": interval[2]}
    row["sd"] = float(values.std()) if len(values) else None
    row |= {f"P{p}": float(np.percentile(values, p)) if len(values) else None for p in (5, 50, 95)}
    return row | {"largest": float(values.max()) if len(values) else None}


def _series(name: str, hours: Ints, values: Floats) -> Figure:
    every = -(-len(values) // MOST_POINTS)
    starts = np.arange(0, len(values), every)
    means = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    frame = pl.DataFrame({"x": hours[starts] / 24, "y": means})
    of = f"mean over {every} h" if every > 1 else "per hour"
    alt = f"{name} submitted {of}: between {number(values.min())} and {number(values.max())} per hour"
    return Figure(f"{name.split(',')[0]} submitted per hour", "line", frame, "day", f"{name}, {of}", alt)


# -- by the clock ------------------------------------------------------------------------------------------------------


def _by_hour_of_day(section: Section, hours: Ints, jobs: Floats) -> None:
    interval = published.hours("jobs by hour of day") if section.like_pai else None
    frame, table = quartiles(hours % 24, jobs, 24)
    if interval is not None:
        table = table.with_columns(
            **{
                f"{name} published": pl.Series(interval[key])
                for name, key in (("Q1", "Q1"), ("P50", "median"), ("Q3", "Q3"))
            }
        )
        frame = pl.concat(
            [frame, pl.DataFrame({"x": range(24), "y": interval["median"], "series": "median, published"}, strict=False)
             .cast({"x": pl.Float64, "y": pl.Float64})], how="diagonal",
        )  # fmt: skip
    section.tables["by hour of day"] = table.rename({"at": "hour"})
    medians = table["P50"].to_numpy()
    peak, trough = int(np.argmax(medians)), int(np.argmin(medians))
    alt = f"most jobs are submitted from {peak} to {peak + 1} h, fewest from {trough} to {trough + 1} h"
    section.figures["jobs by hour of day"] = Figure(
        "Jobs by hour of the day: quartiles over days", "line", frame, "hour of the day", "jobs per hour", alt
    )
    rates = f"{number(medians[peak])} and {number(medians[trough])} jobs per hour (medians over days)"
    section.findings.append(f"{alt[0].upper()}{alt[1:]}: {rates}.")


def quartiles(at: Ints, values: Floats, count: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Of the values at each place of a round: quartiles, the interval of the median by order statistics; to draw."""
    rows = [_quartile_row(k, np.sort(values[at == k])) for k in range(count)]
    table = pl.DataFrame(rows, infer_schema_length=None)
    x = pl.col("at").cast(pl.Float64).alias("x")
    middle = table.select(x, pl.col("P50").alias("y"), "low", "high", series=pl.lit("median"))
    sides = [table.select(x, pl.col(q).alias("y"), series=pl.lit(q)) for q in ("Q1", "Q3")]
    return pl.concat([middle, *sides], how="diagonal"), table


def _quartile_row(k: int, ranked: Floats) -> dict[str, float | None]:
    n = len(ranked)
    if not n:
        return {"at": k, "count": 0, "Q1": None, "P50": None, "low": None, "high": None, "Q3": None}
    q1, middle, q3 = np.percentile(ranked, [25, 50, 75]).tolist()
    ranks = quantile_ranks(n, 0.5) if n >= samples_needed(0.5) else None
    low, high = (float(ranked[rank - 1]) for rank in ranks) if ranks else (None, None)
    return {"at": k, "count": n, "Q1": q1, "P50": middle, "low": low, "high": high, "Q3": q3}


def _by_hour_of_week(section: Section, hours: Ints, jobs: Floats) -> None:
    if len(hours) < 7 * 24:
        section.absent("jobs by hour of the week", "the trace is shorter than a week")
        return
    of_week = (hours + (3 - SUNDAY) * 24) % 168  # 1970 began on a Thursday; weeks begin on Sunday here
    means = np.bincount(of_week, weights=jobs, minlength=168) / np.maximum(np.bincount(of_week, minlength=168), 1)
    frame = pl.DataFrame({"x": np.arange(168) / 24, "y": means, "series": "mean"})
    if section.like_pai:
        interval = published.hours("jobs by hour of week")["week"]
        week = pl.DataFrame(
            {"x": np.arange(168) / 24, "y": [float(y) for y in interval], "series": "one week, published"}
        )
        frame = pl.concat([frame, week])
    alt = f"jobs per hour over the week, Sunday first: between {number(means.min())} and {number(means.max())}"
    section.figures["jobs by hour of week"] = Figure(
        "Jobs over the week", "line", frame, "day, from Sunday", "jobs per hour", alt
    )


def _by_weekday(section: Section, hours: Ints, jobs: Floats) -> None:
    day, counts = np.unique(hours // 24, return_counts=True)
    sums = np.bincount(np.searchsorted(day, hours // 24), weights=jobs)
    day, sums = day[counts == 24], sums[counts == 24]
    weekday = (day + 3) % 7
    if len(day) < 7:
        section.absent("jobs by weekday", "the trace has less than a week of whole days")
        return
    rows = [{"day": name, **_mean_of(sums[weekday == k])} for k, name in enumerate(DAYS)]
    section.tables["by weekday"] = pl.DataFrame(rows, infer_schema_length=None)
    frame = section.tables["by weekday"].select(x="day", y="jobs", low="low", high="high")
    free, work = float(sums[weekday >= 5].mean()), float(sums[weekday < 5].mean())
    alt = f"a weekend day has {number(free)} jobs, a weekday {number(work)} (means)"
    section.figures["jobs by weekday"] = Figure("Jobs by weekday", "bar", frame, "weekday", "jobs per day", alt)
    section.findings.append(f"{alt[0].upper()}{alt[1:]}.")


def _mean_of(days: Floats) -> dict[str, float | None]:
    mean = mean_of_runs(days, POSITIVE).interval()
    low, high = (None, None) if len(days) < 2 else mean[1:]
    return {"days": len(days), "jobs": mean.value, "low": low, "high": high}


# -- bursts ------------------------------------------------------------------------------------------------------------


def _bursts(section: Section, view: TraceView, submit: Floats) -> None:
    """Poisson arrivals have a dispersion of 1 in every window, and gaps whose squared variation is 1."""
    gaps = np.diff(submit)
    if not len(gaps):
        section.absent("burstiness", "one arrival has no inter-arrival time")
        return
    squared = _of_gaps(view, submit, gaps)
    if not np.isfinite(squared[0]):
        section.absent("burstiness", "all inter-arrival times are 0")
        return
    windows = [w for w in WINDOWS if view.span / w <= MOST_WINDOWS and view.span >= 2 * w]
    counts = [_burst_row("index of dispersion of counts", w, _dispersion(view, submit, w)) for w in windows]
    rows = [_burst_row("CV² of inter-arrival times", None, squared), *counts]
    section.tables["burstiness"] = pl.DataFrame(rows, infer_schema_length=None)
    curve = ecdf("inter-arrival times", gaps, blocks=view.blocks_at(submit[:-1]))
    section.distributions(
        "inter-arrival time", [curve] if curve else [], title="Inter-arrival times", unit="s", y="share, %"
    )
    section.say("CV² of inter-arrival times", squared)
    how = (
        "bursty"
        if squared[0] > BURSTY
        else "more regular than Poisson"
        if squared[0] < 1 / BURSTY
        else "close to Poisson"
    )
    section.findings.append(f"Arrivals are {how}: CV² of inter-arrival times is {number(squared[0])} (Poisson: 1).")


def _burst_row(what: str, window: int | None, interval: Interval) -> dict[str, object]:
    return {"what": what, "window, s": window, "value": interval[0], "low": interval[1], "high": interval[2]}


def _of_gaps(view: TraceView, submit: Floats, gaps: Floats) -> Interval:
    return _from_moments(view.blocks_at(submit[:-1]), gaps, lambda n, s, q: (q / n - (s / n) ** 2) / (s / n) ** 2)


def _dispersion(view: TraceView, submit: Floats, window: int) -> Interval:
    counts = np.bincount((submit // window).astype(np.int64)).astype(np.float64)[:-1]
    blocks = view.blocks_at(np.arange(len(counts), dtype=np.float64) * window)
    return _from_moments(blocks, counts, lambda n, s, q: (q / n - (s / n) ** 2) / (s / n))


def _from_moments(blocks: BlockBootstrap, values: Floats, of: Callable[[Floats, Floats, Floats], Floats]) -> Interval:
    """A number made of the count, the sum and the sum of squares."""
    sums = [blocks.totals(blocks.sums(x)) for x in (np.ones(len(values)), values, values**2)]
    with np.errstate(invalid="ignore", divide="ignore"):  # no arrival in a window, or gaps too short to be squared
        replicates = of(*sums)
    replicates[~np.isfinite(replicates)] = np.nan
    return blocks.replicates(replicates).interval(POSITIVE)
