"""Play a world with the quick loops: orders whose ranks are fixed when a job arrives, jobs that run to completion."""

from __future__ import annotations

import math

import numba.experimental.function_type  # noqa: F401  teaches numba what a policy is before it sees the first
import numpy as np

from fleetlab.core.catalog import ORDERS, PLACEMENTS
from fleetlab.sim.codes import BEST_FIT
from fleetlab.sim.engine import state
from fleetlab.sim.engine.begin import Running, begin_with
from fleetlab.sim.engine.easy import run_easy
from fleetlab.sim.engine.greedy import run_greedy
from fleetlab.sim.engine.index import build_index, tier_steps
from fleetlab.sim.engine.none import run_none
from fleetlab.sim.engine.reservation import new_reservation
from fleetlab.sim.engine.scores import new_memo
from fleetlab.sim.engine.state import Jobs, Resources, ScheduleTable
from fleetlab.sim.engine.timed import Timed, no_timed
from fleetlab.sim.layout import DONE, RUNNING, WAITING, Floats, NodeView, Scoring, writable
from fleetlab.sim.orders import TIMED, world_ranks
from fleetlab.sim.policy import NO_WEIGHTS, state_of
from fleetlab.sim.policy import order as Order
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.site_view import SiteView
from fleetlab.sim.world import World

STATIC = tuple(order.name for order in ORDERS if not order.dynamic)  # ranks are fixed when a job arrives
BACKFILLS = ("none", "greedy", "easy")


def play(
    world: World, *, order: str | Floats | Order, backfill: str, placement: str, seed: int = 0,
    until: float | None = None, running: Running | None = None, last_job: int = -1, weights: Floats = NO_WEIGHTS,
    site: SiteView | None = None,
) -> Schedule:  # fmt: skip
    """Play a world by rules that the quick loops know; an order may be given as the rank of each job, or as a policy.

    Its first jobs may be `running` when the loop begins. It ends when `last_job` has started.
    """
    order = TIMED.get(order, order) if isinstance(order, str) else order
    by_time = order if isinstance(order, Order) else None
    learnt = world.learners > 0 and (by_time is not None or (isinstance(order, str) and ORDERS[order].needs_estimate))
    estimate = writable(world.estimate)
    timed = no_timed() if by_time is None else _timed(by_time, world, estimate, weights, site)
    if isinstance(order, np.ndarray):
        keys = order
    else:
        keys = world_ranks(order, world) if isinstance(order, str) else np.zeros(len(estimate))
    jobs = Jobs(
        world.submit, world.runtime, estimate, writable(keys), world.kind, world.first, world.learner,
        writable(world.kinds), state.new_learners(world.learners),
    )  # fmt: skip
    code, stop, total = PLACEMENTS.index(placement), math.inf if until is None else float(until), len(world.submit)
    resources = resources_of(world, placement, seed, None if running is None else running.now)
    memo = new_memo(code, world.shapes, len(world.nodes), len(world.typical))
    events, schedule = state.new_events(total, len(world.nodes)), state.new_schedule(world.first)
    events.clock.last_job = last_job
    if running is not None:
        begin_with(running, jobs, events, schedule)
    common = (code, jobs, resources, memo, events)
    if backfill == "none":
        size = 0 if not (learnt or timed.changes) and bool((np.diff(keys) >= 0).all()) else total
        run_none(*common, np.empty(size), np.empty(size, dtype=np.int64), schedule, int(learnt), timed, stop)
    elif backfill == "easy":
        exact = not (world.learners or timed.changes) and bool((world.estimate == world.runtime).all())
        reservation = new_reservation(resources, total)
        run_easy(*common, _queues(world), schedule, reservation, int(learnt), int(exact), timed, stop)
    else:
        run_greedy(*common, _queues(world), schedule, int(learnt), timed, stop)
    if by_time is None:
        return _played(world, jobs.key, schedule, backfill, until)
    if events.clock.policy_error:
        now, start = float(events.clock.now), schedule.start[: int(events.clock.arrived)]
        raise by_time.refusal(timed.state, np.flatnonzero(~(start < now)), now)
    return _played(world, None, schedule, backfill, until)


def _timed(order: Order, world: World, estimate: Floats, weights: Floats, site: SiteView | None) -> Timed:
    """Return an order that changes with time and what it sees: `estimate`, which the loop may fill, and no usage."""
    blank, usage = np.zeros(len(estimate)), np.zeros(len(world.users))
    view = state_of(
        world, world.nodes.copy(), estimate=estimate, attained=blank, remaining=blank, usage=usage, weights=weights,
        site=site,
    )  # fmt: skip
    return Timed(1, order.compiled(), view)


def _queues(world: World) -> state.Queues:
    return state.new_queues(np.bincount(world.kind, minlength=len(world.kinds)), len(world.shapes))


def resources_of(world: World, placement: str, seed: int, begin: NodeView | None = None) -> Resources:
    """Copy the nodes of a world, empty or as they are to `begin` with, and index them for the policy that uses one."""
    given = begin or NodeView(world.nodes, world.gpus, world.apps)
    now = NodeView(*map(writable, given))
    nodes, frequency = now.nodes, np.bincount(world.shape, minlength=len(world.shapes))
    index = build_index(now, tier_steps(world.shapes, frequency, world.nodes))
    if PLACEMENTS.index(placement) != BEST_FIT:
        index = index._replace(bits=np.zeros(0, dtype=np.uint64))
    free = np.zeros(int(index.header.types), dtype=np.int64)
    np.add.at(free, nodes.type_number[nodes.type_number >= 0], nodes.free_gpu[nodes.type_number >= 0])
    return Resources(writable(world.shapes), now, free, index, scoring_of(world, seed))


def scoring_of(world: World, seed: int) -> Scoring:
    """Copy what placement policies look at."""
    random = np.array([1 + seed % 2_147_483_646], dtype=np.int64)
    return Scoring(writable(world.capacity), writable(world.largest), writable(world.typical), random)


def _played(world: World, keys: Floats | None, schedule: ScheduleTable, backfill: str, until: float | None) -> Schedule:
    start, placed = schedule
    end = start + world.runtime
    status = np.where(np.isnan(start), WAITING, DONE)
    if until is not None:
        late = end > until
        end[late], status[late] = np.nan, RUNNING
        never = np.repeat(np.isnan(start), world.instances)
        placed.node[never], placed.gpus[never] = -1, 0  # what was tried for jobs that still wait
    nothing = np.zeros(len(start), dtype=np.int64)
    stopped = None if until is None or (status == DONE).all() else float(until)
    zeros = np.zeros(len(start))
    return Schedule(
        start, end, status, placed.node, placed.gpus, nothing, nothing, zeros, backfill=backfill, keys=keys,
        until=stopped,
    )  # fmt: skip
