"""What runs before the jobs that are measured: without it a cluster starts empty, and waits are too low."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core.censoring import Floats
from fleetlab.core.cluster import Cluster
from fleetlab.core.durations import duration
from fleetlab.core.workload import DELAY, Workload

WHOLE = 1000  # milli of one
LEAST = 1e-6  # seconds: jobs that are there before all others come so much earlier


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """Jobs that are simulated and not measured, submitted before second 0."""

    frame: pl.DataFrame  # the columns of a workload; `job` is -1, `submit` negative; `initial`: what is left of a run
    rows: NDArray[np.int64]  # the row of the trace's workload that each is
    meaning: str  # for a note
    estimate: pl.Series | None = None  # of their runtimes, where it is not that of the rows
    of_window: bool = False  # they are other jobs than those that are measured


def jobs_before(log: Workload, begin: float, load: float, most: float) -> Before | None:
    """Return the jobs of a log before a window: those of so many seconds, and what would still run of older ones."""
    frame, since = log.frame, max(begin - most, 0.0)
    ran = pl.col("initial") & (pl.col("start").is_null() | (pl.col("start") <= 0))
    older, time_left = (pl.col("submit") < since) | ran, pl.col("submit") + pl.col("runtime") - since
    earlier = (pl.col("submit") < begin) | (pl.col("initial") & (begin > 0))
    there = earlier & pl.col("runtime").is_not_null() & (~older | (time_left > 0))
    rows = np.flatnonzero(frame.select(there).to_series().to_numpy())
    if not len(rows):
        return None
    submit = pl.when(older).then((since - begin) / load - LEAST).otherwise((pl.col("submit") - begin) / load)
    runtime = pl.when(older).then(time_left).otherwise("runtime")
    delay = pl.when(older).then(0.0).otherwise(DELAY)
    jobs = frame[rows].with_columns(submit=submit, eligible=submit + delay, runtime=runtime, initial=older)
    which = "" if since == 0 else f" of {duration(begin - since)}"
    meaning = f"the {len(rows):,} jobs{which} before the window are simulated first"
    ordered = _earlier(jobs).with_columns(row=pl.Series(rows)).sort("submit", maintain_order=True)
    return Before(ordered.drop("row"), ordered["row"].to_numpy(), meaning, of_window=True)


def repeated(workload: Workload, cluster: Cluster, first_row: int, seed: int) -> Before | None:
    """Return the jobs once more, ending where they begin, and a random draw of the older ones that would still run.

    Of those no more is there than the cluster can hold. Each seed is another state to start from.
    """
    frame = workload.frame
    if frame["initial"].any():
        return None  # it has a state to start from
    came = frame["submit"].filter(~frame["initial"]).to_numpy()
    # The last gap is a mean one. Jobs that cannot run count, so that it is the same under any change.
    period = float(np.ptp(came)) * len(came) / (len(came) - 1) if len(came) > 1 else 0.0
    able = frame["runtime"].is_not_null() & ~frame["initial"]
    rows, jobs_with_runtime = np.flatnonzero(able.to_numpy()), frame.filter(able)
    if not period or not len(rows):
        return None
    submit, runtime = (jobs_with_runtime[name].to_numpy() for name in ("submit", "runtime"))
    load = _offered_loads(jobs_with_runtime, cluster, period)
    old, time_left = _still_running(submit, runtime, period * np.maximum(load, 1.0), seed)
    when = pl.Series(np.append(np.full(len(old), -period - LEAST), submit - period))
    delay = np.append(np.zeros(len(old)), jobs_with_runtime.select(DELAY).to_series().to_numpy())
    jobs = pl.concat([jobs_with_runtime[old], jobs_with_runtime]).with_columns(
        submit=when,
        eligible=when + delay,
        runtime=pl.Series(np.append(time_left, runtime)),
        initial=pl.Series(np.arange(len(when)) < len(old)),
    )
    meaning = f"the same jobs are simulated once before ({duration(period)}), and are not measured"
    if (most := float(load.max())) > 1:
        meaning += f"; some jobs request {most:.2g} times what there is for them: their waits grow as long as jobs come"
    return Before(_earlier(jobs), np.append(rows[old], rows) + first_row, meaning)


def _still_running(submit: Floats, runtime: Floats, period: Floats, seed: int) -> tuple[NDArray[np.int64], Floats]:
    """Draw which jobs run at an instant long after the first, oldest first, and how long each still will.

    A job is submitted at random instants (a Poisson process), once in its period on average: a stationary M/G/inf.
    What is drawn does not depend on the periods: states of two clusters differ by what one of them cannot hold.
    """
    age, old, ages = np.zeros(len(runtime)), [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    while (age < runtime).any():
        age = age - np.log1p(-_uniform(submit, seed, len(old))) * period
        old.append(np.flatnonzero(age < runtime))
        ages.append(age[old[-1]])
    rows, age = np.concatenate(old), np.concatenate(ages)
    order = np.argsort(-age, kind="stable")
    return rows[order], (runtime[rows] - age)[order]


def _uniform(submit: Floats, seed: int, draw: int) -> Floats:
    """Return a number from 0 to below 1 for each job: jobs submitted at one instant, as instances are, have the same.

    It is a hash (splitmix64): the other jobs do not change it.
    """
    start = int(np.random.SeedSequence([seed, draw]).generate_state(1, np.uint64)[0])
    bits = submit.astype(np.float64).view(np.uint64) + np.uint64(start)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)) / 2.0**53)


def _offered_loads(jobs: pl.DataFrame, cluster: Cluster, period: float) -> Floats:
    """Return for each job how much of the GPUs that it may use, or of all CPUs, is asked for: above 1, too much."""
    gpus = dict(cluster.frame.group_by("gpu_type").agg(pl.col("gpus").cast(pl.Int64).sum()).iter_rows())
    cores = float(cluster.frame["cpu_milli"].sum()) / WHOLE
    of_all = pl.col("instances") * pl.col("runtime") / WHOLE / period
    requests = jobs.select(
        types=pl.when(pl.col("gpu_milli") > 0).then(pl.col("gpu_types").list.join("|")),
        gpus=pl.col("gpu_milli") * of_all,
        cores=pl.col("cpu_milli") * of_all,
    )
    total = requests.group_by("types", maintain_order=True).agg(pl.col("gpus").sum()).drop_nulls()
    loads = {name: amount / there for name, amount in total.iter_rows() if (there := _gpus(name, gpus))}
    by_gpu: Floats = requests["types"].replace_strict(loads, default=0.0, return_dtype=pl.Float64).to_numpy()
    return np.maximum(by_gpu, float(requests["cores"].sum()) / cores if cores else 0.0)


def _gpus(types: str, there: dict[str | None, int]) -> float:
    return float(sum(there.get(name, 0) for name in types.split("|")) if types else sum(there.values()))


def _earlier(jobs: pl.DataFrame) -> pl.DataFrame:
    unknown = pl.lit(None, dtype=pl.Float64)
    return jobs.with_columns(job=pl.lit(-1, dtype=pl.Int64), start=unknown, end=unknown)
