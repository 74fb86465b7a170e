"""The rows of a timeline, from GPUs to groups of nodes, and the colors of jobs: user, queue and size."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Scenario
from fleetlab.sim.layout import WHOLE, Floats, Ints, Records
from fleetlab.sim.world import World

NAMED = 8  # as many colors as everybody can tell apart; the rest is one category
OTHERS = "all others"
NO_WAIT = "did not wait"
NOBODY = "(not told)"
SIZES = ((1000, "1 GPU"), (4000, "2 to 4 GPUs"), (8000, "5 to 8 GPUs"), (64_000, "9 to 64 GPUs"))
SIZE_LABELS = ("part of a GPU", *(label for _, label in SIZES), "more than 64 GPUs")


@dataclass(frozen=True, slots=True, eq=False)
class Coloring:
    """Categories of jobs: 0 is none, `labels[0]` is category 1."""

    labels: tuple[str, ...]
    of_job: NDArray[np.uint8]  # [jobs]


def colorings(world: World) -> dict[str, Coloring]:
    """Return what jobs can be told apart by; users and queues that need most GPU time come first.

    What they need is the same under every policy, so that a color means the same in two runs.
    """
    seconds = world.gpu_milli * world.runtime
    coloring = {"user": _largest(world.users, world.user, seconds)}
    queue = world.frame["queue"]
    if queue.n_unique() > 1:
        queue = queue.cast(pl.String).fill_null("")
        names = queue.unique(maintain_order=True)
        codes = queue.replace_strict(names, pl.int_range(len(names), eager=True), return_dtype=pl.Int64)
        coloring["queue"] = _largest(names.to_list(), codes.to_numpy(), seconds)
    elif len(world.queues) > 1:
        coloring["queue"] = _largest([", ".join(parts) for parts in world.queues], world.queue, seconds)
    return coloring | {"size": _sizes(world.gpu_milli)}


def _largest(names: list[str], code: Ints, seconds: Floats) -> Coloring:
    """Number the names with the most GPU time from 1 on; all others are one category."""
    totals = np.bincount(code, seconds, minlength=len(names))
    ranked = sorted(np.flatnonzero(totals > 0).tolist(), key=lambda k: (-totals[k], names[k]))
    largest = ranked[:NAMED]
    number = np.full(len(names), len(largest) + 1, dtype=np.uint8)
    number[largest] = np.arange(1, len(largest) + 1)
    labels = (*(names[k] or NOBODY for k in largest), *([OTHERS] if len(ranked) > len(largest) else []))
    return Coloring(labels, number[code])


def _sizes(gpu_milli: Ints) -> Coloring:
    bounds = np.array([bound for bound, _ in SIZES])
    at = np.searchsorted(bounds, gpu_milli, side="left") + 1
    whole = np.where(gpu_milli < WHOLE, 0, at)
    return Coloring(SIZE_LABELS, (whole + 1).astype(np.uint8))


def main_reasons(world: World, ledger: pl.DataFrame) -> Coloring:
    """Return the reason for which each job waited longest; `ledger` has the seconds by reason of jobs."""
    totals = {name: float(ledger[name].sum()) for name in ledger.columns[1:]}
    names = sorted((name for name, total in totals.items() if total > 0), key=lambda name: -totals[name])[:NAMED]
    number = np.full(len(world.submit), len(names) + 1, dtype=np.uint8)
    if names:
        seconds = ledger.select(names).to_numpy()
        place = pl.DataFrame({"job": world.frame["job"], "place": range(world.frame.height)})
        at = ledger.select("job").join(place, on="job", how="left", maintain_order="left")["place"].to_numpy()
        number[at] = np.where(seconds.max(axis=1) > 0, seconds.argmax(axis=1) + 1, len(names) + 1)
    return Coloring((*names, NO_WAIT), number)


def used_milli(world: World, scenario: Scenario | None) -> Floats | None:
    """Return how much of each of its GPUs a job used in the log, in milli; None where the log does not tell."""
    usage = None if scenario is None else scenario.trace.usage
    if scenario is None or usage is None or not {"job", "gpu_milli"} <= set(usage.collect_schema().names()):
        return None
    weight = pl.col("instances") if "instances" in usage.collect_schema().names() else pl.lit(1)
    mean = (pl.col("gpu_milli") * weight).sum() / weight.sum()
    by_job = scenario.by_job(usage.select("job", "gpu_milli", instances=weight)).group_by("job").agg(gpu=mean).collect()
    used = world.frame.select("job").join(by_job, on="job", how="left", maintain_order="left")["gpu"]
    gpus = np.maximum(world.shapes.gpus[world.shape], 1)
    coloring: Floats = used.fill_null(0.0).fill_nan(0.0).to_numpy() / gpus
    return np.minimum(coloring, float(WHOLE))


FEW = 48  # rows: a level with fewer needs no coarser one
RACK = "rack"  # how the feature of a node begins that names its rack


@dataclass(frozen=True, slots=True, eq=False)
class RowLevel:
    """A partition of the GPUs into rows of neighbors."""

    name: str
    edges: Ints  # [rows + 1]: the first GPU of each row, and the number of GPUs


@dataclass(frozen=True, slots=True, eq=False)
class GpuRows:
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


def rows_of(cluster: Cluster, table: Records) -> GpuRows:
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
    return GpuRows(nodes, first, row_of_gpu, _levels(first, pool_starts, rack_starts))


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


def node_table(cluster: Cluster, rows: GpuRows) -> pl.DataFrame:
    """Return name, pool, rack and GPU type of each node, in order."""
    frame = cluster.frame[rows.nodes]
    racks = pl.Series("rack", [rack_of(f) for f in frame["features"].to_list()], dtype=pl.String)
    return frame.select("node", "pool", "gpu_type").with_columns(racks)
