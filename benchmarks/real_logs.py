"""Real logs beside simulations of their jobs, and their audits: `python -m benchmarks.real_logs FOLDER [SEED]`.

The folder has the public traces as their owners published them. What each can show, and what it cannot:

- DLRM 2025 (Alibaba), instances of recommendation services: the simulation has as many instances as the log, hour by
  hour, and some delays are not due to a lack of capacity on an assumed cluster of the size of its peak. It cannot show
  waiting for nodes, as none are published.
- openb (Alibaba 2023), pods on a nearly idle cluster: how long a scheduler takes when resources are free. It cannot
  show waiting: at the recorded times the pods never need more than 1 % of the GPUs.
- PAI (Alibaba 2020), the last instances of its log on their machines: how many run at once and on how many machines.
  The table has neither requests nor submissions. A sample of 60,105 jobs shows the laws behind the built-in trace; its
  arrivals are starts, and its runtimes end at 48 hours.
- Philly (Microsoft 2017), jobs on their virtual clusters, beside the active nodes per minute: whether the simulated
  cluster is busy when the real one was, not by how many nodes. The job list is a conversion with a part of the jobs
  (82,248 of 117,325), it does not say which nodes a job had, and 420 nodes were counted where the virtual clusters have
  352.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from fleetlab import Cluster, Provenance, Workload, audit
from fleetlab._screen import show
from fleetlab.core.steps import Steps
from fleetlab.sim import SimResult, simulate
from fleetlab.stats import BlockBootstrap, Floats, Statistic, batch_means, divide, mean_of_runs
from fleetlab.studies.validate import Validation
from fleetlab.studies.validate.line import Line, independent
from fleetlab.studies.validate.validation import log_lines
from fleetlab.traces import read, synthesize


def paired(simulated: Floats, recorded: Floats) -> Statistic:
    """Return the simulated mean with the error of its difference from the recorded one, in order of time.

    Both rise and fall together, so that the interval of either alone would be too wide.
    """
    return replace(batch_means(simulated - recorded), value=float(simulated.mean()) if len(simulated) else math.nan)


# -- nodes that run something ------------------------------------------------------------------------------------------


def allocations(result: SimResult) -> pl.DataFrame:
    """Return node, start and end of every simulated instance."""
    times = result.jobs.select("job", "start", "end")
    return result.placements.select("job", "node").join(times, on="job").select("node", "start", "end")


def running(rows: pl.DataFrame, times: Floats) -> Floats:
    """Return how many rows have started and not ended."""
    return Steps.of(rows["start"].to_numpy(), rows["end"].to_numpy(), np.ones(rows.height)).at(times)


def busy_nodes(rows: pl.DataFrame, times: Floats) -> Floats:
    """Return how many nodes run something, from the intervals in which a node is never empty."""
    ordered = rows.sort("node", "start")
    # An interval begins where nothing that started earlier on this node is still running.
    before = pl.col("end").cum_max().shift(1).over("node")
    interval = (pl.col("start") > before).fill_null(value=True).cum_sum().over("node")
    intervals = (
        ordered.with_columns(interval=interval)
        .group_by("node", "interval")
        .agg(pl.col("start").min(), pl.col("end").max())
    )
    return running(intervals, times)


# -- DLRM 2025 ---------------------------------------------------------------------------------------------------------

DLRM_FOLDER = "alibaba-dlrm-v2025"
DLRM_FILE = "disaggregated_DLRM_trace.csv"
HOUR, MINUTE = 3600.0, 60.0
SPARE = 1.1  # of the peak, in nodes: rules about instances of one runtime on a node need some spare nodes
DLRM_LIMITS = (
    "DLRM 2025: no nodes are published; the replay is on an assumed cluster of 110 % of the peak. It shows "
    "concurrency, and which delays are not due to capacity; it cannot show waiting for nodes"
)


def compare_dlrm(data: Path, *, seed: int) -> tuple[list[Line], list[str]]:
    """Compare instances per hour by role, and mean delays by role and by placement rule."""
    trace = read(data / DLRM_FOLDER / DLRM_FILE, "dlrm2025")
    log = trace.workload.frame
    horizon = float(pl.concat([log["start"], log["end"]]).max())  # type: ignore[arg-type]
    jobs = _alive(log, horizon)
    simulated = simulate(trace, _peak_cluster(jobs)).jobs.select("job", "wait", simulated="start", until="end")
    both = jobs.join(simulated, on="job", maintain_order="left")
    hours = np.arange(HOUR, horizon, HOUR)
    lines = [line for role in ("CN", "HN") for line in _concurrency(role, both, hours)]
    started = both.filter(pl.col("start").is_not_null() & ~pl.col("initial"))
    rules = [("role", pl.col("group").cast(pl.String)), ("rule", _rule())]
    for what, key in rules:
        parts = started.with_columns(key=key).partition_by("key", as_dict=True)
        lines += [line for (name,), part in sorted(parts.items()) for line in _delay(f"{what} {name}", part)]
    return lines, [DLRM_LIMITS]


def _alive(log: pl.DataFrame, horizon: float) -> pl.DataFrame:
    """Instances with a life inside the log: those that are older begin with it, those that outlive it end with it."""
    frame = log.filter(pl.col("start").is_not_null() | pl.col("initial"))
    return frame.with_columns(begin=pl.col("start").fill_null(0.0), stop=pl.col("end").fill_null(horizon))


def _peak_cluster(jobs: pl.DataFrame) -> Cluster:
    """Nodes for each role, as many as its peak needs of its scarcest resource, with some to spare."""
    frames = []
    for role, gpus in (("CN", 0), ("HN", 8)):
        mine = jobs.filter(pl.col("group").cast(pl.String) == role)
        node = {c: _largest(mine, c) * 8 for c in ("cpu_milli", "memory_mib", "disk_mib", "rdma_milli")}
        most = max(_peak(mine, c) / size for c, size in node.items() if size)
        count = int(np.ceil(SPARE * max(most, _peak(mine, "gpu_milli") / (1000 * gpus) if gpus else 0.0)))
        row = {"pool": role, "gpu_type": "GPU" if gpus else None, "gpus": gpus, **node}
        frames += [
            pl.DataFrame({"node": f"{role}-{k}", **row}, schema_overrides={"gpu_type": pl.String}) for k in range(count)
        ]
    return Cluster.of(pl.concat(frames), source="110 % of the peak")


def _largest(jobs: pl.DataFrame, column: str) -> int:
    return int(jobs[column].quantile(0.9, "higher") or 0)


def _peak(jobs: pl.DataFrame, column: str) -> float:
    return Steps.of(jobs["begin"].to_numpy(), jobs["stop"].to_numpy(), jobs[column].cast(pl.Float64).to_numpy()).peak


def _concurrency(role: str, both: pl.DataFrame, hours: Floats) -> list[Line]:
    """Instances at each full hour, recorded and simulated."""
    mine = both.filter(pl.col("group").cast(pl.String) == role)
    recorded = running(mine.select(start="begin", end="stop"), hours)
    simulated = running(mine.select(start="simulated", end="until"), hours)
    name = f"DLRM 2025, {role}"
    return [Line(name, "instances at a full hour", float(recorded.mean()), paired(simulated, recorded), near=0.01)]


def _delay(name: str, part: pl.DataFrame) -> list[Line]:
    """Compare simulated delays with those of the log, of the same instances; ten instances have half of all delay."""
    both = (part["start"] - part["submit"]).to_numpy(), part["wait"].to_numpy()
    long = tuple((delay > MINUTE).astype(np.float64) for delay in both)
    why = "the assumed cluster has free capacity: delays are the scheduler's latency, or missing nodes"
    lines = []
    for metric, (recorded, simulated) in (("mean delay, s", both), ("share that waits over a minute", long)):
        mean = replace(_by_service(part, simulated - recorded), value=float(simulated.mean()))
        lines.append(Line(f"DLRM 2025, {name}", metric, float(recorded.mean()), mean, why=why, counts=False))
    return lines


def _by_service(part: pl.DataFrame, delay: Floats) -> Statistic:
    """Return a mean by a bootstrap over services, within which instances are correlated."""
    services, index = np.unique(part["app"].cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
    return BlockBootstrap.of_units(index, len(services)).mean(delay)


def _rule() -> pl.Expr:
    most = pl.col("max_per_node")
    return pl.when(most == 0).then(pl.lit("no limit")).otherwise(most.cast(pl.String) + " a node")


# -- openb 2023 --------------------------------------------------------------------------------------------------------

OPENB_FOLDER = "alibaba-openb-v2023"
OPENB_PODS = "openb_pod_list_default.csv"
OPENB_LIMITS = "openb 2023: a nearly idle cluster. It shows the scheduler's own latency, not waiting for GPUs"


def compare_openb(data: Path, *, seed: int) -> tuple[list[Line], list[str]]:
    """Compare recorded delays with simulated waits."""
    trace = read(data / OPENB_FOLDER / OPENB_PODS, "openb2023")
    assert trace.cluster is not None
    jobs = simulate(trace.workload, trace.cluster).jobs
    log = trace.workload.frame.select("job", recorded=pl.col("start") - pl.col("submit"))
    both = jobs.select("job", "wait", "gpu_milli").join(log.drop_nulls(), on="job").sort("job")
    delay, wait = both["recorded"].to_numpy(), both["wait"].to_numpy()
    why = "the log's delays are the scheduler's latency: the simulator decides at once"
    lines = [
        Line("openb 2023, all pods", "mean delay, s", float(delay.mean()), paired(wait, delay), why=why, counts=False),
        Line("openb 2023, all pods", "share of pods that wait", 0.0, batch_means((wait > 0).astype(np.float64))),
    ]
    return lines, [OPENB_LIMITS]


# -- PAI ---------------------------------------------------------------------------------------------------------------

PAI_FOLDER = "alibaba-pai-v2020"
PAI_TAIL = "instance_table_tail/pai_instance_table.tail27587.full.csv.gz"
PAI_SAMPLE = "task_sample_60105/alibaba_trace_sub.csv"
PAI_MACHINES = "pai_machine_spec.csv"
CLAMP = 172_800.0  # seconds: the sample's runtimes end there
DAY = 86_400.0
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
PAI_LIMITS = (
    "PAI: the tail of the instance table has no requests and no submissions. It shows how many run at once and on how "
    "many machines, not waiting. The sample of jobs shows distributions of runtimes and of arrivals (starts)"
)


def compare_pai(data: Path, *, seed: int) -> tuple[list[Line], list[str]]:
    """Compare instances and machines per hour, and runtimes and arrivals with those of the built-in trace."""
    tail = _tail(data / PAI_FOLDER)
    sample = pl.read_csv(data / PAI_FOLDER / PAI_SAMPLE)
    synthetic = synthesize("pai2020", jobs=200_000, seed=seed)
    return [*_instances(*tail), *_run_times(sample, synthetic.workload), *_arrivals(sample, synthetic.workload)], [
        PAI_LIMITS
    ]


# -- instances on machines -----------------------------------------------------------------------------------------


def _tail(folder: Path) -> tuple[pl.DataFrame, Cluster]:
    """Return instances with a machine and both times, and the machines."""
    # The trace must outlive its placements, which lie on disk.
    trace, cluster = read(folder / PAI_TAIL, "pai2020"), read(folder / PAI_MACHINES, "pai2020").cluster
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


def _run_times(sample: pl.DataFrame, synthetic: Workload) -> list[Line]:
    """Quantiles of completed GPU jobs."""
    mine = synthetic.frame.filter((pl.col("gpu_milli") > 0) & (pl.col("status") == "completed"))
    real, ours = sample["service_sec"].to_numpy(), np.minimum(mine["runtime"].to_numpy(), CLAMP)
    lines = []
    for share in SHARES:
        there, here = (BlockBootstrap.of_series(len(x)).quantile(x, share) for x in (real, ours))
        lines.append(
            Line("PAI, sample of jobs, runtime", f"P{100 * share:g}, s", there.value, independent(here, there),
                 near=0.15, why="made from statistics of all jobs, not from this sample", counts=False)
        )  # fmt: skip
    return lines


def _arrivals(sample: pl.DataFrame, synthetic: Workload) -> list[Line]:
    """Compare the shares of arrivals at the peaks (midnight, before noon) and in the quiet hours before dawn.

    The sample has no time of day: its offset is fitted.
    """
    gpu = synthetic.frame.filter(pl.col("gpu_milli") > 0)
    ours = gpu["submit"].to_numpy() + (synthetic.epoch or 0.0) + 8 * HOUR
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


# -- Philly ------------------------------------------------------------------------------------------------------------

PHILLY_FOLDER = "philly"
PHILLY_GPUS = 8  # of a node
MINUTES_A_DAY = 1440  # minutes
WARM = 7 * 86_400.0  # seconds: jobs older than the list are missing: its first days are too empty
PHILLY_LIMITS = (
    "Philly: the list has a part of the jobs and no nodes. It shows whether the simulated cluster is busy when the "
    "real one was, not by how many nodes; the number of active nodes depends on placement"
)


def compare_philly(data: Path, *, seed: int) -> tuple[list[Line], list[str]]:
    """Compare simulated and recorded active nodes per minute: their mean, and their correlation."""
    records, cluster, left_out = _read_philly(data / PHILLY_FOLDER)
    log = pl.read_csv(data / PHILLY_FOLDER / "philly_node_sequence.csv", try_parse_dates=True).sort("time")
    zero = records["timestamp"].min()
    workload = Workload.of(philly_jobs(records), source="philly_sia_82k")
    seconds = (log["time"] - zero).dt.total_seconds().to_numpy().astype(np.float64)
    warm = seconds >= WARM
    recorded = log["active"].cast(pl.Float64).to_numpy()[warm]
    lines = []
    for placement in ("best_fit", "spread"):
        active = busy_nodes(allocations(simulate(workload, cluster, placement=placement)), seconds[warm])
        lines += _active_nodes(placement, recorded, active)
    note = f"Philly: {left_out} jobs are left out: damaged rows, or virtual clusters of unknown size"
    return lines, [PHILLY_LIMITS, note]


def _read_philly(folder: Path) -> tuple[pl.DataFrame, Cluster, int]:
    sizes = pl.read_csv(folder / "philly_vc.csv")
    raw = pl.read_csv(folder / "philly_sia_82k.csv", try_parse_dates=True)
    records = raw.drop_nulls().filter(pl.col("cluster").is_in(sizes["vc"].to_list())).sort("timestamp")
    # A virtual cluster is modeled as a GPU type that its jobs request.
    nodes = [
        {"node": f"{vc}-{k}", "pool": vc, "gpu_type": vc, "gpus": PHILLY_GPUS}
        for vc, count in sizes.iter_rows()
        for k in range(count)
    ]
    return records, Cluster.of(pl.DataFrame(nodes), source="philly_vc"), raw.height - records.height


def philly_jobs(records: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs; more GPUs than a node has are a gang of whole nodes, or of single GPUs."""
    count = pl.col("num_gpus")
    whole = (count > PHILLY_GPUS) & (count % PHILLY_GPUS == 0)
    each = pl.when(whole).then(PHILLY_GPUS).when(count > PHILLY_GPUS).then(1).otherwise(count)
    return records.select(
        submit=(pl.col("timestamp") - pl.col("timestamp").min()).dt.total_seconds().cast(pl.Float64),
        runtime="duration",
        instances=(count // each).cast(pl.Int32),
        gpu_milli=(each * 1000).cast(pl.Int32),
        gpu_types=pl.concat_list("cluster"),
    )


def _active_nodes(placement: str, recorded: Floats, active: Floats) -> list[Line]:
    case = f"Philly, {placement}"
    whole = len(recorded) // MINUTES_A_DAY * MINUTES_A_DAY
    days = [x[:whole].reshape(-1, MINUTES_A_DAY).mean(axis=1) for x in (recorded, active)]
    level = replace(mean_of_runs(_weeks(days[1] - days[0])), value=float(active.mean()))
    why = "a part of the jobs, on nodes that the list does not name"
    return [
        Line(case, "active nodes, mean", float(recorded.mean()), level, why=why, counts=False),
        Line(case, "daily means, correlation", 1.0, _correlation(days[0], days[1]), why=why, counts=False),
    ]


def _weeks(days: Floats) -> Floats:
    """Return means of seven days, because consecutive days are autocorrelated."""
    whole = len(days) // 7 * 7
    return np.asarray(days[:whole].reshape(-1, 7).mean(axis=1))


def _correlation(one: Floats, other: Floats) -> Statistic:
    """Return Pearson's correlation, with a bootstrap over weeks."""
    weeks = BlockBootstrap.of_units(np.arange(len(one)) // 7, -(-len(one) // 7))
    n, x, y, xx, yy, xy = (
        weeks.totals(weeks.sums(v)) for v in (np.ones(len(one)), one, other, one**2, other**2, one * other)
    )
    spread = np.sqrt(np.maximum((n * xx - x**2) * (n * yy - y**2), 0.0))
    return weeks.replicates(divide(n * xy - x * y, spread)).statistic((-1.0, 1.0))


# -- audits ------------------------------------------------------------------------------------------------------------


def compare_audits(data: Path) -> list[Line]:
    """Count what is not feasible in two logs, and compare recorded with simulated waits where a log has both."""
    pods = audit(read(data / OPENB_FOLDER / OPENB_PODS, "openb2023"))
    # Its table has no requests: only nodes can be checked.
    tail, machines = (read(data / PAI_FOLDER / name, "pai2020") for name in (PAI_TAIL, PAI_MACHINES))
    instances = audit(replace(tail, cluster=machines.cluster))
    why = "the waits of pods are the scheduler's latency"
    return [*log_lines("openb 2023", pods, why), *log_lines("PAI, tail of instances", instances, "")]


COMPARISONS: dict[str, Callable[..., tuple[list[Line], list[str]]]] = {
    "Philly": compare_philly, "DLRM 2025": compare_dlrm, "openb 2023": compare_openb, "PAI": compare_pai,
}  # fmt: skip


def compare(data: Path, *, seed: int = 0) -> Validation:
    """Compare with all logs."""
    parts = [compare_log(data, seed=seed) for compare_log in COMPARISONS.values()]
    lines = {"real": [line for some, _ in parts for line in some], "audit": compare_audits(data)}
    notes = tuple(note for _, some in parts for note in some)
    return Validation(lines, Provenance("real logs", data.name, {}, seed), notes)


def main() -> None:
    """Print the lines of all logs; status 1 if one that counts differs."""
    result = compare(Path(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    show(result, most=1000)
    sys.exit(0 if result.passed else 1)


if __name__ == "__main__":
    main()
