"""Alibaba's 2026 trace of high-priority and spot jobs on one GPU cluster, from the GFS paper (ASPLOS'26).

A job is a gang of `worker_num` workers; what it asks for is for each of them. Spot jobs come after HP ones. The log
tells when a job was submitted and how long it ran, not when it started. It ends with its 184th day: a job that
ends in that very second was still running.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, Trace, TraceError, Workload
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import Format, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, Rule, TableSchema

JOBS = TableSchema.of(
    "jobs", "job_name organization gpu_model cpu_request:f gpu_request:f worker_num:f submit_time:f duration:f job_type"
)
NODES = TableSchema.of("nodes", "node_name gpu_model gpu_capacity_num:f cpu_num:f")

PRIORITY = {"HP": 1, "Spot": 0}
CLOSED = 184 * 86_400 - 1  # seconds: of some 4,700 jobs that ran then, all but a few dozen end in this one
MOST = {"cpu_request": 1e6, "gpu_request": 1024, "worker_num": 1e6, "submit_time": 1e10, "duration": 1e10}


def _not_whole(column: str, least: int, most: int) -> pl.Expr:
    return (pl.col(column).is_between(least, most) & (pl.col(column) % 1 == 0)).not_()


JOB_RULES: list[Rule] = [
    ("no name", pl.col("job_name").is_null()),
    ("duplicate name", ~pl.col("job_name").is_first_distinct(), "job_name"),
    *[(f"`{c}` is missing", pl.col(c).is_null()) for c in MOST],
    *[(f"`{c}` is not a number of 0 or more", (pl.col(c).is_finite() & (pl.col(c) >= 0)).not_(), c) for c in MOST],
    *[(f"`{c}` is too large", pl.col(c) > most, c) for c, most in MOST.items()],
    (
        "neither a fraction of one GPU nor whole GPUs",
        ((pl.col("gpu_request") > 1) & (pl.col("gpu_request") % 1 != 0))
        | ((pl.col("gpu_request") > 0) & ((pl.col("gpu_request") * 1000).round() < 1)),
        "gpu_request",
    ),
    ("not a number of workers", _not_whole("worker_num", 1, 1_000_000), "worker_num"),
    ("no such job type", pl.col("job_type").is_in(list(PRIORITY)).not_().fill_null(value=True), "job_type"),
]
NODE_RULES: list[Rule] = [
    ("no name", pl.col("node_name").is_null()),
    ("duplicate name", ~pl.col("node_name").is_first_distinct(), "node_name"),
    *[
        (f"`{c}` is not a whole number from 0 to {most:,}", _not_whole(c, 0, most).fill_null(value=True), c)
        for c, most in (("gpu_capacity_num", 1024), ("cpu_num", 1_000_000))
    ],
    ("GPUs of no model", (pl.col("gpu_capacity_num") > 0) & pl.col("gpu_model").is_null()),
]


def read(path: Path, intake: Intake) -> Trace:
    """Read the jobs, the nodes, or both."""
    records, nodes = _files(path)
    cluster = _cluster(nodes, intake) if nodes else None
    frame = _records(records, intake)
    jobs, zero = relative_to_first(_jobs(frame))
    workload = Workload.of(jobs.drop("name"), source="spot2026")
    if records:
        intake.keep("jobs", len(workload))
    return finish(
        intake,
        workload,
        cluster=cluster or None,  # nodes that were all rejected make no cluster
        names=jobs.select(job=pl.int_range(pl.len(), dtype=pl.Int64), name="name").lazy() if records else None,
        notes=_notes(frame, records, nodes),
        settings={"zero": zero},
    )


def _files(path: Path) -> tuple[SourceFile | None, SourceFile | None]:
    there = sources(path if path.is_dir() else path.parent)
    nodes = [s for s in there if "node_info" in s.stem]
    records = [s for s in there if "job_info" in s.stem]
    if not path.is_dir():
        only = sources(path)
        # The nodes are found beside the jobs; a path that names the nodes reads them alone.
        nodes, records = (only, []) if "node_info" in only[0].stem else (nodes, only)
    if len(records) > 1 or len(nodes) > 1 or not (records or nodes):
        msg = f"not one table each of jobs (job_info_df.csv) and nodes (node_info_df.csv) in: {path}"
        raise TraceError(msg, hint="either may be absent, neither may be there twice")
    return records[0] if records else None, nodes[0] if nodes else None


def _cluster(source: SourceFile, intake: Intake) -> Cluster:
    frame = intake.validate(intake.table(source, NODES), "nodes", source.name, NODE_RULES)
    cluster = Cluster.of(
        frame.select(
            node="node_name",
            pool=pl.col("gpu_model").fill_null("CPU"),
            gpu_type="gpu_model",
            gpus=pl.col("gpu_capacity_num").cast(pl.Int32),
            cpu_milli=(pl.col("cpu_num") * 1000).cast(pl.Int64),
        ),
        source="spot2026",
    )
    intake.keep("nodes", len(cluster))
    return cluster


def _records(source: SourceFile | None, intake: Intake) -> pl.DataFrame:
    if source is None:
        return pl.DataFrame(schema=dict(JOBS.columns))
    return intake.validate(intake.table(source, JOBS), "jobs", source.name, JOB_RULES)


def _alive() -> pl.Expr:
    return pl.col("submit_time") + pl.col("duration") == CLOSED


def _jobs(records: pl.DataFrame) -> pl.DataFrame:
    return records.select(
        name="job_name",
        user="organization",
        submit="submit_time",
        runtime=pl.when(~_alive()).then(pl.col("duration")),
        instances=pl.col("worker_num").cast(pl.Int32),
        cpu_milli=(pl.col("cpu_request") * 1000).round().cast(pl.Int64),
        gpu_milli=(pl.col("gpu_request") * 1000).round().cast(pl.Int32),
        gpu_types=pl.concat_list("gpu_model").list.drop_nulls(),
        priority=pl.col("job_type").replace_strict(PRIORITY, default=0, return_dtype=pl.Int32),
        status=pl.when(_alive()).then(pl.lit("running")).otherwise(pl.lit("completed")),
    )


def _notes(frame: pl.DataFrame, records: SourceFile | None, nodes: SourceFile | None) -> tuple[str, ...]:
    alive, first = frame.filter(_alive()).height, frame.filter(pl.col("submit_time") == 0).height
    of_jobs = (
        "a job's start and how it ended are not published: no wait can be had from the log, and all count as completed",
        f"{alive:,} jobs end with the last full day of the log: read as running, runtime unknown",
        f"{first:,} jobs are submitted at second 0: many of them are older than the log",
    )
    return (
        *(of_jobs if records else ["no table of jobs (job_info_df.csv) here: the workload is empty"]),
        "node memory is not published: 0, as jobs request none"
        if nodes
        else "no table of nodes (node_info_df.csv) here: there is no cluster",
    )


FORMAT = Format.of("spot2026", read)
