"""Helios (Hu et al., SC 2021): the ratio of mean JCT under FIFO and under SJF.

Published for September on four clusters: 1.49 to 6.59, without backfill and with consolidated placement. With greedy
backfill, a public simulator has a ratio of about 1.4. The log itself is not available: jobs here have its published
runtimes (median 206 s, mean 6,652 s) and GPUs (mean 3.7, median 1) on one virtual cluster. The load is fitted: jobs
spend the published share of their JCT in the queue.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Workload
from fleetlab.core.progress import Progress
from fleetlab.sim import simulate
from fleetlab.stats import mean_of_runs
from fleetlab.studies.validate.arrivals import seed_of
from fleetlab.studies.validate.line import Line

SEEDS = 10
JOBS = 10_000
NODES, GPUS = 16, 8  # of a virtual cluster
LOADS = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
MEDIAN, MEAN = 206.0, 6651.7
# GPUs per job and their shares: powers of 2, the median 1, the mean 3.7.
NEEDS = {1: 0.62, 2: 0.1, 4: 0.1, 8: 0.13, 16: 0.03, 32: 0.02}
# Under FIFO, the share of completion time that is queueing; and FIFO's mean JCT by SJF's.
PUBLISHED = {"Uranus": (0.425, 1.49), "Earth": (0.693, 2.87), "Venus": (0.818, 3.07), "Saturn": (0.897, 6.59)}
PASSING = 1.4
LONGEST = 30 * 86_400.0
WHY = "a synthetic virtual cluster with constant load: the log is not available"


def compare(*, seed: int, progress: Progress) -> list[Line]:
    """Compare the ratio of mean JCT, FIFO over SJF, without backfill and with greedy backfill."""
    ratios: dict[str, list[float]] = {name: [] for name in PUBLISHED}
    passing = []
    for k in range(SEEDS):
        for name, ratio in _ratios(seed_of("helios", seed, k)).items():
            ratios[name].append(ratio)
        passing.append(_passing(seed_of("helios", seed, k)))
        progress("simulating policies on Helios", k + 1, (k + 1) / SEEDS)
    what = "mean JCT, FIFO over SJF"
    lines = [
        Line(f"Helios, no backfill, queueing as in {name}", what, PUBLISHED[name][1], mean_of_runs(values),
             near=0.25, why=WHY, counts=False)
        for name, values in ratios.items()
    ]  # fmt: skip
    return [*lines, Line("Helios, greedy backfill", what, PASSING, mean_of_runs(passing), near=0.25, why=WHY,
                         counts=False)]  # fmt: skip


def _ratios(seed: list[int]) -> dict[str, float]:
    """FIFO by SJF at the load where FIFO queues as published, for each cluster: between loads by straight lines."""
    share, ratio = [0.0], [1.0]
    for load in LOADS:
        workload = _jobs(seed, load)
        fifo, sjf = (_completion(workload, order, "none") for order in ("fifo", "sjf"))
        # Queueing grows with load; noise in one run must not make the curve fall.
        share.append(max(share[-1], 1 - float(workload.frame["runtime"].mean()) / fifo))  # type: ignore[arg-type]
        ratio.append(fifo / sjf)
    return {name: float(np.interp(queued, share, ratio)) for name, (queued, _) in PUBLISHED.items()}


def _passing(seed: list[int]) -> float:
    workload = _jobs(seed, max(LOADS))
    return _completion(workload, "fifo", "greedy") / _completion(workload, "sjf", "greedy")


def _completion(workload: Workload, order: str, backfill: str) -> float:
    cluster = Cluster.uniform(NODES, GPUS)
    return float(simulate(workload, cluster, order=order, backfill=backfill).jobs["jct"].mean())  # type: ignore[arg-type]


def _jobs(seed: list[int], load: float) -> Workload:
    rng = np.random.default_rng(seed)
    sigma = (2 * math.log(MEAN / MEDIAN)) ** 0.5
    runtime = np.minimum(np.ceil(rng.lognormal(math.log(MEDIAN), sigma, JOBS)), LONGEST)
    need = rng.choice(list(NEEDS), JOBS, p=list(NEEDS.values()))
    span = float((runtime * need).sum()) / (load * NODES * GPUS)
    submit = np.sort(rng.random(JOBS)) * span
    return Workload.of(
        pl.DataFrame(
            {
                "submit": submit - submit[0],
                "runtime": runtime,
                "instances": np.maximum(need // GPUS, 1),
                "gpu_milli": np.minimum(need, GPUS) * 1000,
            }
        ),
        source="helios-like",
    )
