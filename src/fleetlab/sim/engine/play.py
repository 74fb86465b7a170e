"""Play a world with the quick loops: orders whose ranks are fixed when a job arrives, jobs that run to completion."""

from __future__ import annotations

import math

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
from fleetlab.sim.layout import DONE, RUNNING, WAITING, Floats, NodeView, Scoring, writable
from fleetlab.sim.orders import world_ranks
from fleetlab.sim.schedule import Played
from fleetlab.sim.world import World

STATIC = tuple(order.name for order in ORDERS if not order.dynamic)  # ranks are fixed when a job arrives
BACKFILLS = ("none", "greedy", "easy")


def play(
    world: World, *, order: str | Floats, backfill: str, placement: str, seed: int = 0, until: float | None = None,
    running: Running | None = None, last_job: int = -1,
) -> Played:  # fmt: skip
    """Play a world by rules that the quick loops know; an order may be given as the rank of each job.

    Its first jobs may be `running` when the loop begins. It ends when `last_job` has started.
    """
    learnt = isinstance(order, str) and ORDERS[order].needs_estimate and world.learners > 0
    keys = world_ranks(order, world) if isinstance(order, str) else order
    jobs = Jobs(
        world.submit, world.runtime, writable(world.estimate), writable(keys), world.kind, world.first, world.learner,
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
        size = 0 if not learnt and bool((np.diff(keys) >= 0).all()) else total
        run_none(*common, np.empty(size), np.empty(size, dtype=np.int64), schedule, int(learnt), stop)
        return _played(world, jobs.key, schedule, backfill, until)
    queues = state.new_queues(np.bincount(world.kind, minlength=len(world.kinds)), len(world.shapes))
    if backfill == "easy":
        exact = world.learners == 0 and bool((world.estimate == world.runtime).all())
        reservation = new_reservation(resources, total)
        run_easy(*common, queues, schedule, reservation, int(learnt), int(exact), stop)
    else:
        run_greedy(*common, queues, schedule, int(learnt), stop)
    return _played(world, jobs.key, schedule, backfill, until)


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


def _played(world: World, keys: Floats, schedule: ScheduleTable, backfill: str, until: float | None) -> Played:
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
    return Played(
        start, end, status, placed.node, placed.gpus, nothing, nothing, zeros, backfill=backfill, keys=keys,
        until=stopped,
    )  # fmt: skip
