"""The built-in trace: a workload like that of Alibaba's PAI cluster in 2020, made from published statistics alone."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from fleetlab.core import Provenance, Trace, TraceError, Workload
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.traces.synthesize.arrivals import submissions
from fleetlab.traces.synthesize.groups import Groups, groups, job_shapes
from fleetlab.traces.synthesize.joint_law import Bools, Ints
from fleetlab.traces.synthesize.laws import A_DAY, EPOCH, TABLE, TYPES, ZONE, cluster
from fleetlab.traces.synthesize.requests import shapes
from fleetlab.traces.synthesize.run_times import sample_run_times
from fleetlab.traces.synthesize.usage import usage
from fleetlab.traces.synthesize.wait_sampling import waits

NAMES = ("pai2020",)
JOBS = 100_000
MOST_JOBS = 20_000_000
MOST_DAYS = 36_500.0
HOUR = 1 / 24

NOTES = (
    "synthetic: generated from published statistics of the PAI trace, no row is real",
    "`start` and `end` come from sampled waits, not from a schedule: they may exceed the capacity of the cluster",
    "`running` jobs occur throughout the trace: they have no end in the real log, so their runtime is unknown",
    "every GPU job may use one GPU type only, as assigned in the real log",
    "every job is its own parent; `usage` has one row per job, the mean over its instances",
    "GPU memory, disk, network and priority are not published: none is requested",
)


def synthesize(
    name: str = "pai2020",
    *,
    jobs: int = JOBS,
    days: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Trace:
    """Make a trace with the published laws of a real one; without `days`, jobs come as often as they did there.

    >>> synthesize("pai2020", jobs=1000, seed=7)
    <Trace 1,000 jobs, 1,897 nodes, 0 rejects, synthesize:pai2020>
    """
    lookup("synthetic trace", str(name), NAMES, error=TraceError)
    span = _checked_span(jobs, days, seed)
    frame, first = _jobs(jobs, span, seed, progress)
    used = [c for c in frame.columns if c.startswith("used_")]
    source = f"synthesize:{name}"
    workload = Workload.of(frame.drop(used), source=source, epoch=EPOCH + first, zone=ZONE)
    progress("jobs", jobs, 1.0)
    return Trace(
        workload,
        Provenance("synthesize", name, {"jobs": jobs, "days": days}, seed=seed),
        cluster=cluster(),
        usage=_used(frame.select("instances", "status", *used)),
        notes=NOTES,
    )


def _checked_span(jobs: int, days: float | None, seed: int) -> float:
    if isinstance(jobs, bool) or not isinstance(jobs, int) or not 1 <= jobs <= MOST_JOBS:
        msg = f"`jobs` is not a whole number from 1 to {MOST_JOBS:,}: {jobs!r}"
        raise TraceError(msg, hint="the real trace has 1,260,920")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        msg = f"`seed` is not a whole number from 0: {seed!r}"
        raise TraceError(msg, hint="any seed works: the same seed gives the same trace")
    if days is None:
        return max(HOUR, jobs / A_DAY)
    number = isinstance(days, int | float) and not isinstance(days, bool) and math.isfinite(days)
    if not number or not 1e-6 <= days <= MOST_DAYS:
        msg = f"`days` is not a number above 0 and up to {MOST_DAYS:,.0f}: {days!r}"
        raise TraceError(msg, hint="default: the arrival rate of the real trace")
    return float(days)


def _jobs(jobs: int, days: float, seed: int, progress: Progress) -> tuple[pl.DataFrame, float]:
    """Make each part from a stream of chance of its own, so that changing one leaves the others as they are."""
    who, when, how_long, ended, waited, *used = np.random.default_rng(seed).spawn(8)
    progress("shapes", 0, 0.0)
    law = shapes()
    recurring = groups(jobs, law, who)
    group = np.repeat(np.arange(len(recurring.jobs)), recurring.jobs)
    shape = job_shapes(recurring, law, who)
    progress("submissions", jobs, 0.3)
    submit = submissions(group, days, when)
    first = float(submit.min())
    progress("runtimes", jobs, 0.4)
    running, waiting = _open(jobs, ended)
    runtime, failed = sample_run_times(recurring, law, shape, ~(running | waiting), how_long)
    progress("waits", jobs, 0.6)
    wait = waits(law, shape, runtime, waited)
    progress("usage", jobs, 0.7)
    frame = pl.DataFrame(
        {
            "submit": submit - first,
            "runtime": runtime,
            "start": np.where(waiting, np.nan, submit - first + wait),
            "instances": law.instances[shape].astype(np.int32),
            "cpu_milli": law.cpu_milli[shape],
            "memory_mib": law.memory_mib[shape],
            "gpu_milli": law.gpu_milli[shape].astype(np.int32),
            **{
                f"used_{w}": usage(w, law, shape, group, rng)
                for w, rng in zip(("cpu", "gpu", "memory"), used, strict=True)
            },
        }
    )
    frame = frame.with_columns(
        _status(running, waiting, failed), *_names(recurring, group, law.type[shape])
    ).with_columns(pl.col("runtime", "start").fill_nan(None))
    # Ends of running jobs are lost anywhere in the log: that they ran until its end is not what it says.
    lost = pl.lit(None, dtype=pl.Float64)
    frame = frame.with_columns(end=pl.col("start") + pl.col("runtime"), runtime_at_least=lost)
    return frame.sort("submit", maintain_order=True), first


def _open(jobs: int, rng: np.random.Generator) -> tuple[Bools, Bools]:
    """Which jobs the log never saw end, and which it never saw start: as many as in the real table, anywhere."""
    order = rng.permutation(jobs)
    running, waiting = (round(jobs * TABLE["status"][s] / TABLE["rows"]) for s in ("running", "waiting"))
    is_running, is_waiting = np.zeros(jobs, dtype=bool), np.zeros(jobs, dtype=bool)
    is_running[order[:running]] = True
    is_waiting[order[running : running + waiting]] = True
    return is_running, is_waiting


def _status(running: Bools, waiting: Bools, failed: Bools) -> pl.Series:
    code = np.select([running, waiting, failed], [2, 3, 1], 0)
    return pl.Series("status", ["completed", "failed", "running", "waiting"]).gather(code)


def _names(recurring: Groups, group: Ints, type: Ints) -> list[pl.Series]:
    """Names for users and groups, and the type that each job may run on."""
    users = pl.Series("user", [f"user-{k}" for k in range(int(recurring.user.max()) + 1)], dtype=pl.Categorical)
    groups = pl.Series("group", [f"group-{k}" for k in range(len(recurring.jobs))], dtype=pl.Categorical)
    types = pl.Series("gpu_types", [[t] for t in TYPES] + [[]], dtype=pl.List(pl.String))
    return [users.gather(recurring.user[group]), groups.gather(group), types.gather(type)]


def _used(frame: pl.DataFrame) -> pl.LazyFrame:
    """What each job used; one that never started used nothing that a sensor saw."""
    return (
        frame.with_columns(job=pl.int_range(pl.len(), dtype=pl.Int64))
        .filter(pl.col("status") != "waiting")
        .select(
            "job",
            "instances",
            *[
                pl.col(f"used_{w}").alias(c)
                for w, c in (("cpu", "cpu_milli"), ("gpu", "gpu_milli"), ("memory", "memory_mib"))
            ],
        )
        .lazy()
    )
