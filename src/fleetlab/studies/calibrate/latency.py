"""The start-up latency that a log shows: the waits of jobs that had nothing in their way."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core.words import OTHER_JOBS
from fleetlab.sim.start_up import size_of
from fleetlab.stats import POSITIVE, BlockBootstrap, Floats
from fleetlab.studies.calibrate.recorded import Recorded

MARGINS = (0.5, 0.75, 1.0)  # of the most GPUs ever in use at once: the lowest at which there are enough jobs
ENOUGH = 30  # jobs of a class
FENCE = 3.0  # interquartile ranges above the upper quartile: beyond, it is no start-up
PARTS = 20  # equally likely values of a law
BETTER = 0.9  # of the deviation from the median: classes that are worth having
LEAST = 1.0  # seconds: the resolution of most logs

Law = float | dict[str, list[float]]


def unobstructed(log: Recorded, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the jobs that had nothing in their way when they were submitted.

    All that was running or waiting then, themselves included, was less than what has been in use at once: in the
    cluster, on the GPU types that they name, and by their user.
    """
    jobs = rows & log.known
    free = np.ones(len(log), dtype=bool)
    for name in log.gpu_type.unique().to_list():
        same = (log.gpu_type == name).to_numpy()
        free[same] &= log.wanted(same).at(log.submit[same]) <= log.held(same).peak
    for user in range(len(log.users)):
        same = log.user == user
        free[same] &= log.wanted(same).at(log.submit[same]) <= log.held(same).peak
    wanted, most = log.wanted(log.everyone).at(log.submit), log.use.peak
    for margin in MARGINS:
        chosen = jobs & free & (wanted <= margin * most)
        if chosen.sum() >= ENOUGH:
            break
    return np.asarray(chosen)


def fit_latency(log: Recorded, free: NDArray[np.bool_], *, every: bool = False) -> tuple[Law, pl.DataFrame]:
    """Return the law of the start-up latency, by class where classes differ, and a table of it.

    Waits far above the others are taken for waits for something else, unless `every` wait counts.
    """
    waits = log.wait[free]
    keep = waits <= (np.inf if every else _fence(waits))
    jobs = log.jobs.filter(pl.Series(free)).filter(pl.Series(keep))
    waits, submit = waits[keep], jobs["submit"].to_numpy()
    if len(waits) < ENOUGH:
        return 0.0, _table({}, waits, submit)
    all_jobs = pl.repeat(OTHER_JOBS, len(waits), eager=True)
    ways = [all_jobs, jobs.select(size_of()).to_series(), log.gpu_type.filter(pl.Series(free)).filter(pl.Series(keep))]
    best, classes = _deviation(waits, all_jobs), _classes(waits, all_jobs)
    for way in ways[1:]:
        if _deviation(waits, way) < BETTER * best:
            best, classes = _deviation(waits, way), _classes(waits, way)
    law = {name: _values(waits[rows]) for name, rows in classes.items()}
    return _simplified(law), _table(classes, waits, submit)


def median_latency(law: Law, log: Recorded) -> Floats:
    """Return the median start-up latency of each job's class."""
    if not isinstance(law, Mapping):
        return np.full(len(log), float(law))
    seconds = np.full(len(log), float(np.median(law.get(OTHER_JOBS, [0.0]))))
    for classes in (log.jobs.select(size_of()).to_series(), log.gpu_type):
        for name in set(classes) & set(law):
            seconds[(classes == name).to_numpy()] = float(np.median(law[name]))
    return seconds


def _fence(waits: Floats) -> float:
    if not len(waits):
        return 0.0
    low, high = np.quantile(waits, [0.25, 0.75])
    return float(high + FENCE * max(high - low, LEAST))


def _classes(waits: Floats, names: pl.Series) -> dict[str, NDArray[np.bool_]]:
    """Return the jobs of each class that has enough of them, and all others; those of a class that has few, too."""
    counted = names.value_counts().filter(pl.col("count") >= ENOUGH).sort("count", descending=True)[names.name]
    classes = {name: (names == name).to_numpy() for name in counted.to_list() if name != OTHER_JOBS}
    rest = ~np.any(list(classes.values()), axis=0) if classes else np.ones(len(waits), dtype=bool)
    return classes | {OTHER_JOBS: rest if rest.sum() >= ENOUGH else np.ones(len(waits), dtype=bool)}


def _deviation(waits: Floats, names: pl.Series) -> float:
    medians = np.zeros(len(waits))
    for rows in reversed(list(_classes(waits, names).values())):
        medians[rows] = np.median(waits[rows])
    return float(np.abs(waits - medians).sum())


def _values(waits: Floats) -> list[float]:
    """Return equally likely values with the mean of the waits; one, where they hardly differ."""
    low, middle, high = np.quantile(waits, [0.1, 0.5, 0.9])
    if high - low < LEAST:
        return [round(float(middle), 3)]
    # The integral of the quantile function: of however many waits, each value stands for as much of them.
    total = np.append(0.0, np.cumsum(np.sort(waits)))
    at = np.interp(np.linspace(0, len(waits), PARTS + 1), np.arange(len(waits) + 1), total)
    return [round(float(part), 3) for part in np.diff(at) * PARTS / len(waits)]


def _simplified(law: dict[str, list[float]]) -> Law:
    if all(float(np.mean(values)) < LEAST for values in law.values()):
        return 0.0
    only = law.get(OTHER_JOBS, [])
    return only[0] if len(law) == len(only) == 1 else law


def _table(classes: Mapping[str, NDArray[np.bool_]], waits: Floats, submit: Floats) -> pl.DataFrame:
    rows = []
    blocks = BlockBootstrap.of_times(submit) if len(submit) else None
    for name, inside in classes.items():
        mean = blocks.part(inside).mean(waits[inside], POSITIVE).interval() if blocks else (None, None, None)
        p10, median, p90 = np.quantile(waits[inside], [0.1, 0.5, 0.9])
        rows.append((name, int(inside.sum()), *mean, float(p10), float(median), float(p90)))
    schema = {"class": pl.String, "jobs": pl.Int64} | dict.fromkeys(
        ("mean wait", "mean wait low", "mean wait high", "P10 wait", "median wait", "P90 wait"), pl.Float64
    )
    return pl.DataFrame(rows, schema=schema, orient="row")
