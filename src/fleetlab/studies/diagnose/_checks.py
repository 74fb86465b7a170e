"""The open problems that the PAI paper names, each as a check with figures: is it so here?

"MLaaS in the Wild" (NSDI'22) ends with five: GPUs are little used since jobs use fractions of them; short jobs queue
long; jobs that ask for many GPUs are hard to place; pools are unevenly loaded; CPUs are the bottleneck.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from fleetlab.sim import SimResult
from fleetlab.studies._blocks import Blocks, Floats
from fleetlab.studies._spread import over_runs

WHOLE = 1000  # milli of one GPU
INSTANTS = 25  # at which GPUs without CPUs are counted
YES, NO, UNKNOWN = "yes", "no", "–"

USE = "low utilisation from fractional use"
SHORT = "short jobs queue long"
LARGE = "jobs of many GPUs are hard to place"
UNEVEN = "load imbalance between pools"
CPU = "CPU as the bottleneck"


# vCPU for each GPU: that an instance asks for on average, that all ask for together, and that nodes have.
_MANY = pl.col("instances").cast(pl.Int64)
_ASKED = (pl.col("cpu_milli") / pl.col("gpu_milli") * _MANY).sum() / _MANY.sum()
_IN_ALL = (pl.col("cpu_milli") * _MANY).sum() / (pl.col("gpu_milli").cast(pl.Int64) * _MANY).sum()
_OFFERED = pl.col("cpu_milli").sum() / (WHOLE * pl.col("gpus").cast(pl.Int64).sum())


class Figure(NamedTuple):
    """One figure of a check: what it is, its value and interval, what the paper says, and whether it is so here."""

    check: str
    figure: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    paper: str
    found: str


def checks(run: SimResult, waited: pl.DataFrame, usage: pl.LazyFrame | None, blocks: Blocks) -> pl.DataFrame:
    """All five, with a figure or more each."""
    held = _held(run)
    rows = [
        *_use(run, usage, blocks), *_short(waited, blocks), *_large(waited, blocks), *_uneven(run, held, blocks),
        *_cpu(run, held),
    ]  # fmt: skip
    frame = pl.DataFrame(rows, schema=list(Figure._fields), orient="row", infer_schema_length=None)
    return frame.cast(dict.fromkeys(("value", "low", "high"), pl.Float64)).with_columns(
        pl.col("value", "low", "high").fill_nan(None)
    )


def _percent(check: str, figure: str, told: tuple[float, float, float], paper: str, found: str) -> Figure:
    value, low, high = (100 * x for x in told)
    return Figure(check, figure, value, low, high, "%", paper, found)


def _use(run: SimResult, usage: pl.LazyFrame | None, blocks: Blocks) -> list[Figure]:
    """GPU time used of that asked for; and asked for, of what whole GPUs would be."""
    jobs = run.jobs
    many = jobs["instances"].cast(pl.Float64) * jobs["runtime"]
    asked = jobs["gpu_milli"].cast(pl.Int64)
    whole = (asked + WHOLE - 1) // WHOLE * WHOLE
    sums = [blocks.sums((x.cast(pl.Float64) * many).to_numpy()) for x in (asked, whole)]
    shared = blocks.share(sums[1] - sums[0], sums[1])
    saved = _percent(USE, "GPU time that shares ask for less than whole GPUs", shared, "50 % of GPUs saved", UNKNOWN)
    if usage is None or "gpu_milli" not in usage.collect_schema().names():
        return [Figure(USE, "GPU time used, of that asked for", None, None, None, "%", "", UNKNOWN), saved]
    seen = usage.group_by("job").agg(used=pl.col("gpu_milli").cast(pl.Float64).mean()).collect()
    used = jobs.select("job").join(seen, on="job", how="left", maintain_order="left")["used"]
    known = used.is_not_null()
    # Jobs that no sensor saw tell nothing of either.
    top = blocks.sums((used.fill_null(0.0) * many).to_numpy())
    told = blocks.ratio(top, blocks.sums((asked.cast(pl.Float64) * many * known).to_numpy()))
    paper = "half of the instances use at most 4 % of a GPU and ask for 50 %"
    return [_percent(USE, "GPU time used, of that asked for", told, paper, YES if told[0] < 0.5 else NO), saved]


def _short(waited: pl.DataFrame, blocks: Blocks) -> list[Figure]:
    """How many jobs spend more than half of their completion time waiting: short ones, and long ones."""
    runtime = waited["runtime"].to_numpy()
    short = runtime <= np.median(runtime) if len(runtime) else np.zeros(0, dtype=bool)
    mostly = waited["wait"].to_numpy() > 0.5 * waited["jct"].to_numpy()
    told = [blocks.share(blocks.sums(1.0 * (mostly & of)), blocks.sums(1.0 * of)) for of in (short, ~short)]
    found = YES if told[0][0] > told[1][0] else UNKNOWN if np.isnan([told[0][0], told[1][0]]).any() else NO
    what = "jobs that wait for more than half of their completion"
    return [
        _percent(SHORT, f"short {what}", told[0], "9 % of instances", found),
        _percent(SHORT, f"long {what}", told[1], "3 % of instances", found),
    ]


def _large(waited: pl.DataFrame, blocks: Blocks) -> list[Figure]:
    """The P90 wait of jobs whose instances ask for several GPUs, and of those that ask for one or less."""
    milli, wait = waited["gpu_milli"].to_numpy(), waited["wait"].to_numpy()
    several, others = milli > WHOLE, (milli > 0) & (milli <= WHOLE)
    if not several.any() or not others.any():
        return [Figure(LARGE, "P90 wait, more than one GPU an instance", None, None, None, "s", "5,400 s", UNKNOWN)]
    told = [Blocks(blocks.of[of], blocks.draws).quantile(wait[of], 0.9) for of in (several, others)]
    found = YES if told[0][0] > told[1][0] else NO
    return [
        Figure(LARGE, "P90 wait, more than one GPU an instance", *told[0], "s", "5,400 s", found),
        Figure(LARGE, "P90 wait, one GPU or a share", *told[1], "s", "26 to 215 s", found),
    ]


def _held(run: SimResult) -> pl.DataFrame:
    """What each instance held, where and when; a row an instance."""
    jobs = run.jobs.select("job", "start", "end", "gpu_milli").join(
        run.world.frame.select("job", "cpu_milli"), on="job", maintain_order="left"
    )
    nodes = run.cluster.frame.select("node", "gpu_type").with_row_index("at")
    placed = run.placements.lazy().select("job", "node")
    # In their order: what is added up in another one is another number, in its last digit.
    placed = placed.join(nodes.lazy().select("node", "at"), on="node", maintain_order="left")
    return placed.select("job", "at").join(jobs.lazy(), on="job", maintain_order="left").collect()


def _uneven(run: SimResult, held: pl.DataFrame, blocks: Blocks) -> list[Figure]:
    """The share of GPUs that is allocated while jobs arrive, in the fullest and in the emptiest pool."""
    nodes = run.cluster.frame.with_row_index("at")
    gpus = dict(
        nodes.filter(pl.col("gpus") > 0).group_by("gpu_type").agg(pl.col("gpus").cast(pl.Int64).sum()).iter_rows()
    )
    if len(gpus) < 2:
        return [Figure(UNEVEN, "one pool only", None, None, None, "%", "74 % and 49 %", UNKNOWN)]
    edges = np.linspace(0.0, float(run.jobs["submit"].max() or 1.0), blocks.count + 1)  # type: ignore[arg-type]
    typed = held.join(nodes.select("at", "gpu_type"), on="at", maintain_order="left")
    sums = typed.group_by("job", "gpu_type", "start", "end", maintain_order=True).agg(
        pl.col("gpu_milli").cast(pl.Int64).sum()
    )
    told = {}
    for name, count in gpus.items():
        part = sums.filter(pl.col("gpu_type") == name)
        busy = _between(part, edges)
        told[name] = blocks.share(busy, count * np.diff(edges))
    ranked = sorted(told, key=lambda name: -told[name][0])
    found = YES if told[ranked[0]][1] > told[ranked[-1]][2] else NO
    return [
        _percent(UNEVEN, f"GPUs allocated, fullest pool: {ranked[0]}", told[ranked[0]], "74 % of MISC", found),
        _percent(UNEVEN, f"GPUs allocated, emptiest pool: {ranked[-1]}", told[ranked[-1]], "49 % of V100", found),
    ]


def _between(held: pl.DataFrame, edges: Floats) -> Floats:
    """GPU-seconds that were held from each edge to the next."""
    start, end = held["start"].to_numpy(), held["end"].to_numpy()
    gpus = held["gpu_milli"].to_numpy() / WHOLE
    until = np.array([float(gpus @ (np.minimum(end, at) - np.minimum(start, at))) for at in edges])
    return np.diff(until)


def _cpu(run: SimResult, held: pl.DataFrame) -> list[Figure]:
    """CPUs for each GPU, asked and offered; and GPUs that are free where the CPUs for them are not."""
    asks = run.world.frame.filter(pl.col("gpu_milli") > 0)
    nodes = run.cluster.frame.filter(pl.col("gpus") > 0)
    if asks.is_empty() or nodes.is_empty():
        return [Figure(CPU, "vCPU a GPU, asked", None, None, None, "", "21.4", UNKNOWN)]
    pool = by_pool(run)
    short = pool.filter(pl.col("asked") > pl.col("offered"))["pool"].to_list()
    found = YES if short else NO
    asked, offered = float(asks.select(_ASKED).item()), float(nodes.select(_OFFERED).item())
    where = f": more than offered in {', '.join(short)}" if short else ""
    return [
        Figure(CPU, f"vCPU a GPU, asked{where}", asked, asked, asked, "", "21.4; of 8-GPU nodes 22.8", found),
        Figure(CPU, "vCPU a GPU, offered", offered, offered, offered, "", "23.2; by 8-GPU nodes 12.0", found),
        _stranded(run, held, asks),
    ]


def by_pool(run: SimResult) -> pl.DataFrame:
    """CPUs for each GPU: what an instance that may run on a pool asks for, all of them together, and what it offers."""
    nodes = run.cluster.frame.filter(pl.col("gpus") > 0).group_by(pl.col("gpu_type").alias("pool"))
    offered = nodes.agg(gpus=pl.col("gpus").cast(pl.Int64).sum(), offered=_OFFERED).sort("pool")
    asks, types = run.world.frame.filter(pl.col("gpu_milli") > 0), pl.col("gpu_types")
    mine = [asks.filter((types.list.len() == 0) | types.list.contains(name)) for name in offered["pool"]]
    asked = pl.concat([part.select(jobs=pl.len(), asked=_ASKED, together=_IN_ALL) for part in mine])
    found = pl.concat([offered, asked.with_columns(pl.col("asked", "together").fill_nan(None))], how="horizontal")
    return found.select("pool", "gpus", "jobs", "asked", "together", "offered")


def _stranded(run: SimResult, held: pl.DataFrame, asks: pl.DataFrame) -> Figure:
    """GPUs that are free on nodes with less CPU free than the median GPU instance asks for, while jobs come."""
    usual = float(np.quantile(np.repeat(asks["cpu_milli"].to_numpy(), asks["instances"].to_numpy()), 0.5))
    nodes = run.cluster.frame
    gpus, cpus = nodes["gpus"].to_numpy() * float(WHOLE), nodes["cpu_milli"].to_numpy().astype(np.float64)
    at, start, end = (held[c].to_numpy() for c in ("at", "start", "end"))
    milli, cpu = held["gpu_milli"].to_numpy(), held["cpu_milli"].to_numpy()
    shares = []
    for now in np.linspace(0.0, float(run.jobs["submit"].max() or 0.0), INSTANTS + 2)[1:-1]:  # type: ignore[arg-type]
        on = np.flatnonzero((start <= now) & (end > now))
        free = gpus - np.bincount(at[on], weights=milli[on], minlength=len(gpus))
        idle = cpus - np.bincount(at[on], weights=cpu[on], minlength=len(gpus))
        shares.append(float(free[idle < usual].sum() / gpus.sum()))
    mean = over_runs(shares)
    low, high = mean.between()
    what = f"GPUs free on nodes with less than {usual / 1000:g} vCPU free"
    told = (mean.value, max(low, 0.0), min(high, 1.0))
    return _percent(CPU, what, told, "", YES if mean.value > 0.01 else NO)
