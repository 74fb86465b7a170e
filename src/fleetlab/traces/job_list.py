"""The job lists of Helios and Acme: one row a job, with the words of Slurm's accounting.

`gpu_num` and `cpu_num` are of the whole job. Where its nodes hold the same number of GPUs each, an instance is a node's
part; where they cannot, an instance is one GPU. `duration`, `queue` and `gpu_time` follow from the times (and in one
of the published files do not), so they are not read.

Helios (SenseTime, SC'21): every job of four Slurm clusters from April to September 2020. A virtual cluster (`vc`) has
nodes for its own jobs: it becomes their partition, `queue` and `app`. Jobs that ask for no GPU are kept. No stamp has a
time zone; the clusters stood in China, so they are read on the clock of Shanghai. `cluster_gpu_number.csv`, where it
lies beside the log, tells how many GPUs each virtual cluster had on each day: the series `vc_gpus`. The cluster then
has the most that each had on any day, on nodes of 8 GPUs.

Acme (Shanghai AI Lab, NSDI'24): the jobs of two clusters for large language models, March to August 2023. The `type` of
a job (Pretrain, SFT, Eval, …) becomes its `group`. Stamps carry their offset: +08:00 in Seren, +00:00 in Kalos; the
clock people lived by is that of Shanghai in both. In Kalos, `mem_per_pod_GB` is the memory of one node's part, and
`duration` counts from the submission, whatever its description says: runtimes are end less start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, Trace, TraceError, Workload
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import PEEK, Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, Rule, TableSchema
from fleetlab.traces.input.times import local, with_offset

ZONE = "Asia/Shanghai"
NO_NODES = "the log has no nodes: provide a cluster to simulate it"

# How Slurm says that a job ended, or did not yet, by the words of a workload; every log of Slurm's is read by this.
STATES = {
    "completed": ("COMPLETED",),
    "failed": ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "LAUNCH_FAILED"),
    # It was taken off its nodes, and not for a fault of its own.
    "cancelled": ("CANCELLED", "PREEMPTED", "REVOKED", "REQUEUED"),
    "running": ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "RESIZING", "STOPPED", "SIGNALING", "STAGE_OUT"),
    "waiting": ("PENDING", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
}
STATUS = {state: status for status, states in STATES.items() for state in states}

COLUMNS: dict[str, type[pl.DataType]] = {
    "job_id": pl.String,
    "user": pl.String,
    # Written as 8 or as 8.0, as pandas does where a column has gaps.
    "gpu_num": pl.Float64,
    "cpu_num": pl.Float64,
    "node_num": pl.Float64,
    "state": pl.String,
    "submit_time": pl.String,
    "start_time": pl.String,
    "end_time": pl.String,
}

NO_TIME = ["None", "Unknown", "NaT", "nan", "NaN"]
TIMES = ("submit", "start", "end")
MOST = {"gpu_num": 1_000_000, "node_num": 1_000_000, "cpu_num": 1_000_000_000}


def _null_missing_times(records: pl.DataFrame) -> pl.DataFrame:
    """Where a stamp is a word for no time, let there be nothing; a state is its first word."""
    stamps = [pl.when(pl.col(f"{t}_time").is_in(NO_TIME).not_()).then(pl.col(f"{t}_time")) for t in TIMES]
    # Slurm writes «CANCELLED by 1001».
    return records.with_columns(*stamps, state=pl.col("state").str.strip_chars().str.split(" ").list.first())


def _read_as_time() -> list[Rule]:
    return [
        (f"`{t}_time` is not a time", pl.col(f"{t}_time").is_not_null() & pl.col(t).is_null(), f"{t}_time")
        for t in TIMES
    ]


RULES: list[Rule] = [
    ("no job_id", pl.col("job_id").is_null()),
    ("duplicate job_id", ~pl.col("job_id").is_first_distinct(), "job_id"),
    ("`gpu_num` is missing", pl.col("gpu_num").is_null()),
    *[(f"`{c}` is not a whole number", (pl.col(c).is_finite() & (pl.col(c) % 1 == 0)).not_(), c) for c in MOST],
    *[(f"`{c}` is negative", pl.col(c) < 0, c) for c in MOST],
    *[(f"`{c}` is more than any cluster has", pl.col(c) > most, c) for c, most in MOST.items()],
    ("unknown state", pl.col("state").is_in(list(STATUS)).fill_null(value=False).not_(), "state"),
    *_read_as_time(),
    ("no submit_time", pl.col("submit").is_null()),
    ("started before it was submitted", pl.col("start") < pl.col("submit"), "start_time"),
    ("ended before it was started", pl.col("end") < pl.col("start"), "end_time"),
    ("ended before it was submitted", pl.col("end") < pl.col("submit"), "end_time"),
]


def _read_jobs(
    log: SourceFile,
    table: TableSchema,
    intake: Intake,
    moment: Callable[[str], pl.Expr],
    more_rules: Sequence[Rule] = (),
) -> tuple[pl.DataFrame, float]:
    """Return the jobs of a log, counted from the first submission, and when that was."""
    records = _null_missing_times(intake.table(log, table))
    records = records.with_columns(moment(f"{t}_time").alias(t) for t in TIMES)
    return relative_to_first(_jobs(intake.validate(records, "jobs", log.name, [*RULES, *more_rules])))


def _jobs(records: pl.DataFrame) -> pl.DataFrame:
    """The columns of a workload that both have, times still as they are; `job_id` is kept for `names`."""
    counts = records.with_columns(pl.col(c).cast(pl.Int64) for c in MOST)
    gang = counts.with_columns(instances=_instances(), status=pl.col("state").replace_strict(STATUS))
    ended = pl.col("status").is_in(["running", "waiting"]).not_()
    end = pl.when(ended).then(pl.col("end"))
    return gang.with_columns(
        cpu_milli=pl.col("cpu_num").fill_null(0) * 1000 // pl.col("instances"),
        gpu_milli=pl.col("gpu_num") * 1000 // pl.col("instances"),
        runtime=end - pl.col("start"),
        start=pl.when(pl.col("status") != "waiting").then(pl.col("start")),
        end=end,
    )


def _instances() -> pl.Expr:
    gpus, nodes = pl.col("gpu_num"), pl.col("node_num")
    even = (nodes > 0) & (gpus % nodes == 0)
    return pl.when(even).then(nodes).otherwise(pl.max_horizontal(gpus, 1))


def _missing_cpus(frame: pl.DataFrame) -> list[str]:
    """What to say of jobs whose row did not say all."""
    missing = frame["cpu_num"].null_count()
    return [f"jobs without a number of CPUs, set to 0: {missing:,}"] if missing else []


# -- Helios ----------------------------------------------------------------------------------------------------------

HELIOS_JOBS = TableSchema("jobs", COLUMNS | {"vc": pl.String})
ON_A_NODE = 8  # GPUs
PLENTY = 1_000_000  # milli-CPUs of a node, and MiB: the log does not tell, and they are not what jobs waited for


def read_helios(path: Path, intake: Intake) -> Trace:
    """Read a cluster's `cluster_log.csv` and, beside it or in the same folder, `cluster_gpu_number.csv`."""
    log, sizes = _helios_files(path)
    jobs, zero = _read_jobs(log, HELIOS_JOBS, intake, lambda column: local(column, ZONE))
    workload = Workload.of(_helios_columns(jobs), source="helios", epoch=zero if jobs.height else None, zone=ZONE)
    intake.keep("jobs", len(workload))
    vc_gpus = _vc_gpus(sizes, intake, zero) if sizes else None
    cluster = None if vc_gpus is None else _cluster(vc_gpus)
    return finish(
        intake,
        workload,
        cluster=cluster,
        names=jobs.select(job=pl.int_range(pl.len(), dtype=pl.Int64), name="job_id").lazy(),
        series={} if vc_gpus is None else {"vc_gpus": vc_gpus.lazy()},
        notes=(NO_NODES if cluster is None else _nodes_note(cluster), *_missing_cpus(jobs)),
        settings={"zero": zero},
    )


def _helios_files(path: Path) -> tuple[SourceFile, SourceFile | None]:
    there = sources(path if path.is_dir() else path.parent)
    if not path.is_dir() and SourceFile(path).stem == "cluster_gpu_number":
        msg = f"{path.name}: the sizes of virtual clusters, but no job log"
        raise TraceError(msg, hint="cluster_log.csv of the same cluster is the log; sizes are read from beside it")
    logs = [s for s in there if s.stem == "cluster_log"] if path.is_dir() else [SourceFile(path)]
    if len(logs) != 1:
        msg = f"not one cluster_log.csv in: {path}"
        raise TraceError(msg, hint="name the folder of one cluster (Earth, Saturn, Uranus or Venus), or its log")
    return logs[0], next((s for s in there if s.stem == "cluster_gpu_number"), None)


def _helios_columns(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.select(
        "user", "submit", "runtime", "instances", "cpu_milli", "gpu_milli", "status", "start", "end",
        app="vc", queue="vc", partitions=pl.concat_list("vc").list.drop_nulls(),
    )  # fmt: skip


def _vc_gpus(source: SourceFile, intake: Intake, zero: float) -> pl.DataFrame:
    """One row a day and virtual cluster: the GPUs it had from that midnight on."""
    vcs = [name for name in _header(source) if name.startswith("vc")]
    if not vcs:
        msg = f"{source.name}: no column of a virtual cluster in its first line"
        raise TraceError(msg, hint="it should be date,vc…,vc…,total; move it away to read the log alone")
    table = TableSchema("vc_gpus", {"date": pl.String, **dict.fromkeys(vcs, pl.Int64)})
    days = intake.table(source, table).with_columns(midnight=pl.concat_str("date", pl.lit(" 00:00:00")))
    days = days.with_columns(time=local("midnight", ZONE))
    days = intake.validate(days, "vc_gpus", source.name, _day_rules(vcs))
    intake.keep("vc_gpus", days.height)
    long = days.unpivot(vcs, index="time", variable_name="app", value_name="gpus")
    return long.select(pl.col("time") - zero, "app", pl.col("gpus").cast(pl.Int64)).sort("time", maintain_order=True)


def _cluster(vc_gpus: pl.DataFrame) -> Cluster | None:
    """Nodes of 8 GPUs for each virtual cluster, and a smaller one where they do not come out even."""
    most = vc_gpus.group_by("app", maintain_order=True).agg(pl.col("gpus").max()).filter(pl.col("gpus") > 0)
    nodes = [
        {"node": f"{vc}-{k // ON_A_NODE}", "pool": vc, "partitions": [vc], "gpus": min(ON_A_NODE, gpus - k)}
        for vc, gpus in most.iter_rows()
        for k in range(0, gpus, ON_A_NODE)
    ]
    if not nodes:
        return None
    frame = pl.DataFrame(nodes).with_columns(gpu_type=pl.lit("GPU"), cpu_milli=PLENTY, memory_mib=PLENTY)
    return Cluster.of(frame, source="helios")


def _nodes_note(cluster: Cluster) -> str:
    vcs = cluster.frame["pool"].n_unique()
    return (
        f"the cluster is {cluster.gpus:,} GPUs of {vcs} virtual clusters, each at its largest; CPU is not told: plenty"
    )


def _header(source: SourceFile) -> list[str]:
    with source.open() as stream:
        first = stream.read(PEEK).decode("utf-8-sig", "replace").split("\n", 1)[0]
    return [name.strip().strip('"') for name in first.split(",")]


def _day_rules(vcs: list[str]) -> list[Rule]:
    return [
        ("`date` is not a day", pl.col("time").is_null(), "date"),
        ("duplicate day", ~pl.col("date").is_first_distinct(), "date"),
        *[(f"`{vc}` is missing or negative", (pl.col(vc) < 0).fill_null(value=True), vc) for vc in vcs],
    ]


def _is_helios(peek: Peek) -> bool:
    sizes = any(line.startswith("date,vc") for line in peek.first_lines)
    return sizes or peek.has_columns("job_id", "vc", "gpu_num", "node_num", "state", "submit_time")


HELIOS = Format.of("helios", read_helios, _is_helios)


# -- Acme ------------------------------------------------------------------------------------------------------------

ACME_JOBS = TableSchema(
    "jobs", COLUMNS | {"type": pl.String, "mem_per_pod_GB": pl.Float64}, optional=frozenset({"mem_per_pod_GB"})
)
MEMORY_RULES: list[Rule] = [
    ("`mem_per_pod_GB` is not finite", pl.col("mem_per_pod_GB").is_finite().not_(), "mem_per_pod_GB"),
    ("`mem_per_pod_GB` is negative", pl.col("mem_per_pod_GB") < 0, "mem_per_pod_GB"),
    ("`mem_per_pod_GB` is more than any node has", pl.col("mem_per_pod_GB") > 1e6, "mem_per_pod_GB"),
]
NO_MEMORY = "memory requests are not in the log: set to 0"


def read_acme(path: Path, intake: Intake) -> Trace:
    """Read `trace_seren.csv` or `trace_kalos.csv`, itself or the one that is in the folder."""
    log = _acme_log(path)
    jobs, zero = _read_jobs(log, ACME_JOBS, intake, with_offset, MEMORY_RULES)
    source = f"acme:{log.stem.removeprefix('trace_')}"
    workload = Workload.of(_acme_columns(jobs), source=source, epoch=zero if jobs.height else None, zone=ZONE)
    intake.keep("jobs", len(workload))
    return finish(
        intake,
        workload,
        source=source,
        names=jobs.select(job=pl.int_range(pl.len(), dtype=pl.Int64), name="job_id").lazy(),
        notes=(NO_NODES, *_missing_notes(jobs)),
        settings={"zero": zero},
    )


def _acme_log(path: Path) -> SourceFile:
    logs = (
        [s for s in sources(path) if s.stem in ("trace_seren", "trace_kalos")] if path.is_dir() else [SourceFile(path)]
    )
    if len(logs) > 1:
        msg = f"{path.name}: two separate clusters, read one at a time: Seren, Kalos"
        raise TraceError(msg, hint=f"name one of them: {' or '.join(str(s.path) for s in logs)}")
    if not logs:
        msg = f"neither trace_seren.csv nor trace_kalos.csv in: {path}"
        raise TraceError(msg, hint="they lie in data/job_trace of the published archive")
    return logs[0]


def _acme_columns(jobs: pl.DataFrame) -> pl.DataFrame:
    # A pod is a node's part; where an instance is one GPU instead, the parts are shared out among the GPUs.
    memory = pl.col("mem_per_pod_GB").fill_null(0) * 1024 * pl.max_horizontal("node_num", 1) / pl.col("instances")
    return jobs.select(
        *("user", "submit", "runtime", "instances", "cpu_milli", "gpu_milli", "status", "start", "end"),
        group="type",
        memory_mib=memory.cast(pl.Int64),
    )


def _missing_notes(jobs: pl.DataFrame) -> list[str]:
    missing = jobs["mem_per_pod_GB"].null_count()
    return [*_missing_cpus(jobs), *([NO_MEMORY] if missing and missing == jobs.height else [])]


ACME = Format.of("acme", read_acme)
