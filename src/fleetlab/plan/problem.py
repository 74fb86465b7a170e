"""Demand and nodes as arrays: kinds of identical instances, classes of identical nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Workload, WorkloadError
from fleetlab.core.catalog import NODE_AMOUNTS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

WHOLE = 1000  # milli of a GPU
REQUESTED = (*NODE_AMOUNTS, "gpu_milli", "gpu_memory_mib", "types", "limit", "app")
OFFERED = (*NODE_AMOUNTS, "gpus", "gpu_memory_mib", "gpu_type", "weight")
MOST = 1_000_000  # instances
CARDS = 62  # GPUs of a node: who has which is told by the bits of a number


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Kinds and classes; every instance of a kind may take the place of any other, and so may nodes of a class."""

    ask: Ints  # [kinds, amounts]
    gpus: Ints  # [kinds]: how many GPUs an instance touches; 1 for a share, 0 for none
    milli: Ints  # [kinds]: what it takes of each of them
    vram: Ints  # [kinds]: MiB of each of them
    count: Ints  # [kinds]
    app: Ints  # [kinds]: -1 where there is no limit
    limit: Ints  # [kinds]: instances of the app on one node; 0: any number
    typed: Bools  # [kinds, classes]: may it run on that type of GPU?
    may: Bools  # [kinds, classes]: would an empty node hold it?
    part: Floats  # [kinds, classes]: the largest part of anything that an instance takes of an empty node
    have: Ints  # [classes, amounts]
    cards: Ints  # [classes]: GPUs
    memory: Ints  # [classes]: MiB of each GPU
    weight: Floats  # [classes]: what a node in use counts for
    of: Ints  # [nodes]: the class of each
    rows: pl.DataFrame  # job, instance, kind: one row an instance, in the order of kinds
    first: Ints  # [kinds + 1]: where the rows of a kind begin
    names: pl.Series  # of the nodes

    @property
    def kinds(self) -> int:
        """How many kinds of instances there are."""
        return len(self.count)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.of)

    @property
    def there(self) -> Ints:
        """How many nodes of each class there are."""
        return np.bincount(self.of, minlength=len(self.have)).astype(np.int64)

    def size(self) -> Floats:
        """The part of a node that an instance of each kind takes, of those that may hold it; infinite for none."""
        return np.asarray(np.where(self.may, self.part, np.inf).min(axis=1, initial=np.inf))


def problem(demand: Workload, nodes: Cluster, *, weight: pl.Series | None = None) -> Problem:
    """Put a demand and nodes side by side; `weight` is the weight of each node (default: 1)."""
    if not 0 < demand.instances <= MOST:
        msg = f"{demand.source}: a plan takes 1 to {MOST:,} instances, not: {demand.instances:,}"
        large = "plan a part of it, such as half of the instances on half of the nodes"
        none = "no job may run at that time: `--at busiest`"
        raise WorkloadError(msg, hint=large if demand.instances else none)
    if (cards := int(nodes.frame["gpus"].max() or 0)) > CARDS:  # type: ignore[arg-type]
        msg = f"{nodes.source}: a plan takes nodes of up to {CARDS} GPUs, not: {cards}"
        raise WorkloadError(msg, hint="split larger nodes")
    requests = _requests(demand.frame)
    kinds = requests.group_by(REQUESTED, maintain_order=True).agg(
        pl.col("instances").cast(pl.Int64).sum().alias("count")
    )
    kinds = kinds.with_row_index("kind").with_columns(pl.col("kind").cast(pl.Int64))
    offered = nodes.frame.with_columns(weight=pl.lit(1.0) if weight is None else weight.cast(pl.Float64)).select(
        OFFERED
    )
    classes = offered.group_by(OFFERED, maintain_order=True).agg().with_row_index("class")
    of = offered.join(classes, on=OFFERED, how="left", nulls_equal=True, maintain_order="left")["class"]
    return _joined(requests, kinds, classes, of, nodes.frame["node"])


def _requests(frame: pl.DataFrame) -> pl.DataFrame:
    """What each job asks for; what does not matter to it is left out, so that it does not make a kind of its own."""
    gpu, limited = pl.col("gpu_milli") > 0, pl.col("max_per_node") > 0
    return frame.select(
        "job",
        "instances",
        *NODE_AMOUNTS,
        pl.col("gpu_milli").cast(pl.Int64),
        gpu_memory_mib=pl.when(gpu).then(pl.col("gpu_memory_mib")).otherwise(0),
        types=pl.when(gpu).then(pl.col("gpu_types").list.unique().list.sort()).otherwise([]),
        limit=pl.col("max_per_node").cast(pl.Int64),
        app=pl.when(limited).then(pl.col("app").cast(pl.String).fill_null("")),
    )


def _joined(
    requests: pl.DataFrame, kinds: pl.DataFrame, classes: pl.DataFrame, of: pl.Series, names: pl.Series
) -> Problem:
    gpu = kinds["gpu_milli"].to_numpy()
    share = (gpu > 0) & (gpu < WHOLE)
    apps = kinds["app"].unique(maintain_order=True).drop_nulls()
    ask, have = kinds.select(NODE_AMOUNTS).to_numpy(), classes.select(NODE_AMOUNTS).to_numpy()
    cards, memory = classes["gpus"].to_numpy().astype(np.int64), classes["gpu_memory_mib"].to_numpy()
    gpus, vram = np.where(share, 1, gpu // WHOLE), kinds["gpu_memory_mib"].to_numpy()
    allowed = [[not t or name in t for name in classes["gpu_type"]] for t in kinds["types"].to_list()]
    typed = np.array(allowed, dtype=bool).reshape(len(gpu), len(have)) & ((gpus[:, None] == 0) | (cards > 0))
    fits = (ask[:, None, :] <= have).all(axis=2) & (gpus[:, None] <= cards)
    return Problem(
        ask=ask, gpus=gpus, milli=np.where(share, gpu, np.where(gpu > 0, WHOLE, 0)), vram=vram,
        count=kinds["count"].to_numpy(),
        app=kinds["app"].replace_strict(apps, range(len(apps)), default=-1, return_dtype=pl.Int64).to_numpy(),
        limit=kinds["limit"].to_numpy(), typed=typed,
        may=typed & fits & ((gpus[:, None] == 0) | (vram[:, None] <= memory)),
        part=_part(np.column_stack([ask, gpu]), np.column_stack([have, cards * WHOLE])),
        have=have, cards=cards, memory=memory, weight=classes["weight"].to_numpy(),
        of=of.to_numpy().astype(np.int64), rows=_rows(requests, kinds),
        first=np.append(0, np.cumsum(kinds["count"].to_numpy())), names=names,
    )  # fmt: skip


def _part(requests: Ints, there: Ints) -> Floats:
    """The largest share of anything, [kinds, classes]; infinite where a requested resource is absent."""
    requested, has = np.broadcast_arrays(requests[:, None, :], there[None, :, :])
    largest = np.where(requested > 0, np.inf, 0.0)
    return np.asarray(np.divide(requested, has, out=largest, where=has > 0).max(axis=2))


def _rows(requests: pl.DataFrame, kinds: pl.DataFrame) -> pl.DataFrame:
    """One row an instance: its job, its number inside it, its kind."""
    each = requests.join(kinds, on=REQUESTED, how="left", nulls_equal=True, maintain_order="left")
    each = each.select("job", "kind", instance=pl.int_ranges(pl.col("instances").cast(pl.Int64)))
    return each.explode("instance").sort("kind", maintain_order=True).select("job", "instance", "kind")


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

    def copies_that_fit(self, k: int, at: Ints) -> Ints:
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
        gpus = self.choose(k, n) if bits is None else bits
        self._change(k, n, gpus, 1)
        return gpus

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
        free = np.column_stack([self.free, self.gpu.sum(axis=1)])
        return np.asarray(np.divide(there - free, there, out=np.zeros(there.shape), where=there > 0))
