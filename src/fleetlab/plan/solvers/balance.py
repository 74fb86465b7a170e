"""Plans that balance: the highest load of any node as low as can be.

The load of a node is the largest part that is held of anything it has: CPU, memory, RDMA, disk, GPU.
"""

from __future__ import annotations

import math

import numpy as np

from fleetlab.plan.problem import WHOLE, Bools, Problem
from fleetlab.plan.relocation import on_node, relocate
from fleetlab.plan.solvers.greedy import PartialPlan, Score, lightest

ROUNDS = 2000


def highest(placing: PartialPlan) -> float:
    """The load of the node that has most."""
    return float(placing.nodes.load().max(initial=0.0))


def balanced(p: Problem, *, score: Score = lightest, rng: np.random.Generator | None = None) -> PartialPlan:
    """The largest first, each to where the load stays lowest; then from the node with the highest load to others."""
    placing, size = PartialPlan.empty(p), np.where(np.isfinite(p.size()), p.size(), 0.0)
    if rng is not None:
        size = size * rng.uniform(0.8, 1.2, len(size))
    everywhere = np.arange(p.nodes)
    for k in np.argsort(-size, kind="stable").tolist():
        while placing.left[k]:
            at = everywhere[placing.nodes.room(k, everywhere) > 0]
            if not len(at):
                break
            placing.put(k, int(at[score(placing.nodes, k, at).argmin()]))
    return lowered(placing)


def lowered(placing: PartialPlan) -> PartialPlan:
    """Move one after the other off the node with the highest load, as long as that lowers it."""
    placing = placing.copy()
    p, held = placing.nodes.problem, on_node(placing)
    for _ in range(ROUNDS):
        load = placing.nodes.load().max(axis=1)
        n = int(load.argmax())
        if not _lowered_by_one(placing, held, n, float(load[n]), np.arange(p.nodes) != n):
            return placing
    return placing


def _lowered_by_one(
    placing: PartialPlan, held: dict[int, list[int]], n: int, high: float, others: Bools,
) -> bool:  # fmt: skip
    for i in sorted(held.get(n, []), key=lambda i: (placing.nodes.problem.part[placing.kind[i], 0], i)):
        before = placing.gpus[i]
        moved = relocate(placing, [i], others, score=lightest)
        if moved is None:
            continue
        to = moved[0][1]
        if placing.nodes.load()[to].max() < high - 1e-12:
            held[n].remove(i)
            held.setdefault(to, []).append(i)
            return True
        placing.move(i, n, before)
    return False


def bound(p: Problem) -> float:
    """No plan has a lower highest load: everything spread evenly, and each instance on the node that feels it least."""
    need = np.column_stack([p.ask, p.gpus * p.milli])
    there = np.column_stack([p.have, p.cards * WHOLE]) * p.there[:, None]
    highest_load = float(p.size().max(initial=0.0))
    for classes in np.unique(p.may, axis=0):
        captive = p.may[:, ~classes].sum(axis=1) == 0
        total, has = (need[captive] * p.count[captive, None]).sum(axis=0), there[classes].sum(axis=0)
        if (total[has == 0] > 0).any():
            return math.inf
        highest_load = max(
            highest_load, float(np.divide(total, has, out=np.zeros(len(total)), where=has > 0).max(initial=0.0))
        )
    return highest_load
