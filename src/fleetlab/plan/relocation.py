"""Moves on a plan that is made: some instances leave a node, if there is room for all of them elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from fleetlab.plan.problem import Bools, Ints
from fleetlab.plan.solvers.greedy import PartialPlan, Score, best_fit

Move = tuple[int, int, int]  # which of those placed, to which node, on which GPUs


def on_node(placing: PartialPlan) -> dict[int, list[int]]:
    """Which of those placed are on each node."""
    by_node: dict[int, list[int]] = {}
    for i, n in enumerate(placing.node):
        by_node.setdefault(n, []).append(i)
    return by_node


def relocate(placing: PartialPlan, who: Sequence[int], to: Bools, *, score: Score = best_fit) -> list[Move] | None:
    """Move each of them to one of the nodes `to`, the largest first; nothing is moved if one finds no place."""
    done: list[Move] = []
    size, where = placing.nodes.problem.size(), np.flatnonzero(to)
    for i in sorted(who, key=lambda i: (-size[placing.kind[i]], i)):
        k, n, bits = placing.kind[i], placing.node[i], placing.gpus[i]
        placing.nodes.take(k, n, bits)  # it stops before it starts elsewhere, which may be on the same node
        best = _best(placing, k, where, score)
        got = bits if best is None else placing.nodes.choose(k, best)
        placing.nodes.put(k, n, bits)
        if best is None:
            for j, back, its in reversed(done):
                placing.move(j, back, its)
            return None
        done.append((i, n, bits))
        placing.move(i, best, got)
    return [(i, placing.node[i], placing.gpus[i]) for i, _, _ in done]


def _best(placing: PartialPlan, k: int, where: Ints, score: Score) -> int | None:
    room = where[placing.nodes.room(k, where) > 0]
    return int(room[score(placing.nodes, k, room).argmin()]) if len(room) else None


def emptied(placing: PartialPlan, *, until: float) -> PartialPlan:
    """Empty nodes into others that are in use, from the one with the least on it, until the clock reads `until`."""
    placing = placing.copy()
    load, held = placing.nodes.load().max(axis=1), on_node(placing)
    for n in sorted(held, key=lambda n: (load[n], n)):
        if time.monotonic() > until:
            break
        to = placing.nodes.number > 0
        to[n] = False
        for i, where, _ in relocate(placing, held[n], to) or ():
            held[where].append(i)
    return placing
