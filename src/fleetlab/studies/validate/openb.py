"""openb (Alibaba 2023): pods on a nearly idle cluster, whose delays are the latency of the scheduler.

It can show how long a scheduler takes when resources are free. It cannot show waiting: at the recorded times the pods
never need more than 1 % of the GPUs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.sim import simulate
from fleetlab.stats import batch_means
from fleetlab.studies.validate.line import Line, paired
from fleetlab.traces import read

FOLDER = "alibaba-openb-v2023"
PODS = "openb_pod_list_default.csv"
CAN = "openb 2023: a nearly idle cluster. It shows the scheduler's own latency, not waiting for GPUs"


def compare(data: Path, *, seed: int) -> tuple[list[Line], list[str]]:
    """Compare recorded delays with simulated waits."""
    trace = read(data / FOLDER / PODS, "openb2023")
    assert trace.cluster is not None
    jobs = simulate(trace.workload, trace.cluster).jobs
    log = trace.workload.frame.select("job", recorded=pl.col("start") - pl.col("submit"))
    both = jobs.select("job", "wait", "gpu_milli").join(log.drop_nulls(), on="job").sort("job")
    delay, wait = both["recorded"].to_numpy(), both["wait"].to_numpy()
    why = "the log's delays are the scheduler's latency: the simulator decides at once"
    lines = [
        Line("openb 2023, all pods", "mean delay, s", float(delay.mean()), paired(wait, delay), why=why, counts=False),
        Line("openb 2023, all pods", "share of pods that wait", 0.0, batch_means((wait > 0).astype(np.float64))),
    ]
    return lines, [CAN]
