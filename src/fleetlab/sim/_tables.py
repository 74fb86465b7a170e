"""A workload and a cluster as the compiled loops take them: columns of integers and of seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, PolicyError, Workload, WorkloadError
from fleetlab.core.catalog import ESTIMATES, RESOURCES
from fleetlab.core.catalog.resources import NODE_AMOUNTS
from fleetlab.core.names import lookup
from fleetlab.sim._nodes import (
    APP,
    GPU_FIELDS,
    KINDS,
    NODE_FIELDS,
    ORDINAL,
    SHAPE_FIELDS,
    TYPE,
    UP,
    WHOLE,
    Floats,
    Ints,
)

# Times are whole numbers of ticks, so that sums and differences of them are exact in floats: a ledger adds up.
TICK = 2.0**-24  # seconds: 60 ns, exact up to 17 years
MOST_TYPES = 62  # GPU types in one cluster: a bit each
MOST_GPUS = 62  # on one node: a bit each
COVER = 0.95  # of the instances, by the shapes that stand for the workload in a fragment
ASKS = (*NODE_AMOUNTS, "milli", "gpus", "gpu_memory_mib", "types", "limit", "at")
# What high-end means: the order in which types are spared, the strongest last; others rank by their GPU memory.
STRENGTH: tuple[str, ...] = (
    "MISC",
    "K40",
    "K80",
    "M60",
    "P4",
    "T4",
    "P40",
    "P100",
    "A10",
    "L4",
    "V100",
    "V100M16",
    "V100M32",
    "L40",
)
STRENGTH += ("A30", "A100", "A800", "H20", "H800", "H100", "H200", "B200", "GB200")


@dataclass(frozen=True, slots=True)
class World:
    """Who wants what (one entry a job that can run, in order of arrival), and what there is."""

    frame: pl.DataFrame  # the jobs' rows of the workload
    refused: pl.DataFrame  # job, reason
    submit: Floats  # on the tick
    runtime: Floats  # on the tick
    estimate: Floats  # where it is known beforehand; else what nobody has learnt yet: 0
    learns: Ints  # whose finished jobs the estimate is the mean of, 0 to learners - 1; -1: `estimate` stands
    learners: int
    shape: Ints  # the row of S
    instances: Ints
    kind: Ints  # jobs of one kind ask for the same: a shape, so many times
    kinds: Ints  # [kinds, 2]: shape, instances
    first: Ints  # [jobs + 1]: index of its first instance
    user: Ints  # 0 to users - 1; a job without one is its own nobody: all of them together are one user
    users: list[str]
    priority: Ints
    asked: Ints  # GPU milli an instance, before shares are rounded up
    S: Ints  # [shapes, SHAPE_FIELDS]
    N: Ints  # [nodes, NODE_FIELDS]
    G: Ints  # [GPUs, GPU_FIELDS]
    C: Ints  # [nodes, 4]: CPU, memory, GPU milli of the empty node, tier of its GPUs
    apps: Ints  # [apps with a limit, nodes], at least [1, 1]
    most: Ints  # [2]: CPU and GPU milli of the largest node
    U: Ints  # [usual shapes, 4]
    share: Floats  # of the workload, of each usual shape


def world(
    workload: Workload, cluster: Cluster, *, estimate: str | Sequence[float] | pl.Series = "oracle",
    part: int = 1, allowed: Mapping[str, int] | None = None,
) -> World:  # fmt: skip
    """Put a workload and a cluster into columns; jobs that can never run are refused, with their reasons.

    A share is rounded up to whole parts of a GPU, of `part` milli each. `allowed` is how many GPU milli a user may hold
    at once, where that is limited.
    """
    bits = _bits(cluster)
    believed = _believed(workload, estimate)
    gpu = pl.col("gpu_milli")
    frame = workload.frame.with_columns(pl.col("app").cast(pl.String).fill_null(""), believed=believed, asked=gpu)
    if part > 1:
        frame = frame.with_columns(gpu_milli=pl.when(gpu < WHOLE).then((gpu + part - 1) // part * part).otherwise(gpu))
    frame, refused = _able(frame, cluster, allowed or {})
    S, shape = _shapes(frame, bits)
    instances = _ints(frame["instances"])
    kinds, kind = _kinds(shape, instances)
    N, G = _nodes(cluster, bits)
    learns, learners = _learns(frame, estimate)
    runtime = _on_tick(frame["runtime"])
    user, users = _users(frame)
    usual = _usual(S, shape, instances)
    apps = int(S[:, APP].max(initial=0)) + 1
    return World(
        frame=frame.drop("believed", "asked"),
        refused=refused,
        submit=_on_tick(frame["submit"]),
        runtime=runtime,
        estimate=np.zeros(frame.height) if learners else _on_tick(frame["believed"].fill_null(frame["runtime"])),
        learns=learns,
        learners=learners,
        shape=shape,
        instances=instances,
        kind=kind,
        kinds=kinds,
        first=np.append(0, np.cumsum(instances)),
        user=user,
        users=users,
        priority=_ints(frame["priority"]),
        asked=_ints(frame["asked"]),
        S=S,
        N=N,
        G=G,
        C=_capacity(cluster),
        apps=np.zeros((apps, len(N)) if (S[:, 8] > 0).any() else (1, 1), dtype=np.int64),
        most=np.array([max(1, N[:, 0].max(initial=0)), max(1, N[:, 4].max(initial=0))], dtype=np.int64),
        U=usual[0],
        share=usual[1],
    )


def _on_tick(column: pl.Series) -> Floats:
    return np.rint(column.to_numpy().astype(np.float64) / TICK) * TICK


def _bits(cluster: Cluster) -> dict[str, int]:
    names = sorted(set(cluster.frame["gpu_type"].drop_nulls()))
    most = cluster.frame["gpus"].max()
    if len(names) > MOST_TYPES or (isinstance(most, int) and most > MOST_GPUS):
        msg = f"{cluster.source}: more than {MOST_TYPES} GPU types, or {MOST_GPUS} GPUs on a node"
        raise WorkloadError(msg, hint="split such nodes, or merge types that no job tells apart")
    return {name: 1 << k for k, name in enumerate(names)}


def _believed(workload: Workload, estimate: str | Sequence[float] | pl.Series) -> pl.Series:
    """What is told of each job's run time; null: nothing."""
    if isinstance(estimate, str):
        hint = f"choose from {', '.join(ESTIMATES.names)}; or pass a column of seconds, one per job"
        lookup("estimate", estimate, ESTIMATES.names, hint=hint)
        return workload.frame["runtime"]
    told = pl.Series("believed", estimate, dtype=pl.Float64, strict=False)
    if len(told) != len(workload) or (bad := told.is_nan() | told.is_infinite() | (told < 0)).any():
        what = (
            f"{len(told)} values for {len(workload)} jobs" if len(told) != len(workload) else str(told.filter(bad)[0])
        )
        msg = f"a column of estimates has one number of seconds a job, none below 0: {what}"
        raise PolicyError(msg, hint="null where nothing is known of a job: then its true run time is taken")
    return told


# -- who cannot run at all ---------------------------------------------------------------------------------------


def _able(frame: pl.DataFrame, cluster: Cluster, allowed: Mapping[str, int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The jobs that can run on the cluster when it is empty, and the others with their reasons."""
    room = _room(frame, cluster)
    user = pl.col("user").cast(pl.String).fill_null("")
    most = user.replace_strict(list(allowed), list(allowed.values()), default=None, return_dtype=pl.Int64)
    reason = (
        pl.when(pl.col("runtime").is_null()).then(pl.lit("its run time is not known"))
        .when(room == 0).then(pl.lit("an instance fits on no node"))
        .when(room < frame["instances"]).then(pl.lit("its instances do not all fit at once"))
        .when(pl.col("gpu_milli").cast(pl.Int64) * pl.col("instances") > most)
        .then(pl.lit("it asks for more than its user may hold"))
    )  # fmt: skip
    told = frame.with_columns(reason=reason)
    refused = told.filter(pl.col("reason").is_not_null()).select("job", "reason")
    return told.filter(pl.col("reason").is_null()).drop("reason"), refused


def _room(frame: pl.DataFrame, cluster: Cluster) -> pl.Series:
    """How many instances of each job the empty cluster holds."""
    columns = [*(resource.request for resource in RESOURCES), "gpu_types"]
    asks = frame.select(*columns, "max_per_node").with_columns(pl.col("gpu_types").list.join("\n"))
    distinct = asks.unique(maintain_order=True)
    nodes = cluster.frame.group_by(pl.exclude("node", "pool"), maintain_order=True).len()
    wanted = {name: _ints(distinct[name].fill_null(0)) for name in distinct.columns if name != "gpu_types"}
    room = np.zeros(distinct.height, dtype=np.int64)
    for node in nodes.iter_rows(named=True):
        room += _on_node(wanted, distinct["gpu_types"], node) * node["len"]
    found = distinct.with_columns(room=pl.Series(room, dtype=pl.Int64))
    return asks.join(found, on=asks.columns, how="left", maintain_order="left")["room"]


def _on_node(ask: dict[str, Ints], types: pl.Series, node: dict[str, Any]) -> Ints:
    """How many of each ask an empty node of this kind holds."""
    room = np.where(ask["max_per_node"] > 0, ask["max_per_node"], 1 << 40)
    for name in NODE_AMOUNTS:
        room = np.where(ask[name] > 0, np.minimum(room, node[name] // np.maximum(ask[name], 1)), room)
    milli, memory = ask["gpu_milli"], ask["gpu_memory_mib"]
    each = np.where(memory > 0, node["gpu_memory_mib"] // np.maximum(memory, 1), WHOLE)
    shares = node["gpus"] * np.minimum(WHOLE // np.maximum(milli, 1), each)
    wholes = np.where(node["gpu_memory_mib"] >= memory, node["gpus"] * WHOLE // np.maximum(milli, 1), 0)
    by_gpu = np.minimum(room, np.where(milli >= WHOLE, wholes, shares))
    named = [t for t in types.unique() if not t or node["gpu_type"] in t.split("\n")]
    return np.where(milli == 0, room, np.where(types.is_in(named).to_numpy(), by_gpu, 0)).astype(np.int64)


# -- what they ask for -------------------------------------------------------------------------------------------


def _shapes(frame: pl.DataFrame, bits: dict[str, int]) -> tuple[Ints, Ints]:
    """The distinct demands of an instance, and which of them each job has."""
    gpu, limit = pl.col("gpu_milli").cast(pl.Int64), pl.col("max_per_node")
    apps = sorted(set(frame.filter(limit > 0)["app"]))
    at = pl.col("app").replace_strict(apps, list(range(len(apps))), default=0, return_dtype=pl.Int64)
    asks = frame.select(
        *NODE_AMOUNTS,
        pl.when(gpu >= WHOLE).then(WHOLE).otherwise(gpu).alias("milli"),
        pl.when(gpu == 0).then(0).when(gpu < WHOLE).then(1).otherwise(gpu // WHOLE).alias("gpus"),
        "gpu_memory_mib",
        _mask(frame["gpu_types"], bits).alias("types"),
        limit.alias("limit"),
        pl.when(limit > 0).then(at).otherwise(0).alias("at"),
    )
    distinct = asks.unique(maintain_order=True).with_row_index("shape")
    shape = asks.join(distinct, on=list(ASKS), how="left", maintain_order="left")["shape"]
    S = np.zeros((distinct.height, SHAPE_FIELDS), dtype=np.int64)
    for field, name in enumerate(ASKS):
        S[:, field] = _ints(distinct[name])
    share = S[:, ASKS.index("milli")] < WHOLE
    S[:, len(ASKS)] = np.where(share, 0, np.minimum(S[:, ASKS.index("gpus")], KINDS - 1))
    return S, _ints(shape)


def _mask(types: pl.Series, bits: dict[str, int]) -> pl.Series:
    """The GPU types of each job as bits; none named means any."""
    joined = types.list.join("\n")
    distinct = joined.unique(maintain_order=True).to_list()
    masks = [sum(bits.get(name, 0) for name in set(t.split("\n"))) if t else sum(bits.values()) for t in distinct]
    return joined.replace_strict(distinct, masks, return_dtype=pl.Int64)


def _kinds(shape: Ints, instances: Ints) -> tuple[Ints, Ints]:
    asks = pl.DataFrame({"shape": shape, "instances": instances})
    distinct = asks.unique(maintain_order=True).with_row_index("kind")
    kind = asks.join(distinct, on=["shape", "instances"], how="left", maintain_order="left")["kind"]
    return np.ascontiguousarray(distinct.select("shape", "instances").to_numpy().astype(np.int64)), _ints(kind)


def _learns(frame: pl.DataFrame, estimate: object) -> tuple[Ints, int]:
    nobody = np.full(frame.height, -1, dtype=np.int64)
    if not isinstance(estimate, str) or not ESTIMATES[estimate].columns:
        return nobody, 0
    # A job without a group is told by its user alone.
    who = frame.select(pl.struct(ESTIMATES[estimate].columns).rank("dense").alias("who"))["who"]
    learns = _ints(who) - 1 if frame.height else nobody
    return learns, int(learns.max(initial=-1)) + 1


def _users(frame: pl.DataFrame) -> tuple[Ints, list[str]]:
    names = frame["user"].cast(pl.String).fill_null("")
    users = names.unique().sort().to_list()
    return _ints(names.replace_strict(users, list(range(len(users))), return_dtype=pl.Int64)), users


def _usual(S: Ints, shape: Ints, instances: Ints) -> tuple[Ints, Floats]:
    """The shapes that stand for the workload: most frequent first until they cover 95 % of it; memory aside."""
    count = np.bincount(shape, weights=instances, minlength=len(S)).astype(np.int64)
    kinds = (
        pl.DataFrame({"cpu": S[:, 0], "milli": S[:, 4], "gpus": S[:, 5], "types": S[:, 7], "count": count})
        .group_by("cpu", "milli", "gpus", "types", maintain_order=True)
        .agg(pl.col("count").sum())
        .sort("count", descending=True, maintain_order=True)
    )
    if kinds.is_empty():
        return np.zeros((0, 4), dtype=np.int64), np.zeros(0)
    covered = kinds["count"].cum_sum() / kinds["count"].sum()
    kinds = kinds.head(int((covered < COVER).sum()) + 1)
    rows = kinds.select("cpu", "milli", "gpus", "types").to_numpy().astype(np.int64)
    return np.ascontiguousarray(rows), (kinds["count"] / kinds["count"].sum()).to_numpy()


# -- what there is -----------------------------------------------------------------------------------------------


def _nodes(cluster: Cluster, bits: dict[str, int]) -> tuple[Ints, Ints]:
    c = cluster.frame
    gpus = _ints(c["gpus"])
    N = np.zeros((len(gpus), NODE_FIELDS), dtype=np.int64)
    for field, name in enumerate(NODE_AMOUNTS):
        N[:, field] = _ints(c[name])
    N[:, 4], N[:, 5], N[:, 6] = gpus * WHOLE, gpus, np.where(gpus > 0, WHOLE, 0)
    N[:, UP] = 1
    last = np.cumsum(gpus)
    N[:, 8], N[:, 9] = last - gpus, last
    N[:, TYPE] = [bits[kind] if kind is not None and g else 0 for kind, g in zip(c["gpu_type"], gpus, strict=True)]
    N[:, ORDINAL] = [int(bit).bit_length() - 1 for bit in N[:, TYPE]]
    G = np.zeros((int(gpus.sum()), GPU_FIELDS), dtype=np.int64)
    G[:, 0], G[:, 1] = WHOLE, np.repeat(_ints(c["gpu_memory_mib"]), gpus)
    G[:, 2] = np.repeat(np.arange(len(gpus)), gpus)
    return N, G


def _capacity(cluster: Cluster) -> Ints:
    c = cluster.frame
    names = sorted(set(c["gpu_type"].drop_nulls()), key=lambda name: _strength(name, c))
    tier = {name: k for k, name in enumerate(names)}
    C = np.zeros((c.height, 4), dtype=np.int64)
    C[:, 0], C[:, 1], C[:, 2] = _ints(c["cpu_milli"]), _ints(c["memory_mib"]), _ints(c["gpus"]) * WHOLE
    C[:, 3] = [tier.get(name, 0) for name in c["gpu_type"]]
    return C


def _strength(name: str, nodes: pl.DataFrame) -> tuple[int, int, str]:
    memory = int(_ints(nodes.filter(pl.col("gpu_type") == name)["gpu_memory_mib"]).max(initial=0))
    return STRENGTH.index(name) if name in STRENGTH else len(STRENGTH), memory, name


def _ints(column: pl.Series) -> Ints:
    return column.to_numpy().astype(np.int64)
