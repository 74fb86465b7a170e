"""The full loop from Python: a world in, what was played out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba.experimental.function_type  # noqa: F401  teaches numba what a policy is before it sees the first
import numpy as np
import polars as pl
from numba import config, typeof, types
from numba.core.types import CompileResultWAP
from numpy.typing import NDArray

from fleetlab.core import Cluster, PolicyError, Progress, Speed, WorkloadError
from fleetlab.core.catalog import BACKFILLS, ORDERS, PLACEMENTS
from fleetlab.core.events import Event, Recovery
from fleetlab.sim import _books, _full, _places, _pools
from fleetlab.sim._books import Book, Ground, Rules
from fleetlab.sim._nodes import GPUS, MILLI, REASONS, UP, WHOLE, Floats, Ints
from fleetlab.sim._played import DONE, Played, Segments, Up
from fleetlab.sim._pools import Pools
from fleetlab.sim._ranks import LAS, OWN
from fleetlab.sim._tables import World
from fleetlab.sim.events import DOWN, RECLAIM, Growth, Outages, growth_of, outages_of
from fleetlab.sim.policy import NO_ORDER, NO_PLACE, NO_WEIGHTS, Nobody, State, order, placement, state_of

ENOUGH = (3600.0,)  # GPU-seconds between the queues of `las`
FAR = 3.0  # faults are drawn for so many times the span of the workload
LIGHT, MEDIUM = 370, 750  # GPU milli: who asks for less is light, or medium; the others are heavy


@dataclass(frozen=True, slots=True, eq=False)
class Speeds:
    """How fast classes of work go on a GPU they share."""

    alone: Floats  # [classes]
    pair: Floats  # [classes, classes]: one of the second slows one of the first to so much of its speed
    of: Ints  # [jobs]: the class of each


def play(
    world: World,
    *,
    order: str | order = "fifo",
    backfill: str = "greedy",
    placement: str | placement = "best_fit",
    preempt: bool = False,
    weight: float = 1.0,
    levels: Sequence[float] = ENOUGH,
    quota: Ints | None = None,
    weights: Floats = NO_WEIGHTS,
    speeds: Speeds | None = None,
    recovery: Recovery | None = None,
    events: Sequence[Event] = (),
    cluster: Cluster | None = None,
    seed: int = 0,
    until: float | None = None,
    progress: Progress | None = None,
) -> Played:
    """Play a world by any rules; `cluster` names the nodes and pools that `events` speak of.

    `progress` hears how far it is, many times a second; what it raises ends the run.
    """
    recovery = recovery or Recovery()
    code = ORDERS.index(order) if isinstance(order, str) else OWN
    preempt = preempt or (isinstance(order, str) and ORDERS[order].preemptive)
    if preempt and backfill in ("easy", "conservative"):
        msg = f"a job that may put others off needs no reservation: `{backfill}` with preemption"
        raise PolicyError(msg, hint="preemption goes with the backfills strict and skip")
    outages, growth = _what_happens(world, events, cluster, recovery, seed)
    rules = Rules(
        order=code,
        moving=int(ORDERS[order].dynamic if isinstance(order, str) else order.moves),
        backfill=BACKFILLS.index(backfill),
        placement=PLACEMENTS.index(placement) if isinstance(placement, str) else _places.OWN,
        preempt=int(preempt),
        sharing=int(speeds is not None),
        quota=int(quota is not None),
        every=_up(recovery.every),
        save=_up(recovery.save),
        restart=_up(recovery.restart),
        until=math.inf if until is None else float(until),
        cpu=_total(world.C[:, 0]),
        memory=_total(world.C[:, 1]),
        gpu=_total(world.C[:, 2]),
        weight=float(weight),
        levels=np.array(sorted(levels) if code == LAS else [], dtype=np.float64),
        alone=np.ones(1) if speeds is None else _own(speeds.alone),
        pair=np.ones((1, 1)) if speeds is None else _own(speeds.pair),
    )
    breaks = bool(preempt) or bool(np.isin(outages.what, (DOWN, RECLAIM)).any())
    ground = Ground(
        _own(world.S), _own(world.N), _own(world.G), _own(world.apps), _own(world.C), _own(world.most), _own(world.U),
        _own(world.share), np.array([1 + seed % 2_147_483_646], dtype=np.int64),
    )  # fmt: skip
    pools = _pools_of(ground, outages, growth)
    book = _book(world, rules, quota, speeds, breaks=breaks)
    _plug_in(book, ground, growth)
    state = state_of(
        world, ground.N,
        estimate=book.estimate, attained=book.attained, remaining=book.remaining, usage=book.usage,
        weights=weights,
    )  # fmt: skip
    loop = _Loop(book, ground, rules, pools, state, order, placement)
    return loop.played(world, breaks=breaks, shifts=bool(events), until=until, progress=progress)


class _Loop:
    """The compiled loop, gone through as often as its logs fill up."""

    def __init__(
        self,
        book: Book,
        ground: Ground,
        rules: Rules,
        pools: Pools,
        state: State,
        who: str | order,
        where: str | placement,
    ) -> None:
        self.book, self.ground, self.rules, self.pools, self.state = book, ground, rules, pools, state
        self.who, self.where = who, where
        self.runs: list[tuple[Floats, Ints]] = []
        self.ups: list[Floats] = []

    def played(
        self, world: World, *, breaks: bool, shifts: bool, until: float | None, progress: Progress | None = None
    ) -> Played:
        book = self.book
        fill: Any = NO_ORDER if isinstance(self.who, str) else self.who.compiled()
        ask: Any = NO_PLACE if isinstance(self.where, str) else self.where.compiled()
        common = (book, self.ground, self.rules)
        line = _full.pass_preempt if self.rules.preempt else _full.PASSES[BACKFILLS.names[self.rules.backfill]]
        schedule = _value(line, *common, fill, ask, self.state)
        shift = _value(_pools.shift, *common, self.pools, 0, 0, asked=shifts)
        while True:
            ended = _full.run(*common, self.pools, schedule, shift, fill, ask, self.state)
            if ended == _full.REFUSED:
                raise self._refusal()
            self._empty_logs()
            if ended == _full.OVER:
                break
            if progress is not None:
                progress("simulated", int(book.K[_books.FINISHED]), int(book.K[_books.FINISHED]) / len(book.T))
        done = bool((book.T[:, _books.STATUS] == DONE).all())
        stop = float(book.clock[_books.NOW]) if done or until is None else float(until)
        return Played(
            start=book.V[:, _books.START].copy(),
            end=book.V[:, _books.END].copy(),
            status=book.T[:, _books.STATUS].copy(),
            where=book.I[:, _books.HERE].copy(),
            got=book.I[:, _books.HERE + 1].copy(),
            ledger=book.V[:, _books.LEDGER :].copy(),
            preemptions=book.T[:, _books.EVICTIONS].copy(),
            failures=book.T[:, _books.FAILURES].copy(),
            lost=book.V[:, _books.LOST].copy(),
            segments=self._segments() if breaks else None,
            up=self._up() if shifts else None,
            until=None if done else stop,
        )

    def _empty_logs(self) -> None:
        K, book = self.book.K, self.book
        self.runs.append((book.runs[: K[_books.RUNS]].copy(), book.entries[: K[_books.ENTRIES]].copy()))
        self.ups.append(self.pools.ups[: K[_books.UPS]].copy())
        K[_books.RUNS] = K[_books.ENTRIES] = K[_books.UPS] = 0

    def _segments(self) -> Segments:
        runs, entries = (np.concatenate(part) for part in zip(*self.runs, strict=True))
        job = runs[:, 0].astype(np.int64)
        first = np.append(0, np.cumsum(self.book.T[job, _books.GANG]))
        return Segments(job, runs[:, 2].copy(), runs[:, 3].copy(), first, entries[:, 0].copy(), entries[:, 1].copy())

    def _up(self) -> Up:
        ups = np.concatenate(self.ups)
        return Up(ups[:, 0].astype(np.int64), ups[:, 1].copy(), ups[:, 2].copy())

    def _refusal(self) -> PolicyError:
        K, book = self.book.K, self.book
        which = int(K[_books.BAD_JOB])
        if K[_books.BAD] == _books.BAD_ORDER:
            assert not isinstance(self.who, str)
            asked = book.jobs[:which] if self.rules.moving else [which]
            return self.who.refusal(self.state, asked, float(book.clock[_books.NOW]))
        assert not isinstance(self.where, str)
        return self.where.refusal(self.state, np.arange(len(self.ground.N)), which)


def _value(function: Any, *args: Any, asked: bool = True) -> Any:  # noqa: ANN401
    """A compiled function as a value of its type: the loop is compiled once for all, and no function without need."""
    if getattr(config, "DISABLE_JIT", 0):
        return function
    signature = types.int64(*(typeof(a) for a in args))  # type: ignore[no-untyped-call]
    if not asked:
        return Nobody(signature)
    function.compile(signature)
    return CompileResultWAP(function.get_compile_result(signature))


def speeds_of(profile: Speed, mode: str, world: World, *, classes: Sequence[str] | pl.Series | None = None) -> Speeds:
    """How jobs of a world slow each other by a profile, in one of its modes.

    Next to several neighbours a job is slowed by each in turn: its speed alone times, for each of them, the part of
    that speed it keeps next to that one. `classes` names the class of each job of the workload; where the profile's
    classes are light, medium and heavy they may be left out: a job is taken to keep as much of a GPU busy as it asks
    for.
    """
    rows = profile.frame.filter(pl.col("mode").cast(pl.String) == mode)
    names = sorted(set(rows["workload"]))
    if not names:
        has = ", ".join(profile.frame["mode"].cast(pl.String).unique(maintain_order=True))
        msg = f"no mode of that name in the speed profile of {profile.device}: `{mode}`"
        raise WorkloadError(msg, hint=f"it has {has}")
    alone = np.array([profile.speed(mode, a).value for a in names])
    if mode == "exclusive":
        pair = np.ones((len(names), len(names)))
    else:
        pair = np.array([[profile.speed(mode, a, b).value for b in names] for a in names]) / alone[:, None]
    of = _classes(names, world, classes)
    if mode == "mig":  # a profile tells the speed on a slice; who has whole cards is on none: a class of its own
        alone, pair = np.append(alone, 1.0), np.pad(pair, (0, 1), constant_values=1.0)
        of = np.where(world.S[world.shape, MILLI] == WHOLE, len(names), of)
    return Speeds(alone, pair, of)


def _classes(names: list[str], world: World, told: Sequence[str] | pl.Series | None) -> Ints:
    if told is None:
        if set(names) != {"light", "medium", "heavy"}:
            msg = f"the classes of the profile do not say which job is of which: {', '.join(names)}"
            raise WorkloadError(msg, hint="pass `classes`: the name of one for each job of the workload")
        asks = world.asked
        at = {name: names.index(name) for name in names}
        return np.where(asks < LIGHT, at["light"], np.where(asks < MEDIUM, at["medium"], at["heavy"])).astype(np.int64)
    said = pl.Series(told, dtype=pl.String)
    jobs = world.frame["job"]
    if len(said) <= (jobs.max() or 0) or (unknown := set(said.gather(jobs)) - set(names)):  # type: ignore[operator]
        what = f"{len(said)} names" if len(said) <= (jobs.max() or 0) else f"`{unknown.pop()}`"  # type: ignore[operator]
        msg = f"`classes` is not a class of the profile for each job: {what}"
        raise WorkloadError(msg, hint=f"there are {', '.join(names)}")
    return said.gather(jobs).replace_strict(names, list(range(len(names))), return_dtype=pl.Int64).to_numpy().copy()


# -- as the compiled loop takes it -----------------------------------------------------------------------------------


def _what_happens(
    world: World, events: Sequence[Event], cluster: Cluster | None, recovery: Recovery, seed: int
) -> tuple[Outages, Growth]:
    assert cluster is not None or not events, "events speak of a cluster"
    if cluster is None:
        nothing = np.empty(0, dtype=np.int64)
        return Outages(np.empty(0), nothing, nothing), Growth(np.full(len(world.N), -1), np.empty((0, 4)))
    span = float(world.submit.max(initial=0.0) + world.runtime.max(initial=0.0))
    outages = outages_of(events, cluster, horizon=FAR * span, save=recovery.save, seed=seed)
    return outages, growth_of(events, cluster)


def _pools_of(ground: Ground, outages: Outages, growth: Growth) -> Pools:
    """Nodes of pools that grow begin switched off, all but the first few."""
    nodes, blank = len(ground.N), ground.N.copy()
    for p, rule in enumerate(growth.rules):
        ground.N[np.flatnonzero(growth.pool == p)[int(rule[0]) :], UP] = 0
    on = ground.N[:, UP] == 1
    since = np.full((nodes, 2), np.inf)
    since[on, 0] = 0.0
    strokes = np.column_stack([outages.time, outages.node, outages.what]).astype(np.float64)
    return Pools(E=_own(growth.rules), since=since, blank=blank, strokes=strokes, ups=np.empty((4 * nodes + 16, 3)))


def _groups(world: World, *, by_user: bool) -> tuple[Ints, Ints]:
    """Jobs that fit or fail together: shape, instances, user (-1: any) and GPU milli; and the group of each job."""
    pairs = pl.DataFrame({"kind": world.kind, "user": world.user if by_user else np.full(len(world.kind), -1)})
    distinct = pairs.unique(maintain_order=True).with_row_index("group")
    group = pairs.join(distinct, on=["kind", "user"], how="left", maintain_order="left")["group"]
    kinds = world.kinds[distinct["kind"].to_numpy()]
    need = kinds[:, 1] * world.S[kinds[:, 0], GPUS] * world.S[kinds[:, 0], MILLI]
    return np.column_stack([kinds, distinct["user"].to_numpy(), need]).astype(np.int64), group.to_numpy().astype(
        np.int64
    )


def _plug_in(book: Book, ground: Ground, growth: Growth) -> None:
    """Tell the books which nodes are on, and with which pool each is switched."""
    book.P[:, _books.POOL] = growth.pool
    book.P[:, _books.POWER] = np.where(ground.N[:, UP], _pools.ON, _pools.OFF)


def _book(world: World, rules: Rules, quota: Ints | None, speeds: Speeds | None, *, breaks: bool) -> Book:
    jobs, instances, nodes = len(world.submit), int(world.first[-1]), len(world.N)
    groups, group = _groups(world, by_user=quota is not None)
    need = world.S[world.shape, GPUS] * world.S[world.shape, MILLI] * world.instances
    T = _ints(jobs, _books.JOB_FIELDS)
    for column, values in (
        (_books.SHAPE, world.shape), (_books.GANG, world.instances), (_books.GROUP, group), (_books.USER, world.user),
        (_books.AT, world.first[:-1]), (_books.LEARNER, world.learns), (_books.NEED, need),
        (_books.CLASS, speeds.of if speeds is not None else 0),
    ):  # fmt: skip
        T[:, column] = values
    V = np.zeros((jobs, _books.JOB_TIMES))
    V[:, _books.SUBMIT], V[:, _books.RUNTIME], V[:, _books.TODO] = world.submit, world.runtime, world.runtime
    V[:, _books.KEY] = _fixed_key(world, rules.order, need)
    V[:, _books.START] = V[:, _books.END] = np.nan
    I = _ints(instances, _books.INSTANCE_FIELDS)  # noqa: E741
    I[:, _books.HERE], I[:, _books.BESIDE] = -1, -1
    I[:, _books.OWNED_BY] = np.repeat(np.arange(jobs), world.instances)
    Q = _ints(len(groups), _books.GROUP_FIELDS)
    Q[:, _books.OF_SHAPE : _books.OF_NEED + 1] = groups
    H = _ints(len(world.users), 4)
    H[:, _books.QUOTA] = -1 if quota is None else quota
    K = _ints(_books.COUNTS)
    K[_books.HEAD] = -1
    alarms = 2 * jobs + 2 * nodes + nodes  # there are no more pools than nodes
    return Book(
        T=T, V=V, I=I, Q=Q, A=np.zeros((len(groups), len(REASONS) + 1)), H=H, P=_ints(nodes, _books.PLACE_FIELDS), K=K,
        clock=np.zeros(2), pace=np.ones(instances), tenants=np.full(len(world.G), -1, dtype=np.int64),
        due=np.full(alarms, np.inf), alarm_keys=np.empty(2 * alarms + 16), alarms=_ints(2 * alarms + 16),
        keys=np.empty(jobs + 1), heap=_ints(jobs + 1), jobs=_ints(jobs + 1),
        runs=np.empty((jobs if breaks else 0, 4)), entries=_ints(instances if breaks else 0, 2),
        estimate=_own(world.estimate), attained=np.zeros(jobs), remaining=np.zeros(jobs),
        usage=np.zeros(len(world.users)), M=np.zeros((world.learners + 1, 2)),
    )  # fmt: skip


def _fixed_key(world: World, code: int, need: Ints) -> Floats:
    keys = {"smallest": need, "largest": -need, "priority": -world.priority}
    return keys.get(ORDERS.names[code] if code < OWN else "", np.zeros(len(need))).astype(np.float64)


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


def _own(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that may be written: so that every world has the same types, and the loop is compiled once."""
    return np.array(array, order="C")


def _total(column: Ints) -> float:
    return float(max(1, int(column.sum())))


def _up(seconds: float) -> float:
    return math.ceil(seconds / _books.TICK) * _books.TICK
