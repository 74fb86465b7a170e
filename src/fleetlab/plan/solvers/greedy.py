"""Place one instance after another, and move some of a plan to other nodes.

The load of a node is the largest part that is held of anything it has: CPU, memory, RDMA, disk, GPU.

For each amount, the demand of those that can only run on some classes must be covered by nodes of these classes. For
GPUs, instances that take more than half of one cannot share it (the bound L2 of Martello and Toth, 1990). For each
limit of an app, its instances need so many nodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.plan.problem import WHOLE, Bools, Floats, Ints, NodeState, Problem

Score = Callable[[NodeState, int, Ints], Floats]  # of a kind on nodes: the lowest is taken


@dataclass(slots=True)
class PartialPlan:
    """Who went where; `unplaced` counts those of each kind without a place."""

    nodes: NodeState
    unplaced: Ints  # [kinds]
    kind: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)  # bits

    @classmethod
    def empty(cls, problem: Problem) -> PartialPlan:
        """Nobody has a place yet."""
        return cls(NodeState(problem), problem.count.copy())

    def put(self, k: int, n: int, bits: int | None = None) -> None:
        """One of kind `k` goes to node `n`."""
        self.gpus.append(self.nodes.put(k, n, bits))
        self.kind.append(k)
        self.node.append(n)
        self.unplaced[k] -= 1

    def move(self, i: int, n: int, bits: int) -> None:
        """The `i`-th that was placed goes elsewhere."""
        self.nodes.take(self.kind[i], self.node[i], self.gpus[i])
        self.nodes.put(self.kind[i], n, bits)
        self.node[i], self.gpus[i] = n, bits

    def copy(self) -> PartialPlan:
        """Another one, to try things on."""
        return PartialPlan(self.nodes.copy(), self.unplaced.copy(), [*self.kind], [*self.node], [*self.gpus])

    @property
    def used(self) -> Ints:
        """The nodes in use."""
        return np.flatnonzero(self.nodes.number)

    def value(self) -> float:
        """What the nodes in use count for together."""
        p = self.nodes.problem
        return float(p.weight[p.of[self.used]].sum())

    def rank(self) -> tuple[int, float, int]:
        """Less is better: those without a place, what the nodes count for, and how many they are."""
        return int(self.unplaced.sum()), round(self.value(), 9), len(self.used)


# -- the largest first ---------------------------------------------------------------------------------------------


def largest_first(problem: Problem, score: Score, *, rng: np.random.Generator | None = None) -> PartialPlan:
    """Take kinds from the largest down; each instance goes to the node in use with the lowest score."""
    size = _sizes(problem)
    if rng is not None:  # another order of those of about the same size
        size = size * rng.uniform(0.9, 1.1, len(size))
    return _in_turn(problem, np.argsort(-size, kind="stable"), score)


def smallest_first(problem: Problem, score: Score) -> PartialPlan:
    """From the smallest up: where not all fit, so most of them do."""
    return _in_turn(problem, np.argsort(_sizes(problem), kind="stable"), score)


def _sizes(problem: Problem) -> Floats:
    return np.where(np.isfinite(problem.size()), problem.size(), 0.0)


def _in_turn(problem: Problem, kinds: Ints, score: Score) -> PartialPlan:
    placing = PartialPlan.empty(problem)
    for k in kinds.tolist():
        spread(placing, k, score)
    return placing


def spread(placing: PartialPlan, k: int, score: Score) -> None:
    """Place all that are left of a kind, on nodes in use before others."""
    nodes, everywhere = placing.nodes, np.arange(placing.nodes.problem.nodes)
    scores = _scores(nodes, k, everywhere, score)
    while placing.unplaced[k]:
        n = int(scores.argmin())
        if not np.isfinite(scores[n]):
            return
        placing.put(k, n)
        at = everywhere[n : n + 1]
        scores[n] = _scores(nodes, k, at, score)[0]


def _scores(nodes: NodeState, k: int, at: Ints, score: Score) -> Floats:
    """Scores where an instance fits; a node that is not in use comes after all that are, cheap ones first."""
    score_at = np.full(len(at), np.inf)
    fits = nodes.copies_that_fit(k, at) > 0
    score_at[fits] = score(nodes, k, at[fits])
    idle = fits & (nodes.number[at] == 0)
    of = nodes.problem.of[at[idle]]
    score_at[idle] = 1e6 + 1e3 * nodes.problem.weight[of] * nodes.problem.part[k][of]
    return score_at


def best_fit(nodes: NodeState, k: int, at: Ints) -> Floats:
    """The least that is left, amounts as shares of the largest node."""
    free = _parts(nodes, nodes.free[at] - nodes.problem.ask[k], nodes.gpu[at].sum(axis=1))
    return np.asarray(free.sum(axis=1))


def aligned(nodes: NodeState, k: int, at: Ints) -> Floats:
    """The dot product of free and requested resources, the largest first (Panigrahy et al., 2011)."""
    p = nodes.problem
    ask = _parts(nodes, p.ask[k][None, :], np.array([p.gpus[k] * p.milli[k]]))[0]
    return np.asarray(-(_parts(nodes, nodes.free[at], nodes.gpu[at].sum(axis=1)) @ ask))


def lightest(nodes: NodeState, k: int, at: Ints) -> Floats:
    """The load that the node would have, of what it has least left of: for plans that balance."""
    p = nodes.problem
    there = np.column_stack([p.have[p.of[at]], p.cards[p.of[at]] * WHOLE])
    free = np.column_stack([nodes.free[at], nodes.gpu[at].sum(axis=1)])
    after = there - free + np.append(p.ask[k], p.gpus[k] * p.milli[k])
    part = np.divide(after, there, out=np.zeros(after.shape), where=there > 0)
    return np.asarray(part.max(axis=1))


def _parts(nodes: NodeState, amounts: Ints, gpu: Ints) -> Floats:
    p = nodes.problem
    most = np.append(p.have.max(axis=0), p.cards.max(initial=0) * WHOLE)
    return np.asarray(np.column_stack([amounts, gpu]) / np.maximum(most, 1))


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
        fitting = where[placing.nodes.copies_that_fit(k, where) > 0]
        best = int(fitting[score(placing.nodes, k, fitting).argmin()]) if len(fitting) else None
        gpus = bits if best is None else placing.nodes.choose(k, best)
        placing.nodes.put(k, n, bits)
        if best is None:
            for j, back, its in reversed(done):
                placing.move(j, back, its)
            return None
        done.append((i, n, bits))
        placing.move(i, best, gpus)
    return [(i, placing.node[i], placing.gpus[i]) for i, _, _ in done]


def emptied(placing: PartialPlan, *, until: float) -> PartialPlan:
    """Empty nodes into others that are in use, from the one with the least on it, until the clock reads `until`."""
    placing = placing.copy()
    load, members = placing.nodes.load().max(axis=1), on_node(placing)
    for n in sorted(members, key=lambda n: (load[n], n)):
        if time.monotonic() > until:
            break
        to = placing.nodes.number > 0
        to[n] = False
        for i, where, _ in relocate(placing, members[n], to) or ():
            members[where].append(i)
    return placing


# --- plans that balance the load of nodes, and bounds that no plan can pass ------------------------------------------


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
        while placing.unplaced[k]:
            at = everywhere[placing.nodes.copies_that_fit(k, everywhere) > 0]
            if not len(at):
                break
            placing.put(k, int(at[score(placing.nodes, k, at).argmin()]))
    return lowered(placing)


def lowered(placing: PartialPlan) -> PartialPlan:
    """Move one after the other off the node with the highest load, as long as that lowers it."""
    placing = placing.copy()
    p, members = placing.nodes.problem, on_node(placing)
    for _ in range(ROUNDS):
        load = placing.nodes.load().max(axis=1)
        n = int(load.argmax())
        if not _lowered_by_one(placing, members, n, float(load[n]), np.arange(p.nodes) != n):
            return placing
    return placing


def _lowered_by_one(
    placing: PartialPlan, members: dict[int, list[int]], n: int, high: float, others: Bools,
) -> bool:  # fmt: skip
    for i in sorted(members.get(n, []), key=lambda i: (placing.nodes.problem.part[placing.kind[i], 0], i)):
        before = placing.gpus[i]
        moved = relocate(placing, [i], others, score=lightest)
        if moved is None:
            continue
        to = moved[0][1]
        if placing.nodes.load()[to].max() < high - 1e-12:
            members[n].remove(i)
            members.setdefault(to, []).append(i)
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
