"""How many nodes to have ready, by forecasts? Compared with other scaling policies at the same P95 wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TypeAlias, Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Progress, Scenario, Words, WorkloadError
from fleetlab.core.durations import HINT, in_seconds
from fleetlab.core.names import lookup
from fleetlab.core.progress import silent
from fleetlab.core.scenario import ScenarioLike
from fleetlab.forecast import Forecaster
from fleetlab.forecast.catalogue import BY_NAME, FAMILIES, NEEDS
from fleetlab.stats import Floats, Ints
from fleetlab.studies.autoscale.pools import PoolDemand, ScaledPool, left_out_notes, pool_demand, scaled_pools
from fleetlab.studies.autoscale.replay import (
    LEAST_ERRORS,
    POOL,
    DemandForecast,
    Replay,
    ReplayResult,
    best,
    forecasts,
    sustain,
)
from fleetlab.studies.autoscale.result import DAY, POLICIES, Autoscaling, together

WAIT = 60.0  # seconds: the default goal
LEARN, COUNT = 4, 2  # days at least
MODELS = ("last", "seasonal", "holt_winters", "ridge")
RISKS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005)
IDLES = (300.0, 600.0, 1200.0, 3600.0)  # seconds after which a reactive pool switches an idle node off
HOLDS = (0.0, 900.0, 1800.0, 3600.0)  # seconds for which a node stays on after the last step that needs it
STEPS = 40  # by which nodes may be added to a forecast or to the actual demand
FINE = 0.005  # of the peak: such a step, and one node at least
PLACEMENTS = ("best_fit", "first_fit")  # the default; and what is used, because it empties the last nodes

Count: TypeAlias = Callable[[ReplayResult], ReplayResult]


def autoscale(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    wait: str | float | None = None,
    risk: float | None = None,
    every: str | float = 300.0,
    boot: str | float = 300.0,
    learn: str | float | None = None,
    models: Sequence[str | Forecaster] = MODELS,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Autoscaling:
    """Compare forecasts of demand with other scaling policies: node-hours per day at the same P95 wait.

    The other policies are `reactive` (nodes boot when jobs wait), `static` (always the same number) and `oracle` (knows
    the demand). Each has the setting that needs the fewest node-hours of those that meet the goal. Times are seconds,
    or such as 5m, 2h, 4d.

    Parameters
    ----------
    source
        What builds the scenario, as `Scenario.of` takes it.
    cluster
        The nodes, as many as there may be, in place of those of the trace. Each kind of node is scaled by itself, for
        the jobs that only it can hold, and those that prefer it: a job that several kinds can hold goes to that of the
        lowest `weight`, then to the first. Nodes with GPUs are for jobs that request some.
    wait
        The goal: a P95 wait of at most this (default: 60 s).
    risk
        Instead of a goal: the probability that a step needs more nodes than a forecast has ready, such as 0.05. The
        others must then meet the P95 wait that results.
    every
        The time between two decisions.
    boot
        The time that a node needs to boot.
    learn
        The time at the begin of the log that forecasts are trained on; the days after it count (default: a third of
        the log, at least 4 days).
    models
        The forecast models and families to choose from.
    progress
        Called as replays are finished.
    **words
        Words of the scenario; its placement is first_fit, and it has no events of its own.

    Returns
    -------
    Autoscaling
        Findings, and a table of scaling policies with their node-hours per day and P95 wait.

    Raises
    ------
    WorkloadError
        If the log is too short to learn from, or a kind of node would have no jobs.

    Examples
    --------
    >>> import fleetlab, polars as pl
    >>> hourly = pl.DataFrame({"submit": [3600.0 * k for k in range(150)], "runtime": 1800.0, "gpu_milli": 1000})
    >>> jobs = fleetlab.Workload.of(hourly, source="by hand")
    >>> result = fleetlab.autoscale(jobs, fleetlab.Cluster.uniform(2, 1), every="15m", models=["last"])
    >>> result.provenance.settings["wait"]
    60.0
    """
    scenario = Scenario.of(source, cluster, **words)
    _check(scenario, wait, risk)
    goal = ScalingGoal(
        _time("wait", WAIT if wait is None else wait), risk, _time("every", every, 1.0), _time("boot", boot),
        None if learn is None else _time("learn", learn, 1.0), _models(models),
    )  # fmt: skip
    pools = scaled_pools(scenario)
    if len(pools) == 1:
        return replace(_scale(scenario, pools[0], goal, progress), coverage=scenario.coverage)
    parts = {
        pool.name: _of_kind(scenario, pool, goal, part_of(progress, number, len(pools)))
        for number, pool in enumerate(pools)
    }
    return replace(together(parts, left_out_notes(scenario)), coverage=scenario.coverage)


@dataclass(frozen=True, slots=True)
class ScalingGoal:
    """What every scaling policy must meet, and what forecasts may learn from; times in seconds."""

    wait: float
    risk: float | None
    every: float
    boot: float
    learn: float | None
    models: list[Forecaster]


def part_of(progress: Progress, number: int, parts: int) -> Progress:
    """Return the progress of one of several equal parts."""
    return lambda what, done, share: progress(what, done, (number + (share or 0.0)) / parts)


def _of_kind(scenario: Scenario, pool: ScaledPool, goal: ScalingGoal, progress: Progress) -> Autoscaling:
    """Scale one kind of several; what is wrong with its jobs is said with its name."""
    try:
        return _scale(scenario, pool, goal, progress)
    except WorkloadError as e:
        raise WorkloadError(f"nodes of kind `{pool.name}`: {e}", hint=e.hint) from None


def _scale(scenario: Scenario, pool: ScaledPool, goal: ScalingGoal, progress: Progress) -> Autoscaling:
    """Find the cheapest setting of every scaling policy for one kind of node."""
    demand = pool_demand(pool, every=goal.every)
    replay = _replay(demand, goal.boot, goal.learn)
    done: list[ReplayResult] = []

    def count(result: ReplayResult) -> ReplayResult:
        done.append(result)
        # How many there will be is not known.
        progress("replaying demand with nodes added and removed", len(done), 1 - 0.95 ** len(done))
        return result

    expected = _forecasts(replay, goal.models)
    at_risk = None if goal.risk is None else count(_at_risk(replay, expected, goal.risk))
    wait = goal.wait if at_risk is None else at_risk.p95
    results = {
        name: SEARCHES[name](replay, expected, wait, count) if at_risk is None or name != "forecast" else at_risk
        for name in POLICIES
    }
    settings = scenario.words() | {
        "wait": wait, "risk": goal.risk, "every": goal.every, "boot": goal.boot, "learn": replay.first * goal.every,
        "models": [model.name for model in goal.models],
    }  # fmt: skip
    provenance = scenario.provenance("autoscale", settings)
    return Autoscaling.of(results, done, replay, wait, provenance)


def _time(name: str, value: str | float, least: float = 0.0) -> float:
    seconds = in_seconds(value)
    if not least <= seconds < math.inf:
        raise WorkloadError(f"`{name}` is not a time of at least {least:g} s: {value}", hint=HINT)
    return seconds


def _check(scenario: Scenario, wait: str | float | None, risk: float | None) -> None:
    if risk is not None and not 0 < risk < 1:
        msg = f"a risk is between 0 and 1: {risk}"
        raise WorkloadError(msg, hint="--risk 0.05: demand exceeds the ready nodes in 5 % of the steps")
    if risk is not None and wait is not None:
        msg = "a risk replaces a wait: the goal is then the wait that follows from it"
        raise WorkloadError(msg, hint="--wait or --risk, not both")
    if scenario.events or scenario.until is not None or scenario.policy.placement not in PLACEMENTS:
        msg = "nodes are switched on and off here, and filled by first_fit: leave `events`, `until` and `placement` out"
        raise WorkloadError(msg, hint="`simulate` takes them")


def _models(models: Sequence[str | Forecaster]) -> list[Forecaster]:
    if not models:
        raise WorkloadError("there is no model to forecast with", hint=f"some of {', '.join((*FAMILIES, *BY_NAME))}")
    forecasters = [model for name in models for model in (_named(name) if isinstance(name, str) else (name,))]
    return list({model.name: model for model in forecasters}.values())


def _named(name: str) -> Sequence[Forecaster]:
    """Return the models of a family, or one model."""
    return [_model(model.name) for model in FAMILIES[name]] if name in FAMILIES else [_model(name)]


def _model(name: str) -> Forecaster:
    lookup("model or family", name, (*FAMILIES, *BY_NAME), error=WorkloadError)
    if name in NEEDS and find_spec(NEEDS[name][0]) is None:
        library, extra = NEEDS[name]
        msg = f"the model `{name}` needs a library that is not installed: {library}"
        raise WorkloadError(msg, hint=f"pip install 'fleetlab[{extra}]', or leave it out of --models")
    return BY_NAME[name]


def _replay(demand: PoolDemand, boot: float, learn: float | None) -> Replay:
    """Put all nodes in one pool, and choose the days that count."""
    source, nodes = demand.scenario.workload.source, demand.scenario.cluster
    first = round((max(demand.end / 3, LEARN * DAY) if learn is None else learn) / demand.every)
    days = int((demand.end - first * demand.every) // DAY)
    if first < LEARN * round(DAY / demand.every) or days < COUNT:
        msg = f"{source}: too short: {demand.end / DAY:.3g} days, with {first * demand.every / DAY:.3g} to learn from"
        hint = f"forecasts learn from --learn {LEARN}d at least, and at least {COUNT} days after that must count"
        raise WorkloadError(msg, hint=hint)
    errors = first - first // 2 - 2 * math.ceil(boot / demand.every)
    if errors < LEAST_ERRORS:  # else all nodes would be on for want of a margin, and count as forecast
        msg = f"when days begin to count, too few forecasts are over to take a margin from: {max(0, errors)}"
        raise WorkloadError(msg, hint=f"{LEAST_ERRORS} are needed: a shorter --every or --boot, or a longer --learn")
    size = min(len(nodes), demand.most + STEPS * _step(demand))
    pool = Cluster.of(nodes.frame.head(size).with_columns(pool=pl.lit(POOL)), source=nodes.source)
    scenario = demand.scenario.replace(cluster=pool, nodes="", placement="first_fit")
    return Replay(demand, scenario, first, days, boot)


def _forecasts(replay: Replay, models: Sequence[Forecaster]) -> list[DemandForecast]:
    """Train models on the first half of the days that do not count, so that their errors in the other are known."""
    lead = math.ceil(replay.boot / replay.demand.every)
    return forecasts(models, replay.demand, lead=lead, train=replay.first // 2)


def _step(demand: PoolDemand) -> int:
    return max(1, round(FINE * demand.most))


# -- the settings of each scaling policy -------------------------------------------------------------------------------


def cheapest(settings: Sequence[int], run: Callable[[int], ReplayResult], wait: float) -> ReplayResult | None:
    """Return the first of the settings, each with more nodes than the one before, that meets the goal; by bisection."""
    low, high, fewest = 0, len(settings) - 1, None
    while low <= high:
        middle = (low + high) // 2
        result = run(settings[middle])
        if result.p95 <= wait:
            fewest, high = result, middle - 1
        else:
            low = middle + 1
    return fewest


def _static(replay: Replay, _: Sequence[DemandForecast], wait: float, count: Count) -> ReplayResult | None:
    steps = len(replay.demand.level)

    def run(n: int) -> ReplayResult:
        return count(replay.scheduled("static", f"{n} nodes", np.full(steps, n)))

    return cheapest(range(1, len(replay.scenario.cluster) + 1), run, wait)


def _reactive(replay: Replay, _: Sequence[DemandForecast], wait: float, count: Count) -> ReplayResult | None:
    most = len(replay.scenario.cluster)
    candidates = [
        cheapest(range(most + 1), lambda n, idle=idle: count(replay.reactive(n, idle)), wait)  # type: ignore[misc]
        for idle in IDLES
    ]
    return _fewest(candidates)


def _forecast(replay: Replay, expected: Sequence[DemandForecast], wait: float, count: Count) -> ReplayResult | None:
    """Try risks from high to low, then nodes on top of the lowest; each with several times for which a node stays."""
    step = _step(replay.demand)
    settings = [(risk, 0) for risk in RISKS] + [(RISKS[-1], j * step) for j in range(1, STEPS + 1)]
    candidates = [
        cheapest(
            range(len(settings)),
            lambda j, hold=hold: count(_at_risk(replay, expected, *settings[j], hold)),  # type: ignore[misc]
            wait,
        )
        for hold in HOLDS
    ]
    return _fewest(candidates)


def _fewest(candidates: Sequence[ReplayResult | None]) -> ReplayResult | None:
    """Return the one with the fewest node-hours."""
    return min((m for m in candidates if m), key=lambda m: float(m.node_hours.sum()), default=None)


def _at_risk(
    replay: Replay, expected: Sequence[DemandForecast], risk: float, extra: int = 0, hold: float = 0.0
) -> ReplayResult:
    """Have as many nodes ready as demand exceeds with that risk, and some more; a node stays on for a while."""
    model = best(expected, risk, replay.first)
    more = (f" and {extra} nodes" if extra else "") + (f", kept {hold:g} s" if hold else "")
    ready = sustain(_whole(replay, model.upper(risk) + extra), math.ceil(hold / replay.demand.every))
    return replay.scheduled("forecast", f"risk {risk:g}{more}, {model.name}", ready)


def _oracle(replay: Replay, _: Sequence[DemandForecast], wait: float, count: Count) -> ReplayResult | None:
    """Try the actual demand of each step, and a few nodes more or less: not all packs well, and some may wait."""

    def run(extra: int) -> ReplayResult:
        ready = _whole(replay, replay.demand.level + extra)
        return count(replay.scheduled("oracle", f"{extra:+d} nodes", ready))

    step = _step(replay.demand)
    return cheapest([j * step for j in range(-STEPS // 4, STEPS + 1)], run, wait)


SEARCHES: dict[str, Callable[[Replay, Sequence[DemandForecast], float, Count], ReplayResult | None]] = {
    "reactive": _reactive,
    "static": _static,
    "forecast": _forecast,
    "oracle": _oracle,
}


def _whole(replay: Replay, level: Floats) -> Ints:
    """Return whole nodes, at least one; all of them in steps without a forecast."""
    most = len(replay.scenario.cluster)
    return np.clip(np.ceil(np.where(np.isnan(level), most, level) - 1e-9), 1, most).astype(np.int64)
