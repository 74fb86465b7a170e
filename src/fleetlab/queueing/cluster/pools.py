"""Which jobs belong to which pool and class: pools are GPU types, and jobs without a GPU have all the CPUs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Workload
from fleetlab.core.job_classes import FRACTION, NO_GPU, ONE, SEVERAL
from fleetlab.queueing.distributions import Floats

CLASSES = (FRACTION, ONE, SEVERAL, "gang", NO_GPU)
WHOLE = 1000  # milli of one


class GpuPool(NamedTuple):
    """The nodes of one GPU type, or all nodes for what they have of CPUs."""

    name: str
    servers: float  # GPUs, or CPU cores
    most: tuple[int, int, int]  # GPU milli, CPU milli and memory of its largest nodes
    cores: float


class PoolJobs(NamedTuple):
    """The jobs of one pool, in order of arrival; one number a job."""

    submit: Floats
    service: Floats
    need: Floats  # servers that it holds
    cores: Floats
    kind: NDArray[np.int64]  # its class
    bound: NDArray[np.bool_]  # may it run here only?

    @property
    def work(self) -> Floats:
        """Server seconds."""
        return self.need * self.service


def pools(cluster: Cluster) -> list[GpuPool]:
    """The GPU types of a cluster, the largest first, and last all its CPUs."""
    frame = cluster.frame.with_columns(pl.col("gpus").cast(pl.Int64))
    pools_by_type = [
        _pool(name, nodes, float(nodes["gpus"].sum()))
        for (name,), nodes in frame.filter(pl.col("gpus") > 0).partition_by("gpu_type", as_dict=True).items()
    ]
    pools_by_type.sort(key=lambda p: (-p.servers, p.name))
    return [*pools_by_type, _pool(NO_GPU, frame, float(frame["cpu_milli"].sum()) / WHOLE)]


def _pool(name: object, nodes: pl.DataFrame, servers: float) -> GpuPool:
    most = nodes.select(pl.col("gpus") * WHOLE, "cpu_milli", "memory_mib").max().row(0)
    return GpuPool(str(name), servers, most, float(nodes["cpu_milli"].sum()) / WHOLE)


def split(workload: Workload, among: list[GpuPool], seed: int) -> tuple[list[PoolJobs], tuple[str, ...], pl.DataFrame]:
    """Split jobs by pool; a job that may run in several is assigned to one at random, weighted by GPUs.

    The table has the jobs that fit no pool, with that reason.
    """
    known = workload.frame.filter(pl.col("runtime").is_not_null())
    requested = {name: known[name].cast(pl.Int64).to_numpy() for name in ("gpu_milli", "cpu_milli", "memory_mib")}
    many = known["instances"].cast(pl.Int64).to_numpy()
    none, need = requested["gpu_milli"] == 0, requested["gpu_milli"] * many / WHOLE
    cores = requested["cpu_milli"] * many / WHOLE
    names = known["gpu_types"].to_frame().unique(maintain_order=True).with_row_index("kind")
    lists = known.select("gpu_types").join(names, on="gpu_types", how="left", maintain_order="left")["kind"].to_numpy()
    may = np.zeros((len(many), len(among)), dtype=bool)
    for k, pool in enumerate(among):
        fits = np.logical_and.reduce([v <= most for v, most in zip(requested.values(), pool.most, strict=True)])
        if pool.name == NO_GPU:
            may[:, k] = none & fits & (cores <= pool.servers)
        else:
            named = np.array([not types or pool.name in types for types in names["gpu_types"].to_list()], dtype=bool)
            may[:, k] = ~none & fits & named[lists] & (need <= pool.servers)
    where = _random_pool(may, np.array([p.servers for p in among]), seed)
    kind, alone = _classes(requested["gpu_milli"], many), may.sum(axis=1) == 1
    columns = (known["submit"].to_numpy(), known["runtime"].to_numpy(), np.where(none, cores, need), cores, kind, alone)
    parts = [PoolJobs(*(column[where == k] for column in columns)) for k in range(len(among))]
    left = len(workload) - known.height
    nowhere = known.filter(pl.Series(where < 0)).select("job", reason=pl.lit("fits no pool of this cluster"))
    return parts, _notes(left, nowhere.height, int((may.sum(axis=1) > 1).sum())), nowhere


def _random_pool(may: NDArray[np.bool_], weight: Floats, seed: int) -> NDArray[np.int64]:
    """One of the pools that each job may use, -1 where there is none."""
    upto = np.cumsum(may * weight, axis=1)
    drawn = np.random.default_rng(seed).random(len(may)) * upto[:, -1]
    return np.where(upto[:, -1] > 0, (upto <= drawn[:, None]).sum(axis=1), -1)


def _classes(milli: NDArray[np.int64], many: NDArray[np.int64]) -> NDArray[np.int64]:
    rules = [milli == 0, many > 1, milli < WHOLE, milli == WHOLE]
    return np.select(rules, [4, 3, 0, 1], 2).astype(np.int64)


def _notes(unknown: int, never: int, several: int) -> tuple[str, ...]:
    notes = {
        f"{unknown:,} jobs without a runtime in the log are left out": unknown,
        f"{never:,} jobs that fit no pool of this cluster are left out": never,
        f"{several:,} jobs may run on several GPU types: each is assigned to one at random, weighted by GPUs": several,
    }
    return tuple(note for note, count in notes.items() if count)
