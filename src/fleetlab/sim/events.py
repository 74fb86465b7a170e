"""What happens to nodes and to the jobs on them: failures, drains, reclaimed spot nodes, pools that grow and shrink.

simulate(workload, cluster, events=[Faults(mtbf=30 * 86400, mttr=3600)], recovery=Recovery(every=600, save=10))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster, WorkloadError
from fleetlab.sim.layout import TICK, Floats, Ints

DOWN, DRAIN, RECLAIM, BACK = range(4)  # what strikes a node; RECLAIM leaves jobs the time to be saved
MOST = 5_000_000  # outages in one run


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a job keeps when it loses its nodes, and what that costs.

    While it runs, a checkpoint is taken after every `every` seconds of work, each takes `save` seconds; 0: none, and a
    failure starts the job from nothing. One that the scheduler puts off is saved first, which takes `save` more. To
    go on from a checkpoint takes `restart` seconds.

    >>> Recovery(every=600, save=10, restart=30)
    Recovery(every=600, save=10, restart=30)
    """

    every: float = 0.0
    save: float = 0.0
    restart: float = 0.0

    def __post_init__(self) -> None:
        _must("Recovery", every=self.every, save=self.save, restart=self.restart)


@dataclass(frozen=True, slots=True)
class Faults:
    """Nodes fail by chance: `mtbf` seconds apart on average, each gone for `mttr` seconds on average.

    Both are exponential, for each node by itself; of all nodes, or of those of one pool.
    """

    mtbf: float
    mttr: float
    pool: str | None = None

    def __post_init__(self) -> None:
        _must("Faults", above=("mtbf",), mtbf=self.mtbf, mttr=self.mttr)


@dataclass(frozen=True, slots=True)
class Outage:
    """Nodes are gone from `begin` to `end`, and jobs on them lose their place."""

    begin: float
    end: float
    nodes: Sequence[str] = ()
    pool: str | None = None

    def __post_init__(self) -> None:
        _must_last("Outage", self.begin, self.end, self.nodes, self.pool)


@dataclass(frozen=True, slots=True)
class Drain:
    """Nodes take no new jobs from `begin` to `end`; what runs on them may finish."""

    begin: float
    end: float
    nodes: Sequence[str] = ()
    pool: str | None = None

    def __post_init__(self) -> None:
        _must_last("Drain", self.begin, self.end, self.nodes, self.pool)


@dataclass(frozen=True, slots=True)
class Spot:
    """Nodes of a pool are reclaimed: each on average `every` seconds after it came (back), and is `away` seconds.

    Times between are exponential. With a `notice` at least as long as a checkpoint takes, jobs are saved first.
    """

    pool: str
    every: float
    away: float
    notice: float = 0.0

    def __post_init__(self) -> None:
        _must("Spot", above=("every",), every=self.every, away=self.away, notice=self.notice)


@dataclass(frozen=True, slots=True)
class Elastic:
    """A pool that grows while jobs wait and shrinks when nodes are idle.

    All but `least` of its nodes begin switched off. At the first multiple of `every` seconds after someone began to
    wait whom a node that is off could take, and at every later one, as many nodes are booted as those jobs need; each
    is up after `boot` seconds. One that has been idle for `idle` seconds is switched off, while more than `least` are
    up and nobody waits whom it could take.
    """

    pool: str
    least: int = 0
    boot: float = 300.0
    every: float = 60.0
    idle: float = 600.0

    def __post_init__(self) -> None:
        _must("Elastic", above=("every",), least=self.least, boot=self.boot, every=self.every, idle=self.idle)


Event = Faults | Outage | Drain | Spot | Elastic


def _must(noun: str, *, above: tuple[str, ...] = (), **values: float) -> None:
    for name, value in values.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
            msg = f"{noun}: `{name}` is not a number of at least 0: {value!r}"
            raise WorkloadError(msg, hint="times are seconds")
        if name in above and value == 0:
            msg = f"{noun}: `{name}` is 0"
            raise WorkloadError(msg, hint="it is the time between two, and must be above 0")


def _must_last(noun: str, begin: float, end: float, nodes: Sequence[str], pool: str | None) -> None:
    _must(noun, begin=begin, end=end)
    if end < begin:
        msg = f"{noun}: `end` is before `begin`: {end:g} < {begin:g}"
        raise WorkloadError(msg, hint="seconds from the first submission")
    if isinstance(nodes, str):
        msg = f"{noun}: `nodes` is a list of names, not: {nodes!r}"
        raise WorkloadError(msg, hint=f"nodes=[{nodes!r}]")
    if bool(nodes) == (pool is not None):
        msg = f"{noun}: say which nodes, or which pool, not both and not neither"
        raise WorkloadError(msg, hint=f'{noun}(3600, 7200, nodes=["node-0"]) or {noun}(3600, 7200, pool="default")')


# -- as the loop takes them ------------------------------------------------------------------------------------------


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
    found = [np.empty((0, 4))]  # node, begin, end, what
    for event in events:
        if isinstance(event, Outage | Drain):
            noun, act = ("Drain", DRAIN) if isinstance(event, Drain) else ("Outage", DOWN)
            nodes = _named(event.nodes, cluster, noun) if event.nodes else _of_pool(event.pool, cluster, noun)
            found += [np.array([[n, event.begin, event.end, act]]) for n in nodes]
        elif isinstance(event, Faults):
            nodes = _of_pool(event.pool, cluster, "Faults")
            found += [_by_chance(rng, n, event.mtbf, event.mttr, None, horizon, DOWN) for n in nodes]
        elif isinstance(event, Spot):
            act = RECLAIM if event.notice >= save else DOWN
            nodes = _of_pool(event.pool, cluster, "Spot")
            found += [_by_chance(rng, n, event.every, None, event.away, horizon, act) for n in nodes]
    spells = np.concatenate(found)
    spells[:, 1:3] = np.ceil(spells[:, 1:3] / TICK) * TICK
    return _in_turn(spells[np.lexsort((spells[:, 3], spells[:, 1], spells[:, 0]))])


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
    found = np.flatnonzero((cluster.frame["pool"] == pool).to_numpy())
    if not len(found):
        msg = f"{noun}: no pool of that name in the cluster: `{pool}`"
        raise WorkloadError(msg, hint=f"there are {', '.join(sorted(set(cluster.frame['pool'])))}")
    return found


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
        [
            table.select("node", time="begin", what="what"),
            backs.select("node", time="end", what=pl.lit(float(BACK))),
        ]
    ).sort("time", "what", "node", maintain_order=True)
    # A node that is back at once comes back after it was struck: BACK is the last of what may happen at one time.
    return Outages(
        strokes["time"].to_numpy(),
        strokes["node"].to_numpy().astype(np.int64),
        strokes["what"].to_numpy().astype(np.int64),
    )
