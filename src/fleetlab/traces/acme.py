"""Shanghai AI Lab's Acme trace (NSDI'24): the jobs of two clusters for large language models, March to August 2023.

The `type` of a job (Pretrain, SFT, Eval, …) becomes its `group`. Stamps carry their offset: +08:00 in Seren, +00:00 in
Kalos; the clock people lived by is that of Shanghai in both. In Kalos, `mem_per_pod_GB` is the memory of one node's
part, and `duration` counts from the submission, whatever its description says: run times are end less start.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fleetlab.core import Trace, TraceError, Workload
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, Rule, TableSchema
from fleetlab.traces.input.timestamps import with_offset
from fleetlab.traces.slurm import job_list

ZONE = "Asia/Shanghai"
JOBS = TableSchema(
    "jobs",
    job_list.COLUMNS | {"type": pl.String, "mem_per_pod_GB": pl.Float64},
    optional=frozenset({"mem_per_pod_GB"}),
)
MEMORY_RULES: list[Rule] = [
    ("`mem_per_pod_GB` is not finite", pl.col("mem_per_pod_GB").is_finite().not_(), "mem_per_pod_GB"),
    ("`mem_per_pod_GB` is negative", pl.col("mem_per_pod_GB") < 0, "mem_per_pod_GB"),
    ("`mem_per_pod_GB` is more than any node has", pl.col("mem_per_pod_GB") > 1e6, "mem_per_pod_GB"),
]
NO_NODES = "the log has no nodes: provide a cluster to simulate it"
NO_MEMORY = "memory requests are not in the log: set to 0"


def read(path: Path, intake: Intake) -> Trace:
    """Read `trace_seren.csv` or `trace_kalos.csv`, itself or the one that is in the folder."""
    log = _file(path)
    records = job_list.null_missing_times(intake.table(log, JOBS))
    records = records.with_columns(with_offset(f"{t}_time").alias(t) for t in job_list.TIMES)
    records = intake.validate(records, "jobs", log.name, [*job_list.RULES, *MEMORY_RULES])
    jobs, zero = relative_to_first(job_list.jobs(records))
    source = f"acme:{log.stem.removeprefix('trace_')}"
    workload = Workload.of(_columns(jobs), source=source, epoch=zero if jobs.height else None, zone=ZONE)
    intake.keep("jobs", len(workload))
    return finish(
        intake,
        workload,
        source=source,
        names=jobs.select(job=pl.int_range(pl.len(), dtype=pl.Int64), name="job_id").lazy(),
        notes=(NO_NODES, *_missing_notes(jobs)),
        settings={"zero": zero},
    )


def _file(path: Path) -> SourceFile:
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


def _columns(jobs: pl.DataFrame) -> pl.DataFrame:
    # A pod is a node's part; where an instance is one GPU instead, the parts are shared out among the GPUs.
    memory = pl.col("mem_per_pod_GB").fill_null(0) * 1024 * pl.max_horizontal("node_num", 1) / pl.col("instances")
    return jobs.select(
        *("user", "submit", "runtime", "instances", "cpu_milli", "gpu_milli", "status", "start", "end"),
        group="type",
        memory_mib=memory.cast(pl.Int64),
    )


def _missing_notes(jobs: pl.DataFrame) -> list[str]:
    unsaid = jobs["mem_per_pod_GB"].null_count()
    return [*job_list.missing_notes(jobs), *([NO_MEMORY] if unsaid and unsaid == jobs.height else [])]


def _fits(peek: Peek) -> bool:
    return peek.has_columns("job_id", "type", "gpu_num", "node_num", "state", "submit_time")


FORMAT = Format(
    name="acme",
    title="Shanghai AI Lab 2023, large language models (Acme)",
    expects="trace_seren.csv or trace_kalos.csv, or a folder with one of them",
    licence="CC-BY-4.0",
    origin="github.com/InternLM/AcmeTrace (NSDI'24)",
    read=read,
    fits=_fits,
)
