"""How many nodes does the demand that comes next need, beside what runs and waits?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from fleetlab.core import Cluster, Progress, Provenance, Trace, TraceError, Workload, WorkloadError
from fleetlab.core.catalog import REQUESTS
from fleetlab.core.durations import HINT, in_seconds
from fleetlab.core.names import lookup
from fleetlab.core.nodes import proportional
from fleetlab.core.progress import silent
from fleetlab.forecast import Forecaster, InstancesAhead, instances_ahead
from fleetlab.forecast.demand import By, Target
from fleetlab.plan import present
from fleetlab.studies.plan_ahead.result import NOW, PlanAhead, Search, check_kinds, place, upper_name

# -- instances to place: shapes in the proportions of the recent log ---------------------------------------------------

SHAPE = ("app", *REQUESTS, "gpu_types", "max_per_node")
NEW = "forecast"


def population(workload: Workload, ahead: InstancesAhead) -> pl.DataFrame:
    """Return the instances that run and wait when the forecast begins, by part."""
    part = workload.frame.select(
        "job", part=pl.Series([ahead.parts[k].part for k in ahead.of.tolist()], dtype=pl.String)
    )
    running, waiting = present(workload, ahead.now)
    frame = pl.DataFrame({"part": [one.part for one in ahead.parts]})
    for name, jobs in (("running", running), ("waiting", waiting)):
        counts = jobs.join(part, on="job").group_by("part").agg(pl.col("instances").cast(pl.Int64).sum().alias(name))
        frame = frame.join(counts, on="part", how="left", maintain_order="left")
    return frame.with_columns(pl.col("running", "waiting").fill_null(0))


def new_instances(demand: pl.DataFrame, target: str, column: str) -> list[int]:
    """Return how many instances of each part are placed beside those that run and wait.

    Of a level only what exceeds them is new: they are part of it.
    """
    there = (demand["running"] + demand["waiting"]).to_list() if target == "level" else [0] * demand.height
    return [max(0, math.ceil(value - 1e-6) - has) for value, has in zip(demand[column], there, strict=True)]


def recent_shapes(workload: Workload, ahead: InstancesAhead, recent: float) -> pl.DataFrame:
    """Return the shapes of instances that were requested in the time before the forecast, with their counts.

    A part without a request in that time takes the shapes of the whole log.
    """
    jobs = workload.frame.with_columns(number=pl.Series(ahead.of))
    last = pl.col("submit").is_between(ahead.now - recent, ahead.now, closed="left") & ~pl.col("initial")
    parts = []
    for number, one in enumerate(ahead.parts):
        mine = jobs.filter(pl.col("number") == number)
        some = mine.filter(last)
        some = some if some.height else mine
        counted = some.group_by(SHAPE, maintain_order=True).agg(requested=pl.col("instances").cast(pl.Int64).sum())
        # The most frequent first: where remainders are equal, they are rounded up.
        counted = counted.sort("requested", descending=True, maintain_order=True)
        parts.append(counted.select(pl.lit(one.part).alias("part"), pl.all()))
    return pl.concat(parts)


def in_shapes(shapes: pl.DataFrame, counts: dict[str, int]) -> pl.Series:
    """Return how many instances of each shape make so many of each part, by largest remainders."""
    split: list[int] = []
    for (part,), rows in shapes.group_by("part", maintain_order=True):
        split += proportional(counts[str(part)], rows["requested"].to_list())
    return pl.Series(split, dtype=pl.Int64)


def to_place(workload: Workload, ahead: InstancesAhead, shapes: pl.DataFrame, counts: pl.Series | None) -> Workload:
    """Return the jobs that run and wait, and after them new instances of each shape; `None`: no new ones."""
    running, waiting = present(workload, ahead.now)
    frames = [running, waiting]
    if counts is not None and counts.sum():
        rows = shapes.select(SHAPE, instances=counts, submit=pl.lit(0.0)).filter(pl.col("instances") > 0)
        first = int(workload.frame["job"][-1]) + 1
        new = Workload.of(rows, source=NEW).frame
        frames.append(new.with_columns(job=first + pl.int_range(pl.len(), dtype=pl.Int64)))
    return replace(workload, frame=pl.concat(frames), source=f"{workload.source} at {ahead.now:.0f} s", notes=())


# -- the verb ----------------------------------------------------------------------------------------------------------

OBJECTIVES = ("nodes", "stranded", "cost")  # those that count nodes
MODELS = ("simple", "classic")


def plan_ahead(
    trace: Trace,
    nodes: Cluster | None = None,
    *,
    target: Target = "requests",
    every: str | float = "1h",
    horizon: int = 24,
    quantile: float = 0.9,
    by: By | None = None,
    models: Sequence[str | Forecaster] = MODELS,
    recent: str | float = "7d",
    objective: str = "nodes",
    prices: Mapping[str, float] | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    progress: Progress = silent,
) -> PlanAhead:
    """Forecast the next instances, and place them beside those that run and wait at the end of the log.

    It is done for the median of the forecast demand and for an upper quantile.

    Parameters
    ----------
    trace
        The log to forecast from.
    nodes
        The nodes, in place of those of the trace.
    target
        requests: place all that is requested over the horizon, and nothing ends; level: place what is allocated at
        its peak.
    every
        The length of a step: seconds, or such as 1h.
    horizon
        The number of steps to plan for.
    quantile
        The upper quantile of the demand, from 0.5 to below 1.
    by
        Forecast each role, app or GPU type by itself (default: role, where the trace names some).
    models
        The forecast models and families to choose from.
    recent
        How much of the end of the log the shapes of instances are taken from.
    objective
        As in `plan`.
    prices
        As in `plan`.
    seconds
        How long each of the searches may take.
    seed
        Random seed (default: 0).
    progress
        Called as models are fitted and plans are searched.

    Returns
    -------
    PlanAhead
        How many nodes are needed now, for the median and for the upper quantile; and where instances would go.

    Raises
    ------
    WorkloadError
        If the trace is too short to forecast from.
    TraceError
        If the trace has no cluster, and no `nodes` are given.

    Examples
    --------
    >>> import fleetlab
    >>> trace = fleetlab.synthesize(jobs=200, days=2)
    >>> fleetlab.plan_ahead(trace, every="15m", horizon=2, models=["last"], seconds=1)
    <PlanAhead nodes needed: now 1, median 1, P90 2>
    """
    back = _check(trace, objective, recent)
    cluster = _nodes(trace, nodes)
    ahead = instances_ahead(
        trace, target=target, every=every, horizon=horizon, by=by, quantile=quantile, models=models, seed=seed,
        progress=progress,
    )  # fmt: skip
    shapes, demand = recent_shapes(trace.workload, ahead, back), _demand(trace, ahead)
    upper = upper_name(quantile)
    for name in ("median", upper):
        counts = dict(zip(demand["part"], demand[f"new, {name}"], strict=True))
        shapes = shapes.with_columns(in_shapes(shapes, counts).alias(name))
    demands = {
        name: to_place(trace.workload, ahead, shapes, None if name == NOW else shapes[name])
        for name in (NOW, "median", upper)
    }
    check_kinds(demands[upper], cluster)
    search = Search(objective, prices, seconds, seed, progress)
    cases = [place(name, workload, cluster, search) for name, workload in demands.items()]
    settings = {
        "target": target, "every": ahead.every, "horizon": horizon, "quantile": quantile, "by": ahead.by,
        "models": [m if isinstance(m, str) else m.name for m in models], "recent": back, "objective": objective,
        "seconds": seconds, "cluster": cluster.source, **({} if prices is None else {"prices": dict(prices)}),
    }  # fmt: skip
    provenance = Provenance.of_jobs("plan_ahead", trace.workload, settings, seed)
    return PlanAhead.of(ahead, demand, shapes, cases, cluster, provenance)


def _check(trace: Trace, objective: str, recent: str | float) -> float:
    lookup("objective with a forecast", objective, OBJECTIVES, error=WorkloadError)
    back = in_seconds(recent)
    if not 0 < back < math.inf:
        raise WorkloadError(f"`recent` is not a length of time: `{recent}`", hint=HINT)
    if not len(trace.workload):
        msg = f"{trace.workload.source}: no jobs to forecast from"
        raise WorkloadError(msg, hint="`fleetlab show` lists what is in a trace")
    return back


def _nodes(trace: Trace, nodes: Cluster | None) -> Cluster:
    cluster = nodes or trace.cluster
    if cluster is None:
        msg = f"the trace has no cluster: {trace.workload.source}"
        raise TraceError(msg, hint="--nodes FILE.toml gives it one: [[node]] entries")
    return cluster


def _demand(trace: Trace, ahead: InstancesAhead) -> pl.DataFrame:
    """Return for each part what runs and waits, the forecast, and the instances that are new."""
    upper = upper_name(ahead.quantile)
    rows = [(one.expected, one.median, one.upper, *one.below, ", ".join(one.models)) for one in ahead.parts]
    names = ("forecast", "median", upper, "held out below", "below low", "below high", "models")
    frame = population(trace.workload, ahead).hstack(pl.DataFrame(rows, schema=list(names), orient="row"))
    new = {f"new, {name}": new_instances(frame, ahead.target, name) for name in ("median", upper)}
    return frame.with_columns(**{name: pl.Series(values, dtype=pl.Int64) for name, values in new.items()})
