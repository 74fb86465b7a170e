"""The five open problems of "MLaaS in the Wild" (Weng et al., NSDI 2022), each measured: does it occur here?

Low GPU utilization because jobs use fractions of GPUs; long waits of short jobs; jobs of several GPUs that are hard to
place; uneven load of GPU types; CPU as the bottleneck.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from fleetlab.core.job_classes import FRACTION, ONE, SEVERAL
from fleetlab.sim import SimResult
from fleetlab.stats import POSITIVE, SHARE, BlockBootstrap, Interval

WHOLE = 1000  # milli of one GPU
INSTANTS = 25  # at which GPUs on nodes without free CPU are counted
YES, NO, UNKNOWN = "yes", "no", "–"

UTILIZATION = "low utilization from fractional use"
SHORT = "short jobs queue long"
LARGE = "jobs of many GPUs are hard to place"
UNEVEN = "load imbalance between GPU types"
CPU = "CPU as the bottleneck"


# vCPU per GPU: requested by the average instance, requested in total, and of the nodes.
_MANY = pl.col("instances").cast(pl.Int64)
_REQUESTED = (pl.col("cpu_milli") / pl.col("gpu_milli") * _MANY).sum() / _MANY.sum()
_IN_TOTAL = (pl.col("cpu_milli") * _MANY).sum() / (pl.col("gpu_milli").cast(pl.Int64) * _MANY).sum()
_THERE = pl.col("cpu_milli").sum() / (WHOLE * pl.col("gpus").cast(pl.Int64).sum())


class ProblemMeasure(NamedTuple):
    """One measure of a problem: its value and interval, what the paper says; the first says if it occurs here."""

    problem: str
    measure: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    paper: str
    here: str = ""


def open_problems(
    result: SimResult, waits: pl.DataFrame, usage: pl.LazyFrame | None, blocks: BlockBootstrap
) -> pl.DataFrame:
    """Return all five, with one measure or more each."""
    rows = [
        *_utilization(waits, usage, blocks), *_short(waits, blocks), *_large(waits, blocks), *_uneven(result),
        *_cpu(result),
    ]  # fmt: skip
    frame = pl.DataFrame(rows, schema=list(ProblemMeasure._fields), orient="row", infer_schema_length=None)
    frame = frame.cast(dict.fromkeys(("value", "low", "high"), pl.Float64)).rename({"here": "found here"})
    return frame.with_columns(pl.col("value", "low", "high").fill_nan(None))


def _percent(problem: str, measure: str, values: Interval, paper: str, here: str = "") -> ProblemMeasure:
    value, low, high = (100 * x for x in values)
    return ProblemMeasure(problem, measure, value, low, high, "%", paper, here)


def _utilization(waits: pl.DataFrame, usage: pl.LazyFrame | None, blocks: BlockBootstrap) -> list[ProblemMeasure]:
    """Return GPU time used relative to requests, and requests relative to whole GPUs."""
    seconds = waits["instances"].cast(pl.Float64) * waits["runtime"]
    request = waits["gpu_milli"].cast(pl.Int64)
    whole = (request + WHOLE - 1) // WHOLE * WHOLE
    sums = [blocks.sums((x.cast(pl.Float64) * seconds).to_numpy()) for x in (request, whole)]
    saved = blocks.ratio(sums[1] - sums[0], sums[1], SHARE).interval()
    sharing = _percent(UTILIZATION, "GPU time saved by fractional requests", saved, "50 % of GPUs saved")
    measure = "GPU time used, of that requested"
    if usage is None or "gpu_milli" not in usage.collect_schema().names():
        return [ProblemMeasure(UTILIZATION, measure, None, None, None, "%", "", UNKNOWN), sharing]
    mean = usage.group_by("job").agg(used=pl.col("gpu_milli").cast(pl.Float64).mean()).collect()
    used = waits.select("job").join(mean, on="job", how="left", maintain_order="left")["used"]
    # Only jobs with sensor data count, on both sides.
    top = blocks.sums((used.fill_null(0.0) * seconds).to_numpy())
    requested = blocks.sums((request.cast(pl.Float64) * seconds * used.is_not_null()).to_numpy())
    values = blocks.ratio(top, requested, POSITIVE).interval()
    paper = "half of the instances use at most 4 % of a GPU and request 50 %"
    return [_percent(UTILIZATION, measure, values, paper, YES if values[0] < 0.5 else NO), sharing]


def _short(waits: pl.DataFrame, blocks: BlockBootstrap) -> list[ProblemMeasure]:
    """Return the share of jobs that wait for more than half of their JCT: short ones, and long ones."""
    runtime = waits["runtime"].to_numpy()
    short = runtime <= np.median(runtime) if len(runtime) else np.zeros(0, dtype=bool)
    mostly = waits["wait"].to_numpy() > 0.5 * waits["jct"].to_numpy()
    values = [blocks.part(of).mean(1.0 * mostly[of], SHARE).interval() for of in (short, ~short)]
    here = YES if values[0][0] > values[1][0] else UNKNOWN if np.isnan([values[0][0], values[1][0]]).any() else NO
    what = "jobs that wait for more than half of their JCT"
    return [
        _percent(SHORT, f"short {what}", values[0], "9 % of instances", here),
        _percent(SHORT, f"long {what}", values[1], "3 % of instances"),
    ]


def _large(waits: pl.DataFrame, blocks: BlockBootstrap) -> list[ProblemMeasure]:
    """Return the P90 wait of jobs whose instances request several GPUs, and of those that request one or less."""
    milli, wait = waits["gpu_milli"].to_numpy(), waits["wait"].to_numpy()
    several, others = milli > WHOLE, (milli > 0) & (milli <= WHOLE)
    measure = f"P90 wait, {SEVERAL} per instance"
    if not several.any() or not others.any():
        return [ProblemMeasure(LARGE, measure, None, None, None, "s", "1.5 h", UNKNOWN)]
    values = [blocks.part(of).quantile(wait[of], 0.9, POSITIVE).interval() for of in (several, others)]
    here = YES if values[0][0] > values[1][0] else NO
    return [
        ProblemMeasure(LARGE, measure, *values[0], "s", "1.5 h", here),
        ProblemMeasure(LARGE, f"P90 wait, {ONE} or a {FRACTION}", *values[1], "s", "26 s to 3.6 min"),
    ]


def _uneven(result: SimResult) -> list[ProblemMeasure]:
    """Return the GPU allocation while jobs arrive of the fullest and of the emptiest GPU type."""
    allocated = result.allocation_by_type()
    if len(allocated) < 2:
        return [ProblemMeasure(UNEVEN, "one GPU type only", None, None, None, "%", "74 % and 49 %", UNKNOWN)]
    ranked = sorted(allocated, key=lambda name: -allocated[name].value)
    highest, lowest = allocated[ranked[0]], allocated[ranked[-1]]
    here = YES if highest.low > lowest.high else NO
    return [
        _percent(UNEVEN, f"GPU allocation, fullest GPU type: {ranked[0]}", highest, "74 % of MISC", here),
        _percent(UNEVEN, f"GPU allocation, emptiest GPU type: {ranked[-1]}", lowest, "49 % of V100"),
    ]


def _cpu(result: SimResult) -> list[ProblemMeasure]:
    """Return vCPUs per GPU of requests and of nodes, and GPUs that are free on nodes without free CPU."""
    requests = result.world.frame.filter(pl.col("gpu_milli") > 0)
    nodes = result.cluster.frame.filter(pl.col("gpus") > 0)
    if requests.is_empty() or nodes.is_empty():
        return [ProblemMeasure(CPU, "vCPU per GPU, requested", None, None, None, "", "21.4", UNKNOWN)]
    table = cpu_by_gpu_type(result)
    short = table.filter(pl.col("requested in total") > pl.col("nodes have"))["GPU type"].to_list()
    here, paper = YES if short else NO, "21.4; of 8-GPU nodes 22.8"
    requested, there = float(requests.select(_IN_TOTAL).item()), float(nodes.select(_THERE).item())
    where = f": more than nodes have in {', '.join(short)}" if short else ""
    return [
        ProblemMeasure(CPU, f"vCPU per GPU, requested{where}", *(requested,) * 3, "", paper, here),
        ProblemMeasure(CPU, "vCPU per GPU, of nodes", there, there, there, "", "23.2; of 8-GPU nodes 12.0"),
        _stranded(result, requests),
    ]


def cpu_by_gpu_type(result: SimResult) -> pl.DataFrame:
    """Return vCPUs per GPU by GPU type: of the average request that may run there, of all of them, and of its nodes."""
    nodes = result.cluster.frame.filter(pl.col("gpus") > 0).group_by(pl.col("gpu_type").alias("GPU type"))
    pools = nodes.agg(pl.col("gpus").cast(pl.Int64).sum().alias("GPUs"), _THERE.alias("nodes have")).sort("GPU type")
    requests, types = result.world.frame.filter(pl.col("gpu_milli") > 0), pl.col("gpu_types")
    may_run = [requests.filter((types.list.len() == 0) | types.list.contains(name)) for name in pools["GPU type"]]
    columns = pl.len().alias("jobs"), _REQUESTED.alias("requested"), _IN_TOTAL.alias("requested in total")
    rows = pl.concat([part.select(columns) for part in may_run]).fill_nan(None)
    return pl.concat([pools, rows], how="horizontal")


def _stranded(result: SimResult, requests: pl.DataFrame) -> ProblemMeasure:
    """Return the free GPUs on nodes with less free CPU than the median GPU instance requests, while jobs arrive."""
    usual = float(np.quantile(np.repeat(requests["cpu_milli"].to_numpy(), requests["instances"].to_numpy()), 0.5))
    nodes = result.cluster.frame
    gpus, cpus = nodes["gpus"].to_numpy() * float(WHOLE), nodes["cpu_milli"].to_numpy().astype(np.float64)
    world, jobs = result.world, result.jobs
    start, end = jobs["start"].fill_null(np.inf).to_numpy(), jobs["end"].fill_null(np.inf).to_numpy()
    first, instances = world.first[world.measured], world.instances[world.measured]
    requested = [world.frame[name].to_numpy()[world.measured] for name in ("gpu_milli", "cpu_milli")]
    shares = []
    for now in np.linspace(0.0, float(jobs["submit"].max() or 0.0), INSTANTS + 2)[1:-1]:  # type: ignore[arg-type]
        running = np.flatnonzero((start <= now) & (end > now))
        count = instances[running]
        place = np.repeat(first[running] + count - np.cumsum(count), count) + np.arange(count.sum())
        at, (milli, cpu) = result.played.where[place], (np.repeat(amount[running], count) for amount in requested)
        on = np.flatnonzero(at >= 0)
        free = gpus - np.bincount(at[on], weights=milli[on], minlength=len(gpus))
        idle = cpus - np.bincount(at[on], weights=cpu[on], minlength=len(gpus))
        shares.append(float(free[idle < usual].sum() / gpus.sum()))
    mean = BlockBootstrap.of_series(len(shares)).mean(np.array(shares), SHARE).interval()
    what = f"GPUs free on nodes with less than {usual / 1000:g} vCPU free"
    return _percent(CPU, what, mean, "")
