"""Run times that a log does not tell: held to the end of the log, or drawn from a survival estimate.

A job that still runs when the log ends has a right-censored run time: it ran at least so long. `hold` lets it run until
the log ends, `impute` draws how long it runs from the Kaplan-Meier estimate of its class, given how long it has run.
Of a job whose end is lost, or that never started, nothing is known: it is drawn from all of that estimate. A job that
others ended, by preempting it, is drawn given how long it had run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core.workload import Workload

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
RULES = ("hold", "impute", "drop")
COMPLETE, HELD, IMPUTED, UNKNOWN = "complete", "held", "imputed", "unknown"
ORIGIN = pl.Enum([COMPLETE, HELD, IMPUTED, UNKNOWN])
ENOUGH = 30  # completed jobs of a class, for an estimate of its own
# Classes, the finest first: the finest that has enough completed jobs is used.
CLASSES: tuple[list[str], ...] = (["types", "gpu_milli", "gang"], ["types"], ["gpu"], [])


def product_limit(time: Floats, ended: Bools) -> tuple[Floats, Floats, Floats]:
    """Return when some ended, how many were at risk then, and how many ended: Kaplan and Meier's table.

    >>> product_limit(np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True]))
    (array([1., 2., 3.]), array([4., 3., 1.]), array([1., 1., 1.]))
    """
    order = np.argsort(time)
    time, ended = time[order], ended[order]
    when, begin = np.unique(time, return_index=True)
    risk = len(time) - begin  # those that end at a time are still at risk then, and so are those last seen then
    deaths = np.add.reduceat(ended.astype(np.int64), begin) if len(time) else np.zeros(0, dtype=np.int64)
    keep = deaths > 0
    return when[keep].astype(np.float64), risk[keep].astype(np.float64), deaths[keep].astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class RunTimes:
    """A workload with a run time for every job of which one could be had, and where each is from."""

    workload: Workload
    origin: pl.Series  # ORIGIN, one per job
    log: pl.Series  # seconds per job that the log is taken to have, also where the rule leaves them out
    of: str = "log"  # what the jobs are all of: the log, or a window


def run_times(workload: Workload, rule: str, seed: int) -> RunTimes:
    """Fill in the run times that the log does not tell.

    Jobs that were cancelled before they started never ran: they stay without one.
    """
    frame = workload.frame
    # Of a job that runs when the log begins, what is left of its run counts.
    time_left = pl.when(pl.col("initial") & pl.col("start").is_null()).then("end")
    recorded = frame.select(pl.coalesce("runtime", pl.col("end") - pl.col("start"), time_left)).to_series()
    never = (frame["status"] == "cancelled") & frame["start"].is_null() & ~frame["initial"]
    missing = recorded.is_null() & ~never
    # Jobs that others ended did not run on to the end of the log.
    hold = missing & frame["runtime_at_least"].is_not_null() & (frame["status"] == "running") & (rule != "impute")
    filled = recorded.zip_with(~hold, frame["runtime_at_least"])
    if (missing & ~hold).any():
        sampled = _sample(
            frame.with_columns(runtime=recorded), (missing & ~hold).to_numpy(), np.random.default_rng([seed, 0xCE])
        )
        filled = filled.fill_null(sampled)
    runtime = recorded if rule == "drop" else filled
    origin = frame.select(
        pl.when(runtime.is_null()).then(pl.lit(UNKNOWN)).when(~recorded.is_null()).then(pl.lit(COMPLETE))
        .when(hold).then(pl.lit(HELD)).otherwise(pl.lit(IMPUTED)).cast(ORIGIN)
    ).to_series()  # fmt: skip
    changed = runtime.null_count() < frame["runtime"].null_count()
    jobs = replace(workload, frame=frame.with_columns(runtime=runtime)) if changed else workload
    return RunTimes(jobs, origin, filled)


def _sample(frame: pl.DataFrame, missing: Bools, rng: np.random.Generator) -> pl.Series:
    """Draw a run time for each of the wanted jobs, given how long it has run; null where no job of the log ended."""
    sampled = np.full(frame.height, np.nan)
    chance = rng.random(frame.height)
    bound = frame["runtime_at_least"].fill_null(0.0).to_numpy()
    unsampled = missing.copy()
    ended = frame["runtime"].is_not_null().to_numpy()
    # A lost end says nothing about how long a job ran: only jobs that were seen for some time are in the estimate.
    counts = ended | frame["runtime_at_least"].is_not_null().to_numpy()
    time = frame["runtime"].fill_null(frame["runtime_at_least"]).fill_null(0.0).to_numpy()
    for columns in CLASSES:
        for rows in _groups(frame, columns, unsampled):
            mine = rows[counts[rows]]
            if not unsampled[rows].any() or ended[mine].sum() < (ENOUGH if columns else 1):
                continue
            at = rows[unsampled[rows]]
            sampled[at] = conditional(time[mine], ended[mine], bound[at], chance[at])
            unsampled[at] = False
    return pl.Series(sampled, nan_to_null=True)


def _groups(frame: pl.DataFrame, columns: list[str], unsampled: Bools) -> Iterator[NDArray[np.int64]]:
    """Return the rows of each class in which a job is left to draw for."""
    if not unsampled.any():
        return
    gpu = pl.col("gpu_milli")
    classes = frame.select(
        pl.int_range(pl.len()).alias("row"), pl.Series("left", unsampled), gpu, gpu=gpu > 0,
        types=pl.col("gpu_types").list.join("|") + (gpu > 0).cast(pl.String), gang=pl.col("instances") > 1,
    )  # fmt: skip
    if not columns:
        yield np.arange(frame.height)
        return
    classes_left = classes.group_by(columns, maintain_order=True).agg("row", pl.col("left").any()).filter("left")
    for rows in classes_left["row"]:
        yield rows.to_numpy()


def conditional(time: Floats, ended: Bools, bound: Floats, chance: Floats) -> Floats:
    """Draw from the estimate given that a job has run so long; the longest time seen, where it says no more.

    `time` is how long jobs were seen, and `ended` whether they ended then; `chance` is uniform on 0 to 1, one for each
    `bound`, or a row of several.

    >>> time, ended = np.array([1.0, 2.0, 4.0]), np.array([True, True, True])
    >>> conditional(time, ended, np.array([1.5]), np.array([[0.9, 0.1]])[0])
    array([2., 4.])
    """
    when, risk, deaths = product_limit(time, ended)
    alive = np.cumprod(1 - deaths / risk)
    sofar = np.searchsorted(when, bound, side="right")  # times that its run has outlasted
    level = chance * np.append(1.0, alive)[sofar]
    # The first later time by which no more than `level` are alive.
    index = np.maximum(len(alive) - np.searchsorted(alive[::-1], level, side="right"), sofar)
    longest = np.maximum(bound, float(time.max(initial=0.0)))
    return np.asarray(np.where(index < len(when), np.append(when, 0.0)[np.minimum(index, len(when))], longest))


def past_mean(jobs: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
    """For each job the mean runtime of those with its keys that had ended when it came; null where none had.

    Where a start is not known, a job is taken to have started as it came. A job whose first key is null has no mean.
    """
    end = pl.coalesce("start", "submit") + pl.col("runtime")
    ended = jobs.filter(pl.col("runtime").is_not_null()).sort(end, maintain_order=True)
    count, total = pl.int_range(1, pl.len() + 1), pl.col("runtime").cum_sum()
    means = ended.select(*keys, end=end, mean=(total / count).over(keys) if keys else total / count)
    came = jobs.with_row_index("row").sort("submit", maintain_order=True)
    last = came.join_asof(means, left_on="submit", right_on="end", by=keys or None, check_sortedness=False)
    named = pl.col(keys[0]).is_not_null() if keys else pl.lit(True)  # noqa: FBT003
    return last.sort("row").select(pl.when(named).then("mean").alias("mean"))["mean"]
