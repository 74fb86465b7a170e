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


def latencies(
    law: float | Mapping[str, list[float]], jobs: pl.DataFrame, before: pl.DataFrame | None, types: pl.Series, seed: int
) -> Floats | None:
    """Return the start-up latency of each job, in seconds, those `before` first; None where there is none.

    A law by class is that of the GPU types that the job names, else of its size, else of other jobs. Jobs that run when
    the log begins have started. `types` are the GPU types there are.
    """
    if not law:
        return None
    parts = [jobs] if before is None else [before, jobs]
    if isinstance(law, Mapping):
        named = {name for part in parts for name in gpu_type(part)}
        for name in law:
            lookup("class of a latency", name, (*SIZES, OTHER_JOBS, *sorted(named.union(types.drop_nulls()))))
    # The latency of a job does not depend on what runs before.
    return np.concatenate([_drawn(law, part, (seed, STREAM + (part is before))) for part in parts])


def _drawn(law: float | Mapping[str, list[float]], jobs: pl.DataFrame, seed: tuple[int, int]) -> Floats:
    seconds = np.full(jobs.height, 0.0 if isinstance(law, Mapping) else law)
    if isinstance(law, Mapping):
        share = np.random.default_rng(seed).random(jobs.height)
        everyone = pl.repeat(OTHER_JOBS, jobs.height, eager=True)
        # The first class that has a law counts: it is written last.
        for classes in (everyone, jobs.select(size_of()).to_series(), gpu_type(jobs)):
            for name in set(classes) & set(law):
                rows, values = (classes == name).to_numpy(), np.array(law[name])
                seconds[rows] = values[(share[rows] * len(values)).astype(np.int64)]
    running = jobs["initial"] & (jobs["start"].is_null() | (jobs["start"] <= 0))
    return np.where(running.fill_null(value=False).to_numpy(), 0.0, seconds)
