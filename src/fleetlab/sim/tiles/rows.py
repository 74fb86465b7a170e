"""The rows of a timeline: GPUs in order of pool, rack and node, and coarser levels that join neighbors."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.sim.layout import Ints, Records

FEW = 48  # rows: a level with fewer needs no coarser one
RACK = "rack"  # how the feature of a node begins that names its rack


@dataclass(frozen=True, slots=True, eq=False)
class RowLevel:
    """A partition of the GPUs into rows of neighbors."""

    name: str
    edges: Ints  # [rows + 1]: the first GPU of each row, and the number of GPUs


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """GPUs in the order in which they are drawn; the finest level comes first."""

    nodes: Ints  # nodes that have GPUs, in order: rows of the cluster
    first: Ints  # [nodes + 1]: the first GPU of each
    row_of_gpu: Ints  # [GPUs of the world]: its place
    levels: tuple[RowLevel, ...]

    @property
    def gpus(self) -> int:
        """How many there are."""
        return int(self.first[-1])


def rack_of(features: list[str]) -> str:
    """Return the rack of a node, as a feature names it.

    >>> rack_of(["ib", "rack=r7"]), rack_of(["rack12"]), rack_of(["ib"])
    ('r7', '12', '')
    """
    named = next((f for f in features if f.lower().startswith(RACK)), "")
    return named[len(RACK) :].lstrip(":=-_ ")


def rows_of(cluster: Cluster, table: Records) -> Rows:
    """Put the GPUs of a cluster in order, and make levels of them."""
    frame = cluster.frame
    pools, racks = frame["pool"].to_list(), [rack_of(f) for f in frame["features"].to_list()]
    gpus = np.asarray(table.end_gpu - table.first_gpu, dtype=np.int64)
    number = {pool: k for k, pool in enumerate(dict.fromkeys(pools))}
    place = np.array([number[pool] for pool in pools], dtype=np.int64)
    order = sorted(np.flatnonzero(gpus > 0).tolist(), key=lambda n: (place[n], racks[n], n))
    nodes = np.array(order, dtype=np.int64)
    first = np.append(0, np.cumsum(gpus[nodes])).astype(np.int64)
    row_of_gpu = np.zeros(int(gpus.sum()), dtype=np.int64)
    for k, n in enumerate(order):
        row_of_gpu[table[n].first_gpu : table[n].end_gpu] = np.arange(first[k], first[k + 1])
    pool_starts = _starts([pools[n] for n in order])
    rack_starts = _starts([(pools[n], racks[n]) for n in order])
    return Rows(nodes, first, row_of_gpu, _levels(first, pool_starts, rack_starts))


def _starts(keys: list[object]) -> Ints:
    """Return where neighbors differ, and the end."""
    changes = [k for k in range(len(keys)) if k == 0 or keys[k] != keys[k - 1]]
    return np.array([*changes, len(keys)], dtype=np.int64)


def _levels(first: Ints, pools: Ints, racks: Ints) -> tuple[RowLevel, ...]:
    levels = [RowLevel("GPU", np.arange(first[-1] + 1)), RowLevel("node", first)]
    size = 2
    while len(levels[-1].edges) - 1 > max(FEW, len(racks) - 1):
        levels.append(RowLevel(f"{size} nodes", first[_groups(racks, size)]))
        size *= 2
    if len(racks) > len(pools):
        levels.append(RowLevel("rack", first[racks]))
    levels.append(RowLevel("pool", first[pools]))
    different = [levels[0]]
    for level in levels[1:]:
        if len(level.edges) < len(different[-1].edges):
            different.append(level)
    return tuple(different)


def _groups(starts: Ints, size: int) -> Ints:
    """Return the first node of each group of `size` neighbors; no group crosses a start."""
    parts = [np.arange(a, b, size) for a, b in itertools.pairwise(starts)]
    return np.append(np.concatenate(parts), starts[-1]).astype(np.int64)


def node_table(cluster: Cluster, rows: Rows) -> pl.DataFrame:
    """Return name, pool, rack and GPU type of each node, in order."""
    frame = cluster.frame[rows.nodes]
    racks = pl.Series("rack", [rack_of(f) for f in frame["features"].to_list()], dtype=pl.String)
    return frame.select("node", "pool", "gpu_type").with_columns(racks)
