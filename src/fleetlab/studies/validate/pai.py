"""PAI (Alibaba 2020): the last instances of its log on their machines, and the laws of a sample of its jobs.

The instances show how many run at once and on how many machines, compared with a simulation at the same times.
They cannot show waiting: the table has neither requests nor submissions. The sample of 60,105 jobs shows the laws
behind the built-in trace; its arrivals are starts, and its runtimes end at 48 hours.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Workload
from fleetlab.sim import simulate
from fleetlab.stats import BlockBootstrap, Floats, Statistic, mean_of_runs
from fleetlab.studies.validate.busy_nodes import allocations, busy_nodes, running
from fleetlab.studies.validate.line import Line, independent, paired
from fleetlab.traces import read, synthesize

FOLDER = "alibaba-pai-v2020"
TAIL = "instance_table_tail/pai_instance_table.tail27587.full.csv.gz"
SAMPLE = "task_sample_60105/alibaba_trace_sub.csv"
SPEC = "pai_machine_spec.csv"
CLAMP = 172_800.0  # seconds: the sample's runtimes end there
DAY, HOUR = 86_400.0, 3600.0
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
CAN = (
    "PAI: the tail of the instance table has no requests and no submissions. It shows how many run at once and on how "
    "many machines, not waiting. The sample of jobs shows distributions of runtimes and of arrivals (starts)"
)


def compare(data: Path, *, seed: int) -> tuple[list[Line], list[str]]:
    """Compare instances and machines per hour, and runtimes and arrivals with those of the built-in trace."""
    tail = _tail(data / FOLDER)
    sample = pl.read_csv(data / FOLDER / SAMPLE)
    made = synthesize("pai2020", jobs=200_000, seed=seed)
    return [*_instances(*tail), *_run_times(sample, made.workload), *_arrivals(sample, made.workload)], [CAN]


# -- instances on machines -----------------------------------------------------------------------------------------


def _tail(folder: Path) -> tuple[pl.DataFrame, Cluster]:
    """Return instances with a machine and both times, and the machines."""
    # The trace must outlive its placements, which lie on disk.
    trace, cluster = read(folder / TAIL, "pai2020"), read(folder / SPEC, "pai2020").cluster
    assert trace.placements is not None
    assert cluster is not None
    rows = trace.placements.select(pl.col("node").cast(pl.String), "start", "end").drop_nulls().collect()
    rows = rows.filter(pl.col("end") > pl.col("start")).join(cluster.frame.select("node", "gpu_type"), on="node")
    return rows.sort("start").with_columns(pl.col("start", "end") - rows["start"].min()), cluster


def _instances(rows: pl.DataFrame, cluster: Cluster) -> list[Line]:
    """Simulate them at their own times on machines of the same type; each requests a small fraction of a GPU."""
    some = pl.col("gpu_type").is_not_null()
    workload = Workload.of(
        rows.select(
            submit="start", runtime=pl.col("end") - pl.col("start"), cpu_milli=pl.lit(1000),
            gpu_milli=pl.when(some).then(100).otherwise(0),
            gpu_types=pl.when(some).then(pl.concat_list("gpu_type")).otherwise([]),
        ),
        source="pai instances",
    )  # fmt: skip
    hours = np.arange(HOUR, float(rows["end"].quantile(0.99) or HOUR), HOUR)
    nodes, count, lines = busy_nodes(rows, hours), running(rows, hours), []
    why = "placement in the log depends on what else ran there, and on services with fixed machines"
    for placement in ("worst_fit", "random", "best_fit"):
        mine = allocations(simulate(workload, cluster, placement=placement))
        case = f"PAI, tail of instances, {placement}"
        lines += [
            Line(case, "instances at a full hour", float(count.mean()), paired(running(mine, hours), count)),
            Line(case, "machines at a full hour", float(nodes.mean()), paired(busy_nodes(mine, hours), nodes),
                 near=0.05, why=why, counts=False),
        ]  # fmt: skip
    return lines


# -- laws of jobs -------------------------------------------------------------------------------------------------


def _run_times(sample: pl.DataFrame, made: Workload) -> list[Line]:
    """Quantiles of completed GPU jobs."""
    mine = made.frame.filter((pl.col("gpu_milli") > 0) & (pl.col("status") == "completed"))
    real, ours = sample["service_sec"].to_numpy(), np.minimum(mine["runtime"].to_numpy(), CLAMP)
    lines = []
    for share in SHARES:
        there, here = (BlockBootstrap.of_series(len(x)).quantile(x, share) for x in (real, ours))
        lines.append(
            Line("PAI, sample of jobs, runtime", f"P{100 * share:g}, s", there.value, independent(here, there),
                 near=0.15, why="made from statistics of all jobs, not from this sample", counts=False)
        )  # fmt: skip
    return lines


def _arrivals(sample: pl.DataFrame, made: Workload) -> list[Line]:
    """Compare the shares of arrivals at the peaks (midnight, before noon) and in the quiet hours before dawn.

    The sample has no time of day: its offset is fitted.
    """
    gpu = made.frame.filter(pl.col("gpu_milli") > 0)
    ours = gpu["submit"].to_numpy() + (made.epoch or 0.0) + 8 * HOUR
    real = sample["arrival_s"].to_numpy()
    real = real + HOUR * _shift(real, ours)
    lines = []
    for name, hours in (("0 to 1 h", (0,)), ("10 to 12 h", (10, 11)), ("3 to 6 h", (3, 4, 5))):
        there, here = _daily(real, hours), _daily(ours, hours)
        lines.append(
            Line("PAI, sample of jobs, arrivals", f"share of the day, {name}", there.value, independent(here, there),
                 near=0.15, why="its arrivals are starts, after waiting", counts=False)
        )  # fmt: skip
    return lines


def _shift(real: Floats, ours: Floats) -> int:
    """Return the shift in hours with the highest correlation of the two daily patterns."""
    days = [np.bincount((x % DAY // HOUR).astype(np.int64), minlength=24) for x in (real, ours)]
    return int(np.argmax([np.corrcoef(np.roll(days[0], k), days[1])[0, 1] for k in range(24)]))


def _daily(times: Floats, hours: tuple[int, ...]) -> Statistic:
    """Return the share of arrivals in some hours, as a mean over days, because arrivals are bursty."""
    day = (times // DAY).astype(np.int64)
    inside = np.isin(times % DAY // HOUR, hours)
    days = np.unique(day)[1:-1]  # the first and the last are not whole
    return mean_of_runs([float(inside[day == d].mean()) for d in days])
