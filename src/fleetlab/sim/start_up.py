"""Start-up latency: the seconds between the allocation of a job's GPUs and its start.

The GPUs are held meanwhile, and the job still waits. It is paid once, at the first start; `recovery` has what a restart
costs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from fleetlab.core.job_classes import GPU_REQUESTS, gpu_request, gpu_type
from fleetlab.core.names import lookup
from fleetlab.core.words import OTHER_JOBS
from fleetlab.sim.layout import Floats

GANG = "gang"  # the size of a job of several instances
SIZES = (*GPU_REQUESTS, GANG)
STREAM = 7  # of the random numbers, so that another use of the seed does not draw the same


def size_of() -> pl.Expr:
    """Return what a job is by its size: GPUs per instance, or a gang."""
    return pl.when(pl.col("instances") > 1).then(pl.lit(GANG)).otherwise(gpu_request()).alias("size")


def latencies(law: float | Mapping[str, list[float]], jobs: pl.DataFrame, types: pl.Series, seed: int) -> Floats | None:
    """Return the start-up latency of each job, in seconds; None where there is none.

    A law by class is that of the GPU types that the job names, else of its size, else of other jobs. `types` are the
    GPU types there are.
    """
    if not isinstance(law, Mapping):
        return np.full(jobs.height, law) if law else None
    by_type, by_size = gpu_type(jobs), jobs.select(size_of()).to_series()
    known = (*SIZES, OTHER_JOBS, *sorted({*types.drop_nulls(), *by_type}))
    for name in law:
        lookup("class of a latency", name, known)
    share = np.random.default_rng((seed, STREAM)).random(jobs.height)
    seconds = np.zeros(jobs.height)
    # The first class that has a law counts: it is written last.
    for classes in (pl.repeat(OTHER_JOBS, jobs.height, eager=True), by_size, by_type):
        for name in set(classes) & set(law):
            rows = (classes == name).to_numpy()
            values = np.array(law[name])
            seconds[rows] = values[(share[rows] * len(values)).astype(np.int64)]
    return seconds
