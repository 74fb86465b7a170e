"""Is a placement right? Every rule counted again from the tables, by code that no solver uses.

It knows neither kinds nor classes and shares nothing with what makes plans: it is their audit.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl

from fleetlab.core import Cluster, Workload
from fleetlab.core.catalog import NODE_AMOUNTS


def check(demand: Workload, nodes: Cluster, placements: pl.DataFrame, *, whole: bool = True) -> list[str]:
    """What is wrong with a placement, in words; nothing where it is right.

    `placements` has job, instance, node and gpus, a bit for each of the node's GPUs. With `whole`, everybody must have
    a place.
    """
    jobs = {row["job"]: row for row in demand.frame.iter_rows(named=True)}
    there = {row["node"]: row for row in nodes.frame.iter_rows(named=True)}
    wrong = _who(jobs, there, placements, whole=whole)
    if wrong:
        return wrong
    on: dict[str, list[tuple[dict[str, Any], int]]] = defaultdict(list)
    for job, node, gpus in placements.select("job", "node", "gpus").iter_rows():
        on[node].append((jobs[job], int(gpus)))
    return [f"node {name}: {what}" for name, who in on.items() for what in _node(there[name], who)]


def _who(jobs: dict[int, dict[str, Any]], there: dict[str, Any], placements: pl.DataFrame, *, whole: bool) -> list[str]:
    """Is everybody there once, on a node that exists?"""
    wrong, placed = [], set()
    for job, instance, node in placements.select("job", "instance", "node").iter_rows():
        if job not in jobs or not 0 <= instance < jobs[job]["instances"]:
            wrong.append(f"job {job}, instance {instance}: not in the demand")
        elif (job, instance) in placed:
            wrong.append(f"job {job}, instance {instance}: placed twice")
        elif node not in there:
            wrong.append(f"job {job}, instance {instance}: unknown node: {node}")
        placed.add((job, instance))
    instances = sum(row["instances"] for row in jobs.values())
    if whole and not wrong and len(placed) != instances:
        wrong.append(f"{instances - len(placed)} instances are not placed")
    return wrong


def _node(node: dict[str, Any], who: list[tuple[dict[str, Any], int]]) -> list[str]:
    """What is wrong on one node."""
    lumps = {lump: sum(row[lump] for row, _ in who) for lump in NODE_AMOUNTS}
    wrong = [
        f"{lump}: {amount} allocated, capacity {node[lump]}" for lump, amount in lumps.items() if amount > node[lump]
    ]
    for g in range(node["gpus"]):
        here = [row for row, gpus in who if gpus & (1 << g)]
        if (milli := sum(min(row["gpu_milli"], 1000) for row in here)) > 1000:
            wrong.append(f"GPU {g}: {milli} milli allocated")
        if (memory := sum(row["gpu_memory_mib"] for row in here)) > node["gpu_memory_mib"]:
            wrong.append(f"GPU {g}: {memory} MiB allocated, capacity {node['gpu_memory_mib']}")
    for row, gpus in who:
        wrong += _own(node, row, gpus)
    return wrong + _limits(who)


def _own(node: dict[str, Any], row: dict[str, Any], gpus: int) -> list[str]:
    """Has an instance the GPUs that it asks for, of a type that it may use?"""
    count = -(-row["gpu_milli"] // 1000)
    if gpus.bit_count() != count or gpus >> node["gpus"]:
        return [f"job {row['job']}: GPUs {gpus:b} of {node['gpus']}, requested {count}"]
    if count and row["gpu_types"] and node["gpu_type"] not in row["gpu_types"]:
        return [f"job {row['job']}: may not run on {node['gpu_type']}"]
    return []


def _limits(who: list[tuple[dict[str, Any], int]]) -> list[str]:
    """Could they have come one after the other, each while fewer of its app were there than its limit?

    Those with a limit count. The lowest limits come first: if anybody's order does, that one does.
    """
    apps: dict[str, list[int]] = defaultdict(list)
    for row, _ in who:
        if row["max_per_node"] > 0:
            apps[row["app"] or ""].append(row["max_per_node"])
    return [
        f"app {app!r}: {k} instances, one of them with a limit of {limit}"
        for app, limits in apps.items()
        for k, limit in enumerate(sorted(limits), start=1)
        if k > limit
    ]
