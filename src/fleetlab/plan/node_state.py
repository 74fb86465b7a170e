"""What is free on each node while a plan is made, and what it takes to put an instance there."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fleetlab.plan.problem import WHOLE, Floats, Ints, Problem

PLENTY = 1 << 40


@dataclass(slots=True)
class NodeState:
    """Free amounts and GPUs of every node; `put` and `take` are the only ways to change them.

    A limit is asked for when an instance comes, as the simulator asks for it: so for each limit of an app, at most that
    many of its instances whose own limit is no higher are on one node.
    """

    problem: Problem
    free: Ints = field(init=False)  # [nodes, amounts]
    gpu: Ints = field(init=False)  # [nodes, GPUs]: milli; 0 where there is none
    vram: Ints = field(init=False)  # [nodes, GPUs]
    near: Ints = field(init=False)  # [rules, nodes]: instances of an app that a limit counts
    number: Ints = field(init=False)  # [nodes]: instances
    rule: Ints = field(init=False)  # [rules]: the limit
    rules: list[Ints] = field(init=False)  # [kinds]: those that count it

    def __post_init__(self) -> None:
        p = self.problem
        self.free = p.have[p.of].copy()
        card = np.arange(int(p.cards.max(initial=0)))[None, :] < p.cards[p.of][:, None]
        self.gpu = np.where(card, WHOLE, 0).astype(np.int64)
        self.vram = np.where(card, p.memory[p.of][:, None], 0).astype(np.int64)
        limits = sorted({(int(a), int(m)) for a, m in zip(p.app, p.limit, strict=True) if a >= 0})
        self.rule = np.array([m for _, m in limits], dtype=np.int64)
        self.rules = [
            np.array([r for r, (a, m) in enumerate(limits) if a == p.app[k] and m >= p.limit[k]], dtype=np.int64)
            for k in range(p.kinds)
        ]
        self.near = np.zeros((len(limits), p.nodes), dtype=np.int64)
        self.number = np.zeros(p.nodes, dtype=np.int64)

    def copy(self) -> NodeState:
        """Another one, to try things on."""
        other = NodeState.__new__(NodeState)
        other.problem, other.rule, other.rules = self.problem, self.rule, self.rules
        for name in ("free", "gpu", "vram", "near", "number"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def room(self, k: int, at: Ints) -> Ints:
        """How many instances of kind `k` each of the nodes `at` could take, one after the other."""
        p = self.problem
        ask = p.ask[k]
        need = ask > 0
        most = (self.free[at][:, need] // ask[need]).min(axis=1, initial=PLENTY)
        if len(self.rules[k]):
            most = np.minimum(most, (self.rule[self.rules[k], None] - self.near[self.rules[k]][:, at]).min(axis=0))
        if p.gpus[k]:
            most = np.minimum(most, self._pieces(k, at) // p.gpus[k])
        return np.where(p.may[k, p.of[at]], np.maximum(most, 0), 0)

    def _pieces(self, k: int, at: Ints) -> Ints:
        """How often the GPUs of each node have what the kind asks of one."""
        p = self.problem
        times = np.maximum(self.gpu[at], 0) // p.milli[k]  # below 0: barred for a while
        if p.vram[k]:
            times = np.minimum(times, self.vram[at] // p.vram[k])
        return np.asarray(times.sum(axis=1))

    def allowed(self, k: int, n: int) -> bool:
        """May one more of kind `k` come to node `n`, by the limits of its app?"""
        return bool((self.near[self.rules[k], n] < self.rule[self.rules[k]]).all())

    def choose(self, k: int, n: int) -> int:
        """The GPUs of node `n` that kind `k` would get, as bits: for a share the tightest, else the first idle ones."""
        p = self.problem
        if not p.gpus[k]:
            return 0
        good = (self.gpu[n] >= p.milli[k]) & (self.vram[n] >= p.vram[k])
        if p.milli[k] < WHOLE:
            return 1 << int(np.where(good, self.gpu[n], PLENTY).argmin())
        return sum(1 << int(g) for g in np.flatnonzero(good)[: p.gpus[k]])

    def put(self, k: int, n: int, bits: int | None = None) -> int:
        """Place an instance of kind `k` on node `n`, on the GPUs `bits` where they are told; the GPUs it got."""
        got = self.choose(k, n) if bits is None else bits
        self._change(k, n, got, 1)
        return got

    def take(self, k: int, n: int, bits: int) -> None:
        """Undo `put`."""
        self._change(k, n, bits, -1)

    def _change(self, k: int, n: int, bits: int, way: int) -> None:
        p = self.problem
        self.free[n] -= way * p.ask[k]
        self.number[n] += way
        self.near[self.rules[k], n] += way
        g = 0
        while bits:
            if bits & 1:
                self.gpu[n, g] -= way * p.milli[k]
                self.vram[n, g] -= way * p.vram[k]
            bits >>= 1
            g += 1

    def holds(self, k: int, n: int, bits: int) -> bool:
        """Could kind `k` come to node `n`, on just these GPUs?"""
        p = self.problem
        if not p.may[k, p.of[n]] or (p.ask[k] > self.free[n]).any() or not self.allowed(k, n):
            return False
        limits = [g for g in range(bits.bit_length()) if bits >> g & 1]
        if len(limits) != p.gpus[k] or (limits and limits[-1] >= p.cards[p.of[n]]):
            return False
        return all(self.gpu[n, g] >= p.milli[k] and self.vram[n, g] >= p.vram[k] for g in limits)

    def load(self) -> Floats:
        """The share that is taken of each amount and of the GPUs, [nodes, amounts + 1]; 0 where there is none."""
        p = self.problem
        there = np.column_stack([p.have[p.of], p.cards[p.of] * WHOLE])
        left = np.column_stack([self.free, self.gpu.sum(axis=1)])
        return np.asarray(np.divide(there - left, there, out=np.zeros(there.shape), where=there > 0))
