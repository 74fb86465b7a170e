"""SenseTime's Helios trace (SC'21): every job of four Slurm clusters from April to September 2020.

A virtual cluster (`vc`) has nodes for its own jobs: it becomes their partition, `queue` and `app`. Jobs that ask for no
GPU are kept. No stamp has a time zone; the clusters stood in China, so they are read on the clock of Shanghai.
`cluster_gpu_number.csv`, where it lies beside the log, tells how many GPUs each virtual cluster had on each day: the
series `vc_gpus`. The cluster then has the most that each had on any day, on nodes of 8 GPUs.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, Trace, TraceError, Workload
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import PEEK, Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, Rule, TableSchema
from fleetlab.traces.input.timestamps import local
from fleetlab.traces.slurm import job_list

ZONE = "Asia/Shanghai"
JOBS = TableSchema("jobs", job_list.COLUMNS | {"vc": pl.String})
NO_NODES = "the log has no nodes: provide a cluster to simulate it"
ON_A_NODE = 8  # GPUs
PLENTY = 1_000_000  # milli-CPUs of a node, and MiB: the log does not tell, and they are not what jobs waited for


def read(path: Path, intake: Intake) -> Trace:
    """Read a cluster's `cluster_log.csv` and, beside it or in the same folder, `cluster_gpu_number.csv`."""
    log, sizes = _files(path)
    records = job_list.null_missing_times(intake.table(log, JOBS))
    records = records.with_columns(local(f"{t}_time", ZONE).alias(t) for t in job_list.TIMES)
    records = intake.validate(records, "jobs", log.name, job_list.RULES)
    jobs, zero = relative_to_first(job_list.jobs(records))
    workload = Workload.of(_columns(jobs), source="helios", epoch=zero if jobs.height else None, zone=ZONE)
    intake.keep("jobs", len(workload))
    vc_gpus = _vc_gpus(sizes, intake, zero) if sizes else None
    cluster = None if vc_gpus is None else _cluster(vc_gpus)
    return finish(
        intake,
        workload,
        source="helios",
        cluster=cluster,
        names=jobs.select(job=pl.int_range(pl.len(), dtype=pl.Int64), name="job_id").lazy(),
        series={} if vc_gpus is None else {"vc_gpus": vc_gpus.lazy()},
        notes=(NO_NODES if cluster is None else _nodes_note(cluster), *job_list.missing_notes(jobs)),
        settings={"zero": zero},
    )


def _files(path: Path) -> tuple[SourceFile, SourceFile | None]:
    there = sources(path if path.is_dir() else path.parent)
    if not path.is_dir() and SourceFile(path).stem == "cluster_gpu_number":
        msg = f"{path.name}: the sizes of virtual clusters, but no job log"
        raise TraceError(msg, hint="cluster_log.csv of the same cluster is the log; sizes are read from beside it")
    logs = [s for s in there if s.stem == "cluster_log"] if path.is_dir() else [SourceFile(path)]
    if len(logs) != 1:
        msg = f"not one cluster_log.csv in: {path}"
        raise TraceError(msg, hint="name the folder of one cluster (Earth, Saturn, Uranus or Venus), or its log")
    return logs[0], next((s for s in there if s.stem == "cluster_gpu_number"), None)


def _columns(jobs: pl.DataFrame) -> pl.DataFrame:
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


def _fits(peek: Peek) -> bool:
    sizes = any(line.startswith("date,vc") for line in peek.first_lines)
    return sizes or peek.has_columns("job_id", "vc", "gpu_num", "node_num", "state", "submit_time")


FORMAT = Format(
    name="helios",
    title="SenseTime 2020, four Slurm clusters (Helios)",
    expects="cluster_log.csv, or the folder of one cluster with it and cluster_gpu_number.csv",
    licence="CC-BY-4.0",
    origin="github.com/S-Lab-System-Group/HeliosData (SC'21)",
    read=read,
    fits=_fits,
)
