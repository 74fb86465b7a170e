"""What does it bring that jobs share GPUs, and how much of what they hold do they use?"""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.describe import published
from fleetlab.describe.ecdf import share
from fleetlab.describe.occupancy import Held
from fleetlab.describe.section import Section, amount, rough
from fleetlab.describe.sections.arrivals import quartiles
from fleetlab.describe.trace_view import HOUR, WHOLE, Seen
from fleetlab.describe.usage import AMOUNTS
from fleetlab.stats import POSITIVE, SHARE, BlockBootstrap, Floats, Interval

SHARED, ALONE = "shares added up", "shared by none"
MOST_POINTS = 500
HALF = 0.5


def sharing(seen: Seen, section: Section) -> None:
    """Put together GPUs with and without sharing, and what is used of them."""
    if not seen.gpu.any():
        section.lacks("GPU sharing", "no job asks for a GPU")
    elif not ((seen.milli > 0) & (seen.milli < WHOLE)).any():
        section.lacks("what sharing saves", "no job asks for a share of a GPU")
    else:
        _asked(seen, section)
        _held(seen, section)
    _used(seen, section)


def _rounded(seen: Seen) -> dict[str, Floats]:
    """GPUs of all instances of each job: as asked for, and in whole ones."""
    return {
        SHARED: seen.instances * seen.milli / WHOLE,
        ALONE: seen.instances * np.ceil(seen.milli / WHOLE),
    }


def _asked(seen: Seen, section: Section) -> None:
    """GPUs that the jobs of an hour ask for."""
    amounts = _rounded(seen)
    sums = [seen.blocks.sums(x) for x in amounts.values()]
    saved = seen.blocks.ratio(sums[1] - sums[0], sums[1], SHARE).interval().scaled(100)
    section.say("GPUs asked for that sharing saves", saved, "%")
    section.sentences.append(f"Shares of GPUs save {rough(saved[0])} % of the GPUs that jobs ask for.")
    if not seen.clocked or seen.span < 2 * 86_400:
        section.lacks("GPUs asked for by hour of the day", "no clock, or less than two days")
        return
    first = int(seen.local_hour.min())
    at = seen.local_hour - first
    hours = first + np.arange(int(at.max()) + 1)
    frames, tables = [], []
    for name, values in amounts.items():
        frame, table = quartiles(hours % 24, np.bincount(at, weights=values).astype(np.float64), 24)
        frames.append(frame.filter(pl.col("series") == "median").with_columns(series=pl.lit(name)))
        tables.append(table.with_columns(GPUs=pl.lit(name)))
    if section.like_pai:
        told = published.hours("GPUs asked by hour of day")
        for name, key in ((SHARED, "shared"), (ALONE, "alone")):
            y = [float(value) for value in told[key]]
            series = pl.lit(name + published.SUFFIX)
            frames.append(pl.DataFrame({"x": np.arange(24.0), "y": y}).with_columns(series=series))
    section.tables["GPUs asked by hour of day"] = pl.concat(tables).rename({"at": "hour"})
    alt = f"GPUs that jobs of an hour ask for, medians over days: sharing saves {rough(saved[0])} % of them"
    section.figures["GPUs asked by hour of day"] = Figure(
        "GPUs asked for with and without sharing, by hour of the day", "line", pl.concat(frames, how="diagonal"),
        "hour of the day", "GPUs", alt,
    )  # fmt: skip


def _held(seen: Seen, section: Section) -> None:
    """GPUs that running jobs hold, over time."""
    if seen.span < HOUR or not np.isfinite(seen.held_until).any():
        section.lacks("GPUs held over time", "the log does not tell when jobs started and ended, or is under an hour")
        return
    every = HOUR * -(-int(seen.span / HOUR) // MOST_POINTS)
    edges, frames, rows = np.arange(0.0, seen.span + 1, every), [], []
    boxes = Held.by_jobs(seen, edges)
    for name, values in _rounded(seen).items():
        held = boxes.mean(values)
        frames.append(pl.DataFrame({"x": edges[:-1] / 86_400, "y": held}).with_columns(series=pl.lit(name)))
        told = BlockBootstrap.of_series(len(held)).mean(held, POSITIVE).interval()
        rows.append((name, *told, float(held.max())))
    section.tables["GPUs held"] = pl.DataFrame(
        rows, schema=["GPUs held", "mean", "low", "high", "largest"], orient="row"
    )
    less = 100 * (1 - rows[0][1] / rows[1][1]) if rows[1][1] else 0.0
    alt = f"GPUs held over time: {amount(rows[0][1])} on average, {rough(less)} % less than if none were shared"
    section.figures["GPUs held"] = Figure(
        "GPUs held with and without sharing", "line", pl.concat(frames), "day", "GPUs", alt
    )


def _used(seen: Seen, section: Section) -> None:
    """How many jobs use less than half of what they hold?"""
    used = seen.used
    if used is None:
        section.lacks("use of what jobs hold", "the trace has no usage")
        return
    rows = []
    for name, (column, _, _) in AMOUNTS.items():
        if column not in used.columns:
            section.lacks(f"use of {name}", f"the usage has no `{column}`")
            continue
        asked, of = seen.floats(column), used[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
        there = (asked > 0) & np.isfinite(of)
        little = of[there] < HALF * asked[there]
        time = np.nan_to_num(seen.runtime[there]) * seen.instances[there] * asked[there]
        for word, weights in (("jobs", None), ("instances", seen.instances[there]), ("time held", time)):
            told = share(little, weights, seen.blocks.part(there))
            rows.append((name, word, *told))
            if (name, word) == ("GPUs", "jobs") and there.any():
                _say_little(section, told)
    columns = ["of", "weighed by", "%", "low", "high"]
    section.tables["use of less than half"] = pl.DataFrame(rows, schema=columns, orient="row")


def _say_little(section: Section, told: Interval) -> None:
    section.say("GPU jobs that use less than half of what they hold", told, "%")
    section.sentences.append(f"{told[0]:.3g} % of the GPU jobs use less than half of the GPU that they hold.")
