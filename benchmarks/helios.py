"""The ratio of mean JCT under FIFO and under SJF on Helios: `python -m benchmarks.helios [SEED]`.

Hu et al. (SC 2021) published it for September on four clusters: 1.49 to 6.59, without backfill and with consolidated
placement. With greedy backfill, a public simulator has a ratio of about 1.4. The log itself is not available: jobs here
have its published runtimes and GPUs on one virtual cluster. The load is fitted: jobs spend the published share of their
JCT in the queue.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab import Cluster, Provenance, Workload
from fleetlab._screen import show
from fleetlab.core.progress import Progress, silent
from fleetlab.sim import simulate
from fleetlab.stats import mean_of_runs
from fleetlab.studies.validate import Validation
from fleetlab.studies.validate.line import Line
from fleetlab.studies.validate.schedules import seed_of

HELIOS_SEEDS = 10
HELIOS_JOBS = 10_000
NODES, GPUS = 16, 8  # of a virtual cluster
LOADS = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
HELIOS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
RATIO = "mean JCT, FIFO over SJF"
LONGEST = 30 * 86_400.0
WHY = "a synthetic virtual cluster with constant load: the log is not available"


def compare(*, seed: int, progress: Progress) -> list[Line]:
    """Compare the ratio of mean JCT, FIFO over SJF, without backfill and with greedy backfill."""
    ratios: dict[str, list[float]] = {name: [] for name in HELIOS[RATIO]}
    greedy = []
    for k in range(HELIOS_SEEDS):
        for name, ratio in ratios(seed_of("helios", seed, k)).items():
            ratios[name].append(ratio)
        greedy.append(_greedy_ratio(seed_of("helios", seed, k)))
        progress("simulating policies on Helios", k + 1, (k + 1) / HELIOS_SEEDS)
    rows = [(f"no backfill, queueing as in {name}", HELIOS[RATIO][name], ratios[name]) for name in ratios]
    rows.append(("greedy backfill", HELIOS[f"{RATIO}, greedy backfill"], greedy))
    return [
        Line(f"Helios, {case}", RATIO, number, mean_of_runs(values), near=0.25, why=WHY, counts=False)
        for case, number, values in rows
    ]


def ratios(seed: list[int]) -> dict[str, float]:
    """FIFO by SJF at the load where FIFO queues as published, for each cluster: between loads by straight lines."""
    share, ratio = [0.0], [1.0]
    for load in LOADS:
        workload = _helios_jobs(seed, load)
        fifo, sjf = (_helios_jct(workload, order, "none") for order in ("fifo", "sjf"))
        # Queueing grows with load; noise in one run must not make the curve fall.
        share.append(max(share[-1], 1 - float(workload.frame["runtime"].mean()) / fifo))  # type: ignore[arg-type]
        ratio.append(fifo / sjf)
    queued = HELIOS["share of JCT in the queue under FIFO"]
    return {name: float(np.interp(published, share, ratio)) for name, published in queued.items()}


def _greedy_ratio(seed: list[int]) -> float:
    workload = _helios_jobs(seed, max(LOADS))
    return _helios_jct(workload, "fifo", "greedy") / _helios_jct(workload, "sjf", "greedy")


def _helios_jct(workload: Workload, order: str, backfill: str) -> float:
    cluster = Cluster.uniform(NODES, GPUS)
    return float(simulate(workload, cluster, order=order, backfill=backfill).jobs["jct"].mean())  # type: ignore[arg-type]


def _helios_jobs(seed: list[int], load: float) -> Workload:
    rng = np.random.default_rng(seed)
    median, needs = HELIOS["median runtime"], HELIOS["jobs by GPUs"]
    sigma = (2 * math.log(HELIOS["mean runtime"] / median)) ** 0.5
    runtime = np.minimum(np.ceil(rng.lognormal(math.log(median), sigma, HELIOS_JOBS)), LONGEST)
    need = rng.choice([int(gpus) for gpus in needs], HELIOS_JOBS, p=list(needs.values()))
    span = float((runtime * need).sum()) / (load * NODES * GPUS)
    submit = np.sort(rng.random(HELIOS_JOBS)) * span
    shape = {"instances": np.maximum(need // GPUS, 1), "gpu_milli": np.minimum(need, GPUS) * 1000}
    jobs = pl.DataFrame({"submit": submit - submit[0], "runtime": runtime} | shape)
    return Workload.of(jobs, source="helios-like")


def main() -> None:
    """Print all lines."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    lines = compare(seed=seed, progress=silent)
    show(Validation({"helios": lines}, Provenance("helios", "fleetlab", {}, seed)), most=1000)


if __name__ == "__main__":
    main()
