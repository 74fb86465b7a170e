"""Play a world with the reference loop: allocate its tables, run it, and read the schedule from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numba.experimental.function_type  # noqa: F401  teaches numba what a policy is before it sees the first
import numpy as np
from numba import config, typeof, types
from numba.core.types import CompileResultWAP

from fleetlab.core import Cluster, PolicyError, Progress
from fleetlab.core.catalog import BACKFILLS, ORDERS, PLACEMENTS
from fleetlab.core.events import Event, Recovery
from fleetlab.sim import layout
from fleetlab.sim.codes import LAS, OWN_ORDER, OWN_PLACEMENT
from fleetlab.sim.events import DOWN, RECLAIM, Growth, Outages, draining_of, growth_of, outages_of
from fleetlab.sim.layout import DONE, NOW, TICK, Floats, Ints, NodeView, Records, Scoring, table, writable
from fleetlab.sim.orders import TIMED, world_ranks
from fleetlab.sim.policy import (
    BROUGHT_FLOATS,
    NO_ARRIVALS,
    NO_ORDER,
    NO_PLACE,
    NO_WEIGHTS,
    Arrivals,
    Nobody,
    arrived_in_python,
    hide_arrivals,
    order,
    placement,
    state_of,
)
from fleetlab.sim.quota import NO_QUOTAS, Quotas, StatedQuotas, copied
from fleetlab.sim.reference.conservative import pass_conservative
from fleetlab.sim.reference.loop import CALL_AGAIN, POLICY_ERROR, run
from fleetlab.sim.reference.node_events import OFF, ON, NodeEvents, handle
from fleetlab.sim.reference.partitions import pass_easy_by_partition, pass_none_by_partition
from fleetlab.sim.reference.passes import pass_easy, pass_greedy, pass_none
from fleetlab.sim.reference.preemption import pass_preempt
from fleetlab.sim.reference.speeds import Speeds, speeds_of
from fleetlab.sim.reference.state import BAD_ORDER, Policies, Rules, Simulation
from fleetlab.sim.schedule import Schedule, Segments, Up
from fleetlab.sim.site_view import ACCOUNT, SiteView
from fleetlab.sim.world import World, groups_of

__all__ = ["Speeds", "play", "speeds_of"]

LEVELS = (3600.0,)  # GPU-seconds between the queues of `las`
HORIZON = 3.0  # failures are drawn for so many times the span of the workload
PASSES = {"none": pass_none, "greedy": pass_greedy, "easy": pass_easy, "conservative": pass_conservative}
BY_PARTITION = {"none": pass_none_by_partition, "easy": pass_easy_by_partition}  # where there are several queues


def play(
    world: World,
    *,
    order: str | order = "fifo",
    backfill: str = "greedy",
    placement: str | placement = "best_fit",
    preempt: bool = False,
    weight: float = 1.0,
    levels: Sequence[float] = LEVELS,
    quotas: StatedQuotas | None = None,
    weights: Floats = NO_WEIGHTS,
    speeds: Speeds | None = None,
    recovery: Recovery | None = None,
    events: Sequence[Event] = (),
    cluster: Cluster | None = None,
    seed: int = 0,
    until: float | None = None,
    progress: Progress | None = None,
    site: SiteView | None = None,
) -> Schedule:
    """Play a world by any rules; `cluster` names the nodes and pools of `events`.

    `progress` is called many times a second; what it raises ends the run.
    """
    recovery = recovery or Recovery()
    order = TIMED.get(order, order) if isinstance(order, str) else order
    code = ORDERS.index(order) if isinstance(order, str) else OWN_ORDER
    preempt = preempt or (isinstance(order, str) and ORDERS[order].preemptive)
    if preempt and BACKFILLS[backfill].reserves:
        msg = f"a preemptive order needs no reservation: `{backfill}` with preemption"
        raise PolicyError(msg, hint="preemption goes with the backfill rules none and greedy")
    held, member = (NO_QUOTAS, None) if quotas is None else quotas.tables(world.frame)
    outages, growth = _outages_and_growth(world, events, cluster, recovery, seed)
    empty = _empty(world)
    rules = Rules(
        order=code,
        moving=int(ORDERS[order].dynamic if isinstance(order, str) else order.moves),
        backfill=BACKFILLS.index(backfill),
        placement=PLACEMENTS.index(placement) if isinstance(placement, str) else OWN_PLACEMENT,
        preempt=int(preempt),
        sharing=int(speeds is not None),
        quota=int(quotas is not None),
        plan_stands=int(quotas is None and _plan_stands(world, order, speeds, events, recovery)),
        checkpoint_every=_on_tick(recovery.every),
        save=_on_tick(recovery.save),
        restart=_on_tick(recovery.restart),
        until=math.inf if until is None else float(until),
        cpu=_total(world.capacity.cpu),
        memory=_total(world.capacity.memory),
        gpu=_total(world.capacity.gpu),
        decay=0.0 if site is None else site.decay,
        aging_weight=float(weight),
        levels=np.array(sorted(levels) if code == LAS else [], dtype=np.float64),
        alone=np.ones(1) if speeds is None else writable(speeds.alone),
        pair=np.ones((1, 1)) if speeds is None else writable(speeds.pair),
        shapes=_shapes(world),
        queues=_queues(world),
        scoring=_scoring(world, seed),
        empty=empty,
    )
    interrupts = bool(preempt) or bool(np.isin(outages.what, (DOWN, RECLAIM)).any())
    now = NodeView(*map(writable, empty))
    node_events = _node_events(now, outages, growth)
    sim = _simulation(world, rules, copied(held), member, speeds, site, interrupts=interrupts)
    _set_status(sim, now, growth, min(0.0, float(world.submit.min(initial=0.0))))
    state = state_of(
        world, now.nodes,
        estimate=sim.estimate, attained=sim.attained, remaining=sim.remaining, usage=sim.usage,
        weights=weights, site=replace(site, accounts=sim.accounts) if site is not None else None,
    )  # fmt: skip
    arrivals = NO_ARRIVALS
    if not (isinstance(order, str) and isinstance(placement, str)):
        state, arrivals = hide_arrivals(state)
        sim = sim._replace(estimate=arrivals.seen_floats[BROUGHT_FLOATS.index("estimate")])
    policies = Policies(
        NO_ORDER if isinstance(order, str) else order.compiled(),  # type: ignore[arg-type]
        NO_PLACE if isinstance(placement, str) else placement.compiled(),  # type: ignore[arg-type]
        state,
    )
    draining = draining_of(outages) if events else None
    loop = _Loop(sim, now, rules, node_events, policies, arrivals, draining, with_events=bool(events))
    try:
        loop.run(progress)
    except _PolicyFailure:
        raise _refusal(sim, rules, policies, order, placement) from None
    played = loop.played(interrupts=interrupts, until=until)
    return played if quotas is None else replace(played, quotas=held, member=member)


class _PolicyFailure(Exception):
    """The result of a policy was not a number."""


class _Loop:
    """The compiled loop, called as often as its logs fill up."""

    def __init__(
        self, sim: Simulation, now: NodeView, rules: Rules, events: NodeEvents, policies: Policies,
        arrivals: Arrivals, draining: Up | None, *, with_events: bool,
    ) -> None:  # fmt: skip
        self.sim, self.rules, self.events, self.draining, self.with_events = sim, rules, events, draining, with_events
        common = (sim, now, rules)
        passes = PASSES | BY_PARTITION if len(rules.queues) > 1 else PASSES
        chosen = pass_preempt if rules.preempt else passes[BACKFILLS.names[rules.backfill]]
        schedule = _as_value(chosen, *common, policies)
        handler = _as_value(handle, *common, events, 0, 0, called=with_events)
        self.arguments = (*common, events, schedule, handler, policies, arrivals)
        self.runs: list[tuple[Records, Ints]] = []
        self.uptimes: list[Records] = []

    def run(self, progress: Progress | None) -> None:
        """Run the loop to its end."""
        clock, jobs = self.sim.clock, len(self.sim.jobs)
        while True:
            result = run(*self.arguments)
            if result == POLICY_ERROR:
                raise _PolicyFailure
            self._empty_logs()
            if result != CALL_AGAIN:
                return
            if progress is not None:
                progress("simulating jobs", int(clock.finished), int(clock.finished) / jobs)

    def _empty_logs(self) -> None:
        clock, sim = self.sim.clock, self.sim
        self.runs.append((sim.runs[: clock.runs].copy(), sim.entries[: clock.entries].copy()))
        self.uptimes.append(self.events.uptimes[: clock.uptimes].copy())
        clock.runs = clock.entries = clock.uptimes = 0

    def played(self, *, interrupts: bool, until: float | None) -> Schedule:
        """Return the schedule."""
        jobs, instances = self.sim.jobs, self.sim.instances
        done = bool((jobs.status == DONE).all())
        stop = float(self.sim.clock.now) if done or until is None else float(until)
        return Schedule(
            start=jobs.start.copy(),
            end=jobs.end.copy(),
            status=jobs.status.copy(),
            where=instances.node[:, NOW].copy(),
            got=instances.gpus[:, NOW].copy(),
            preemptions=jobs.preemptions.copy(),
            failures=jobs.failures.copy(),
            lost=jobs.lost.copy(),
            segments=self._segments() if interrupts else None,
            up=self._up() if self.with_events else None,
            draining=self.draining,
            backfill=BACKFILLS.names[self.rules.backfill],
            keys=None if self.rules.moving else jobs.key.copy(),
            until=None if done else stop,
        )

    def _segments(self) -> Segments:
        runs = np.concatenate([part[0] for part in self.runs])
        entries = np.concatenate([part[1] for part in self.runs])
        first = np.append(0, np.cumsum(self.sim.jobs.instances[runs["job"]]))
        job, begin, end = (runs[name].copy() for name in ("job", "begin", "end"))
        return Segments(job, begin, end, first, entries[:, 0].copy(), entries[:, 1].copy())

    def _up(self) -> Up:
        uptimes = np.concatenate(self.uptimes)
        return Up(*(uptimes[name].copy() for name in ("node", "begin", "end")))


def _refusal(
    sim: Simulation, rules: Rules, policies: Policies, order: str | order, placement: str | placement
) -> PolicyError:
    """Say which policy did not return a number, and for what."""
    clock, which = sim.clock, int(sim.clock.error_job)
    state = arrived_in_python(policies.state, int(clock.arrived))
    if clock.policy_error == BAD_ORDER:
        assert not isinstance(order, str)
        jobs = sim.to_rank[:which] if rules.moving else [which]
        return order.refusal(state, jobs, float(clock.now))
    assert not isinstance(placement, str)
    return placement.refusal(state, np.arange(len(sim.nodes)), which)


def _as_value(function: Any, *args: Any, called: bool = True) -> Any:  # noqa: ANN401
    """Return a compiled function as a value of its type: the loop compiles once, unused functions never."""
    if getattr(config, "DISABLE_JIT", 0):
        return function
    signature = types.int64(*(typeof(a) for a in args))  # type: ignore[no-untyped-call]
    if not called:
        return Nobody(signature)
    function.compile(signature)
    return CompileResultWAP(function.get_compile_result(signature))


# -- tables ----------------------------------------------------------------------------------------------------------


def _outages_and_growth(
    world: World, events: Sequence[Event], cluster: Cluster | None, recovery: Recovery, seed: int
) -> tuple[Outages, Growth]:
    assert cluster is not None or not events, "events name nodes of a cluster"
    if cluster is None:
        nothing = np.empty(0, dtype=np.int64)
        return Outages(np.empty(0), nothing, nothing), Growth(np.full(len(world.nodes), -1), np.empty((0, 4)))
    span = float(world.submit.max(initial=0.0) + world.runtime.max(initial=0.0))
    outages = outages_of(events, cluster, horizon=HORIZON * span, save=recovery.save, seed=seed)
    return outages, growth_of(events, cluster)


def _node_events(now: NodeView, outages: Outages, growth: Growth) -> NodeEvents:
    """Make the tables of node events; nodes of elastic pools start switched off, all but the first few."""
    empty = now.nodes.copy()
    least, boot, every, idle = growth.rules.T
    for p, count in enumerate(least):
        now.nodes.up[np.flatnonzero(growth.pool == p)[int(count) :]] = 0
    failures = table(len(outages.time), layout.NODE_EVENT, time=outages.time, node=outages.node, action=outages.what)
    pools = table(len(least), layout.POOL, least=least, boot=boot, every=every, idle=idle)
    return NodeEvents(failures, pools, empty, table(4 * len(empty) + 16, layout.UPTIME))


def _set_status(sim: Simulation, now: NodeView, growth: Growth, begin: float) -> None:
    """Set which nodes are on from the begin, and the pool that each is switched with."""
    on = now.nodes.up == 1
    sim.nodes.pool, sim.nodes.power = growth.pool, np.where(on, ON, OFF)
    sim.nodes.up_since, sim.nodes.idle_since = np.where(on, begin, np.inf), np.inf


def _plan_stands(
    world: World, order: str | order, speeds: Speeds | None, events: Sequence[Event], recovery: Recovery
) -> bool:
    """Return whether the plan of conservative backfill can be kept: ranks are fixed, and no job outlasts it."""
    moving = ORDERS[order].dynamic if isinstance(order, str) else order.moves
    exact = world.learners == 0 and bool((world.estimate >= world.runtime).all())
    return exact and not (moving or speeds is not None or events or recovery.every)


def _empty(world: World) -> NodeView:
    """Copy the empty nodes, and find those that are alike: see `plan`."""
    view = NodeView(writable(world.nodes), writable(world.gpus), writable(world.apps))
    nodes, shapes = view.nodes, world.shapes
    sizes = nodes.end_gpu - nodes.first_gpu
    memory = np.append(view.gpus.free_memory, 0)[np.where(sizes, nodes.first_gpu, len(view.gpus))]
    kinds, kind = np.unique(np.column_stack([nodes.free, sizes, nodes.node_class, memory]), axis=0, return_inverse=True)
    need = np.column_stack([shapes.amounts, shapes.gpus * shapes.milli])
    for k, row in enumerate(kinds):
        amounts, (gpus, node_class, on_each) = row[:-3], row[-3:]
        has = np.append(amounts, gpus * layout.WHOLE)
        able = (need <= has).all(axis=1)
        able &= (shapes.types & node_class != 0) & (shapes.gpu_memory <= on_each)
        members = np.flatnonzero(kind.reshape(-1) == k)
        nodes.counted[members] = gpus > 0 and not (able & (shapes.gpus > 0) & (shapes.milli < layout.WHOLE)).any()
        alone = (2 * need > has) | (shapes.exclusive > 0)[:, None]
        if able.any() and alone[able].all(axis=0).any():  # no two instances fit together
            nodes.pool[members] = members[0] + 1
    return view


def _scoring(world: World, seed: int) -> Scoring:
    random = np.array([1 + seed % 2_147_483_646], dtype=np.int64)
    return Scoring(writable(world.capacity), writable(world.largest), writable(world.typical), random)


def _simulation(
    world: World,
    rules: Rules,
    quotas: Quotas,
    member: Ints | None,
    speeds: Speeds | None,
    site: SiteView | None,
    *,
    interrupts: bool,
) -> Simulation:
    count, instances, nodes = len(world.submit), int(world.first[-1]), len(world.nodes)
    groups, group = groups_of(world, layout.GROUP, member)
    jobs = table(
        count, layout.JOB, shape_id=world.shape, instances=world.instances, group=group, user=world.user,
        account=0 if site is None else site.account,
        first_instance=world.first[:-1], learner=world.learner, speed_class=0 if speeds is None else speeds.of,
        gpu_milli=world.gpu_milli, priority=world.priority, submit=world.submit,
        runtime=world.runtime, work=world.runtime,
        key=_fixed_key(world, rules.order), start=np.nan, end=np.nan, planned=np.nan,
    )  # fmt: skip
    owner = np.repeat(np.arange(count), world.instances)
    places = table(instances, layout.INSTANCE, neighbor=-1, job=owner, speed=1.0)
    places.node[:, NOW] = -1
    steps = 2 * count if BACKFILLS[BACKFILLS.names[rules.backfill]].reserves else 0
    timers = 2 * count + 3 * nodes  # there are no more pools than nodes
    return Simulation(
        clock=table(1, layout.COUNTERS, head=-1)[0], jobs=jobs, instances=places, groups=groups,
        users=table(len(world.users), layout.USER), quotas=quotas,
        partitions=table(len(world.partitions), layout.PARTITION, classes=list(world.partitions.values())),
        nodes=table(nodes, layout.NODE_STATUS), learners=table(world.learners + 1, layout.LEARNER),
        running=_ints(count), waiting=_ints(len(groups)), freed=_ints(nodes),
        last_tenant=np.full(len(world.gpus), -1, dtype=np.int64), due=np.full(timers, np.inf),
        timer_keys=np.empty(2 * timers + 16), timers=_ints(2 * timers + 16), keys=np.empty(count + 1),
        heap=_ints(count + 1), to_rank=_ints(count + 1), runs=table(count if interrupts else 0, layout.RUN),
        entries=_ints(instances if interrupts else 0, 2),
        steps=table(steps, layout.STEP), estimate=writable(world.estimate), attained=np.zeros(count),
        remaining=np.zeros(count), usage=np.zeros(len(world.users)),
        accounts=table(0, ACCOUNT) if site is None else writable(site.accounts),
    )  # fmt: skip


def _shapes(world: World) -> Records:
    rows = np.arange(len(world.shapes))
    return writable(world.shapes[np.append(rows, rows[:1]) if len(world.queues) > 1 else rows])


def _queues(world: World) -> Ints:
    """The partitions of each queue."""
    number = {name: k for k, name in enumerate(world.partitions)}
    queues = np.full((len(world.queues), max(map(len, world.queues))), -1, dtype=np.int64)
    for q, names in enumerate(world.queues):
        queues[q, : len(names)] = [number[name] for name in names]
    return queues


def _fixed_key(world: World, code: int) -> Floats:
    """Return ranks that depend on nothing that happens: the loop finds the others when jobs arrive, or in each pass."""
    rule = ORDERS.entries[code] if code < OWN_ORDER else None
    if rule is None or rule.dynamic or rule.needs_estimate:
        return np.zeros(len(world.submit))
    return world_ranks(rule.name, world)


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


def _total(column: Ints) -> float:
    return float(max(1, int(column.sum())))


def _on_tick(seconds: float) -> float:
    return math.ceil(seconds / TICK) * TICK
