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

from fleetlab.core import Cluster, Trace, Workload
from fleetlab.traces.input.format import Format, Peek, finish
from fleetlab.traces.input.intake import Intake
from fleetlab.traces.pai2020.tables import (
    GROUP,
    INSTANCE,
    JOB,
    KEY,
    METRIC,
    SENSOR,
    SPEC,
    STATUS,
    TABLES,
    TASK,
    WHOLE_KEY,
    Number,
    PaiTables,
    find_tables,
    write_part,
)


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
    """What the log calls each task, the GPU type it was given (it may have requested none), and its role in the job."""
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
        hashes = names.select(KEY.alias("key"))["key"].to_numpy()
        if not len(keys):
            return pl.repeat(None, len(hashes), dtype=pl.Int64, eager=True).alias("job")
        at = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
        return ids.gather(at).set(pl.Series(keys[at] != hashes), None)

    return number


def _usage(tables_: PaiTables, tasks: pl.DataFrame) -> pl.LazyFrame | None:
    """What each worker used, lifetime averages in fleetlab's units."""
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


FORMAT = Format.of("pai2020", read, _fits)


# -- jobs ------------------------------------------------------------------------------------------------------------


# -- instances ---------------------------------------------------------------------------------------------------


def stage_instances(tables_: PaiTables) -> list[Path]:
    """Pass the instance table through to disk, each row with the hashes it will be found by."""
    if not tables_.has(INSTANCE):
        return []
    names = [] if tables_.has(TASK) else ["job_name", "task_name", "inst_id"]
    columns = [
        *[pl.col(c) for c in names],
        KEY.alias("key"),
        WHOLE_KEY.alias("whole"),
        pl.col("inst_name").hash(3).alias("inst"),
        pl.when(pl.col("worker_name").is_not_null()).then(pl.col("worker_name").hash(4)).alias("worker"),
        pl.col("machine").alias("node"),
        pl.col("status"),
        pl.col("start_time").alias("start"),
        pl.col("end_time").alias("end"),
        pl.col("line"),
    ]
    return _without_repeats(tables_, tables_.stage(INSTANCE, columns))


def _without_repeats(tables_: PaiTables, parts: list[Path]) -> list[Path]:
    """Reject rows that name the same worker of the same instance again; a retry has another worker, and stays."""
    whole = pl.scan_parquet(parts).select("whole").collect()["whole"] if parts else pl.Series(dtype=pl.UInt64)
    if whole.n_unique() == len(whole):
        return parts
    first = whole.is_first_distinct()
    at = 0
    for part in parts:
        frame = pl.read_parquet(part)
        mine = first.slice(at, frame.height)
        at += frame.height
        if not mine.all():
            lines = [(line, "duplicate instance") for line in frame.filter(~mine)["line"]]
            tables_.intake.reject(INSTANCE.name, tables_.files[INSTANCE.name].name, lines)
            write_part(frame.filter(mine), part)
    return parts


# -- tasks -------------------------------------------------------------------------------------------------------


def numbered_jobs(tables_: PaiTables, parts: list[Path]) -> pl.DataFrame:
    """Tasks in arrival order, with what jobs, groups and instances tell of them."""
    if tables_.has(TASK):
        frame = tables_.whole(TASK)
    elif parts:
        frame = _from_instances(tables_, parts)
    else:
        frame = pl.DataFrame(schema=dict(TASK.columns) | {"line": pl.Int64, "inst_id": pl.String})
        tables_.notes.append("no task table and no instance table: no jobs")
    return _with_gangs(tables_, _with_group(tables_, _with_job(tables_, frame)), parts)


def _from_instances(tables_: PaiTables, parts: list[Path]) -> pl.DataFrame:
    tables_.notes.append("no task table: jobs are built from instances, and their requests are unknown")
    running, waiting = (pl.col("status") == s for s in ("Running", "Waiting"))
    status = (
        pl.when(running.any()).then(pl.lit("Running"))
        .when(waiting.all()).then(pl.lit("Waiting"))
        .when((pl.col("status") == "Terminated").any()).then(pl.lit("Terminated"))
        .otherwise(pl.lit("Failed"))
    )  # fmt: skip
    return (
        pl.scan_parquet(parts)
        .group_by("job_name", "task_name")
        .agg(
            pl.col("line").min(),
            pl.col("inst_id").first(),
            pl.col("inst").n_unique().cast(pl.Float64).alias("inst_num"),
            status.alias("status"),
            pl.col("start").min().alias("start_time"),
            pl.lit(None, dtype=pl.Float64).alias("end_time"),
            *[pl.lit(None, dtype=pl.Float64).alias(c) for c in ("plan_cpu", "plan_mem", "plan_gpu")],
            pl.lit(None, dtype=pl.String).alias("gpu_type"),
        )
        .sort("line")
        .collect(engine="streaming")
    )


def _with_job(tables_: PaiTables, tasks: pl.DataFrame) -> pl.DataFrame:
    if not tables_.has(JOB):
        absent: dict[str, type[pl.DataType]] = dict.fromkeys(("user", "inst_id", "job_status"), pl.String)
        absent |= dict.fromkeys(("job_start", "job_end"), pl.Float64)
        return tasks.with_columns(pl.lit(None, dtype=v).alias(k) for k, v in absent.items() if k not in tasks.columns)
    jobs = tables_.whole(JOB)
    source = tables_.files[JOB.name].name
    lonely = pl.col("job_name").is_in(tasks["job_name"].unique().implode()).not_()
    jobs = tables_.intake.validate(jobs, JOB.name, source, [("a job without tasks", lonely, "job_name")])
    tables_.intake.keep(JOB.name, jobs.height)
    job_columns = jobs.select(
        "job_name", "inst_id", "user", job_start="start_time", job_end="end_time", job_status="status"
    )
    return tasks.drop("inst_id", strict=False).join(job_columns, on="job_name", how="left", maintain_order="left")


def _with_group(tables_: PaiTables, tasks: pl.DataFrame) -> pl.DataFrame:
    if not tables_.has(GROUP):
        return tasks.with_columns(
            pl.lit(None, dtype=pl.String).alias(c) for c in ("group", "gpu_type_spec", "workload")
        )
    groups = tables_.whole(GROUP)
    source = tables_.files[GROUP.name].name
    lonely = pl.col("inst_id").is_in(tasks["inst_id"].drop_nulls().unique().implode()).not_()
    groups = tables_.intake.validate(groups, GROUP.name, source, [("no job with this inst_id", lonely, "inst_id")])
    tables_.intake.keep(GROUP.name, groups.height)
    group_columns = groups.select("inst_id", "group", "gpu_type_spec", "workload", group_user="user")
    joined = tasks.join(group_columns, on="inst_id", how="left", maintain_order="left")
    return joined.with_columns(user=pl.coalesce("user", "group_user")).drop("group_user")


def _with_gangs(tables_: PaiTables, tasks: pl.DataFrame, parts: list[Path]) -> pl.DataFrame:
    """Number the tasks, with what their instances show of them; reject instances of no task."""
    tasks = tasks.with_columns(KEY.alias("key"))
    gangs = _gangs(parts, tasks.select("key").lazy())
    if tables_.has(INSTANCE):
        tables_.intake.keep(INSTANCE.name, int(gangs["rows"].sum()))
    orphans = scan_instances(parts).join(tasks.lazy(), on="key", how="anti").select("line").collect(engine="streaming")
    lines = [(line, "no such task") for line in orphans["line"].sort()]
    tables_.intake.reject(INSTANCE.name, tables_.files[INSTANCE.name].name if lines else "", lines)
    tasks = tasks.join(gangs, on="key", how="left", maintain_order="left")
    # Without any time, all that is known is that it was there: older than the log, for all one can tell.
    submit = pl.coalesce("start_time", "job_start", "first")
    tasks = tasks.with_columns(submit=submit.fill_null(submit.min()).fill_null(0.0), timeless=submit.is_null())
    return tasks.sort("submit", maintain_order=True).with_columns(
        job=pl.int_range(pl.len(), dtype=pl.Int64), parent=pl.col("job_name").rank("dense").cast(pl.Int64) - 1
    )


def _gangs(parts: list[Path], keys: pl.LazyFrame) -> pl.DataFrame:
    """What the instances tell of each task: how many rows, first start, last end, mean runtime."""
    ran = pl.col("end") - pl.col("start")
    aggregates = [pl.len().alias("rows"), pl.col("start").min().alias("first"), pl.col("end").max().alias("last")]
    mine = scan_instances(parts).join(keys, on="key", how="semi")
    return mine.group_by("key").agg(*aggregates, ran.mean().alias("ran")).collect(engine="streaming")


def scan_instances(parts: list[Path]) -> pl.LazyFrame:
    """The instances on disk."""
    columns = {"key": pl.UInt64, "start": pl.Float64, "end": pl.Float64, "line": pl.Int64}
    return pl.scan_parquet(parts) if parts else pl.LazyFrame(schema=columns)


# -- the workload ------------------------------------------------------------------------------------------------


def workload_of(tables_: PaiTables, tasks: pl.DataFrame) -> tuple[Workload, float]:
    """The workload, and the second of the log that became its 0."""
    zero = float(tasks["submit"][0]) if tasks.height else 0.0
    _note_oddities(tables_, tasks)
    workload = Workload.of(_columns(tables_, tasks, zero), source="pai2020", epoch=zero, zone="Asia/Shanghai")
    if tables_.has(TASK):
        tables_.intake.keep(TASK.name, len(workload))
    return workload, zero


def _columns(tables_: PaiTables, frame: pl.DataFrame, zero: float) -> pl.DataFrame:
    done = pl.col("status").is_in(["Terminated", "Failed"])
    has_instances = tables_.has(INSTANCE)
    start = pl.col("first") - zero
    end = pl.when(done).then(pl.coalesce("last", "end_time") - zero)
    ran = pl.col("ran") if has_instances else pl.col("end_time") - pl.col("start_time")
    spec = pl.col("gpu_type_spec") if tables_.has(GROUP) else pl.col("gpu_type").replace("CPU", None)
    asks = pl.col("plan_gpu").fill_null(0) > 0
    return frame.select(
        parent="parent",
        user="user",
        group=pl.coalesce("group", "user"),
        app="workload",
        submit=pl.col("submit") - zero,
        runtime=pl.when(done).then(ran),
        # Jobs marked running occur in all of the log: their ends are lost, and it does not say that they ran on.
        runtime_at_least=pl.lit(None, dtype=pl.Float64),
        initial=pl.lit(value=False),
        instances=pl.col("inst_num").cast(pl.Int32),
        cpu_milli=_milli("plan_cpu"),
        memory_mib=(pl.col("plan_mem").fill_null(0) * 1024).round().cast(pl.Int64),
        gpu_milli=_gpu_milli(),
        gpu_types=pl.when(asks & spec.is_not_null())
        .then(pl.concat_list(spec))
        .otherwise(pl.lit([], pl.List(pl.String))),
        status=pl.col("status").replace_strict(STATUS),
        start=start,
        end=pl.when(end >= start.fill_null(-np.inf)).then(end),
    )


def _milli(percent: str) -> pl.Expr:
    return (pl.col(percent).fill_null(0) * 10).round().cast(pl.Int64)


def _gpu_milli() -> pl.Expr:
    # More than one GPU is whole GPUs: a request of 150 % holds two. A share too small to count is still a share.
    milli = _milli("plan_gpu")
    share = pl.when(pl.col("plan_gpu") > 0).then(pl.max_horizontal(milli, 1)).otherwise(0)
    return pl.when(milli > 1000).then((milli + 999) // 1000 * 1000).otherwise(share)


def _note_oddities(tables_: PaiTables, frame: pl.DataFrame) -> None:
    milli = _milli("plan_gpu")
    conditions = {
        "request a fraction above one GPU: counted as the next whole number": (milli > 1000) & (milli % 1000 != 0),
        "have an instance that starts before the task": pl.col("first") < pl.col("submit"),
        "have no times: submit time set to 0": pl.col("timeless"),
        "have no start time in the task table: that of the PAI job or the first instance is used": pl.col(
            "start_time"
        ).is_null(),
    }
    counts = frame.select(e.sum().alias(what) for what, e in conditions.items()).row(0, named=True)
    tables_.notes += [f"{n:,} jobs {what}" for what, n in counts.items() if n]
    if tables_.has(TASK) and not tables_.has(INSTANCE):
        tables_.notes.append("no instance table: runtimes include waiting, and starts are unknown")
    if not tables_.has(GROUP) and tables_.has(TASK):
        tables_.notes.append("no group table: the allocated GPU type is used as the requested one")
