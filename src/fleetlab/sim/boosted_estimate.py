"""Run times predicted by gradient-boosted trees, from what the log had seen when each job was submitted.

The trees have the means of earlier jobs of the same user and group, the request and the hour. They are fitted anew as
the log goes on, each time on the jobs that had ended by then: nothing that came later is known to them.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import FleetlabError, Workload
from fleetlab.core.censoring import past_mean
from fleetlab.core.progress import Progress, silent
from fleetlab.sim.layout import Floats

KEYS = (["user"], ["user", "gpu_milli"], ["user", "group"], ["user", "group", "gpu_milli"])
REQUEST = ("instances", "gpu_milli", "cpu_milli", "memory_mib")
FITS = 24  # so often are trees fitted, each time for as many jobs
FEWEST = 200  # jobs that have ended: before, the means are taken
MOST = 200_000  # jobs that trees are fitted on, the latest
ROUNDS = 80
SETTINGS = {
    "objective": "l1",  # of logarithms: half of the jobs run longer
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
    "verbose": -1,
}
HOUR, DAY = 3600.0, 86_400.0


def boosted_estimate(workload: Workload, progress: Progress = silent) -> pl.Series:
    """Return the estimated runtime of each job, in seconds."""
    try:
        lightgbm = import_module("lightgbm")
    except ModuleNotFoundError:
        msg = "the estimate `boosted` needs LightGBM, which is not installed"
        raise FleetlabError(msg, hint="pip install 'fleetlab[forecast]'; or --estimate group") from None
    jobs = workload.frame
    means = [past_mean(jobs, keys).fill_null(np.nan).to_numpy() for keys in KEYS]
    rows = np.column_stack([*(np.log(mean + 1) for mean in means), _request(workload)])
    estimate = _finest(means, past_mean(jobs, []).fill_null(0.0).to_numpy())
    submit, runtime = jobs["submit"].to_numpy(), jobs["runtime"].fill_null(np.nan).to_numpy()
    ended = jobs.select(pl.coalesce("start", "submit") + pl.col("runtime")).to_series().fill_null(np.inf).to_numpy()
    order = np.argsort(ended, kind="stable")
    for k, part in enumerate(np.array_split(np.arange(len(jobs)), FITS)):
        progress("fitting trees to the runtimes of earlier jobs", int(part[0]) if len(part) else 0, k / FITS)
        if not len(part):
            continue
        finished = order[: np.searchsorted(ended[order], submit[part[0]], side="right")][-MOST:]
        if len(finished) >= FEWEST:
            data = lightgbm.Dataset(rows[finished], label=np.log(runtime[finished] + 1))
            trees = lightgbm.train(SETTINGS, data, ROUNDS)
            estimate[part] = np.maximum(np.exp(trees.predict(rows[part], num_threads=1)) - 1, 0.0)
    return pl.Series("estimate", estimate)


def _request(workload: Workload) -> Floats:
    """Return what a job asks for, and the hour of the day, as far as the log tells it."""
    jobs = workload.frame
    requests = [jobs[name].cast(pl.Float64).to_numpy() for name in REQUEST]
    hour = (jobs["submit"].to_numpy() + (workload.epoch or 0.0)) % DAY // HOUR
    return np.column_stack([*requests, jobs["gpu_types"].list.len().to_numpy().astype(np.float64), hour])


def _finest(means: list[NDArray[np.float64]], of_all: Floats) -> Floats:
    """Return the mean of the jobs that are most alike, of those that have one."""
    estimate = of_all.copy()
    for mean in means:
        estimate = np.where(np.isfinite(mean), mean, estimate)
    return estimate
