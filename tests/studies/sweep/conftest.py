"""A small queue that theory knows, saved as a trace; and studies over it."""

import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from fleetlab import Cluster, Provenance, Study, Trace, Workload

SERVERS = 4


def queue(jobs, *, load=0.5, seed=0):
    """Poisson arrivals and exponential run times of 100 s, each for one GPU of four."""
    rng = np.random.default_rng(seed)
    submit = np.append(0.0, np.cumsum(rng.exponential(100 / (load * SERVERS), jobs))[:-1])
    users = [f"user-{k}" for k in rng.integers(0, 30, jobs)]
    frame = {"submit": submit, "runtime": rng.exponential(100.0, jobs), "gpu_milli": [1000] * jobs, "user": users}
    return Workload.of(pl.DataFrame(frame), source="a queue")


def saved(folder, jobs, **options):
    """That queue as a saved trace with its cluster."""
    cluster = Cluster.uniform(1, SERVERS)
    Trace(queue(jobs, **options), Provenance("made", "a queue"), cluster=cluster).save(folder)
    return folder


@pytest.fixture
def trace(tmp_path):
    return saved(tmp_path / "trace", 300)


@pytest.fixture
def study(trace):
    """How to make a study over the trace: `study(load=[1.0], …)`."""

    def made(**words):
        return Study.of_words({"trace": "trace", "order": ["fifo", "sjf"], "seeds": 3} | words, folder=trace.parent)

    return made


def written(folder, text):
    """A study file beside the trace."""
    (folder / "study.toml").write_text(text, "utf-8")
    return folder / "study.toml"


def records(store):
    """What a store holds: the digest of each cell's result, by its address."""
    found = (json.loads(path.read_text("utf-8")) for path in store.glob("cells/*/*.json"))
    return {record["key"]: record["digest"] for record in found}


def started(*words, **options):
    """A command in a process of its own."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "fleetlab.cli", *map(str, words)], env=env, **(pipes | options))
