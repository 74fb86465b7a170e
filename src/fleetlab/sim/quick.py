"""The quick loop from Python: a world in, what was played out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fleetlab.core.catalog import ORDERS, PLACEMENTS
from fleetlab.sim import _easy, _engine
from fleetlab.sim._engine import Jobs, Land
from fleetlab.sim._gangs import memo_of
from fleetlab.sim._index import index_of, tiers_of
from fleetlab.sim._nodes import GPU, GPUS, MILLI, ORDINAL, Floats, Ints
from fleetlab.sim._places import BEST_FIT
from fleetlab.sim._played import DONE, RUNNING, WAITING, Played
from fleetlab.sim._tables import World

STATIC = tuple(order.name for order in ORDERS if not order.dynamic)  # their ranks are fixed when a job arrives
BACKFILLS = ("none", "greedy", "easy")


def play(
    world: World, *, order: str | Floats, backfill: str, placement: str, seed: int = 0, until: float | None = None
) -> Played:
    """Play a world by rules that the quick loop knows; an order may be given as the rank of each job."""
    learnt = isinstance(order, str) and ORDERS[order].needs_estimate and world.learners > 0
    keys = ranks(world, order) if isinstance(order, str) else order
    jobs = Jobs(
        world.submit, world.runtime, _own(world.estimate), _own(keys), world.shape, world.instances, world.kind,
        world.first, world.learns,
    )  # fmt: skip
    land = land_of(world, placement, seed)
    memo = memo_of(PLACEMENTS.index(placement), world.S, len(world.N))
    code, stop = PLACEMENTS.index(placement), math.inf if until is None else float(until)
    if backfill == "none":
        sorted_keys = not learnt and bool((np.diff(keys) >= 0).all())
        start, where, got, ledger = _engine.run_strict(code, jobs, land, memo, int(learnt), int(sorted_keys), stop)
    elif backfill == "easy":
        exact = world.learners == 0 and bool((world.estimate == world.runtime).all())
        start, where, got, ledger = _easy.run_easy(code, jobs, world.kinds, land, memo, int(learnt), int(exact), stop)
    else:
        start, where, got, ledger = _engine.run_skip(code, jobs, world.kinds, land, memo, int(learnt), stop)
    return _played(world, start, where, got, ledger, until)


def ranks(world: World, order: str) -> Floats:
    """The rank of each job by a built-in order, the lowest first; without the estimate where that is learnt."""
    known = world.estimate if world.learners == 0 else np.zeros(len(world.submit))
    if ORDERS[order].needs_estimate:
        return known if order == "sjf" else known + world.submit
    if order == "priority":
        return -world.priority.astype(np.float64)
    need = np.zeros(len(world.submit))
    if order != "fifo":
        need += world.S[world.shape, GPUS] * world.S[world.shape, MILLI] * world.instances
    return -need if order == "largest" else need


def land_of(world: World, placement: str, seed: int) -> Land:
    """Nodes of a world as the loop changes them, with an index where the policy goes by one."""
    N, G = _own(world.N), _own(world.G)
    X, B = index_of(N, G, tiers_of(world.S, np.bincount(world.shape, minlength=len(world.S)), N))
    if PLACEMENTS.index(placement) != BEST_FIT:
        B = np.zeros(0, dtype=np.uint64)
    free = np.zeros(int(X[0]), dtype=np.int64)
    np.add.at(free, N[N[:, ORDINAL] >= 0, ORDINAL], N[N[:, ORDINAL] >= 0, GPU])
    draws = np.array([1 + seed % 2_147_483_646], dtype=np.int64)
    return Land(
        _own(world.S), N, G, _own(world.apps), _own(world.C), _own(world.most), _own(world.U), _own(world.share), draws,
        free, X, B,
    )  # fmt: skip


def _played(world: World, start: Floats, where: Ints, got: Ints, ledger: Floats, until: float | None) -> Played:
    end = start + world.runtime
    status = np.where(np.isnan(start), WAITING, DONE)
    if until is not None:
        late = end > until
        end[late], status[late] = np.nan, RUNNING
        never = np.repeat(np.isnan(start), world.instances)
        where[never], got[never] = -1, 0  # what was tried for those that still wait
    nothing = np.zeros(len(start), dtype=np.int64)
    stopped = None if until is None or (status == DONE).all() else float(until)
    return Played(start, end, status, where, got, ledger, nothing, nothing, np.zeros(len(start)), until=stopped)


def _own(array: Any) -> Any:  # noqa: ANN401
    """A copy that may be written: so that every world has the same types, and a loop is compiled once."""
    return np.array(array, order="C")
