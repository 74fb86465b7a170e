"""No plan can do with less: bounds that need no solver.

For each amount, the demand of those that can only run on some classes must be covered by nodes of these classes. For
GPUs, instances that take more than half of one cannot share it (the bound L2 of Martello and Toth, 1990). For each
limit of an app, its instances need so many nodes.
"""

from __future__ import annotations

import math

import numpy as np

from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.plan.problem import WHOLE, Bools, Floats, Ints, Problem


def simple(p: Problem) -> float:
    """The least that the nodes in use can count for; infinite where even all nodes are too few."""
    lowest = 0.0
    for classes in np.unique(p.may, axis=0):
        captive = p.may[:, ~classes].sum(axis=1) == 0  # those that can run nowhere else
        if not captive.any():
            continue
        for a in range(len(NODE_AMOUNTS)):
            lowest = max(lowest, _cover(p, classes, p.have[:, a], float(p.ask[captive, a] @ p.count[captive])))
        lowest = max(lowest, _cover(p, classes, p.cards.astype(np.int64), gpus_needed(p, captive)))
        for need in _by_limit(p, captive):
            lowest = max(lowest, _cover(p, classes, np.ones(len(p.have), dtype=np.int64), need))
    return lowest


def gpus_needed(p: Problem, which: Bools) -> float:
    """How many GPUs these kinds need at least, whatever the nodes are."""
    whole = int((p.gpus * p.count)[which & (p.milli == WHOLE)].sum())
    shares = which & (p.milli > 0) & (p.milli < WHOLE)
    return whole + _l2(p.milli[shares], p.count[shares])


def _l2(milli: Ints, count: Ints) -> int:
    """Martello and Toth's L2: for each threshold, the large ones alone, and the middle ones in what those leave."""
    best = math.ceil(int(milli @ count) / WHOLE) if len(milli) else 0
    for small in {0, *(int(m) for m in milli if m <= WHOLE // 2)}:
        alone = milli > WHOLE - small
        half = (milli > WHOLE // 2) & ~alone
        rest = (milli >= small) & (milli <= WHOLE // 2)
        over = int(milli[rest] @ count[rest]) - int((WHOLE - milli[half]) @ count[half])
        best = max(best, int(count[alone].sum() + count[half].sum()) + max(0, math.ceil(over / WHOLE)))
    return best


def _by_limit(p: Problem, captive: Bools) -> list[float]:
    """Nodes that each app needs, for each of its limits."""
    lowest: list[float] = []
    for app, limit in {(int(a), int(m)) for a, m in zip(p.app, p.limit, strict=True) if a >= 0}:
        counted = captive & (p.app == app) & (p.limit <= limit) & (p.limit > 0)
        lowest.append(math.ceil(int(p.count[counted].sum()) / limit))
    return lowest


def _cover(p: Problem, classes: Bools, has: Ints, need: float) -> float:
    """The least weight of nodes of these classes that have so much together; the last one may be cut."""
    if need <= 0:
        return 0.0
    each: Floats = np.where(classes & (has > 0), p.weight / np.maximum(has, 1), np.inf)
    total, there = 0.0, p.there.tolist()
    for c in np.argsort(each, kind="stable"):
        if not np.isfinite(each[c]):
            break
        part = min(float(there[c]), need / int(has[c]))
        total, need = total + part * float(p.weight[c]), need - part * int(has[c])
        if need <= 1e-9:
            return total
    return math.inf


def whole_steps(p: Problem, bound: float) -> float:
    """Round a bound up to what nodes can count for: where all weights are multiples of one step."""
    if not math.isfinite(bound):
        return bound
    steps = np.unique(np.round(p.weight * 1000).astype(np.int64))
    step = np.gcd.reduce(steps) / 1000 if len(steps) and np.allclose(steps / 1000, np.unique(p.weight)) else 0.0
    # A little less than computed: a sum of many is off by its own size, and must not become a step too many.
    return math.ceil(bound / step * (1 - 1e-12) - 1e-6) * step if step else bound
