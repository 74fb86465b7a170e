"""Results of "MLaaS in the Wild" (Weng et al., NSDI 2022) on policies, repeated on the built-in trace.

The trace is made from the paper's statistics, not from its rows: signs and sizes of effects can be compared, but not
what depends on how well users and groups predict runtimes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Trace, Workload
from fleetlab.core.history import past_mean
from fleetlab.core.progress import Progress
from fleetlab.sim import simulate
from fleetlab.stats import mean_of_runs
from fleetlab.studies.validate.line import Line
from fleetlab.traces import synthesize

SEEDS = 4
JOBS = 110_000
CORES = 23_220  # CPU milli a GPU, as the authors' released simulator has it
ANY = pl.lit([], dtype=pl.List(pl.String))
HISTORY = {"user": [["user"], []], "group": [["user", "group"], ["user"], []]}
# Of the run that comes with their simulator, 20,000 jobs on 6,500 GPUs: mean JCT over mean runtime.
DEMO = {"fifo": 1.572, "user": 1.246, "group": 1.205, "oracle": 1.189}
DEMO_RUN = "PAI, 20,000 jobs on 6,500 GPUs"
PREDICTS_LESS = "users and groups of the built-in trace predict runtimes less well"

Found = dict[str, float]


def compare(*, seed: int, progress: Progress) -> list[Line]:
    """Compare SJF, sharing, and reserve-and-pack, each over seeds."""
    seeds = range(seed, seed + SEEDS)
    studies: list[Callable[[Trace, int], Found]] = [_demo, _tight, _reserving, _sharing]
    runs: list[Found] = []
    for k, one in enumerate(seeds):
        runs.append({})
        trace = synthesize("pai2020", jobs=JOBS, seed=one)
        for j, study in enumerate(studies):
            runs[-1] |= study(trace, one)
            done = k * len(studies) + j + 1
            progress("policies on PAI", done, done / (SEEDS * len(studies)))
    return [
        Line(p.case, name, p.number, mean_of_runs([run[name] for run in runs]), near=p.near, why=p.why, counts=p.counts)
        for name, p in PUBLISHED.items()
    ]  # fmt: skip


# -- shortest job first ------------------------------------------------------------------------------------------------


def _pool(gpus: int) -> Cluster:
    # The authors have one pool without cards: a share is a part of the pool. A scalar resource of one node is that.
    node = {"node": "pool", "gpus": 0, "cpu_milli": CORES * gpus, "memory_mib": 0, "rdma_milli": 1000 * gpus}
    return Cluster.of(pl.DataFrame([node]), source="one pool")


def _history_mean(frame: pl.DataFrame, finest_first: list[list[str]]) -> pl.Series:
    """Return the mean runtime of jobs that ended before each submission: of the same group, or the next wider one."""
    estimate = pl.Series([None] * frame.height, dtype=pl.Float64)
    for keys in finest_first:
        estimate = estimate.fill_null(past_mean(frame, keys))
    return estimate.fill_null(0.0)


def _burst(frame: pl.DataFrame) -> Workload:
    # Their default: a thousand jobs every minute, in the order of the log.
    submit = pl.Series(np.arange(frame.height) // 1000 * 60.0)
    return Workload.of(
        frame.with_columns(submit=submit, rdma_milli="gpu_milli")
        .select("submit", "runtime", "instances", "cpu_milli", "rdma_milli"),
        source="a burst",
    )  # fmt: skip


def _completion(workload: Workload, gpus: int, *, order: str = "fifo", estimate: str | pl.Series = "oracle") -> float:
    jobs = simulate(workload, _pool(gpus), backfill="greedy", order=order, estimate=estimate).jobs
    return float(jobs["jct"].mean())  # type: ignore[arg-type]


def _known(trace: Trace) -> pl.DataFrame:
    return trace.workload.frame.filter(pl.col("runtime").is_not_null())


def _demo(trace: Trace, seed: int) -> Found:
    """Repeat the example of the authors' simulator."""
    frame = _known(trace)
    frame = frame.with_columns(**{f"by {name}": _history_mean(frame, keys) for name, keys in HISTORY.items()})
    frame = frame.sample(20_000, seed=seed).sort("submit")
    burst, mean = _burst(frame), float(frame["runtime"].mean())  # type: ignore[arg-type]
    mean_jct = {"fifo": _completion(burst, 6500), "oracle": _completion(burst, 6500, order="sjf")}
    mean_jct |= {name: _completion(burst, 6500, order="sjf", estimate=frame[f"by {name}"]) for name in HISTORY}
    return {_by(name): mean_jct[name] / mean for name in DEMO}


def _by(name: str) -> str:
    return "mean JCT over mean runtime, FIFO" if name == "fifo" else f"mean JCT over mean runtime, SJF by {name}"


def _tight(trace: Trace, seed: int) -> Found:
    """Return by how much SJF lowers the mean JCT where capacity is short."""
    burst = _burst(_known(trace).sample(70_000, seed=seed).sort("submit"))
    return {"reduction of mean JCT by SJF": 1 - _completion(burst, 3000, order="sjf") / _completion(burst, 3000)}


# -- reserving and packing -----------------------------------------------------------------------------------------


def _reserving(trace: Trace, _seed: int) -> Found:
    """Load balancing against keeping V100s for those that need one, at twice the trace's rate.

    The rate is the one number that is fitted: about as many V100 jobs start at once under load balancing as published.
    """
    assert trace.cluster is not None
    needs = pl.col("gpu_types").list.first().is_in(["V100", "V100M32"]).fill_null(value=False)
    frame = trace.workload.frame.with_columns(
        gpu_types=pl.when(needs).then("gpu_types").otherwise(ANY), submit=pl.col("submit") / 2
    )
    workload = Workload.of(frame.drop("start", "end"), source="twice as fast")
    balanced, kept = (_waits(workload, trace.cluster, placement) for placement in ("worst_fit", "reserve_and_pack"))
    return {
        "V100 jobs that start at once, balanced": balanced[2],
        "reduction of V100 waits": 1 - kept[1] / balanced[1],
        "reduction of all waits": 1 - kept[0] / balanced[0],
    }


def _waits(workload: Workload, cluster: Cluster, placement: str) -> tuple[float, float, float]:
    """Mean waits of GPU jobs, and of those of them that need a V100; and how many of these wait a second at most."""
    jobs = simulate(workload, cluster, placement=placement).jobs.filter(pl.col("gpu_milli") > 0)
    picky = jobs.filter(pl.col("gpu_types").list.len() > 0)["wait"]
    return float(jobs["wait"].mean()), float(picky.mean()), float((picky <= 1).mean())  # type: ignore[arg-type]


# -- sharing -------------------------------------------------------------------------------------------------------


def _sharing(trace: Trace, _seed: int) -> Found:
    """Return the GPUs saved by fractional requests, on a cluster large enough for all jobs."""
    assert trace.cluster is not None
    workload = Workload.of(trace.workload.frame.head(30_000), source="a day and a half")
    copies = [trace.cluster.frame.with_columns(node=pl.col("node") + f"/{k}") for k in range(3)]
    cluster = Cluster.of(pl.concat(copies), source="three of each")
    used = [_used(workload, cluster, sharing) for sharing in ("fractional", "exclusive")]
    return {"GPUs saved by sharing": 1 - used[0] / used[1]}


def _used(workload: Workload, cluster: Cluster, sharing: str) -> float:
    line = simulate(workload, cluster, sharing=sharing).timeline(every=900.0)
    span = float(workload.frame["submit"].max())  # type: ignore[arg-type]
    later = line.filter((pl.col("gpu_type") == "all") & pl.col("time").is_between(span / 4, span))
    return float(later["used"].mean())  # type: ignore[arg-type]


class Published(NamedTuple):
    """What the paper, or the simulator of its authors, reports of a metric."""

    case: str
    number: float
    near: float = 0.1
    why: str = ""
    counts: bool = True


RESERVING = "PAI, reserving and packing"
PUBLISHED: dict[str, Published] = {
    _by("fifo"): Published(DEMO_RUN, DEMO["fifo"]),
    _by("user"): Published(DEMO_RUN, DEMO["user"], 0.05, PREDICTS_LESS, counts=False),
    _by("group"): Published(DEMO_RUN, DEMO["group"], 0.1, PREDICTS_LESS, counts=False),
    _by("oracle"): Published(DEMO_RUN, DEMO["oracle"]),
    "reduction of mean JCT by SJF": Published("PAI, 70,000 jobs on 3,000 GPUs", 0.78, 0.15),
    "V100 jobs that start at once, balanced": Published(
        RESERVING, 0.489, 0.1, "at twice the arrival rate", counts=False
    ),
    "reduction of V100 waits": Published(RESERVING, 0.68),
    "reduction of all waits": Published(
        RESERVING, 0.45, 0.1, "here nearly all jobs that wait need a V100", counts=False
    ),
    "GPUs saved by sharing": Published(
        "PAI, sharing", 0.5, 0.1, "the fractions of the built-in trace allow at most 45 %", counts=False
    ),
}
