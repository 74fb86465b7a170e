"""Why does a demand not fit? Which instances, which resource, how much is missing, and by which rule."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.plan.problem import WHOLE, Bools, Problem
from fleetlab.plan.solvers.bound import gpus_needed
from fleetlab.plan.solvers.greedy import PartialPlan

SCHEMA = {
    "job": pl.Int64,
    "instances": pl.Int64,
    "rule": pl.String,
    "resource": pl.String,
    "requested": pl.Int64,
    "available": pl.Int64,
    "missing": pl.Int64,
    "why": pl.String,
    "proved": pl.Boolean,
}


def why(p: Problem, placing: PartialPlan, *, proved: bool) -> pl.DataFrame:
    """What does not fit: what can be proved from totals first; else who is left over, and what the best node lacks."""
    rows = [*_too_large(p), *_too_many(p), *_too_dense(p)]
    if not rows:
        rows = [_left_over(p, placing, int(k), proved=proved) for k in np.flatnonzero(placing.left)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _first(p: Problem, k: int) -> int:
    return int(p.rows["job"][int(p.first[k])])


def _too_large(p: Problem) -> list[tuple[object, ...]]:
    """Kinds that no empty node would hold."""
    return [row for k in np.flatnonzero(~p.may.any(axis=1)) for row in _misfit(p, int(k))]


def _misfit(p: Problem, k: int) -> list[tuple[object, ...]]:
    """All that the nearest class of node lacks for one instance: among those of its GPU types, where there are some."""
    job, count, asked = _first(p, k), int(p.count[k]), int(p.gpus[k])
    rows: list[tuple[object, ...]] = []
    if not p.typed[k].any():
        text = "no node has a GPU type it may use"
        rows.append((job, count, "gpu_types", "gpus", asked, 0, asked, text, True))
    # Where no GPU is of its type, how many there are of others says nothing.
    names = (*NODE_AMOUNTS, "gpus", "gpu_memory_mib") if p.typed[k].any() else NODE_AMOUNTS
    need = [*p.ask[k].tolist(), int(p.gpus[k]), int(p.vram[k])][: len(names)]
    lacks = []
    for c in np.flatnonzero(p.typed[k]) if p.typed[k].any() else range(len(p.have)):
        has = [*p.have[c].tolist(), int(p.cards[c]), int(p.memory[c])]
        short = [(n, a, h) for n, a, h in zip(names, need, has, strict=False) if a > h]
        lacks.append((len(short), sum(1 - h / a for _, a, h in short), short))
    nearest = "the closest node it may use" if p.typed[k].any() else "the closest node of another type"
    for name, asked, has in min(lacks)[2]:
        text = f"one instance requests {asked:,} {name}, {nearest} has {has:,}"
        rows.append((job, count, "one node", name, asked, has, asked - has, text, True))
    return rows


def _too_many(p: Problem) -> list[tuple[object, ...]]:
    """Amounts of which all nodes together have too little, for those who can run on them alone."""
    rows: list[tuple[object, ...]] = []
    for classes in np.unique(p.may[p.may.any(axis=1)], axis=0):
        captive = (p.may[:, ~classes].sum(axis=1) == 0) & p.may.any(axis=1)
        where = "all nodes" if classes.all() else "the nodes they may use"
        for a, name in enumerate(NODE_AMOUNTS):
            asked, has = int(p.ask[captive, a] @ p.count[captive]), int(p.have[classes, a] @ p.there[classes])
            if asked > has:
                rows.append(_short(p, captive, name, asked, has, where))
        cards, need = int(p.cards[classes] @ p.there[classes]), math.ceil(gpus_needed(p, captive))
        if need > cards:
            rows.append(_short(p, captive, "gpus", need, cards, where))
    # Those who may run anywhere add nothing to what is short for some: told once.
    return list({row[3:7]: row for row in reversed(rows)}.values())[::-1]


def _short(p: Problem, who: Bools, name: str, asked: int, has: int, where: str) -> tuple[object, ...]:
    count = int(p.count[who].sum())
    text = f"{count:,} instances request {asked:,} {name}, {where} have {has:,} in total"
    return (_first(p, int(np.flatnonzero(who)[0])), count, "total capacity", name, asked, has, asked - has, text, True)


def _too_dense(p: Problem) -> list[tuple[object, ...]]:
    """Apps of which there are more instances than their limit allows on all nodes; and kinds with too few slots."""
    rows: list[tuple[object, ...]] = []
    for app, limit in sorted({(int(a), int(m)) for a, m in zip(p.app, p.limit, strict=True) if a >= 0}):
        counted = (p.app == app) & (p.limit <= limit) & (p.limit > 0)
        nodes, asked = int(p.there[p.may[counted].any(axis=0)].sum()), int(p.count[counted].sum())
        if asked > nodes * limit:
            text = f"{asked:,} instances of one app, at most {limit} per node, on {nodes:,} eligible nodes"
            first = _first(p, int(np.flatnonzero(counted)[0]))
            rows.append(
                (first, asked, "max_per_node", "nodes", asked, nodes * limit, asked - nodes * limit, text, True)
            )
    return rows + [row for k in np.flatnonzero(p.may.any(axis=1)) if (row := _slots(p, int(k)))]


def _slots(p: Problem, k: int) -> tuple[object, ...] | None:
    """A kind of which empty nodes would hold too few."""
    slots = 0
    for c in np.flatnonzero(p.may[k]):
        each = [int(p.have[c, a] // p.ask[k, a]) for a in range(len(NODE_AMOUNTS)) if p.ask[k, a]]
        if p.gpus[k]:
            each.append(
                int(p.cards[c] // p.gpus[k]) if p.milli[k] == WHOLE else int(p.cards[c] * (WHOLE // p.milli[k]))
            )
        slots += int(p.there[c]) * min(each, default=int(p.count[k]))
    requested = int(p.count[k])
    if slots >= requested:
        return None
    text = f"{requested:,} identical instances, empty nodes hold at most {slots:,} of them"
    return (_first(p, k), requested, "one kind", "slots", requested, slots, requested - slots, text, True)


def _left_over(p: Problem, placing: PartialPlan, k: int, *, proved: bool) -> tuple[object, ...]:
    """Who has no place, and what the node lacks that comes nearest."""
    nodes, left = placing.nodes, int(placing.left[k])
    at = np.flatnonzero(p.may[k, p.of])
    free = np.column_stack([nodes.free[at], nodes.gpu[at].sum(axis=1)])
    need = np.append(p.ask[k], p.gpus[k] * p.milli[k])
    short = np.maximum(need - free, 0)
    part = (short / np.maximum(need, 1)).sum(axis=1)
    best = int(part.argmin())
    a = int((short[best] / np.maximum(need, 1)).argmax())
    name = (*NODE_AMOUNTS, "gpu_milli")[a]
    asked, has = int(need[a]), int(free[best, a])
    job = int(p.rows["job"][int(p.first[k + 1]) - left])
    if not short[best].any():
        name = "max_per_node" if not nodes.allowed(k, int(at[best])) else "gpu_milli"
        rule = "max_per_node" if name == "max_per_node" else "fragment"
        asked, has = (int(p.limit[k]), int(p.limit[k])) if rule == "max_per_node" else (asked, has)
        text = "max_per_node of its app is reached" if rule == "max_per_node" else "free GPU capacity is fragmented"
        return (job, left, rule, name, asked, has, 0, text, proved)
    text = f"the closest node, {p.names[int(at[best])]}, has {has:,} {name} free, {asked:,} requested"
    return (job, left, "unplaced", name, asked, has, asked - has, text, proved)
