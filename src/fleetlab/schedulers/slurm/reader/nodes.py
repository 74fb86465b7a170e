"""A Slurm cluster's nodes, from a list of them: what each has, and how its GPUs are shared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from fleetlab.core import Cluster, TraceError
from fleetlab.schedulers.slurm.reader.node_lists import NodeFields, expand, rows_of
from fleetlab.schedulers.slurm.reader.tres import PerGpu, count, gres_list, gres_of, mebibytes, tres
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.intake import Intake

MOST = 1_000_000  # nodes
# `MIXED+DRAIN`, `IDLE,FAIL`, `drained*`, `drng`: no new job goes there.
OUT = re.compile(r"\b(?:down|drain|drng|fail|error|maint)", re.IGNORECASE)
LOST = re.compile(r"\b(?:down|fail|error)", re.IGNORECASE)  # of these: nor does one go on there


@dataclass(frozen=True)
class NodeInventory:
    """The cluster, how its GPUs are cut into shares, and what is worth knowing of the list."""

    cluster: Cluster | None  # None if no row of the list is a node
    per_gpu: PerGpu
    notes: tuple[str, ...]


def read_nodes(source: SourceFile, kind: str, intake: Intake) -> NodeInventory:
    """Read a list of nodes; a row that cannot be one goes to the rejects."""
    # A table of nodes by partition names a node once for each; scontrol has no reason to.
    return _inventory(rows_of(source, kind), source.name, intake, again=kind != "scontrol")


def read_conf_nodes(rows: list[dict[str, str]], name: str, intake: Intake) -> NodeInventory:
    """Take the nodes that slurm.conf has: `NodeName=n[1-6] CPUs=64 RealMemory=512000 Gres=gpu:a100:8`."""
    same = {"name": "nodename", "memory": "realmemory", "disk": "tmpdisk", "features": "feature"}
    words = [{w: row.get(same.get(w, w), "") for w in ("name", "memory", "disk", "features", "gres", "weight")}
             | {"cpus": row.get("cpus") or _product(row)} for row in rows]  # fmt: skip
    return _inventory(iter(enumerate(words, 1)), name, intake, again=False)


def _product(row: dict[str, str]) -> str:
    """CPUs by sockets, cores and threads, which are each 1 where they are not given."""
    number = {key: int(value) for key, value in row.items() if value.isdigit() and len(value) < 7}
    sockets = number.get("sockets") or number.get("boards", 1) * number.get("socketsperboard", 1)
    return str(sockets * number.get("corespersocket", 1) * number.get("threadspercore", 1))


def _inventory(rows: Iterator[tuple[int, NodeFields]], source: str, intake: Intake, *, again: bool) -> NodeInventory:
    nodes: dict[str, dict[str, Any]] = {}
    named: list[list[str]] = []
    bad: list[tuple[int, str]] = []
    for line, words in rows:
        intake.read("nodes", 1)
        try:
            names, row = _node(words)
            if twice := [n for n in names if n in nodes and not again]:
                bad.append((line, f"duplicate node: {twice[0]}"))
                continue
        except ValueError as e:
            bad.append((line, str(e)))
            continue
        named.append(names)
        for name in names:
            pools = nodes[name]["pools"] if name in nodes else []
            pools = [*dict.fromkeys([*pools, *row["pools"]])]
            nodes[name] = nodes.get(name, row) | {"node": name, "pools": pools, "partitions": pools}
        if len(nodes) > MOST:
            msg = f"{source}: more nodes than any cluster has: {len(nodes):,}"
            raise TraceError(msg, hint="is this the right file?")
    intake.reject("nodes", source, bad)
    cluster = Cluster.of(_frame(nodes), source=f"slurm:{source.split('.')[0]}")
    there = set(cluster.frame["node"])
    intake.keep("nodes", sum(there.issuperset(names) for names in named))
    return NodeInventory(cluster if there else None, _per_gpu(nodes), _notes(nodes))


def _frame(nodes: dict[str, dict[str, Any]]) -> pl.DataFrame:
    kinds: dict[str, Any] = {"node": pl.String, "pool": pl.String, "gpu_type": pl.String, "gpus": pl.Int64}
    kinds |= dict.fromkeys(("cpu_milli", "memory_mib", "disk_mib", "weight"), pl.Int64)
    kinds |= {"partitions": pl.List(pl.String), "features": pl.List(pl.String)}
    return pl.DataFrame([{k: row[k] for k in kinds} for row in nodes.values()], schema=kinds)


def _per_gpu(nodes: dict[str, dict[str, Any]]) -> PerGpu:
    def cut(kind: str) -> int | None:
        sizes = {row[kind] // row["gpus"] for row in nodes.values() if row[kind] and row["gpus"]} - {0}
        return sizes.pop() if len(sizes) == 1 else None

    return PerGpu(cut("mps"), cut("shard"))


def _notes(nodes: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    notes = []
    if nodes and any(row["gpus"] for row in nodes.values()):
        notes.append("the list of nodes does not give GPU memory")
    if mixed := sum(row["mixed"] for row in nodes.values()):
        notes.append(f"{mixed:,} nodes have GPUs of several types: all are counted as the most frequent type")
    if several := sum(len(row["pools"]) > 1 for row in nodes.values()):
        notes.append(f"{several:,} nodes are in several partitions: the first one is their pool")
    if out := sum(row["out"] for row in nodes.values()):
        notes.append(f"{out:,} nodes were down or drained when the list was made: counted as available")
    return tuple(notes)


# -- words as a node -----------------------------------------------------------------------------------------------


def _node(words: NodeFields) -> tuple[list[str], dict[str, Any]]:
    if "short" in words:
        msg = f"a row with another number of columns than its header: {words['short']}"
        raise ValueError(msg)
    names = _names(words.get("name", ""))
    parts = tres(words.get("tres", ""))
    gpus, mps, shard = _devices(words.get("gres", ""), parts)
    pools = [p.strip("* ") for p in words.get("pool", "").split(",") if p.strip("* ")]
    memory = words.get("memory", "").rstrip("+") or parts.get("mem", "0")
    return names, {
        "pool": pools[0] if pools else "default",
        "gpu_type": max(gpus, key=lambda t: (gpus[t], t)) if gpus else None,
        "gpus": sum(gpus.values()),
        "cpu_milli": 1000 * count("cpu", parts.get("cpu") or _cpus(words.get("cpus", ""))),
        "memory_mib": mebibytes("mem", memory),
        "disk_mib": mebibytes("disk", words.get("disk", "").rstrip("+") or "0"),
        "mps": mps,
        "shard": shard,
        "features": [f for f in words.get("features", "").split(",") if f],
        "weight": count("weight", words.get("weight", "") or "1"),
        "mixed": len(gpus) > 1,
        "pools": pools,
        "out": bool(OUT.search(words.get("state", ""))),
    }


def _names(text: str) -> list[str]:
    try:
        names = expand(text)
    except ValueError as e:
        msg = f"{e}: {text[:80]}"
        raise ValueError(msg) from None
    if not names or any("\ufffd" in name for name in names):
        msg = f"no name of a node: {text[:80]}"
        raise ValueError(msg)
    return names


def _cpus(text: str) -> str:
    # `0/64/0/64`: allocated, idle, other, all of them.
    return text.rsplit("/", 1)[-1].rstrip("+") or "0"


def _devices(text: str, parts: NodeFields) -> tuple[dict[str, int], int, int]:
    """GPUs by type, and shares; from the configured list, or else from what is tracked."""
    listed = gres_list(text)
    tracked = gres_of(parts)
    gpus: dict[str, int] = {}
    for kind, name, n in listed:
        if kind == "gpu" and n:
            gpus[name] = gpus.get(name, 0) + n
    if not gpus and tracked.gpus:
        gpus = {"": tracked.gpus}
    if "" in gpus:  # untyped: as the tracked resources call them, if they do
        gpus = {(tracked.types[0] if tracked.types else "gpu"): sum(gpus.values())}
    shares = [sum(n for k, _, n in listed if k == kind) for kind in ("mps", "shard")]
    return gpus, shares[0] or tracked.mps, shares[1] or tracked.shard
