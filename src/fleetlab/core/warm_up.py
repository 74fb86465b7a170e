"""What runs before the jobs that are measured: without it a cluster starts empty, and waits are too low."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core.censoring import run_times
from fleetlab.core.workload import Workload

LEAST = 1e-6  # seconds: jobs that are there before all others come so much earlier


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """Jobs that are simulated and not measured, submitted before second 0."""

    frame: pl.DataFrame  # the columns of a workload; `job` is -1, `submit` negative and ascending
    rows: NDArray[np.int64]  # the row of the trace's workload that each is
    meaning: str  # for a note
    estimate: pl.Series | None = None  # of their runtimes, where it is not that of the rows


def jobs_before(log: Workload, begin: float, load: float, censored: str, seed: int) -> Before | None:
    """Return the jobs of a log before a window."""
    frame = run_times(log, censored, seed).workload.frame
    earlier = (pl.col("submit") < begin) | (pl.col("initial") & (begin > 0))
    rows = np.flatnonzero(frame.select(earlier & pl.col("runtime").is_not_null()).to_series().to_numpy())
    if not len(rows):
        return None
    first = pl.when("initial").then(LEAST).otherwise(0.0)
    jobs = frame[rows].with_columns(submit=(pl.col("submit") - begin) / load - first, initial=False)
    return Before(_earlier(jobs), rows, f"the {len(rows):,} jobs before the window are simulated first")


def repeated(workload: Workload, first_row: int) -> Before | None:
    """Return the jobs once more, ending where they begin; of yet earlier repetitions, what would still run then."""
    frame = workload.frame
    came = frame["submit"].filter(~frame["initial"])
    # The last gap is a mean one. Jobs that cannot run count, so that it is the same under any change.
    period = float(came[-1] - came[0]) * len(came) / (len(came) - 1) if len(came) > 1 else 0.0
    rows = np.flatnonzero((frame["runtime"].is_not_null() & ~frame["initial"]).to_numpy())
    if not period or not len(rows):
        return None
    submit, runtime = (frame[name].to_numpy()[rows] for name in ("submit", "runtime"))
    # A job that is submitted k periods before the repetition begins is still running then if it runs long enough.
    copies = np.maximum(np.ceil((submit + runtime) / period).astype(np.int64) - 1, 0)
    old = np.repeat(np.arange(len(rows)), copies)
    back = np.concatenate([np.arange(1, n + 1) for n in copies]) if len(old) else np.zeros(0)
    left = (submit + runtime)[old] - back * period
    order = np.argsort(-left, kind="stable")
    old, left = old[order], left[order]
    taken = np.append(rows[old], rows)
    jobs = frame[taken].with_columns(
        submit=pl.Series(np.append(np.full(len(old), -period - LEAST), submit - period)),
        runtime=pl.Series(np.append(left, runtime)),
    )
    days = math.ceil(period / 8640) / 10
    meaning = f"the same jobs are simulated once before ({days:g} days), and are not measured"
    return Before(_earlier(jobs), taken + first_row, meaning)


def _earlier(jobs: pl.DataFrame) -> pl.DataFrame:
    unknown = pl.lit(None, dtype=pl.Float64)
    return jobs.with_columns(job=pl.lit(-1, dtype=pl.Int64), start=unknown, end=unknown)
