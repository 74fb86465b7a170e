"""Small worlds to search in."""

import numpy as np
import polars as pl
import pytest

from fleetlab import Cluster, Provenance, Trace, Workload

DAY = 86_400.0


def as_trace(frame, cluster):
    return Trace(Workload.of(frame, source="hand"), Provenance("read", "hand"), cluster)


def line(days=10, a_day=60, seed=0, runtime=None):
    """Jobs of one GPU that come at random to one GPU; it is busy for seven tenths of the time."""
    rng = np.random.default_rng(seed)
    submit = np.append(0.0, np.sort(rng.uniform(0.0, days * DAY, days * a_day)))
    run = rng.lognormal(0.0, 1.5, len(submit)) if runtime is None else np.full(len(submit), runtime)
    run *= 0.7 * days * DAY / run.sum()
    frame = pl.DataFrame({"submit": submit, "runtime": run}).with_columns(gpu_milli=pl.lit(1000))
    return as_trace(frame, Cluster.uniform(1, 1))


def bursts(days=12, seed=0):
    """Every day a crowd comes at once: least GPU-seconds first is best, and neither GPUs nor seconds alone tell them.

    By GPU-seconds: 600 (1 GPU), 3,200 (8 GPUs of 400 s), 9,000 (1 GPU). The shortest are in the middle, and so are the
    widest.
    """
    rng = np.random.default_rng(seed)
    jobs = [(0.0, 1.0, 1000)]
    for day in range(days):
        crowd = [
            (gpus, seconds) for gpus, seconds in ((1, 600.0), (8, 400.0), (1, 9000.0)) for _ in range(rng.poisson(40))
        ]
        jobs += [(day * DAY + 10.0, crowd[k][1], 1000 * crowd[k][0]) for k in rng.permutation(len(crowd))]
    jobs.append(((days - 0.05) * DAY, 1.0, 1000))
    schema = {"submit": pl.Float64, "runtime": pl.Float64, "gpu_milli": pl.Int32}
    return as_trace(pl.DataFrame(jobs, schema=schema, orient="row"), Cluster.uniform(1, 8))


@pytest.fixture(scope="session")
def single():
    """An M/G/1 queue."""
    return line()


@pytest.fixture(scope="session")
def mixed():
    """Gangs, shares and users on a few nodes, under load."""
    rng = np.random.default_rng(4)
    n = 1500
    frame = pl.DataFrame(
        {
            "submit": np.append(0.0, np.sort(rng.uniform(0.0, 6 * DAY, n - 1))),
            "runtime": rng.lognormal(7.6, 1.2, n),
            "instances": rng.choice([1, 1, 1, 2, 4], n).astype(np.int32),
            "cpu_milli": rng.choice([1000, 4000, 8000], n),
            "gpu_milli": rng.choice([0, 250, 500, 1000, 2000], n).astype(np.int32),
            "priority": rng.integers(0, 3, n).astype(np.int32),
            "user": pl.Series(rng.choice(["ann", "bob", "eve"], n)).cast(pl.Categorical),
        }
    )
    return as_trace(frame, Cluster.uniform(4, 4, cpu_milli=32_000, memory_mib=65_536))
