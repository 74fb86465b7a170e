"""Microsoft's Philly trace (ATC'19): the training jobs of a GPU cluster, August to December 2017.

A record of the job log is a job with its attempts; in the rejects, `line` is the line on which it begins. A job that
was tried again is one job: its start is that of the first attempt that has one, its end that of the last, its
`runtime` the time that all of them ran. An attempt without times and without machines never ran. The virtual cluster
(`vc`), a quota and not a set of nodes, becomes the `queue` and the `app`. A job whose last attempt has no end was
running when the log was taken, whatever its `status` says: so the owners describe it.

Demand is what the log saw: the GPUs of the first attempt that held any. Spread evenly, an instance is one machine's
part; unevenly, it is one GPU.

The job log has no time zone. The utilisation tables beside it have (PDT and PST), so it is read on the same clock;
`zone` names another.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, Trace, Workload
from fleetlab.core.trace import PLACEMENTS
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.format import Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, Rule, TableSchema
from fleetlab.traces.input.times import local, local_after, valid_zone
from fleetlab.traces.philly.job_log import WANTED, JobLog, files, tables

ZONE = "America/Los_Angeles"
STATUS = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}
MACHINES = TableSchema(
    "machines", {"machineId": pl.String, "number of GPUs": pl.Int64, "single GPU mem": pl.String}, quote=False
)
FIRST_IN_ARCHIVE = (
    ("machineId", "number of GPUs"),
    ("time", "machineId", "gpu0_util"),
    ("time", "machine_id", "cpu_util"),
    ("time", "machine_id", "mem_total"),
)
MEMORY = r"^\s*(\d{1,6})\s*GB\s*$"

JOB_RULES: list[Rule] = [
    ("duplicate jobid", ~pl.col("jobid").is_first_distinct(), "jobid"),
    ("unknown status", pl.col("status").is_in(list(STATUS)).not_(), "status"),
    ("no submitted_time", pl.col("submitted_time").is_null()),
    ("`submitted_time` is not a time", pl.col("submit").is_null(), "submitted_time"),
    ("a time of an attempt is not a time", pl.col("no_time").is_not_null(), "no_time"),
    ("an attempt ends before it starts", pl.col("reversed").is_not_null(), "reversed"),
    ("started before it was submitted", pl.col("start") < pl.col("submit"), "start_time"),
    ("the last attempt ends before the first starts", pl.col("end") < pl.col("start"), "end_time"),
    ("more GPUs than any machine has", pl.col("gpu_milli") > 1_024_000, "gpu_milli"),
]
MACHINE_RULES: list[Rule] = [
    ("no name", pl.col("machineId").is_null()),
    ("duplicate name", ~pl.col("machineId").is_first_distinct(), "machineId"),
    (
        "`number of GPUs` is not from 0 to 1024",
        pl.col("number of GPUs").is_between(0, 1024).fill_null(value=False).not_(),
        "number of GPUs",
    ),
    (
        "`single GPU mem` is not a number of GB",
        pl.col("single GPU mem").str.contains(MEMORY).fill_null(value=False).not_(),
        "single GPU mem",
    ),
]


def read(path: Path, intake: Intake, *, zone: str = ZONE) -> Trace:
    """Read `cluster_job_log` and, in the same folder or archive, `cluster_machine_list`."""
    zone = valid_zone(zone)
    source, machines = files(path)
    cluster = _cluster(machines, intake) if machines else None
    log = _timed(tables(source, intake), zone)
    records = intake.validate(log.jobs, "jobs", source.name, JOB_RULES)
    jobs, zero = relative_to_first(_jobs(records))
    jobs = jobs.with_columns(job=pl.int_range(pl.len(), dtype=pl.Int64))
    workload = Workload.of(_columns(jobs), source="philly", epoch=zero if jobs.height else None, zone=zone)
    intake.keep("jobs", len(workload))
    return finish(
        intake,
        workload,
        cluster=cluster,
        placements=_placements(log, jobs, zero).lazy(),
        names=jobs.select("job", name="jobid").lazy(),
        notes=_notes(jobs, cluster, zone),
        settings={"zero": zero, "zone": zone},
    )


def _cluster(source: SourceFile, intake: Intake) -> Cluster:
    named = intake.table(source, MACHINES).with_columns(pl.col("machineId").str.strip_chars().replace("", None))
    frame = intake.validate(named, "machines", source.name, MACHINE_RULES)
    memory = pl.col("single GPU mem").str.extract(MEMORY).cast(pl.Int64)
    # The list does not say which GPUs they are: their memory is all that distinguishes them.
    kind = pl.concat_str(pl.lit("GPU-"), memory.cast(pl.String), pl.lit("GB"))
    cluster = Cluster.of(
        frame.select(node="machineId", pool=kind, gpu_type=kind, gpus="number of GPUs", gpu_memory_mib=memory * 1024),
        source="philly",
    )
    intake.keep("machines", len(cluster))
    return cluster


def _timed(log: JobLog, zone: str) -> JobLog:
    """Put moments to the stamps, and to each job what its attempts say of it."""
    records = log.jobs.with_columns(submit=local("submitted_time", zone))
    attempts = log.attempts.join(records.select("record", "submit"), on="record", how="left", maintain_order="left")
    attempts = attempts.with_columns(start=local_after("start_time", zone, "submit"))
    attempts = attempts.with_columns(end=local_after("end_time", zone, "start"))
    by_record = attempts.group_by("record", maintain_order=True).agg(
        pl.len().alias("tries"),
        pl.col("start", "start_time").drop_nulls().first(),
        pl.col("end", "end_time").last(),
        (pl.col("end") - pl.col("start")).sum().alias("ran"),
        (_ran() & (pl.col("end") - pl.col("start")).is_null()).any().alias("gap"),
        _first_where(*[(f"{t}_time", _unreadable(t)) for t in ("start", "end")]).alias("no_time"),
        _first_where(("end_time", pl.col("end") < pl.col("start"))).alias("reversed"),
    )
    return JobLog(records.join(by_record, on="record", how="left", maintain_order="left"), attempts, log.placements)


def _ran() -> pl.Expr:
    return pl.col("machines") | pl.col("start").is_not_null() | pl.col("end").is_not_null()


def _unreadable(time: str) -> pl.Expr:
    return pl.col(f"{time}_time").is_not_null() & pl.col(time).is_null()


def _first_where(*columns: tuple[str, pl.Expr]) -> pl.Expr:
    return pl.coalesce([pl.col(column).filter(bad).first() for column, bad in columns])


def _jobs(records: pl.DataFrame) -> pl.DataFrame:
    alive = pl.col("tries").is_not_null() & pl.col("end").is_null()
    return records.with_columns(
        runtime=pl.when(~alive & ~pl.col("gap")).then(pl.col("ran")),
        status=pl.when(alive).then(pl.lit("running")).otherwise(pl.col("status").replace_strict(STATUS)),
    )


def _columns(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.select(
        "user", "submit", "runtime", "instances", "gpu_milli", "status", "start", "end", app="vc", queue="vc"
    )


def _placements(log: JobLog, jobs: pl.DataFrame, zero: float) -> pl.DataFrame:
    """One row an attempt and machine; how an attempt ended that was not the last, the log does not say."""
    last = pl.col("attempt") == pl.col("attempt").max().over("record")
    attempts = log.attempts.join(
        jobs.select("record", "job", "status"), on="record", how="inner", maintain_order="left"
    ).with_columns(status=pl.when(last).then(pl.col("status")))
    rows = log.placements.join(attempts, on="attempt", how="inner", maintain_order="left").sort(
        "job", maintain_order=True
    )
    placed = rows.select(
        "job",
        worker=pl.int_range(pl.len(), dtype=pl.UInt64),
        node="node",
        status="status",
        start=pl.col("start") - zero,
        end=pl.col("end") - zero,
    )
    return placed.cast(PLACEMENTS)  # type: ignore[arg-type]


def _notes(jobs: pl.DataFrame, cluster: Cluster | None, zone: str) -> tuple[str, ...]:
    again = jobs.filter(pl.col("tries") > 1).height
    idle = jobs.filter(pl.col("gpu_milli") == 0).height
    gap = jobs.filter(pl.col("gap") & (pl.col("status") != "running")).height
    notes = [
        f"the log has no time zone: times are read as {zone}",
        "CPU and memory requests are not in the log: both are 0",
        "the machine list has no GPU models: `gpu_type` gives the GPU memory"
        if cluster
        else "no cluster_machine_list beside the log: provide a cluster to simulate it",
        "virtual clusters are queues; the log does not tell their quotas",
    ]
    if again:
        notes.append(f"jobs with several attempts, whose `runtime` is the sum over attempts: {again:,}")
    if idle:
        notes.append(f"jobs that never had a GPU, whose GPU request is unknown and set to 0: {idle:,}")
    if gap:
        notes.append(f"ended jobs with a missing time of an attempt, whose `runtime` is unknown: {gap:,}")
    return tuple(notes)


def _fits(peek: Peek) -> bool:
    if "cluster_job_log" in peek.files:
        return True
    # Of the published archive, whichever table comes first.
    of_archive = any(peek.has_columns(*first) for first in FIRST_IN_ARCHIVE)
    starts = (peek.beginning(source).lstrip("\ufeff \t\r\n") for source in peek.files.values())
    return of_archive or any(s.startswith("[") and '"attempts"' in s and '"submitted_time"' in s for s in starts)


FORMAT = Format.of("philly", read, _fits, options=frozenset({"zone"}), unpacks=True, only=WANTED)
