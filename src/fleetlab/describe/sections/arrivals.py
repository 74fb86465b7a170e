"""When do jobs come? By hour, by hour of the day and weekday, and how much they come in bursts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.describe import published
from fleetlab.describe.ecdf import Bools, curve
from fleetlab.describe.section import Section, amount, rough
from fleetlab.describe.trace_view import HOUR, WHOLE, Seen
from fleetlab.stats import POSITIVE, BlockBootstrap, Floats, Interval, Ints, mean_of_runs, no_interval

MOST_POINTS = 1500  # of a series over time
WINDOWS = (1, 10, 60, 600, HOUR)  # seconds, in which arrivals are counted
MOST_WINDOWS = 20_000_000  # of one length
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SUNDAY = 6
NO_CLOCK = "the log does not tell what time of day its second 0 was"
BURSTY = 1.5  # squared variation of gaps, from which on they are
WHOLE_HOUR = 0.95  # of an hour must lie in the trace for its count to be one of an hour


def time(seen: Seen, section: Section) -> None:
    """Put together what is known of arrivals."""
    came = ~seen.frame["older"].to_numpy()
    if older := int((~came).sum()):
        section.lacks(f"when {older:,} jobs came", "they are older than the log: left out of arrivals")
    if seen.span <= 0:
        section.lacks("arrivals", "all jobs are submitted at one instant")
        return
    hours, sums, inside = _hourly(seen, came)
    _over_time(section, hours, sums, inside, seen)
    _bursts(section, seen, np.sort(seen.submit[came]))
    if not seen.clocked:
        section.lacks("hour of the day and weekday", NO_CLOCK)
        return
    if len(hours) < 2 * 24:
        section.lacks("hour of the day and weekday", "the trace is shorter than two days")
        return
    _by_hour_of_day(section, hours, sums["jobs"])
    _by_hour_of_week(section, hours, sums["jobs"])
    _by_weekday(section, hours, sums["jobs"])


def _hourly(seen: Seen, came: Bools) -> tuple[Ints, dict[str, Floats], Floats]:
    """The hours that lie in the trace, what was asked for in each, and how much of it lies in the trace."""
    hour = seen.local_hour[came]
    first, count = int(hour.min()), int(hour.max() - hour.min()) + 1
    many = seen.instances[came]
    asked: dict[str, Floats] = {
        "jobs": np.ones(len(hour)),
        "instances": many,
        "GPUs": many * seen.milli[came] / WHOLE,
        "CPUs": many * seen.floats("cpu_milli")[came] / WHOLE,
        "memory, TiB": many * seen.floats("memory_mib")[came] / 2**20,
    }
    sums = {
        name: np.bincount(hour - first, weights=w, minlength=count).astype(np.float64)
        for name, w in asked.items()
        if w.any()
    }
    hours = first + np.arange(count)
    inside = _inside(hours, seen.local[came])
    kept = _kept(inside)
    return hours[kept], {name: values[kept] for name, values in sums.items()}, inside[kept]


def _inside(hours: Ints, local: Floats) -> Floats:
    """Which part of each hour lies between the first and the last submission; nearly all of it is all."""
    begin, end = np.maximum(hours * HOUR, local.min()), np.minimum((hours + 1) * HOUR, local.max())
    part = (end - begin) / HOUR
    return np.where(part >= WHOLE_HOUR, 1.0, part)


def _kept(inside: Floats) -> slice:
    """Without a first or last hour of which the trace has but a part, if it has others."""
    late, early = inside[0] < 1, inside[-1] < 1
    return slice(int(late), len(inside) - int(early)) if len(inside) > 2 + late + early else slice(None)


# -- over time ---------------------------------------------------------------------------------------------------------


def _over_time(section: Section, hours: Ints, sums: dict[str, Floats], inside: Floats, seen: Seen) -> None:
    blocks = BlockBootstrap.of_series(len(hours))
    rows, whole = [], inside == 1
    for name, values in sums.items():
        told = blocks.ratio(blocks.sums(values), blocks.sums(inside), POSITIVE).interval()
        if whole.sum() < 2:  # one hour does not tell how hours differ
            told = no_interval(told.value)
        rows.append(_hour_row(name, values[whole], told))
        section.figures[f"{name.split(',')[0]} an hour"] = _series(name, hours - hours[0], values)
        if name == "jobs":
            section.say("jobs an hour", told)
    section.tables["an hour"] = pl.DataFrame(rows, infer_schema_length=None)
    mean, most = section.estimates[-1].value, float(sums["jobs"][whole].max(initial=0.0))
    if mean > 0:
        many = f"the busiest has {rough(most / mean)} times as many"
        rest = many if whole.sum() > 1 else "that is a rate, as the log has no two whole hours"
        section.sentences.append(f"{amount(mean)} jobs come in a mean hour; {rest}.")


def _hour_row(name: str, values: Floats, told: Interval) -> dict[str, object]:
    """The mean, and of whole hours how they differ; nothing of that where there is none."""
    row: dict[str, object] = {"what": name, "mean": told[0], "low": told[1], "high": told[2]}
    row["sd"] = float(values.std()) if len(values) else None
    row |= {f"P{p}": float(np.percentile(values, p)) if len(values) else None for p in (5, 50, 95)}
    return row | {"largest": float(values.max()) if len(values) else None}


def _series(name: str, hours: Ints, values: Floats) -> Figure:
    every = -(-len(values) // MOST_POINTS)
    starts = np.arange(0, len(values), every)
    means = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    frame = pl.DataFrame({"x": hours[starts] / 24, "y": means})
    of = f"mean of {every} hours" if every > 1 else "an hour"
    alt = f"{name} asked for {of}: between {amount(values.min())} and {amount(values.max())} in one hour"
    return Figure(f"{name.split(',')[0]} that come, by the hour", "line", frame, "day", f"{name}, {of}", alt)


# -- by the clock ------------------------------------------------------------------------------------------------------


def _by_hour_of_day(section: Section, hours: Ints, jobs: Floats) -> None:
    told = published.hours("jobs by hour of day") if section.like_pai else None
    frame, table = quartiles(hours % 24, jobs, 24)
    if told is not None:
        table = table.with_columns(
            **{
                f"{name} published": pl.Series(told[key])
                for name, key in (("Q1", "Q1"), ("P50", "median"), ("Q3", "Q3"))
            }
        )
        frame = pl.concat(
            [frame, pl.DataFrame({"x": range(24), "y": told["median"], "series": "median, published"}, strict=False)
             .cast({"x": pl.Float64, "y": pl.Float64})], how="diagonal",
        )  # fmt: skip
    section.tables["by hour of day"] = table.rename({"at": "hour"})
    medians = table["P50"].to_numpy()
    peak, trough = int(np.argmax(medians)), int(np.argmin(medians))
    alt = f"most jobs come from {peak} to {peak + 1} h, fewest from {trough} to {trough + 1} h"
    section.figures["jobs by hour of day"] = Figure(
        "Jobs by hour of the day: quartiles over days", "line", frame, "hour of the day", "jobs an hour", alt
    )
    section.sentences.append(f"{alt[0].upper()}{alt[1:]}: {amount(medians[peak])} and {amount(medians[trough])}.")


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
        return {"at": k, "count": 0, "Q1": None, "P50": None, "Q3": None, "low": None, "high": None}
    # Half of the values are on either side of the median: how many are below it is binomial (normal from here on).
    step = 1.96 * n**0.5 / 2
    low, high = int(np.floor(n / 2 - step)), int(np.ceil(n / 2 + step))
    q1, middle, q3 = np.percentile(ranked, [25, 50, 75]).tolist()
    sure = low >= 0 and high < n
    return {
        "at": k, "count": n, "Q1": q1, "P50": middle, "Q3": q3,
        "low": float(ranked[low]) if sure else None, "high": float(ranked[high]) if sure else None,
    }  # fmt: skip


def _by_hour_of_week(section: Section, hours: Ints, jobs: Floats) -> None:
    if len(hours) < 7 * 24:
        section.lacks("jobs by hour of the week", "the trace is shorter than a week")
        return
    of_week = (hours + (3 - SUNDAY) * 24) % 168  # 1970 began on a Thursday; weeks begin on Sunday here
    means = np.bincount(of_week, weights=jobs, minlength=168) / np.maximum(np.bincount(of_week, minlength=168), 1)
    frame = pl.DataFrame({"x": np.arange(168) / 24, "y": means, "series": "mean"})
    if section.like_pai:
        told = published.hours("jobs by hour of week")["week"]
        week = pl.DataFrame({"x": np.arange(168) / 24, "y": [float(y) for y in told], "series": "one week, published"})
        frame = pl.concat([frame, week])
    alt = f"jobs an hour over the week, Sunday first: between {amount(means.min())} and {amount(means.max())}"
    section.figures["jobs by hour of week"] = Figure(
        "Jobs over the week", "line", frame, "day, from Sunday", "jobs an hour", alt
    )


def _by_weekday(section: Section, hours: Ints, jobs: Floats) -> None:
    day, counts = np.unique(hours // 24, return_counts=True)
    sums = np.bincount(np.searchsorted(day, hours // 24), weights=jobs)
    day, sums = day[counts == 24], sums[counts == 24]
    weekday = (day + 3) % 7
    if len(day) < 7:
        section.lacks("jobs by weekday", "the trace has less than a week of whole days")
        return
    rows = [{"day": name, **_mean_of(sums[weekday == k])} for k, name in enumerate(DAYS)]
    section.tables["by weekday"] = pl.DataFrame(rows, infer_schema_length=None)
    frame = section.tables["by weekday"].select(x="day", y="jobs", low="low", high="high")
    free, work = float(sums[weekday >= 5].mean()), float(sums[weekday < 5].mean())
    alt = f"a weekend day has {amount(free)} jobs, a weekday {amount(work)}"
    section.figures["jobs by weekday"] = Figure("Jobs by weekday", "bar", frame, "weekday", "jobs a day", alt)
    section.sentences.append(f"{alt[0].upper()}{alt[1:]}.")


def _mean_of(days: Floats) -> dict[str, float | None]:
    mean = mean_of_runs(days, POSITIVE).interval()
    low, high = (None, None) if len(days) < 2 else mean[1:]
    return {"days": len(days), "jobs": mean.value, "low": low, "high": high}


# -- bursts ------------------------------------------------------------------------------------------------------------


def _bursts(section: Section, seen: Seen, submit: Floats) -> None:
    """Poisson arrivals have a dispersion of 1 in every window, and gaps whose squared variation is 1."""
    gaps = np.diff(submit)
    if not len(gaps):
        section.lacks("bursts", "one arrival has no gap")
        return
    squared = _of_gaps(seen, submit, gaps)
    if not np.isfinite(squared[0]):
        section.lacks("bursts", "arrivals are too close to one another to tell them apart")
        return
    windows = [w for w in WINDOWS if seen.span / w <= MOST_WINDOWS and seen.span >= 2 * w]
    counts = [_burst_row("variance over mean of counts", w, _dispersion(seen, submit, w)) for w in windows]
    rows = [_burst_row("squared variation of gaps", None, squared), *counts]
    section.tables["bursts"] = pl.DataFrame(rows, infer_schema_length=None)
    made = curve("gaps", gaps, blocks=seen.blocks_at(submit[:-1]))
    section.distributions("gaps", [made] if made else [], title="Time between arrivals", unit="s", y="share of gaps, %")
    section.say("squared variation of gaps", squared)
    how = (
        "in bursts" if squared[0] > BURSTY else "as evenly as clockwork" if squared[0] < 1 / BURSTY else "as by chance"
    )
    section.sentences.append(
        f"Jobs come {how}: gaps vary by {amount(squared[0])} squared means, where chance alone gives 1."
    )


def _burst_row(what: str, window: int | None, told: Interval) -> dict[str, object]:
    return {"what": what, "window, s": window, "value": told[0], "low": told[1], "high": told[2]}


def _of_gaps(seen: Seen, submit: Floats, gaps: Floats) -> Interval:
    return _from_moments(seen.blocks_at(submit[:-1]), gaps, lambda n, s, q: (q / n - (s / n) ** 2) / (s / n) ** 2)


def _dispersion(seen: Seen, submit: Floats, window: int) -> Interval:
    counts = np.bincount((submit // window).astype(np.int64)).astype(np.float64)[:-1]
    blocks = seen.blocks_at(np.arange(len(counts), dtype=np.float64) * window)
    return _from_moments(blocks, counts, lambda n, s, q: (q / n - (s / n) ** 2) / (s / n))


def _from_moments(blocks: BlockBootstrap, values: Floats, of: Callable[[Floats, Floats, Floats], Floats]) -> Interval:
    """A number made of the count, the sum and the sum of squares."""
    sums = [blocks.totals(blocks.sums(x)) for x in (np.ones(len(values)), values, values**2)]
    with np.errstate(invalid="ignore", divide="ignore"):  # no arrival in a window, or gaps too short to be squared
        replicates = of(*sums)
    replicates[~np.isfinite(replicates)] = np.nan
    return blocks.replicates(replicates).interval(POSITIVE)
