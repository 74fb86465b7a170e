"""Simulate a scenario: when and where does each job run, and why does it wait?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, PolicyError, Progress, Scenario, Speed, Words, WorkloadError
from fleetlab.core.catalog import ORDERS, PLACEMENTS, SHARINGS
from fleetlab.core.coverage import Coverage, require
from fleetlab.core.scenario import ScenarioLike
from fleetlab.core.schedulers import Accounts, Feature, Scheduler
from fleetlab.sim.check import check_order, check_placement
from fleetlab.sim.components import joined, parts_of
from fleetlab.sim.layout import WHOLE, Floats
from fleetlab.sim.load import load
from fleetlab.sim.orders import TIMED
from fleetlab.sim.policy import order as Order
from fleetlab.sim.policy import placement as Placement
from fleetlab.sim.policy import state_of
from fleetlab.sim.quota import StatedQuotas
from fleetlab.sim.result import SimResult
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.site_view import SiteView
from fleetlab.sim.start_up import latencies
from fleetlab.sim.world import RunningJobs, World, world

if TYPE_CHECKING:
    from fleetlab.sim.engine.begin import Running  # with the engine, which is compiled when first used

P = TypeVar("P", Order, Placement)


def simulate(
    scenario: ScenarioLike, cluster: Cluster | None = None, *, progress: Progress | None = None, **words: Unpack[Words]
) -> SimResult:
    """Simulate a scenario: when and where does each job run, and why does it wait?

    Parameters
    ----------
    scenario
        What builds the scenario, as `Scenario.of` takes it: a `Trace`, a `Workload`, the folder of a saved trace or
        `builtin[:JOBS[:SEED]]`, and words such as `order="sjf"` or `load=1.2`; `fleetlab simulate --help` lists them.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    progress
        Called as the run advances.

    Returns
    -------
    SimResult
        One row per job in `jobs`, why each waited in `ledger`, and means with 95 % intervals in `summary()`.

    Raises
    ------
    WorkloadError
        If there is no job to simulate, less than `min_coverage` of the GPU-hours have a run time, or a keyword is no
        word of a scenario.
    PolicyError
        If a policy is not known, or does not rank.
    TraceError
        If the trace cannot be opened, or has no cluster.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.simulate("builtin:200", order="sjf", load=20)
    <SimResult 200 jobs, sjf/greedy/best_fit, mean wait 110 s (95 % CI 50 to 280)>
    """
    s = Scenario.of(scenario, cluster, **words)
    if s.data.is_log and not len(s.workload):
        what = f"no job was submitted in the window {s.window}" if s.window else "the trace has no jobs"
        msg = f"{s.workload.source}: {what}"
        raise WorkloadError(msg, hint="`fleetlab show TRACE` tells the span of its submissions")
    jobs = world_of(s)
    if s.data.is_log and s.min_coverage:
        require(Coverage.of(s.run_times, jobs.refused), s.min_coverage)
    provenance = s.provenance("simulate", s.settings())
    result = SimResult.of(jobs, play_scenario(s, jobs, progress), s.cluster, provenance, prices=s.prices, scenario=s)
    if s.data.is_log and s.min_coverage:  # a scheduler with rules of its own may have refused more
        require(Coverage.of(s.run_times, result.refused), s.min_coverage)
    return result


def world_of(s: Scenario) -> World:
    """Return the jobs and nodes of a scenario as the loops take them; whatever their order, backfill or placement."""
    own, quotas = s.scheduler, _quotas(s)
    whole = own is not None and Feature.FRACTIONS not in own.honors
    part = WHOLE if whole else SHARINGS[s.policy.sharing].granularity
    splits = own is not None and Feature.GANGS not in own.honors  # by rules that know no estimates
    before = None if s.before is None else split_instances(s.before.frame) if splits else s.before.frame
    return world(
        s.workload, s.cluster, estimate="oracle" if splits else _estimate(s), part=part, before=before,
        refusals=None if quotas is None else quotas.refusals,
        latency=latencies(s.latency, s.workload.frame, before, s.cluster.frame["gpu_type"], s.seed),
        cycle=s.policy.cycle, phase=s.begin,
    )  # fmt: skip


def play_scenario(s: Scenario, jobs: World, progress: Progress | None = None, *, draws: int | None = None) -> Schedule:
    """Run the loop of a scenario on its jobs and nodes; `draws` is how many orders within a second Slurm plays."""
    played = _play(s, jobs, progress, draws)
    # What a job held after its end, until the scheduler looked again, kept nobody waiting.
    return replace(played, end=played.end - jobs.unseen) if s.policy.cycle else played


def _play(s: Scenario, jobs: World, progress: Progress | None, draws: int | None) -> Schedule:
    if s.scheduler is not None:
        return _by_scheduler(s.scheduler, s, jobs, progress, draws)
    policy, weights = s.policy, np.array(s.policy.weights, dtype=np.float64)
    order, placement = _policy(policy.order, Order, weights), _policy(policy.placement, Placement, weights)
    moving = _moving(s)
    if policy.cycle and moving:
        msg = "a scheduler that looks in cycles is simulated without preemption, node events and slowdown by sharing"
        raise PolicyError(msg, hint="leave cycle out, or the others")
    if moving or policy.quota is not None:
        return _reference(s, jobs, order, placement, weights, progress)
    rank = _rank(order, jobs, weights, _accounts(s)) if isinstance(placement, str) else None
    parts = parts_of(jobs) if isinstance(rank, str | np.ndarray) and _separable(jobs, placement) else []
    if parts:
        ranks = [rank[part.jobs] if isinstance(rank, np.ndarray) else rank for part in parts]
        played = [_quick(s, part.world, of, placement) for part, of in zip(parts, ranks, strict=True)]
        if isinstance(order, str) or None not in played:
            return joined(jobs, parts, [
                _reference(s, part.world, order, placement, weights, progress) if one is None else one
                for part, one in zip(parts, played, strict=True)
            ])  # fmt: skip
    one = _quick(s, jobs, rank, placement)
    return _reference(s, jobs, order, placement, weights, progress) if one is None else one


def _by_scheduler(
    scheduler: Scheduler, s: Scenario, jobs: World, progress: Progress | None, draws: int | None
) -> Schedule:
    """Simulate by a scheduler with rules of its own, which is not given what it does not honor."""
    wanted = {Feature.NODE_EVENTS: bool(s.events), Feature.CHECKPOINTS: s.policy.recovery is not None}
    for feature, given in wanted.items():
        if given and feature not in scheduler.honors:
            msg = f"{scheduler.title} is simulated without {feature}"
            raise PolicyError(msg, hint="leave events and recovery out, or simulate with scheduler=event")
    # A replica is one of many: each has an order within a second of its own.
    schedule: Schedule = scheduler.simulate(s, jobs, progress=progress, draws=1 if s.replica else draws)
    return schedule


def split_instances(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row of one instance for each instance of jobs."""
    rows = np.repeat(np.arange(frame.height), frame["instances"].to_numpy())
    return frame[rows].with_columns(instances=pl.lit(1, dtype=frame.schema["instances"]))


def _accounts(s: Scenario) -> Accounts | None:
    """Return the accounts of the trace's site, which policies see."""
    return None if s.trace.scheduler is None else s.trace.scheduler.accounts()


def play_from(s: Scenario, jobs: World, running: Running, last_job: int = -1) -> Schedule | None:
    """Run the loop of a scenario on jobs of which the first run already; None where only the quick loops would do.

    It ends when `last_job` has started (-1: with all jobs).
    """
    if not plays_from(s, jobs):
        return None
    if s.scheduler is not None:
        return play_scenario(s, replace(jobs, running=RunningJobs(*running.placed)), draws=1)
    weights = np.array(s.policy.weights, dtype=np.float64)
    placement = _policy(s.policy.placement, Placement, weights)
    rank = _rank(_policy(s.policy.order, Order, weights), jobs, weights, _accounts(s))
    if rank == "aging":  # what waits is looked at from now on, but has waited since its submission
        rank = jobs.estimate + jobs.submitted
    return _quick(s, jobs, rank, placement, running, last_job)


def plays_from(s: Scenario, jobs: World) -> bool:
    """Whether `play_from` knows the rules: schedulers that honor it, and the quick loops, begin with jobs that run."""
    if s.scheduler is not None:
        return s.honors(Feature.RUNNING_JOBS)
    if s.policy.cycle or s.policy.quota is not None or _moving(s):
        return False
    weights = np.array(s.policy.weights, dtype=np.float64)
    fixed = _is_fixed(_policy(s.policy.order, Order, weights), jobs)
    return fixed and _quick_knows(s, jobs, _policy(s.policy.placement, Placement, weights))


def _moving(s: Scenario) -> bool:
    """Whether jobs may stop, or change their speed, once they run."""
    policy = s.policy
    return bool(SHARINGS[policy.sharing].needs_speed or policy.preempts or s.events or policy.recovery)


def _separable(jobs: World, placement: str | Placement) -> bool:
    """Whether jobs that share no nodes, in an order that does not change, have nothing else to do with each other."""
    return not jobs.learners and isinstance(placement, str) and not PLACEMENTS[placement].randomized


def _reference(
    s: Scenario, jobs: World, order: str | Order, placement: str | Placement, weights: Floats,
    progress: Progress | None,
) -> Schedule:  # fmt: skip
    """Use the loop that knows all rules."""
    from fleetlab.sim.jit import compile_notice
    from fleetlab.sim.reference.play import play, speeds_of

    policy, sharing = s.policy, SHARINGS[s.policy.sharing]
    own = not (isinstance(order, str) and isinstance(placement, str))
    profile = s.speed or Speed.default()
    speeds = speeds_of(profile, sharing.name, jobs, rules=policy.speed_classes) if sharing.needs_speed else None
    with compile_notice():
        return play(
            jobs, order=order, backfill=policy.backfill, placement=placement, preempt=policy.preempts,
            quotas=_quotas(s), weights=weights, speeds=speeds, recovery=policy.recovery, events=s.events,
            cluster=s.cluster if s.events else None, seed=s.seed, until=s.until, progress=progress,
            site=SiteView.of(jobs, _accounts(s)) if own else None,
        )  # fmt: skip


def _estimate(s: Scenario) -> str | pl.Series:
    """Return the name of an estimate, or a column of seconds: of the jobs before, then of those measured."""
    column = s.estimate
    if isinstance(column, str):
        return column
    measured = column.slice(s.first_row, len(s.workload))
    if s.before is None:
        return measured
    earlier = column.gather(s.before.rows) if s.before.estimate is None else s.before.estimate
    return earlier.append(measured)


def _rank(order: str | Order, jobs: World, weights: Floats, accounts: Accounts | None) -> str | Floats | Order | None:
    """Return an order whose keys do not change, by name or as the key of each job; or one whose keys change with time.

    None: they change with more than the time.
    """
    if not _is_fixed(order, jobs):
        return order if isinstance(order, Order) and order.timed else None
    return order if isinstance(order, str) else _fixed_keys(order, jobs, weights, accounts)


def _is_fixed(order: str | Order, jobs: World) -> bool:
    """Whether the keys of an order do not change with time."""
    return not (ORDERS[order].dynamic if isinstance(order, str) else order.moves or jobs.learners)


def _quick(
    s: Scenario, jobs: World, rank: str | Floats | Order | None, placement: str | Placement,
    running: Running | None = None, last_job: int = -1,
) -> Schedule | None:  # fmt: skip
    """Use the quick loop, where it knows the rules."""
    from fleetlab.sim.engine import play as quick
    from fleetlab.sim.jit import compile_notice

    if rank is None or not isinstance(placement, str) or not _quick_knows(s, jobs, placement):
        return None
    with compile_notice():
        return quick.play(
            jobs, order=rank, backfill=s.policy.backfill, placement=placement, seed=s.seed, until=s.until,
            running=running, last_job=last_job, weights=np.array(s.policy.weights, dtype=np.float64),
            site=SiteView.of(jobs, _accounts(s)) if isinstance(rank, Order) else None,
        )  # fmt: skip


def _quick_knows(s: Scenario, jobs: World, placement: str | Placement) -> bool:
    """Whether the quick loop knows the backfill and the placement of a scenario, for jobs of these queues."""
    from fleetlab.sim.engine import play as quick

    backfill = s.policy.backfill
    if backfill not in quick.BACKFILLS or not isinstance(placement, str):
        return False
    if backfill == "easy" and PLACEMENTS[placement].randomized:
        return False  # it has no random reservations
    return backfill == "greedy" or len(jobs.queues) <= 1  # else it has one head


def _fixed_keys(order: Order, jobs: World, weights: Floats, accounts: Accounts | None) -> Floats:
    """Return the key of each job under an order whose keys do not change."""
    rows, keys = np.arange(len(jobs.submit)), np.empty(len(jobs.submit))
    blank = np.zeros(len(rows))
    usage = np.zeros(max(1, len(jobs.users)))
    state = state_of(
        jobs, jobs.nodes.copy(), estimate=jobs.estimate.copy(), attained=blank, remaining=blank, usage=usage,
        weights=weights, site=SiteView.of(jobs, accounts),
    )  # fmt: skip
    if len(rows) and not order.compiled()(state, rows, len(rows), 0.0, keys):
        raise order.refusal(state, rows, 0.0)
    return keys


def _policy(policy: str | P | Callable[..., float], kind: type[P], weights: Floats) -> str | P:
    """Return a policy by the name that the loops know it by, or one of the user's, which is a pure ranking."""
    catalog, check = (ORDERS, check_order) if kind is Order else (PLACEMENTS, check_placement)
    if isinstance(policy, str):
        if policy in catalog:
            return TIMED.get(policy, policy)  # type: ignore[return-value]
        policy = load(policy, kind.kind)  # type: ignore[assignment]
    own = policy if isinstance(policy, kind) else kind(policy)  # type: ignore[arg-type]
    check(own, weights=weights)
    return own


def _quotas(s: Scenario) -> StatedQuotas | None:
    return None if s.policy.quota is None else StatedQuotas(s.policy.quota, s.workload.frame)
