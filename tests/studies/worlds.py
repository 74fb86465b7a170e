"""A small cluster under every scheduler: 32 jobs of two teams on three nodes, as a log of such a site has them."""

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl

from fleetlab import Cluster, Provenance, Scenario, Trace, Workload, simulate

GPU = "nvidia.com/gpu"
TEAMS = ("vision", "speech")
SLURM = {
    "main": {"delay": 0.0},
    "backfill": {"interval": 30.0},
    "partitions": [{"name": "gpu"}],
    "qos": [{"name": "few", "per_user": {"resources": {"gpu": 8}}}],
    "enforce": ["limits"],
}
KUEUE = {
    "kind": "kueue",
    "cluster_queues": [
        {"name": team, "cohort": "lab",
         "groups": [{"covered": [GPU], "flavors": {"any": {GPU: {"nominal": 12, "borrowing_limit": 4}}}}]}
        for team in TEAMS
    ],
    "local_queues": [{"namespace": team, "name": "main", "cluster_queue": team} for team in TEAMS],
}  # fmt: skip


class Shortest:
    """A scheduler of one's own in plain Python: the jobs that fit, those with the shortest estimate first."""

    def decide(self, view):
        jobs = sorted(view.waiting, key=lambda job: (job.estimate, job.id))
        return [start for job in jobs if (start := view.try_start(job))]


SCHEDULERS = {
    "event": None,
    "slurm": SLURM,
    "kubernetes": {"kind": "kubernetes"},
    "kueue": KUEUE,
    "volcano": {"kind": "volcano", "queues": [{"name": team} for team in ("default", *TEAMS)]},
    "kai": {"kind": "kai", "queues": [{"name": "all"}, *({"name": team, "parent": "all"} for team in TEAMS)]},
    "own": Shortest(),
}


def jobs(count=32, every=40.0, seed=1):
    """A workload under which some wait: each job has the GPUs of an eighth of the cluster to all of a node."""
    rng = np.random.default_rng(seed)
    submit = np.append(0.0, np.cumsum(rng.exponential(every, count - 1))).round()
    runtime = rng.choice([60.0, 200.0, 500.0], count) + np.arange(count)
    frame = pl.DataFrame(
        {
            "submit": submit, "runtime": runtime, "limit": runtime * 2,
            "gpu_milli": rng.choice([1000, 2000, 4000, 8000], count), "cpu_milli": 1000, "memory_mib": 1024,
            "user": [f"user-{k % 4}" for k in range(count)], "group": [TEAMS[k % 2] for k in range(count)],
            "qos": [("few", None)[k % 3 > 0] for k in range(count)],
        }
    )  # fmt: skip
    queue = pl.col("group").alias("queue")
    return Workload.of(frame.with_columns(queue), source="32 jobs")


def nodes():
    """Three nodes of 8 GPUs."""
    frame = pl.DataFrame({"node": ["n0", "n1", "n2"], "gpu_type": "a100", "gpus": 8})
    lists = pl.Series("partitions", [["gpu"]] * 3, dtype=pl.List(pl.String))
    return Cluster.of(
        frame.with_columns(lists, cpu_milli=64_000, memory_mib=512_000, gpu_memory_mib=80_000), source="three nodes"
    )


@cache
def site(name, every=40.0):
    """A log of the cluster with the scheduler of this name: with starts, names of jobs and a series."""
    work, cluster, values = jobs(every=every), nodes(), SCHEDULERS[name]
    scheduler = None if values is None else Scenario.of(work, cluster, scheduler=values).scheduler
    log = Trace(
        work,
        Provenance("by hand", name),
        cluster,
        scheduler,
        names=work.frame.select("job", name=pl.format("job-{}", "job")).lazy(),
        series={"requested": work.frame.select("job", seconds=pl.col("runtime") * 2).lazy()},
        notes=("by hand",),
    )
    times = simulate(log).jobs.sort("job").select("start", "end")
    return replace(log, workload=replace(work, frame=work.frame.with_columns(times["start"], times["end"])))
