"""What was published of the PAI trace, as data: `laws.json` holds each number beside its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.traces.synthesize.joint_law import Floats

LAWS: Mapping[str, Any] = json.loads(files(__package__).joinpath("laws.json").read_text("utf-8"))
PRINTED: Mapping[str, Any] = LAWS["printed"]
TABLE: Mapping[str, Any] = LAWS["task_table"]

FULL: int = PRINTED["jobs"]
A_DAY = FULL / float(PRINTED["days"])  # jobs a day: the load of the real cluster

# Jobs a second whose run time the log knows: what a simulator has to run.
KNOWN_A_SECOND = A_DAY / 86_400 * (TABLE["status"]["completed"] + TABLE["status"]["failed"]) / TABLE["rows"]

TYPES: tuple[str, ...] = tuple(LAWS["type_share"])
CPU_ONLY = len(TYPES)  # stands for the type of a job without a GPU

REQUESTS: tuple[str, ...] = tuple(LAWS["request_share"])  # classes of GPU request, as the paper cuts them
REQUEST_EDGES = np.array([250, 500, 1000, 1001])  # milli: the first of each class but the lowest

GANG_EDGES = np.array([2, 10, 50])  # instances: the first of each class of gang but the lowest
GANGS = ("1", "2 to 9", "10 to 49", "50 and more")

DAY = 86_400.0
ZONE = "Asia/Shanghai"
EPOCH = 1_593_532_800.0  # Wednesday 2020-07-01 00:00 in Shanghai, the first day of the trace


def gpus(type: str) -> int:
    """How many GPUs of a type there are."""
    return sum(m["nodes"] * m["gpus"] for m in LAWS["machines"] if m["gpu_type"] == type)


def cores(type: str) -> int:
    """How many CPUs the nodes of a type have."""
    return sum(m["nodes"] * m["cpus"] for m in LAWS["machines"] if m["gpu_type"] == type)


def curve(points: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Give the two columns of a published curve."""
    return np.array([float(x) for x in points]), np.array(list(points.values()), dtype=float)


def cluster() -> Cluster:
    """Build the machines of the trace, each as its specification table has it."""
    kinds = [
        pl.DataFrame({"pool": [m["gpu_type"] or "CPU"] * m["nodes"]}).with_columns(
            gpu_type=pl.lit(m["gpu_type"], dtype=pl.String),
            gpus=pl.lit(m["gpus"]),
            gpu_memory_mib=pl.lit(m["gpu_memory_gb"] * 1024),
            cpu_milli=pl.lit(m["cpus"] * 1000),
            memory_mib=pl.lit(m["memory_gb"] * 1024),
        )
        for m in LAWS["machines"]
    ]
    nodes = pl.concat(kinds).with_columns(node=pl.format("node-{}", pl.int_range(pl.len())))
    return Cluster.of(nodes, source="synthesize:pai2020")
