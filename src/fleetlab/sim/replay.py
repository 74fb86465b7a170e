"""Replay a workload on a cluster: when and where does each task run?"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.sim import _engine
from fleetlab.sim._engine import DISCIPLINES, ORDERS, PLACES, WHOLE, Floats, Ints, Kinds, Nodes, Shapes, Tasks
from fleetlab.sim.result import SimResult
from fleetlab.workload import Cluster, PolicyError, Provenance, Workload, WorkloadError

# Whose finished tasks tell how long a task will run; `oracle` knows.
ESTIMATES: dict[str, tuple[str, ...]] = {
    "oracle": (),
    "user": ("user",),
    "user+gpu": ("user", "gpu_milli"),
    "group": ("user", "group"),
    "group+gpu": ("user", "group", "gpu_milli"),
}
MOST_TYPES = 62  # GPU types in one cluster: a bit each
MOST_GPUS = 62  # on one node: a bit each
ASKS = ("cpu_milli", "memory_mib", "milli", "gpus", "gpu_memory_mib", "rdma_milli", "disk_mib", "types", "limit", "at")


def simulate(
    workload: Workload,
    cluster: Cluster,
    *,
    order: str = "fifo",
    discipline: str = "skip",
    place: str = "best_fit",
    estimate: str = "oracle",
) -> SimResult:
    """Replay a workload on a cluster: when and where does each task run?

    `order` ranks the tasks that wait, by an `estimate` of their run time where it needs one; `discipline` says what
    happens when the first does not fit (`strict`: all wait behind it, `skip`: it is passed over); `place` says where.
    """
    for word, told, known in (
        ("order", order, ORDERS),
        ("discipline", discipline, DISCIPLINES),
        ("place", place, PLACES),
        ("estimate", estimate, tuple(ESTIMATES)),
    ):
        _known(word, told, known)
    frame, refused = _able(workload, cluster)
    bits = _bits(cluster)
    nodes = _nodes(cluster, bits, _limited(frame))
    shapes, shape = _shapes(frame, bits, nodes)
    kinds, kind = _kinds(frame, shape)
    tasks = _tasks(frame, order, estimate, kind)
    start, where, _ = _engine.run(
        PLACES.index(place),
        DISCIPLINES.index(discipline),
        tasks[0],
        shapes,
        kinds,
        nodes,
        tasks[1],
    )
    settings = {"order": order, "discipline": discipline, "place": place, "estimate": estimate}
    settings |= {"cluster": cluster.source}
    return SimResult.of(frame, start, where, cluster, refused, Provenance("simulate", workload.source, settings))


def compiled() -> bool:
    """Is the loop on disk already, compiled by an earlier run?"""
    return any(Path(_engine.__file__).parent.glob("__pycache__/_engine.run-*.nbi"))


def _known(word: str, told: str, known: tuple[str, ...]) -> None:
    if told not in known:
        near = get_close_matches(told, known, 1)
        msg = f"no {word} by that name: `{told}`" + (f"; did you mean {near[0]}?" if near else "")
        raise PolicyError(msg, hint=f"there are {', '.join(known)}")


def _bits(cluster: Cluster) -> dict[str, int]:
    names = sorted(set(cluster.frame["gpu_type"].drop_nulls()))
    most = cluster.frame["gpus"].max()
    if len(names) > MOST_TYPES or (isinstance(most, int) and most > MOST_GPUS):
        msg = f"{cluster.source}: more than {MOST_TYPES} GPU types, or {MOST_GPUS} GPUs on a node"
        raise WorkloadError(msg, hint="split such nodes, or merge types that no task tells apart")
    return {name: 1 << k for k, name in enumerate(names)}


# -- who cannot run at all ---------------------------------------------------------------------------------------


def _able(workload: Workload, cluster: Cluster) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tasks that can run on the cluster when it is empty, and the others with their reasons."""
    frame = workload.frame.with_columns(pl.col("app").cast(pl.String).fill_null(""))
    room = _room(frame, cluster)
    reason = (
        pl.when(pl.col("service").is_null()).then(pl.lit("its run time is not known"))
        .when(room == 0).then(pl.lit("an instance fits on no node"))
        .when(room < frame["instances"]).then(pl.lit("its instances do not all fit at once"))
    )  # fmt: skip
    told = frame.with_columns(reason=reason)
    refused = told.filter(pl.col("reason").is_not_null()).select("task", "reason")
    return told.filter(pl.col("reason").is_null()).drop("reason"), refused


def _room(frame: pl.DataFrame, cluster: Cluster) -> pl.Series:
    """How many instances of each task the empty cluster holds."""
    columns = ["cpu_milli", "memory_mib", "gpu_milli", "gpu_memory_mib", "rdma_milli", "disk_mib", "gpu_types"]
    asks = frame.select(*columns, "max_per_node")
    distinct = asks.unique(maintain_order=True)
    nodes = cluster.frame.group_by(pl.exclude("node", "pool"), maintain_order=True).len()
    room = [sum(_on_node(ask, node) * node["len"] for node in nodes.to_dicts()) for ask in distinct.to_dicts()]
    found = distinct.with_columns(room=pl.Series(room, dtype=pl.Int64))
    return asks.join(found, on=asks.columns, how="left", maintain_order="left")["room"]


def _on_node(ask: dict[str, Any], node: dict[str, Any]) -> int:
    room = ask["max_per_node"] or 1 << 40
    for name in ("cpu_milli", "memory_mib", "rdma_milli", "disk_mib"):
        room = min(room, node[name] // ask[name] if ask[name] else room)
    milli = ask["gpu_milli"]
    if not milli:
        return int(room)
    if ask["gpu_types"] and node["gpu_type"] not in ask["gpu_types"]:
        return 0
    if milli >= WHOLE:
        return int(min(room, node["gpus"] * WHOLE // milli)) if node["gpu_memory_mib"] >= ask["gpu_memory_mib"] else 0
    each = WHOLE // milli
    if ask["gpu_memory_mib"]:
        each = min(each, node["gpu_memory_mib"] // ask["gpu_memory_mib"])
    return int(min(room, node["gpus"] * each))


# -- as the compiled loop takes it -------------------------------------------------------------------------------


def _limited(frame: pl.DataFrame) -> list[str]:
    """The apps that have a limit on a node."""
    return sorted(set(frame.filter(pl.col("max_per_node") > 0)["app"]))


def _shapes(frame: pl.DataFrame, bits: dict[str, int], nodes: Nodes) -> tuple[Shapes, Ints]:
    """The distinct demands of an instance, and which of them each task has."""
    gpu = pl.col("gpu_milli")
    apps = _limited(frame)
    limit = pl.col("max_per_node")
    asks = frame.select(
        *ASKS[:2],
        pl.when(gpu >= WHOLE).then(WHOLE).otherwise(gpu).alias("milli"),
        pl.when(gpu == 0).then(0).when(gpu < WHOLE).then(1).otherwise(gpu // WHOLE).alias("gpus"),
        *ASKS[4:7],
        _mask(frame["gpu_types"], bits).alias("types"),
        limit.alias("limit"),
        pl.when(limit > 0)
        .then(pl.col("app").replace_strict(apps, list(range(len(apps))), default=0, return_dtype=pl.Int64))
        .otherwise(0)
        .alias("at"),
    )
    distinct = asks.unique(maintain_order=True).with_row_index("shape")
    shape = asks.join(distinct, on=list(ASKS), how="left", maintain_order="left")["shape"]
    asked = [_ints(distinct[c]) for c in ASKS]
    needs, types = asked[ASKS.index("gpus")], asked[ASKS.index("types")]
    every = np.arange(len(nodes.cpu))
    suits = [np.flatnonzero(nodes.type & t) if g else every for g, t in zip(needs, types, strict=True)]
    first = np.append(0, np.cumsum([len(s) for s in suits])).astype(np.int64)
    candidates = np.concatenate([*suits, every[:0]])
    return Shapes(*asked, first, candidates), _ints(shape)  # type: ignore[call-arg]


def _mask(types: pl.Series, bits: dict[str, int]) -> pl.Series:
    """The GPU types of each task as bits; none named means any."""
    joined = types.list.join("\n")
    distinct = joined.unique(maintain_order=True).to_list()
    masks = [sum(bits.get(name, 0) for name in t.split("\n")) if t else sum(bits.values()) for t in distinct]
    return joined.replace_strict(distinct, masks, return_dtype=pl.Int64)


def _kinds(frame: pl.DataFrame, shape: Ints) -> tuple[Kinds, Ints]:
    asks = pl.DataFrame({"shape": shape, "instances": frame["instances"].cast(pl.Int64)})
    distinct = asks.group_by("shape", "instances", maintain_order=True).len().with_row_index("kind")
    kind = asks.join(distinct, on=["shape", "instances"], how="left", maintain_order="left")["kind"]
    first = np.append(0, np.cumsum(_ints(distinct["len"])))
    return Kinds(_ints(distinct["shape"]), _ints(distinct["instances"]), first), _ints(kind)


def _tasks(frame: pl.DataFrame, order: str, estimate: str, kind: Ints) -> tuple[Tasks, int]:
    demand = (frame["gpu_milli"].cast(pl.Int64) * frame["instances"]).cast(pl.Float64)
    keys = {
        "fifo": pl.Series(np.zeros(frame.height)),
        "sjf": frame["service"],
        "smallest": demand,
        "largest": -demand,
        "priority": -frame["priority"].cast(pl.Float64),
    }
    learns, learners = np.full(frame.height, -1, dtype=np.int64), 0
    if order == "sjf" and ESTIMATES[estimate]:
        # A task without a group is told by its user alone.
        who = frame.select(pl.struct(ESTIMATES[estimate]).rank("dense").alias("who"))["who"]
        learns = _ints(who) - 1
        learners = int(learns.max()) + 1 if len(learns) else 0
    first = np.append(0, np.cumsum(_ints(frame["instances"])))
    return (
        Tasks(_floats(frame["submit"]), _floats(frame["service"]), _floats(keys[order]), kind, learns, first),
        learners,
    )


def _nodes(cluster: Cluster, bits: dict[str, int], apps: list[str]) -> Nodes:
    c = cluster.frame
    gpus = _ints(c["gpus"])
    return Nodes(
        first=np.append(0, np.cumsum(gpus)),
        type=np.array([bits.get(t, 0) for t in c["gpu_type"]], dtype=np.int64),
        cpu=_ints(c["cpu_milli"]),
        memory=_ints(c["memory_mib"]),
        rdma=_ints(c["rdma_milli"]),
        disk=_ints(c["disk_mib"]),
        gpu=np.full(int(gpus.sum()), WHOLE, dtype=np.int64),
        gpu_memory=np.repeat(_ints(c["gpu_memory_mib"]), gpus),
        apps=np.zeros((len(apps), len(gpus)) if apps else (1, 1), dtype=np.int64),
        most_cpu=max(1, int(c["cpu_milli"].max() or 0)),  # type: ignore[arg-type]
        most_gpu=max(1, int(gpus.max(initial=0)) * WHOLE),
    )


def _ints(column: pl.Series) -> Ints:
    return column.to_numpy().astype(np.int64)


def _floats(column: pl.Series) -> Floats:
    return column.to_numpy().astype(np.float64)
