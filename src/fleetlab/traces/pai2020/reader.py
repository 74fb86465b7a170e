"""Alibaba's PAI trace of July and August 2020 ("MLaaS in the Wild", NSDI'22): seven tables, or any of them.

The task table makes the tasks; without it the instance table does. Times, run times and waits are derived as the
trace's authors do: a task is submitted when its row starts, starts with its first instance, and runs for the mean of
its instances. A row that belongs to no task goes to the rejects. The large tables (7.5 million instances) pass through
in blocks and are staged as Parquet; names of jobs, tasks and workers meet by 64-bit hashes, which confuse two of so
many with a chance of about one in 10⁵.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Trace
from fleetlab.traces.input.format import Format, Peek, finish
from fleetlab.traces.input.intake import Intake
from fleetlab.traces.pai2020.jobs import numbered_jobs, scan_instances, stage_instances, workload_of
from fleetlab.traces.pai2020.staging import KEY, Number, PaiTables, find_tables
from fleetlab.traces.pai2020.tables import JOB, METRIC, SENSOR, SPEC, STATUS, TABLES


def read(path: Path, intake: Intake) -> Trace:
    """Read whichever of the seven tables are there and join them to tasks."""
    tables_ = find_tables(path, intake)
    cluster = _cluster(tables_) if tables_.has(SPEC) else None
    parts = stage_instances(tables_)
    tasks = numbered_jobs(tables_, parts)
    workload, zero = workload_of(tables_, tasks)
    return finish(
        intake,
        workload,
        source="pai2020",
        cluster=cluster,
        placements=_placements(parts, tasks, zero) if parts else None,
        usage=_usage(tables_, tasks),
        names=_names(tasks).lazy(),
        series=_series(tables_, zero) | _parents(tables_, tasks, zero),
        notes=tuple(tables_.notes),
        settings={"tables": sorted(tables_.files), "zero": zero},
    )


# -- machines ----------------------------------------------------------------------------------------------------


def _cluster(tables_: PaiTables) -> Cluster:
    gpu = pl.when(pl.col("cap_gpu") > 0).then("gpu_type")
    frame = tables_.whole(SPEC).select(
        node="machine",
        pool=pl.col("gpu_type").fill_null("CPU"),
        gpu_type=gpu,
        gpus=pl.col("cap_gpu").cast(pl.Int32),
        cpu_milli=(pl.col("cap_cpu") * 1000).round().cast(pl.Int64),
        memory_mib=(pl.col("cap_mem") * 1024).round().cast(pl.Int64),
    )
    tables_.intake.keep(SPEC.name, frame.height)
    return Cluster.of(frame, source="pai2020")


def _names(tasks: pl.DataFrame) -> pl.DataFrame:
    """What the log calls each task, the GPU type it was given (it may have asked for none), and its role in the job."""
    name = pl.concat_str("job_name", pl.lit("/"), "task_name")
    return tasks.select("job", name=name, gpu_type="gpu_type", role=pl.col("task_name").cast(pl.Categorical))


def _parents(tables_: PaiTables, tasks: pl.DataFrame, zero: float) -> dict[str, pl.LazyFrame]:
    """What the job table says of each PAI job, which is a parent here."""
    if not tables_.has(JOB):
        return {}
    parents = tasks.filter(pl.col("parent").is_first_distinct()).select(
        "parent",
        status=pl.col("job_status").replace_strict(STATUS, default=None, return_dtype=pl.String),
        submit=pl.col("job_start") - zero,
        end=pl.col("job_end") - zero,
    )
    return {"parents": parents.lazy()}


# -- what stays on disk ------------------------------------------------------------------------------------------


def _placements(parts: list[Path], tasks: pl.DataFrame, zero: float) -> pl.LazyFrame:
    node = pl.col("node").cast(pl.Categorical)
    times = [pl.col(c) - zero for c in ("start", "end")]
    joined = scan_instances(parts).join(tasks.select("key", "job").lazy(), on="key", how="inner", maintain_order="left")
    status = pl.col("status").replace(STATUS | {"Interrupted": "interrupted"})
    return joined.select("job", "worker", node, status, *times)


def _numbered(tasks: pl.DataFrame) -> Number:
    """How the task of a name is found, by bisection: quicker than a join that hashes every task for every block."""
    by_key = tasks.select("key", "job").sort("key")
    keys, ids = by_key["key"].to_numpy(), by_key["job"]

    def number(names: pl.DataFrame) -> pl.Series:
        wanted = names.select(KEY.alias("key"))["key"].to_numpy()
        if not len(keys):
            return pl.repeat(None, len(wanted), dtype=pl.Int64, eager=True).alias("job")
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return ids.gather(at).set(pl.Series(keys[at] != wanted), None)

    return number


def _usage(tables_: PaiTables, tasks: pl.DataFrame) -> pl.LazyFrame | None:
    """What each worker used, lifetime averages in the house's units."""
    if not tables_.has(SENSOR):
        return None
    columns = [
        pl.col("job"),
        pl.when(pl.col("worker_name").is_not_null()).then(pl.col("worker_name").hash(4)).alias("worker"),
        pl.col("machine").cast(pl.Categorical).alias("node"),
        pl.col("gpu_name").cast(pl.Categorical).alias("gpu"),
        (pl.col("cpu_usage") * 10).alias("cpu_milli"),
        (pl.col("gpu_wrk_util") * 10).alias("gpu_milli"),
        (pl.col("avg_mem") * 1024).alias("memory_mib"),
        (pl.col("max_mem") * 1024).alias("max_memory_mib"),
        (pl.col("avg_gpu_wrk_mem") * 1024).alias("gpu_memory_mib"),
        (pl.col("max_gpu_wrk_mem") * 1024).alias("max_gpu_memory_mib"),
        pl.col("read").alias("read_bytes"),
        pl.col("write").alias("write_bytes"),
        pl.col("read_count").alias("reads"),
        pl.col("write_count").alias("writes"),
    ]
    parts = tables_.stage(SENSOR, columns, number=_numbered(tasks))
    lazy = pl.scan_parquet(parts) if parts else pl.LazyFrame(schema={"job": pl.Int64})
    tables_.intake.keep(SENSOR.name, lazy.select(pl.len()).collect().item())
    return lazy


def _series(tables_: PaiTables, zero: float) -> dict[str, pl.LazyFrame]:
    """What machines measured while a worker ran there."""
    if not tables_.has(METRIC):
        return {}
    columns = [
        pl.when(pl.col("worker_name").is_not_null()).then(pl.col("worker_name").hash(4)).alias("worker"),
        pl.col("machine").cast(pl.Categorical).alias("node"),
        (pl.col("start_time") - zero).alias("start"),
        (pl.col("end_time") - zero).alias("end"),
        *[pl.col(c).alias(c.removeprefix("machine_")) for c in list(METRIC.columns)[4:]],
    ]
    parts = tables_.stage(METRIC, columns)
    lazy = pl.scan_parquet(parts) if parts else pl.LazyFrame(schema={"worker": pl.UInt64})
    tables_.intake.keep(METRIC.name, lazy.select(pl.len()).collect().item())
    return {"machine_metric": lazy}


def _fits(peek: Peek) -> bool:
    return any(stem.startswith(tuple(t.name for t in TABLES)) for stem in peek.files)


FORMAT = Format(
    name="pai2020",
    title="Alibaba PAI 2020, MLaaS in the Wild",
    expects="a folder with any of pai_{job,task,instance,sensor,group_tag}_table and pai_machine_{spec,metric}, "
    "as .csv, .csv.gz or .tar.gz; or one of them",
    licence="CC-BY-4.0",
    origin="github.com/alibaba/clusterdata, cluster-trace-gpu-v2020 (NSDI'22)",
    read=read,
    fits=_fits,
)
