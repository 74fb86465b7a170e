"""Effect of fractional GPU requests, and utilization of requests."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.core.durations import number
from fleetlab.describe import published
from fleetlab.describe.ecdf import share
from fleetlab.describe.occupancy import Occupancy
from fleetlab.describe.section import Section
from fleetlab.describe.sections.arrivals import quartiles
from fleetlab.describe.trace_view import HOUR, WHOLE, TraceView
from fleetlab.describe.usage import AMOUNTS
from fleetlab.stats import POSITIVE, SHARE, BlockBootstrap, Floats, Interval

SHARED, ALONE = "with sharing", "without sharing"
MOST_POINTS = 500
HALF = 0.5


def sharing(view: TraceView, section: Section) -> None:
    """Put together GPUs with and without sharing, and what is used of them."""
    if not view.gpu.any():
        section.absent("GPU sharing", "no job requests a GPU")
    elif not ((view.milli > 0) & (view.milli < WHOLE)).any():
        section.absent("effect of GPU sharing", "no job requests a fractional GPU")
    else:
        _requested(view, section)
        _allocated(view, section)
    _used(view, section)


def _rounded(view: TraceView) -> dict[str, Floats]:
    """GPUs of all instances of each job: as asked for, and in whole ones."""
    return {
        SHARED: view.instances * view.milli / WHOLE,
        ALONE: view.instances * np.ceil(view.milli / WHOLE),
    }


def _requested(view: TraceView, section: Section) -> None:
    """GPUs that the jobs of an hour ask for."""
    amounts = _rounded(view)
    sums = [view.blocks.sums(x) for x in amounts.values()]
    saved = view.blocks.ratio(sums[1] - sums[0], sums[1], SHARE).interval().scaled(100)
    section.say("requested GPUs saved by sharing", saved, "%")
    section.findings.append(f"Fractional requests save {number(saved[0])} % of the GPUs compared with whole GPUs.")
    if not view.clocked or view.span < 2 * 86_400:
        section.absent("requested GPUs by hour of day", "no time zone, or less than two days")
        return
    first = int(view.local_hour.min())
    at = view.local_hour - first
    hours = first + np.arange(int(at.max()) + 1)
    frames, tables = [], []
    for name, values in amounts.items():
        frame, table = quartiles(hours % 24, np.bincount(at, weights=values).astype(np.float64), 24)
        frames.append(frame.filter(pl.col("series") == "median").with_columns(series=pl.lit(name)))
        tables.append(table.with_columns(GPUs=pl.lit(name)))
    if section.like_pai:
        interval = published.hours("requested GPUs by hour of day")
        for name, key in ((SHARED, "shared"), (ALONE, "alone")):
            y = [float(value) for value in interval[key]]
            series = pl.lit(name + published.SUFFIX)
            frames.append(pl.DataFrame({"x": np.arange(24.0), "y": y}).with_columns(series=series))
    section.tables["requested GPUs by hour of day"] = pl.concat(tables).rename({"at": "hour"})
    alt = f"GPUs requested per hour, medians over days: sharing saves {number(saved[0])} %"
    section.figures["requested GPUs by hour of day"] = Figure(
        "Requested GPUs with and without sharing, by hour of the day", "line", pl.concat(frames, how="diagonal"),
        "hour of the day", "GPUs", alt,
    )  # fmt: skip


def _allocated(view: TraceView, section: Section) -> None:
    """GPUs that running jobs hold, over time."""
    if view.span < HOUR or not np.isfinite(view.held_until).any():
        section.absent("allocated GPUs over time", "starts and ends are not in the log, or it is shorter than an hour")
        return
    every = HOUR * -(-int(view.span / HOUR) // MOST_POINTS)
    edges, frames, rows = np.arange(0.0, view.span + 1, every), [], []
    boxes = Occupancy.by_jobs(view, edges)
    for name, values in _rounded(view).items():
        allocated = boxes.mean(values)
        frames.append(pl.DataFrame({"x": edges[:-1] / 86_400, "y": allocated}).with_columns(series=pl.lit(name)))
        interval = BlockBootstrap.of_series(len(allocated)).mean(allocated, POSITIVE).interval()
        rows.append((name, *interval, float(allocated.max())))
    section.tables["allocated GPUs"] = pl.DataFrame(
        rows, schema=["GPUs", "mean", "low", "high", "largest"], orient="row"
    )
    less = 100 * (1 - rows[0][1] / rows[1][1]) if rows[1][1] else 0.0
    alt = f"allocated GPUs over time: mean {number(rows[0][1])}, {number(less)} % less than without sharing"
    section.figures["allocated GPUs"] = Figure(
        "Allocated GPUs with and without sharing", "line", pl.concat(frames), "day", "GPUs", alt
    )


def _used(view: TraceView, section: Section) -> None:
    """How many jobs use less than half of what they hold?"""
    used = view.used
    if used is None:
        section.absent("utilization of allocated resources", "the trace has no usage")
        return
    rows = []
    for name, (column, _, _) in AMOUNTS.items():
        if column not in used.columns:
            section.absent(f"utilization of {name}", f"the usage has no `{column}`")
            continue
        requested, of = view.floats(column), used[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
        there = (requested > 0) & np.isfinite(of)
        little = of[there] < HALF * requested[there]
        time = np.nan_to_num(view.runtime[there]) * view.instances[there] * requested[there]
        for word, weights in (("jobs", None), ("instances", view.instances[there]), ("allocated time", time)):
            interval = share(little, weights, view.blocks.part(there))
            rows.append((name, word, *interval))
            if (name, word) == ("GPUs", "jobs") and there.any():
                _say_little(section, interval)
    columns = ["of", "weighted by", "%", "low", "high"]
    section.tables["utilization below 50 %"] = pl.DataFrame(rows, schema=columns, orient="row")


def _say_little(section: Section, interval: Interval) -> None:
    section.say("GPU jobs with utilization below 50 % of their request", interval, "%")
    section.findings.append(f"{interval[0]:.3g} % of the GPU jobs use less than half of their GPU request.")
