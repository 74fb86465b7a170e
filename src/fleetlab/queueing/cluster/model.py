"""The queueing model of a cluster: load by pool, predicted waits, and violated assumptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Provenance, Result, Workload
from fleetlab.core.catalog.reasons import UNKNOWN_RUNTIME
from fleetlab.core.censoring import run_times
from fleetlab.core.coverage import Coverage, require
from fleetlab.core.job_classes import NO_GPU
from fleetlab.core.progress import Progress, silent
from fleetlab.queueing.cluster import prediction
from fleetlab.queueing.cluster.pool_fit import (
    EVERY,
    PoolFit,
    Violation,
    exponential_fit,
    fit,
    lognormal_fit,
    violations,
)
from fleetlab.queueing.cluster.prediction import CLASSES, HOUR, PoolJobs, interval, pools, split
from fleetlab.queueing.formulas.mmc import no_steady_state
from fleetlab.stats import no_interval

Row = dict[str, Any]

NAMES = dict.fromkeys(("pool", "class", "model", "violated", "assumption", "figure", "meaning"), pl.String)
COUNTS = dict.fromkeys(("jobs", "hour"), pl.Int64)
COLUMNS = {
    "model": ("pool", "class", "jobs", "load", "utilization", "wait", "low", "high", "P90 wait", "model", "violated"),
    "pools": ("pool", "servers", "jobs", "jobs per hour", "load", "low", "high", "utilization", "peak hour load",
              "CPU utilization", "wait", "wait low", "wait high", "P90 wait", "P90 low", "P90 high"),
    "violated": ("pool", "class", "assumption", "figure", "meaning"),
    "arrivals": ("pool", "window", "dispersion", "low", "high", "around daily pattern", "around low",
                 "around high"),
    "runtimes": ("pool", "class", "jobs", "mean", "low", "high", "scv", "P50", "P90", "P99", "KS exponential",
                  "p exponential", "KS lognormal", "p lognormal"),
    "day": ("pool", "hour", "jobs per hour", "load"),
}  # fmt: skip


OLDER = "older than the log: no arrival"


@dataclass(frozen=True, slots=True, repr=False)
class ClusterModel(Result):
    """Pools and classes: offered load, utilization, predicted waits, the model used and violated assumptions."""

    frames: dict[str, pl.DataFrame]
    estimates: tuple[Estimate, ...]
    provenance: Provenance
    notes: tuple[str, ...] = ()
    coverage: Coverage | None = None

    def __repr__(self) -> str:
        loads = self.frames["pools"].filter(pl.col("jobs") > 0).sort("utilization", descending=True, nulls_last=True)
        first = f", {loads['pool'][0]} at {loads['utilization'][0]:.0%}" if loads["utilization"].count() else ""
        return f"<ClusterModel {self.frames['pools'].height} pools{first}>"


def model(
    workload: Workload, cluster: Cluster, *, min_coverage: float = 0.0, seed: int = 0, progress: Progress = silent
) -> ClusterModel:
    """What does queueing theory say of a cluster? Loads, predicted waits, and which assumptions do not hold.

    Pools are GPU types; a job that may run on several is assigned to one at random, weighted by their GPUs.
    Intervals come from a block bootstrap over forty blocks of time.

    Parameters
    ----------
    workload
        The jobs.
    cluster
        The nodes.
    min_coverage
        Refuse to answer where less than this share of the GPU-hours can be modeled (default: 0).
    seed
        Random seed of the assignment and of the bootstrap (default: 0).
    progress
        Called as pools are modeled.

    Returns
    -------
    ClusterModel
        Load and predicted wait of each pool, with intervals, and the assumptions that are violated.

    Raises
    ------
    WorkloadError
        If too little can be modeled.

    Examples
    --------
    >>> import fleetlab
    >>> scenario = fleetlab.Scenario.of("builtin:200", load=20)
    >>> fleetlab.model(scenario.workload, scenario.cluster)
    <ClusterModel 6 pools, V100M32 at 256%>
    """
    among = pools(cluster)
    times = run_times(workload, "impute", seed)
    initial = pl.col("initial")  # they did not arrive in the time of the log
    jobs = times.workload.frame
    workload = replace(times.workload, frame=jobs.filter(~initial))
    parts, notes, nowhere = split(workload, among, seed)
    older = jobs.filter(initial).select("job", reason=pl.lit(OLDER))
    unknown = jobs.filter(~initial & pl.col("runtime").is_null()).select("job", reason=pl.lit(UNKNOWN_RUNTIME))
    coverage = Coverage.of(times, pl.concat([older, unknown, nowhere]), "modeled")
    require(coverage, min_coverage)
    span = float(workload.frame["submit"][-1]) if len(workload) else 0.0
    if span <= 0:
        notes += ("all submissions are at one time: no arrival rate and no load",)
    begins = prediction.midnight(workload)
    fitted: list[PoolFit] = []
    for k, (pool, part) in enumerate(zip(among, parts, strict=True)):
        fitted.append(fit(pool, part, span, begins))
        progress("fitting a queue to each pool", k + 1, (k + 1) / len(among))
    rows = _rows(fitted, span, np.random.default_rng(seed))
    frames = {name: _frame(columns, rows[name]) for name, columns in COLUMNS.items()}
    provenance = Provenance.of_jobs("model", workload, {"cluster": cluster.source}, seed, cluster)
    return ClusterModel(frames, tuple(_summary(fitted)), provenance, notes + _notes(fitted), coverage)


def _frame(columns: tuple[str, ...], rows: list[Row]) -> pl.DataFrame:
    schema = {name: NAMES.get(name) or COUNTS.get(name) or pl.Float64 for name in columns}
    return pl.DataFrame([[row[name] for name in columns] for row in rows], schema=schema, orient="row")


def _rows(fitted: list[PoolFit], span: float, rng: np.random.Generator) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    for f in fitted:
        wrong = violations(f, [o for o in fitted if o is not f])
        rows["pools"].append(_pool(f))
        rows["violated"] += [{**v._asdict(), "class": v.kind} for v in wrong]
        rows["arrivals"] += [{"pool": f.pool.name, **_window(d)} for d in f.dispersions]
        rows["day"] += _hours(f)
        for k in range(len(f.kinds)):
            rows["model"].append(_class(f, k, span, wrong))
            rows["runtimes"].append(_run(f, k, span, rng))
    return rows


def _class(f: PoolFit, k: int, span: float, wrong: list[Violation]) -> Row:
    here, name = f.part.kind == f.kinds[k], CLASSES[f.kinds[k]]
    load = float(f.part.work[here].sum()) / span if span > 0 else None
    mean = prediction.means(f.waits[k])
    waits = (*interval(mean), float(prediction.quantile(f.waits[k], 0.9)[0])) if span > 0 else (None,) * 4
    return {
        "pool": f.pool.name,
        "class": name,
        "jobs": int(here.sum()),
        "load": load,
        "utilization": load / f.pool.servers if load is not None and f.pool.servers else None,
        **dict(zip(("wait", "low", "high", "P90 wait"), waits, strict=True)),
        "model": f.model,
        "violated": ", ".join(v.assumption for v in wrong if v.kind in (EVERY, name)),
    }


def _pool(f: PoolFit) -> Row:
    row: Row = {
        "pool": f.pool.name,
        "servers": f.pool.servers,
        "jobs": len(f.part.submit),
        "jobs per hour": float(f.demand.rate[0]) * HOUR,
        "load": f.load,
        **dict(zip(("low", "high"), interval(f.demand.load)[1:], strict=True)),
        "utilization": f.utilization if f.pool.servers else None,
        "peak hour load": f.load * float(f.day.load.max()) if f.rates is not None else None,
        "CPU utilization": f.cpu,
    }
    for name, values in (("wait", prediction.means(f.every)), ("P90", prediction.quantile(f.every, 0.9))):
        bounds = interval(values) if f.load else (None,) * 3
        first = name if name == "wait" else f"{name} wait"
        row |= dict(zip((first, f"{name} low", f"{name} high"), bounds, strict=True))
    return row


def _run(f: PoolFit, k: int, span: float, rng: np.random.Generator) -> Row:
    here = f.part.kind == f.kinds[k]
    some = PoolJobs(*(column[here] for column in f.part))
    _, low, high = interval(prediction.demand(some, span).time) if span > 0 else no_interval()
    exponential, lognormal = (exponential_fit(some.service, rng), lognormal_fit(some.service, rng))
    return {
        "pool": f.pool.name,
        "class": CLASSES[f.kinds[k]],
        "jobs": len(some.service),
        "mean": float(some.service.mean()),
        "low": low,
        "high": high,
        "scv": f.scv(f.kinds[k]),
        **dict(zip(("P50", "P90", "P99"), np.quantile(some.service, [0.5, 0.9, 0.99]).tolist(), strict=True)),
        "KS exponential": exponential.distance,
        "p exponential": exponential.p,
        "KS lognormal": lognormal.distance,
        "p lognormal": lognormal.p,
    }


def _window(d: prediction.Dispersion) -> Row:
    counts = {"window": d.window, "dispersion": d.value, "low": d.low, "high": d.high}
    about = interval(d.around)
    return counts | dict(zip(("around daily pattern", "around low", "around high"), about, strict=True))


def _hours(f: PoolFit) -> list[Row]:
    if f.rates is None:
        return []
    load = np.broadcast_to(f.day.load * f.load, 24).tolist()
    rates = (f.rates * HOUR).tolist()
    return [{"pool": f.pool.name, "hour": h, "jobs per hour": rates[h], "load": load[h]} for h in range(24)]


def _summary(fitted: list[PoolFit]) -> list[Estimate]:
    gpus = [f for f in fitted if f.pool.name != NO_GPU]
    total, servers = sum((f.demand.load for f in gpus), np.zeros(1)), sum(f.pool.servers for f in gpus)
    load = interval(total)
    row = [Estimate("offered load", *load, "GPUs")]
    if servers:
        row.append(Estimate("utilization", *load.scaled(1 / servers), ""))
    for f in fitted:
        if f.load:
            mean = prediction.means(f.every)
            row.append(Estimate(f"mean wait, {f.pool.name}", *interval(mean), "s"))
    return row


def _notes(fitted: list[PoolFit]) -> tuple[str, ...]:
    over = [
        f"{f.pool.name}: {no_steady_state(f.utilization)}: waits grow without bound"
        for f in fitted
        if f.utilization >= 1
    ]
    crowded = [
        f"{f.pool.name}: overloaded in the busiest hours: predicted waits are too short" for f in fitted if f.crowded
    ]
    waits = "waits are predicted by a queueing model, not measured; `fleetlab simulate` models the schedule itself"
    return (*over, *crowded, waits)
