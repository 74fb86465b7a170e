"""Greedy heuristics: the largest first, each to the best-fitting node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fleetlab.plan.node_state import NodeState
from fleetlab.plan.problem import WHOLE, Floats, Ints, Problem

Score = Callable[[NodeState, int, Ints], Floats]  # of a kind on nodes: the lowest is taken


@dataclass(slots=True)
class PartialPlan:
    """Who went where; `left` is how many of each kind have no place."""

    nodes: NodeState
    left: Ints  # [kinds]
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
        self.left[k] -= 1

    def move(self, i: int, n: int, bits: int) -> None:
        """The `i`-th that was placed goes elsewhere."""
        self.nodes.take(self.kind[i], self.node[i], self.gpus[i])
        self.nodes.put(self.kind[i], n, bits)
        self.node[i], self.gpus[i] = n, bits

    def copy(self) -> PartialPlan:
        """Another one, to try things on."""
        return PartialPlan(self.nodes.copy(), self.left.copy(), [*self.kind], [*self.node], [*self.gpus])

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
        return int(self.left.sum()), round(self.value(), 9), len(self.used)


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
    while placing.left[k]:
        n = int(scores.argmin())
        if not np.isfinite(scores[n]):
            return
        placing.put(k, n)
        at = everywhere[n : n + 1]
        scores[n] = _scores(nodes, k, at, score)[0]


def _scores(nodes: NodeState, k: int, at: Ints, score: Score) -> Floats:
    """Scores where there is room; a node that is not in use comes after all that are, cheap ones first."""
    score_at = np.full(len(at), np.inf)
    room = nodes.room(k, at) > 0
    score_at[room] = score(nodes, k, at[room])
    idle = room & (nodes.number[at] == 0)
    of = nodes.problem.of[at[idle]]
    score_at[idle] = 1e6 + 1e3 * nodes.problem.weight[of] * nodes.problem.part[k][of]
    return score_at


def best_fit(nodes: NodeState, k: int, at: Ints) -> Floats:
    """The least that is left, amounts as shares of the largest node."""
    left = _parts(nodes, nodes.free[at] - nodes.problem.ask[k], nodes.gpu[at].sum(axis=1))
    return np.asarray(left.sum(axis=1))


def aligned(nodes: NodeState, k: int, at: Ints) -> Floats:
    """The dot product of free and requested resources, the largest first (Panigrahy et al., 2011)."""
    p = nodes.problem
    ask = _parts(nodes, p.ask[k][None, :], np.array([p.gpus[k] * p.milli[k]]))[0]
    return np.asarray(-(_parts(nodes, nodes.free[at], nodes.gpu[at].sum(axis=1)) @ ask))


def lightest(nodes: NodeState, k: int, at: Ints) -> Floats:
    """The load that the node would have, of what it has least left of: for plans that balance."""
    p = nodes.problem
    there = np.column_stack([p.have[p.of[at]], p.cards[p.of[at]] * WHOLE])
    left = np.column_stack([nodes.free[at], nodes.gpu[at].sum(axis=1)])
    after = there - left + np.append(p.ask[k], p.gpus[k] * p.milli[k])
    part = np.divide(after, there, out=np.zeros(after.shape), where=there > 0)
    return np.asarray(part.max(axis=1))


def _parts(nodes: NodeState, amounts: Ints, gpu: Ints) -> Floats:
    p = nodes.problem
    most = np.append(p.have.max(axis=0), p.cards.max(initial=0) * WHOLE)
    return np.asarray(np.column_stack([amounts, gpu]) / np.maximum(most, 1))
