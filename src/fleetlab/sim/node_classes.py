"""Which nodes a job may use: nodes that no job tells apart are one *class*, and a job may use some classes.

A job names GPU types, partitions and a constraint. Loops see classes as bits: a job's mask has the classes it may use,
so partitions cost them nothing. Nodes of two GPU types are never of one class.

Where no node is in a partition, the partitions of jobs say nothing; where no node has features, nor do constraints.
A job that names no partition may use every node. The *queue* of a job is the set of partitions that it names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, WorkloadError
from fleetlab.core.constraint import Constraint
from fleetlab.sim.distinct import distinct_rows
from fleetlab.sim.layout import MAX_GPUS, MAX_TYPES, Ints

SEPARATOR = "\n"
ANY = ""  # the queue of jobs that name no partition
ASKED = ("types", "partitions", "constraint")

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class NodeClasses:
    """The classes of a cluster's nodes for some jobs; those with GPUs come first."""

    of_node: Ints  # [nodes]
    with_gpus: int  # how many classes have GPUs
    gpu_types: tuple[str, ...]  # [classes with GPUs]
    mask: Ints  # [jobs]: bits of the classes that it may use
    of_types: (
        Ints  # [jobs]: of the classes that it might use by their GPU types, whatever their partitions and features
    )
    nowhere: Bools  # [jobs]: no node is in its partitions and meets its constraint
    unreadable: Bools  # [jobs]: its constraint cannot be read
    queue: Ints  # [jobs]
    queues: tuple[tuple[str, ...], ...]  # [queues]: the partitions that its jobs name
    of_partition: dict[str, int]  # bits of the classes with a node in it

    @classmethod
    def of(cls, jobs: pl.DataFrame, cluster: Cluster) -> NodeClasses:
        """Find the classes of a cluster that some jobs tell apart."""
        _few_gpus(cluster)
        nodes = _nodes(cluster)
        asks, ask = _asks(jobs, nodes)
        places, place = distinct_rows(asks, ["partitions", "constraint"])
        allowed, unread = _allowed(places, nodes)
        of_node, types, with_gpus = _numbered(nodes, allowed, cluster)
        of_class = np.zeros((len(allowed), len(types)), dtype=np.bool_)
        of_class[:, of_node] = allowed
        masks = [_mask(row, of_class[p], types, with_gpus) for row, p in zip(asks["types"], place, strict=True)]
        wide = [_mask(row, np.ones(len(types), dtype=np.bool_), types, with_gpus) for row in asks["types"]]
        queues, queue = _queues(asks["partitions"])
        parts = sorted({name for names in queues for name in names})
        return cls(
            of_node, with_gpus, tuple(types[:with_gpus]), np.array(masks, dtype=np.int64)[ask],
            np.array(wide, dtype=np.int64)[ask],
            (allowed.sum(axis=1) == 0)[place][ask],
            unread[place][ask], queue[ask], queues, {name: _in_partition(name, nodes, of_node) for name in parts},
        )  # fmt: skip

    @property
    def bits(self) -> Ints:
        """The bit of each node's class."""
        return np.left_shift(np.int64(1), self.of_node)


def _few_gpus(cluster: Cluster) -> None:
    most = cluster.frame["gpus"].max()
    if isinstance(most, int) and most > MAX_GPUS:
        msg = f"{cluster.source}: more than {MAX_GPUS} GPUs on a node: {most}"
        raise WorkloadError(msg, hint="split such nodes")


def _nodes(cluster: Cluster) -> pl.DataFrame:
    """What jobs may ask of each node; GPUs have a type, and nodes without GPUs have none."""
    lists = [pl.col(name).list.unique().list.sort() for name in ("partitions", "features")]
    return cluster.frame.select(pl.when(pl.col("gpus") > 0).then("gpu_type").alias("gpu_type"), *lists)


def _asks(jobs: pl.DataFrame, nodes: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
    """The things that jobs ask of nodes, once per wording, and which each job asks."""
    nothing = pl.lit("")
    types = pl.when(pl.col("gpu_milli") > 0).then(_joined("gpu_types")).otherwise(pl.lit(None))
    requests = jobs.select(
        types=types,
        partitions=_joined("partitions") if nodes["partitions"].list.len().max() else nothing,
        constraint=pl.col("constraint").fill_null("") if nodes["features"].list.len().max() else nothing,
    )
    distinct, ask = distinct_rows(requests)
    # Names are put in order here, of few wordings: of the list of every job it takes long.
    ordered = pl.col("types", "partitions").str.split(SEPARATOR).list.unique().list.sort().list.join(SEPARATOR)
    return distinct.with_columns(ordered), ask


def _joined(column: str) -> pl.Expr:
    return pl.col(column).list.join(SEPARATOR)


def _allowed(places: pl.DataFrame, nodes: pl.DataFrame) -> tuple[Bools, Bools]:
    """Which nodes are in the partitions and meet the constraint of each place; and which cannot be read."""
    allowed, unread = np.ones((places.height, nodes.height), dtype=np.bool_), np.zeros(places.height, dtype=np.bool_)
    partitions, features = (nodes[name].to_list() for name in ("partitions", "features"))
    for k, (names, text) in enumerate(places.iter_rows()):
        if names:
            wanted = set(names.split(SEPARATOR))
            allowed[k] &= _each(wanted.isdisjoint, partitions) == 0
        if text:
            try:
                allowed[k] &= _each(Constraint.of(text).meets, features)
            except WorkloadError:
                unread[k] = True
    return allowed, unread


def _each(test: object, lists: Iterable[list[str]]) -> Bools:
    """Ask once for each distinct list."""
    answers: dict[tuple[str, ...], bool] = {}
    return np.array([answers.setdefault(key, bool(test(key))) for key in map(tuple, lists)], dtype=np.bool_)  # type: ignore[operator]


def _numbered(nodes: pl.DataFrame, allowed: Bools, cluster: Cluster) -> tuple[Ints, list[str], int]:
    """The class of each node, the GPU type of each class ("": none), and how many have GPUs; those come first."""
    told_apart = [row.tobytes() for row in np.ascontiguousarray(allowed.T)]
    kinds = list(zip(nodes["gpu_type"].fill_null(""), told_apart, strict=True))
    distinct = sorted(dict.fromkeys(kinds), key=lambda kind: (not kind[0], kind[0]))  # of one type: as nodes come
    if len(distinct) > MAX_TYPES:
        msg = f"{cluster.source}: more than {MAX_TYPES} kinds of nodes by GPU type, partitions and features: "
        msg += f"{len(distinct)}"
        raise WorkloadError(msg, hint="merge GPU types or partitions that differ little, or simulate some of the jobs")
    number = {kind: k for k, kind in enumerate(distinct)}
    types = [kind[0] for kind in distinct]
    return np.array([number[kind] for kind in kinds], dtype=np.int64), types, sum(map(bool, types))


def _mask(names: str | None, allowed: Bools, types: list[str], with_gpus: int) -> int:
    """Bits of the classes that a job may use; `names`: GPU types, empty: any; None: it needs no GPU."""
    wanted = names.split(SEPARATOR) if names else ()
    classes = range(len(types)) if names is None else range(with_gpus)
    return sum(1 << k for k in classes if allowed[k] and (not wanted or types[k] in wanted))


def _queues(partitions: pl.Series) -> tuple[tuple[tuple[str, ...], ...], Ints]:
    names = partitions.unique(maintain_order=True).sort().to_list() or [ANY]
    queue = np.array([names.index(name) for name in partitions], dtype=np.int64)
    return tuple(tuple(name.split(SEPARATOR)) for name in names), queue


def _in_partition(name: str, nodes: pl.DataFrame, of_node: Ints) -> int:
    """Bits of the classes with a node in a partition; all, where jobs name none."""
    inside = (
        np.ones(nodes.height, dtype=np.bool_) if name == ANY else nodes["partitions"].list.contains(name).to_numpy()
    )
    return sum(1 << int(k) for k in np.unique(of_node[inside]))
