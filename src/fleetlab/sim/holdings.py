"""What runs held when, and when nodes were up: small tables from which usage between any edges of time follows.

`usage` of a schedule needs the whole schedule; these tables can be stored, and read in part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.sim.layout import WHOLE, Floats, Ints
from fleetlab.sim.ledger.waits import pieces
from fleetlab.sim.schedule import Schedule, Segments
from fleetlab.sim.timeline import ClusterUsage, gpu_types_of, gpus_of
from fleetlab.sim.world import World


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """Intervals of time in which GPUs of a type were allocated, or switched on."""

    types: list[str]
    runs: pl.DataFrame  # begin, end, type (one more than there are: none), gpus, cores
    up: pl.DataFrame  # begin, end, type, gpus, nodes

    @classmethod
    def of(cls, world: World, played: Schedule, cluster: Cluster) -> Holdings:
        """Read them off a schedule."""
        types, column = gpu_types_of(world, cluster)
        runs = _runs(world, played.runs(world.first), column, len(types))
        return cls(types, runs, _up(world, played, column))

    def usage(self, edges: Floats) -> ClusterUsage:
        """Return what was up and what was allocated from each edge of time to the next, by GPU type."""
        size = len(self.types) + 1
        runs, cut = _pieces(self.runs, edges)
        allocated = _sums(cut.between * size + runs["type"].to_numpy()[cut.row], cut.seconds, runs["gpus"], cut.row)
        up, on = _pieces(self.up, edges)
        there = _sums(on.between * size + up["type"].to_numpy()[on.row], on.seconds, up["gpus"], on.row)
        both = [_table(sums, len(edges) - 1, size) for sums in (there, allocated)]
        cores = float((cut.seconds * runs["cores"].to_numpy()[cut.row]).sum())
        nodes = float((on.seconds * up["nodes"].to_numpy()[on.row]).sum())
        # Sums of fractions may exceed what is there by their last digit.
        return ClusterUsage(self.types, edges, both[0], np.minimum(both[1], both[0]), nodes, cores)


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    row: Ints
    between: Ints
    seconds: Floats


def _pieces(table: pl.DataFrame, edges: Floats) -> tuple[pl.DataFrame, _Cut]:
    inside = table.filter((pl.col("end") > edges[0]) & (pl.col("begin") < edges[-1]))
    row, between, begin, end = pieces(inside["begin"].to_numpy(), inside["end"].to_numpy(), edges)
    return inside, _Cut(row, between, end - begin)


def _sums(at: Ints, seconds: Floats, weight: pl.Series, row: Ints) -> Floats:
    return np.bincount(at, seconds * weight.to_numpy()[row]).astype(np.float64)


def _table(sums: Floats, rows: int, columns: int) -> Floats:
    """Return sums as a table, without the last column: what has no GPU."""
    return np.append(sums, np.zeros(rows * columns - len(sums))).reshape(rows, columns)[:, :-1]


def _runs(world: World, segments: Segments, column: Ints, types: int) -> pl.DataFrame:
    """Return a row for each run and GPU type that it is on."""
    job, count = segments.job, segments.instances(world.instances)
    first = segments.first[: len(job)]
    of = np.repeat(np.arange(len(job)), count)
    entry = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count) + first[of]
    size = types + 1
    instances = np.bincount(of * size + column[segments.where[entry]], minlength=len(job) * size)
    cell = np.flatnonzero(instances)
    run, many = cell // size, instances[cell]
    shapes = world.shapes[world.shape[job[run]]]
    return pl.DataFrame(
        {
            "begin": segments.begin[run],
            "end": segments.end[run],
            "type": (cell % size).astype(np.int16),
            "gpus": many * (shapes.gpus * shapes.milli) / WHOLE,
            "cores": many * shapes.cpu / 1000,
        }
    )


def _up(world: World, played: Schedule, column: Ints) -> pl.DataFrame:
    """Return when nodes were up; those of one type that were up for the same time together."""
    nodes = np.arange(len(world.nodes)) if played.up is None else played.up.node
    begin = np.zeros(len(nodes)) if played.up is None else played.up.begin
    end = np.full(len(nodes), np.inf) if played.up is None else played.up.end
    frame = pl.DataFrame({"begin": begin, "end": end, "type": column[nodes].astype(np.int16)})
    frame = frame.with_columns(gpus=pl.Series(gpus_of(world)[nodes].astype(np.float64)))
    together = frame.group_by("begin", "end", "type", maintain_order=True)
    return together.agg(pl.col("gpus").sum(), pl.len().cast(pl.Float64).alias("nodes"))
