"""Events as the loop takes them: when which node goes down and comes back, and which pools grow and shrink."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster, WorkloadError
from fleetlab.core.events import Drain, Elastic, Event, Faults, Outage, Spot
from fleetlab.sim.layout import TICK, Floats, Ints
from fleetlab.sim.schedule import Up

DOWN, DRAIN, RECLAIM, BACK = range(4)  # what strikes a node; RECLAIM leaves jobs the time to be saved
MOST = 5_000_000  # outages in one run


@dataclass(frozen=True, slots=True)
class Outages:
    """What strikes which node when, in order of time."""

    time: Floats  # on the tick
    node: Ints
    what: Ints  # DOWN, DRAIN, RECLAIM or BACK


@dataclass(frozen=True, slots=True)
class Growth:
    """Which pool a node is switched on and off with, and the rules of each."""

    pool: Ints  # [nodes]; -1: none
    rules: Floats  # [pools, 4]: least, boot, every, idle


def outages_of(
    events: Iterable[Event], cluster: Cluster, *, horizon: float, save: float = 0.0, seed: int = 0
) -> Outages:
    """Draw all that strikes nodes before `horizon`; what overlaps on one node is one outage, as hard as its hardest."""
    rng = np.random.default_rng(seed)
    rows = [np.empty((0, 4))]  # node, begin, end, what
    for event in events:
        if isinstance(event, Outage | Drain):
            noun, act = ("Drain", DRAIN) if isinstance(event, Drain) else ("Outage", DOWN)
            nodes = _named(event.nodes, cluster, noun) if event.nodes else _of_pool(event.pool, cluster, noun)
            rows += [np.array([[n, event.begin, event.end, act]]) for n in nodes]
        elif isinstance(event, Faults):
            nodes = _of_pool(event.pool, cluster, "Faults")
            rows += [_by_chance(rng, n, event.mtbf, event.mttr, None, horizon, DOWN) for n in nodes]
        elif isinstance(event, Spot):
            act = RECLAIM if event.notice >= save else DOWN
            nodes = _of_pool(event.pool, cluster, "Spot")
            rows += [_by_chance(rng, n, event.every, None, event.away, horizon, act) for n in nodes]
    spells = np.concatenate(rows)
    spells[:, 1:3] = np.ceil(spells[:, 1:3] / TICK) * TICK
    return _in_turn(spells[np.lexsort((spells[:, 3], spells[:, 1], spells[:, 0]))])


def draining_of(outages: Outages) -> Up:
    """Return when nodes are drained: from the order to the return."""
    since: dict[int, float] = {}
    spans = []
    for time, node, what in zip(outages.time.tolist(), outages.node.tolist(), outages.what.tolist(), strict=True):
        if what == DRAIN:
            since.setdefault(node, time)
        elif what == BACK and node in since:
            spans.append((node, since.pop(node), time))
    spans += [(node, time, math.inf) for node, time in since.items()]
    node, begin, end = np.array(spans, dtype=np.float64).reshape(-1, 3).T
    return Up(node.astype(np.int64), begin, end)


def growth_of(events: Iterable[Event], cluster: Cluster) -> Growth:
    """Which pools are switched on and off."""
    pool = np.full(len(cluster), -1, dtype=np.int64)
    rules: list[list[float]] = []
    for event in events:
        if isinstance(event, Elastic):
            nodes = _of_pool(event.pool, cluster, "Elastic")
            if (pool[nodes] >= 0).any():
                msg = f"Elastic: a pool is named twice: `{event.pool}`"
                raise WorkloadError(msg, hint="one rule a pool")
            pool[nodes] = len(rules)
            rules.append([event.least, _up(event.boot), _up(event.every), _up(event.idle)])
    return Growth(pool, np.array(rules, dtype=np.float64).reshape(-1, 4))


def _up(seconds: float) -> float:
    return math.ceil(seconds / TICK) * TICK


def _of_pool(pool: str | None, cluster: Cluster, noun: str) -> Ints:
    if pool is None:
        return np.arange(len(cluster))
    members = np.flatnonzero((cluster.frame["pool"] == pool).to_numpy())
    if not len(members):
        msg = f"{noun}: no pool of that name in the cluster: `{pool}`"
        raise WorkloadError(msg, hint=f"there are {', '.join(sorted(set(cluster.frame['pool'])))}")
    return members


def _named(names: Sequence[str], cluster: Cluster, noun: str) -> Ints:
    at = dict(zip(cluster.frame["node"], range(len(cluster)), strict=True))
    if unknown := [name for name in names if name not in at]:
        msg = f"{noun}: no node of that name in the cluster: `{unknown[0]}`"
        raise WorkloadError(msg, hint=f"the first is `{cluster.frame['node'][0]}`")
    return np.array([at[name] for name in names], dtype=np.int64)


def _by_chance(
    rng: np.random.Generator, node: int, apart: float, gone: float | None, away: float | None, horizon: float, what: int
) -> Floats:
    """The outages of one node: so long apart, and so long gone on average or `away` exactly."""
    expected = horizon / (apart + (gone or away or 0.0))
    if expected > MOST:
        msg = f"more than {MOST:,} outages of one node: every {apart:g} s for {horizon:g} s"
        raise WorkloadError(msg, hint="times are seconds")
    begins, ends, now = [], [], 0.0
    while True:
        now += rng.exponential(apart)
        if now >= horizon:
            break
        end = now + (rng.exponential(gone) if gone is not None else away or 0.0)
        begins.append(now)
        ends.append(end)
        now = end
    return np.column_stack([np.full(len(begins), node), begins, ends, np.full(len(begins), what)])


def _in_turn(spells: Floats) -> Outages:
    """Outages as strokes in order of time: what hits harder also hits within an outage, the node is back after all."""
    if not len(spells):
        return Outages(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    table = pl.DataFrame(spells, schema=["node", "begin", "end", "what"], orient="row")
    before = pl.col("end").cum_max().shift(1).over("node")
    table = table.with_columns(anew=(before.is_null() | (pl.col("begin") > before)))
    table = table.with_columns(spell=pl.col("anew").cum_sum().over("node"))
    backs = table.group_by("node", "spell", maintain_order=True).agg(pl.col("end").max())
    strokes = pl.concat(
        [table.select("node", time="begin", what="what"), backs.select("node", time="end", what=pl.lit(float(BACK)))]
    ).sort("time", "what", "node", maintain_order=True)
    # A node that is back at once comes back after it was struck: BACK is the last of what may happen at one time.
    return Outages(
        strokes["time"].to_numpy(),
        strokes["node"].to_numpy().astype(np.int64),
        strokes["what"].to_numpy().astype(np.int64),
    )
