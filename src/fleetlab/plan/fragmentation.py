"""What is free of GPUs but of no use to the usual instances: the measure of FGD (Weng et al., ATC'23), eqs. 1 to 6."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.plan.node_state import NodeState
from fleetlab.plan.problem import WHOLE, Floats, Ints, Problem

USUAL = 20  # kinds that are asked, the most frequent ones


@dataclass(frozen=True, slots=True, eq=False)
class Fragments:
    """The usual kinds, and which part of all instances each is."""

    problem: Problem
    kinds: Ints
    part: Floats

    @classmethod
    def of(cls, problem: Problem) -> Fragments:
        """Those that ask most often."""
        kinds = np.argsort(-problem.count, kind="stable")[:USUAL]
        return cls(problem, kinds, problem.count[kinds] / problem.count[kinds].sum())

    def here(self, free: Ints, gpu: Ints, of: Ints) -> Floats:
        """GPU milli on each of some nodes that the usual kinds cannot use, on average over them."""
        p, total = self.problem, np.zeros(len(free))
        whole, most = (gpu == WHOLE).sum(axis=1) * WHOLE, np.where(gpu < WHOLE, gpu, 0).max(axis=1, initial=0)
        everything = gpu.sum(axis=1)
        for k, part in zip(self.kinds.tolist(), self.part.tolist(), strict=True):
            demand = int(p.gpus[k] * p.milli[k])
            runs = p.may[k, of] & (p.ask[k] <= free).all(axis=1) & (demand <= whole + most) & (demand > 0)
            lost = np.where(gpu < min(demand, WHOLE), gpu, 0).sum(axis=1)
            total += part * np.where(runs, lost, everything)
        return total

    def growth(self, nodes: NodeState, k: int, at: Ints) -> Floats:
        """How much more would be of no use on each node, if one of kind `k` came there; a share on its tightest GPU."""
        of = self.problem.of[at]
        after = self.here(nodes.free[at] - self.problem.ask[k], self._after(nodes, k, at), of)
        return after - self.here(nodes.free[at], nodes.gpu[at], of)

    def _after(self, nodes: NodeState, k: int, at: Ints) -> Ints:
        """The GPUs of the nodes with one of kind `k` on those that `Nodes.choose` would give it."""
        p, gpu = self.problem, nodes.gpu[at].copy()
        if not p.gpus[k]:
            return gpu
        good = (gpu >= p.milli[k]) & (nodes.vram[at] >= p.vram[k])
        if not gpu.size:
            return gpu
        if p.milli[k] < WHOLE:
            gpu[np.arange(len(at)), np.where(good, gpu, 1 << 40).argmin(axis=1)] -= p.milli[k]
            return gpu
        return np.where(good & (good.cumsum(axis=1) <= p.gpus[k]), 0, gpu)
