"""The built-in trace: a workload like that of Alibaba's PAI cluster in 2020, made from published statistics alone."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from fleetlab.core import Provenance, Trace, TraceError, Workload
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.traces.synthesize.arrivals import submissions
from fleetlab.traces.synthesize.groups import Groups, deal, groups, job_shapes
from fleetlab.traces.synthesize.joint_law import (
    A_DAY,
    CPU_ONLY,
    EPOCH,
    TABLE,
    TYPES,
    ZONE,
    Bools,
    Ints,
    cluster,
    summed,
)
from fleetlab.traces.synthesize.requests import shapes
from fleetlab.traces.synthesize.run_times import sample_run_times
from fleetlab.traces.synthesize.usage import usage
from fleetlab.traces.synthesize.wait_sampling import waits

NAMES = ("pai2020",)
JOBS = 100_000
MOST_JOBS = 20_000_000
MOST_DAYS = 36_500.0
HOUR = 1 / 24
# Of the GPU jobs of Alibaba's clusters a third name a GPU type ("Beware of Fragmentation", ATC'23). On PAI those on
# V100s waited ten times as long as others ("MLaaS in the Wild"): they could not go elsewhere.
CONSTRAINED = 0.33
HIGH_END = ("V100", "V100M32")

NOTES = (
    "synthetic: generated from published statistics of the PAI trace, no row is real",
    "`start` and `end` come from sampled waits, not from a schedule: they may exceed the capacity of the cluster",
    "`running` jobs occur throughout the trace: they have no end in the real log, so their runtime is unknown",
    "jobs that were assigned V100s, and some others, may use no other GPU type: {constrained:.0%} of the GPU jobs; "
    "which jobs did is not published",
    "every job is its own parent; `usage` has one row per job, the mean over its instances",
    "GPU memory, disk, network and priority are not published: none is requested",
)


def synthesize(
    name: str = "pai2020",
    *,
    jobs: int = JOBS,
    days: float | None = None,
    constrained: float = CONSTRAINED,
    seed: int = 0,
    progress: Progress = silent,
) -> Trace:
    """Make a trace with the published laws of a real one.

    Parameters
    ----------
    name
        The real one (default: pai2020, the only one).
    jobs
        How many jobs (default: 100,000).
    days
        Days that the submissions span (default: so many that jobs come as often as on the real cluster).
    constrained
        The share of the GPU jobs that may use one GPU type only, those on V100s first (default: 0.33).
    seed
        Random seed (default: 0).
    progress
        Called as the trace is made.

    Returns
    -------
    Trace
        Jobs with a recorded schedule on a cluster of the published nodes.

    Raises
    ------
    TraceError
        If there is no such model, or a number is out of range.

    Examples
    --------
    >>> synthesize("pai2020", jobs=1000, seed=7)
    <Trace 1,000 jobs, 1,897 nodes, 0 rejects, synthesize:pai2020>
    """
    lookup("synthetic trace", str(name), NAMES, error=TraceError)
    span = _checked_span(jobs, days, seed)
    frame, first = _jobs(jobs, span, _checked_share(constrained), seed, progress)
    used = [c for c in frame.columns if c.startswith("used_")]
    source = f"synthesize:{name}"
    workload = Workload.of(frame.drop("assigned", *used), source=source, epoch=EPOCH + first, zone=ZONE)
    progress("synthesizing jobs", jobs, 1.0)
    return Trace(
        workload,
        Provenance("synthesize", name, {"jobs": jobs, "days": days, "constrained": constrained}, seed=seed),
        cluster=cluster(),
        usage=_used(frame.select("instances", "status", *used)),
        names=_assigned(frame),
        notes=tuple(note.format(constrained=constrained) for note in NOTES),
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


def _checked_share(constrained: float) -> float:
    if isinstance(constrained, bool) or not isinstance(constrained, int | float) or not 0 <= constrained <= 1:
        msg = f"`constrained` is not a share of the GPU jobs, from 0 to 1: {constrained!r}"
        raise TraceError(msg, hint=f"default: {CONSTRAINED}")
    return float(constrained)


def _jobs(jobs: int, days: float, constrained: float, seed: int, progress: Progress) -> tuple[pl.DataFrame, float]:
    """Make each part from a stream of chance of its own, so that changing one leaves the others as they are."""
    who, when, how_long, ended, waited, *used, constraints = np.random.default_rng(seed).spawn(9)
    progress("drawing the requests of jobs", 0, 0.0)
    law = shapes()
    recurring = groups(jobs, law, who)
    group = np.repeat(np.arange(len(recurring.jobs)), recurring.jobs)
    shape = job_shapes(recurring, law, who)
    progress("drawing submission times", jobs, 0.3)
    submit = submissions(group, recurring.user[group], days, when)
    first = float(submit.min())
    progress("drawing runtimes", jobs, 0.4)
    running, waiting = _open(jobs, ended)
    runtime, failed = sample_run_times(recurring, law, shape, ~(running | waiting), how_long)
    progress("drawing waits", jobs, 0.6)
    wait = waits(law, shape, runtime, waited)
    progress("drawing the usage of GPUs, CPUs and memory", jobs, 0.7)
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
    only = _one_type_only(recurring, law.type[law.first[recurring.kind]], constrained, constraints)
    frame = frame.with_columns(
        _status(running, waiting, failed), *_names(recurring, group, law.type[shape], only[group])
    ).with_columns(pl.col("runtime", "start").fill_nan(None))
    # Ends of running jobs are lost anywhere in the log: that they ran until its end is not what it says.
    unobserved = pl.lit(None, dtype=pl.Float64)
    frame = frame.with_columns(end=pl.col("start") + pl.col("runtime"), runtime_at_least=unobserved)
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


def _one_type_only(parts: Groups, type: Ints, constrained: float, rng: np.random.Generator) -> Bools:
    """Choose the groups whose jobs may use no other GPU type than the assigned one: those on V100s, then others."""
    gpu = type < CPU_ONLY
    high = gpu & np.isin(type, [TYPES.index(name) for name in HIGH_END])
    target, only = constrained * parts.jobs[gpu].sum(), np.zeros(len(type), dtype=bool)
    for some in (high, gpu & ~high):
        of_name = summed(parts.name[some], parts.jobs[some], int(parts.name.max()) + 1).astype(np.int64)
        names = np.flatnonzero(of_name)
        names = names[np.argsort(-of_name[names], kind="stable")]
        total = of_name[names].sum()
        part = min(1.0, target / total) if total else 0.0
        if part == 1.0:
            only |= some
        elif part > 0:
            chosen = names[deal(of_name[names], np.array([part, 1.0 - part]), rng) == 0]
            only |= some & np.isin(parts.name, chosen)
        target -= part * total
    return only


def _names(recurring: Groups, group: Ints, type: Ints, only: Bools) -> list[pl.Series]:
    """Names for users and groups, the type that each job was assigned, and those that it may use."""
    users = pl.Series("user", [f"user-{k}" for k in range(int(recurring.user.max()) + 1)], dtype=pl.Categorical)
    groups = pl.Series("group", [f"group-{k}" for k in range(int(recurring.name.max()) + 1)], dtype=pl.Categorical)
    types = pl.Series("gpu_types", [[t] for t in TYPES] + [[]], dtype=pl.List(pl.String))
    assigned = pl.Series("assigned", [*TYPES, None], dtype=pl.Categorical)
    return [
        users.gather(recurring.user[group]),
        groups.gather(recurring.name[group]),
        types.gather(np.where(only, type, CPU_ONLY)),
        assigned.gather(type),
    ]


def _assigned(frame: pl.DataFrame) -> pl.LazyFrame:
    """Name each job, with the GPU type that it was assigned."""
    number = pl.int_range(pl.len(), dtype=pl.Int64)
    name = pl.concat_str(pl.lit("job-"), number)
    return frame.select(job=number, name=name, gpu_type=pl.col("assigned").cast(pl.String)).lazy()


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
