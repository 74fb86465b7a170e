"""The model of a cluster: what pools are asked for, how long theory says jobs wait, and what speaks against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Provenance, Result, Workload
from fleetlab.queueing import arrivals
from fleetlab.queueing.arrivals import HOUR, interval
from fleetlab.queueing.cluster import prediction
from fleetlab.queueing.cluster.goodness_of_fit import exponential_fit, lognormal_fit
from fleetlab.queueing.cluster.pool_fit import Fitted, fit
from fleetlab.queueing.cluster.pools import CLASSES, NO_GPU, Part, pools, split
from fleetlab.queueing.cluster.violations import EVERY, Violation, violations
from fleetlab.stats import no_interval

Progress = Callable[[str, int, float], None]
Row = dict[str, Any]

NAMES = dict.fromkeys(("pool", "class", "model", "violated", "assumption", "figure", "meaning"), pl.String)
COUNTS = dict.fromkeys(("jobs", "hour"), pl.Int64)
COLUMNS = {
    "model": ("pool", "class", "jobs", "load", "utilisation", "wait", "low", "high", "P90 wait", "model", "violated"),
    "pools": ("pool", "servers", "jobs", "jobs an hour", "load", "low", "high", "utilisation", "highest hour",
              "CPU utilisation", "wait", "wait low", "wait high", "P90 wait", "P90 low", "P90 high"),
    "violated": ("pool", "class", "assumption", "figure", "meaning"),
    "arrivals": ("pool", "window", "dispersion", "low", "high", "about the daily pattern", "about low",
                 "about high"),
    "run times": ("pool", "class", "jobs", "mean", "low", "high", "scv", "P50", "P90", "P99", "from exponential",
                  "p exponential", "from lognormal", "p lognormal"),
    "day": ("pool", "hour", "jobs an hour", "load"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class ClusterModel(Result):
    """Pools and classes: offered load, utilisation, predicted waits, the model used and what speaks against it."""

    frames: dict[str, pl.DataFrame]
    estimates: tuple[Estimate, ...]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        loads = self.frames["pools"].filter(pl.col("jobs") > 0).sort("utilisation", descending=True, nulls_last=True)
        first = f", {loads['pool'][0]} at {loads['utilisation'][0]:.0%}" if loads["utilisation"].count() else ""
        return f"<ClusterModel {self.frames['pools'].height} pools{first}>"


def model(workload: Workload, cluster: Cluster, *, seed: int = 0, progress: Progress | None = None) -> ClusterModel:
    """What does queueing theory say of a cluster? Loads, predicted waits, and which assumptions do not hold.

    Pools are GPU types; jobs that may run on several are split between them by lot, in proportion to their GPUs.
    Intervals come from twenty blocks of time, drawn again and again.
    """
    among = pools(cluster)
    parts, notes = split(workload, among, seed)
    span = float(workload.frame["submit"][-1]) if len(workload) else 0.0
    if span <= 0:
        notes += ("a rate needs two submissions at different times: there are no loads to tell",)
    begins = arrivals.midnight(workload)
    fitted: list[Fitted] = []
    for k, (pool, part) in enumerate(zip(among, parts, strict=True)):
        fitted.append(fit(pool, part, span, begins))
        if progress:
            progress("pools", k + 1, (k + 1) / len(among))
    rows = _rows(fitted, span, np.random.default_rng(seed))
    frames = {name: _frame(columns, rows[name]) for name, columns in COLUMNS.items()}
    made = Provenance("model", workload.source, {"cluster": cluster.source}, seed)
    return ClusterModel(frames, tuple(_summary(fitted)), made, notes + _notes(fitted))


def _frame(columns: tuple[str, ...], rows: list[Row]) -> pl.DataFrame:
    schema = {name: NAMES.get(name) or COUNTS.get(name) or pl.Float64 for name in columns}
    return pl.DataFrame([[row[name] for name in columns] for row in rows], schema=schema, orient="row")


def _rows(fitted: list[Fitted], span: float, rng: np.random.Generator) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    for f in fitted:
        wrong = violations(f, [o for o in fitted if o is not f])
        rows["pools"].append(_pool(f))
        rows["violated"] += [{**v._asdict(), "class": v.kind} for v in wrong]
        rows["arrivals"] += [{"pool": f.pool.name, **_window(d)} for d in f.dispersions]
        rows["day"] += _hours(f)
        for k in range(len(f.kinds)):
            rows["model"].append(_class(f, k, span, wrong))
            rows["run times"].append(_run(f, k, span, rng))
    return rows


def _class(f: Fitted, k: int, span: float, wrong: list[Violation]) -> Row:
    here, name = f.part.kind == f.kinds[k], CLASSES[f.kinds[k]]
    load = float(f.part.work[here].sum()) / span if span > 0 else None
    mean = prediction.means(f.waits[k])
    waits = (*interval(mean), float(prediction.quantile(f.waits[k], 0.9)[0])) if span > 0 else (None,) * 4
    return {
        "pool": f.pool.name,
        "class": name,
        "jobs": int(here.sum()),
        "load": load,
        "utilisation": load / f.pool.servers if load is not None and f.pool.servers else None,
        **dict(zip(("wait", "low", "high", "P90 wait"), waits, strict=True)),
        "model": f.model,
        "violated": ", ".join(v.assumption for v in wrong if v.kind in (EVERY, name)),
    }


def _pool(f: Fitted) -> Row:
    found: Row = {
        "pool": f.pool.name,
        "servers": f.pool.servers,
        "jobs": len(f.part.submit),
        "jobs an hour": float(f.demand.rate[0]) * HOUR,
        "load": f.load,
        **dict(zip(("low", "high"), interval(f.demand.load)[1:], strict=True)),
        "utilisation": f.utilisation if f.pool.servers else None,
        "highest hour": f.load * float(f.day.load.max()) if f.rates is not None else None,
        "CPU utilisation": f.cpu,
    }
    for name, values in (("wait", prediction.means(f.every)), ("P90", prediction.quantile(f.every, 0.9))):
        told = interval(values) if f.load else (None,) * 3
        first = name if name == "wait" else f"{name} wait"
        found |= dict(zip((first, f"{name} low", f"{name} high"), told, strict=True))
    return found


def _run(f: Fitted, k: int, span: float, rng: np.random.Generator) -> Row:
    here = f.part.kind == f.kinds[k]
    some = Part(*(column[here] for column in f.part))
    _, low, high = interval(prediction.demand(some, span).time) if span > 0 else no_interval()
    exponential, lognormal = (
        exponential_fit(some.service, rng),
        lognormal_fit(some.service, rng),
    )
    return {
        "pool": f.pool.name,
        "class": CLASSES[f.kinds[k]],
        "jobs": len(some.service),
        "mean": float(some.service.mean()),
        "low": low,
        "high": high,
        "scv": f.scv(f.kinds[k]),
        **dict(zip(("P50", "P90", "P99"), np.quantile(some.service, [0.5, 0.9, 0.99]).tolist(), strict=True)),
        "from exponential": exponential.distance,
        "p exponential": exponential.p,
        "from lognormal": lognormal.distance,
        "p lognormal": lognormal.p,
    }


def _window(d: arrivals.Dispersion) -> Row:
    told = {"window": d.window, "dispersion": d.value, "low": d.low, "high": d.high}
    about = interval(d.around)
    return told | dict(zip(("about the daily pattern", "about low", "about high"), about, strict=True))


def _hours(f: Fitted) -> list[Row]:
    if f.rates is None:
        return []
    load = np.broadcast_to(f.day.load * f.load, 24).tolist()
    rates = (f.rates * HOUR).tolist()
    return [{"pool": f.pool.name, "hour": h, "jobs an hour": rates[h], "load": load[h]} for h in range(24)]


def _summary(fitted: list[Fitted]) -> list[Estimate]:
    gpus = [f for f in fitted if f.pool.name != NO_GPU]
    total, servers = sum((f.demand.load for f in gpus), np.zeros(1)), sum(f.pool.servers for f in gpus)
    load = interval(total)
    found = [Estimate("offered load", *load, "GPUs")]
    if servers:
        found.append(Estimate("utilisation", *load.scaled(1 / servers), ""))
    for f in fitted:
        if f.load:
            mean = prediction.means(f.every)
            found.append(Estimate(f"mean wait, {f.pool.name}", *interval(mean), "s"))
    return found


def _notes(fitted: list[Fitted]) -> tuple[str, ...]:
    over = [
        f"{f.pool.name}: more is asked for than there is (ρ = {f.utilisation:.3g}): waits grow without end: inf"
        for f in fitted
        if f.utilisation >= 1
    ]
    crowded = [
        f"{f.pool.name}: enough on average, too little in the busiest hours: its waits are told too short"
        for f in fitted
        if f.crowded
    ]
    waits = "waits are what theory says, not what the log saw: `fleetlab simulate` plays what theory leaves out"
    return (*over, *crowded, waits)
