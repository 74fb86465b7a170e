"""Alibaba's PAI trace of July and August 2020 ("MLaaS in the Wild", NSDI'22): seven tables, or any of them.

The task table makes the tasks; without it the instance table does. Times, run times and waits are derived as the
trace's authors do: a task is submitted when its row starts, starts with its first instance, and runs for the mean of
its instances. A row that belongs to no task goes to the rejects. The large tables (7.5 million instances) pass through
in blocks and are staged as Parquet; names of jobs, tasks and workers meet by 64-bit hashes, which confuse two of so
many with a chance of about one in 10⁵.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.traces._format import Format, Peek, finish
from fleetlab.traces._intake import Intake, Rule, Table
from fleetlab.traces._pai_tables import (
    GROUP,
    INSTANCE,
    JOB,
    METRIC,
    RULES,
    SENSOR,
    SPEC,
    STATUS,
    TABLES,
    TASK,
    as_found,
    choose,
    missing_for_zero,
)
from fleetlab.traces._source import Source, sources
from fleetlab.workload import Cluster, Trace, TraceError, Workload

# Job and task names together; seeds keep `a, b` from meeting `b, a`.
KEY = pl.col("job_name").hash(1) ^ pl.col("task_name").hash(2)
WHOLE_KEY = KEY ^ pl.col("inst_name").hash(3) ^ pl.col("worker_name").hash(4)


ORPHAN: list[Rule] = [("no such task", pl.col("task").is_null(), "job_name")]
Number = Callable[[pl.DataFrame], pl.Series]  # the task of each (job_name, task_name), null where there is none


@dataclass
class _Visit:
    """One reading: the files there are, and the counter they pass."""

    intake: Intake
    files: dict[str, Source]
    shapes: dict[str, Table]
    notes: list[str]

    def has(self, table: Table) -> bool:
        return table.name in self.files

    def whole(self, table: Table) -> pl.DataFrame:
        """A table that fits in memory, sieved."""
        source = self.files[table.name]
        frame = self.intake.table(source, self.shapes[table.name])
        if "start_time" in table.columns:
            frame = missing_for_zero(frame)
        return self.intake.sieve(frame, table.name, source.name, RULES[table.name])

    def stage(self, table: Table, select: list[pl.Expr], *, number: Number | None = None) -> list[Path]:
        """Pass a large table through in blocks and leave it on disk; with `number`, rows of no task are turned away."""
        source = self.files[table.name]
        parts: list[Path] = []
        for batch in self.intake.batches(source, self.shapes[table.name]):
            frame = missing_for_zero(batch) if "start_time" in table.columns else batch
            frame = self.intake.sieve(frame, table.name, source.name, RULES[table.name])
            if number is not None:
                frame = self.intake.sieve(frame.with_columns(number(frame)), table.name, source.name, ORPHAN)
            if frame.height:
                parts.append(Path(self.intake.scratch.name) / f"{table.name}-{len(parts):05}.parquet")
                _leave(frame.select(select), parts[-1])
        return parts


def _leave(frame: pl.DataFrame, part: Path) -> None:
    try:
        frame.write_parquet(part, compression="lz4", statistics=False)
    except (OSError, pl.exceptions.PolarsError) as e:
        msg = f"cannot put a large table aside in {part.parent}: {str(e).splitlines()[0]}"
        raise TraceError(msg, hint="it needs about a gigabyte there; TMPDIR names another place") from None


def read(path: Path, intake: Intake) -> Trace:
    """Read whichever of the seven tables are there and join them to tasks."""
    visit = _look(path, intake)
    cluster = _cluster(visit) if visit.has(SPEC) else None
    parts = _stage_instances(visit)
    tasks = _with_gangs(visit, _tasks(visit, parts), parts)
    workload, zero = _workload(visit, tasks)
    return finish(
        intake,
        workload,
        source="pai2020",
        cluster=cluster,
        placements=_placements(parts, tasks, zero) if parts else None,
        usage=_usage(visit, tasks),
        names=_names(tasks).lazy(),
        series=_series(visit, zero),
        notes=tuple(visit.notes),
        settings={"tables": sorted(visit.files), "zero": zero},
    )


def _look(path: Path, intake: Intake) -> _Visit:
    there = sources(path)
    visit = _Visit(intake, {}, {}, [])
    for table in TABLES:
        source, others = choose(there, table)
        if others:
            msg = f"more than one file could be {table.name}: {', '.join(s.name for s in others)}"
            raise TraceError(msg, hint="name the file itself, or leave only one in the folder")
        if source is not None:
            visit.files[table.name] = source
            first = Peek(path).beginning(source).split("\n", 1)[0].rstrip("\r")
            visit.shapes[table.name] = as_found(table, first)
    if not visit.files:
        msg = f"none of the seven PAI tables in: {path}"
        raise TraceError(msg, hint=f"they are {', '.join(t.name for t in TABLES)}, as .csv, .csv.gz or .tar.gz")
    return visit


# -- machines ----------------------------------------------------------------------------------------------------


def _cluster(visit: _Visit) -> Cluster:
    gpu = pl.when(pl.col("cap_gpu") > 0).then("gpu_type")
    frame = visit.whole(SPEC).select(
        node="machine",
        pool=pl.col("gpu_type").fill_null("CPU"),
        gpu_type=gpu,
        gpus=pl.col("cap_gpu").cast(pl.Int32),
        cpu_milli=(pl.col("cap_cpu") * 1000).round().cast(pl.Int64),
        memory_mib=(pl.col("cap_mem") * 1024).round().cast(pl.Int64),
    )
    visit.intake.keep(SPEC.name, frame.height)
    return Cluster.of(frame, source="pai2020")


# -- instances ---------------------------------------------------------------------------------------------------


def _stage_instances(visit: _Visit) -> list[Path]:
    if not visit.has(INSTANCE):
        return []
    names = [] if visit.has(TASK) else ["job_name", "task_name", "inst_id"]
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
    return _without_repeats(visit, visit.stage(INSTANCE, columns))


def _without_repeats(visit: _Visit, parts: list[Path]) -> list[Path]:
    """Turn away rows that name the same worker of the same instance again; a retry has another worker, and stays."""
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
            lines = [(line, "the instance stands twice") for line in frame.filter(~mine)["line"]]
            visit.intake.refuse(INSTANCE.name, visit.files[INSTANCE.name].name, lines)
            _leave(frame.filter(mine), part)
    return parts


# -- tasks -------------------------------------------------------------------------------------------------------


def _tasks(visit: _Visit, parts: list[Path]) -> pl.DataFrame:
    """One row a task, with what jobs and groups add to it."""
    if visit.has(TASK):
        frame = visit.whole(TASK)
    elif parts:
        frame = _from_instances(visit, parts)
    else:
        frame = pl.DataFrame(schema=dict(TASK.columns) | {"line": pl.Int64, "inst_id": pl.String})
        visit.notes.append("neither a task nor an instance in it: no workload")
    return _with_group(visit, _with_job(visit, frame))


def _from_instances(visit: _Visit, parts: list[Path]) -> pl.DataFrame:
    visit.notes.append("no task table: tasks are made of their instances, and what they asked for is not known")
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


def _with_job(visit: _Visit, tasks: pl.DataFrame) -> pl.DataFrame:
    if not visit.has(JOB):
        absent = {"user": pl.String, "job_start": pl.Float64, "inst_id": pl.String}
        return tasks.with_columns(pl.lit(None, dtype=v).alias(k) for k, v in absent.items() if k not in tasks.columns)
    jobs = visit.whole(JOB)
    source = visit.files[JOB.name].name
    lonely = pl.col("job_name").is_in(tasks["job_name"].unique().implode()).not_()
    jobs = visit.intake.sieve(jobs, JOB.name, source, [("no task of this job", lonely, "job_name")])
    visit.intake.keep(JOB.name, jobs.height)
    wanted = jobs.select("job_name", "inst_id", "user", job_start="start_time")
    return tasks.drop("inst_id", strict=False).join(wanted, on="job_name", how="left", maintain_order="left")


def _with_group(visit: _Visit, tasks: pl.DataFrame) -> pl.DataFrame:
    if not visit.has(GROUP):
        return tasks.with_columns(
            pl.lit(None, dtype=pl.String).alias(c) for c in ("group", "gpu_type_spec", "workload")
        )
    groups = visit.whole(GROUP)
    source = visit.files[GROUP.name].name
    lonely = pl.col("inst_id").is_in(tasks["inst_id"].drop_nulls().unique().implode()).not_()
    groups = visit.intake.sieve(groups, GROUP.name, source, [("no job with this inst_id", lonely, "inst_id")])
    visit.intake.keep(GROUP.name, groups.height)
    wanted = groups.select("inst_id", "group", "gpu_type_spec", "workload", said="user")
    joined = tasks.join(wanted, on="inst_id", how="left", maintain_order="left")
    return joined.with_columns(user=pl.coalesce("user", "said")).drop("said")


def _with_gangs(visit: _Visit, tasks: pl.DataFrame, parts: list[Path]) -> pl.DataFrame:
    """Tasks in arrival order, numbered, with what their instances tell; instances of no task are turned away."""
    tasks = tasks.with_columns(KEY.alias("key"))
    gangs = _gangs(parts, tasks.select("key").lazy())
    if visit.has(INSTANCE):
        visit.intake.keep(INSTANCE.name, int(gangs["rows"].sum()))
    lost = _staged(parts).join(tasks.lazy(), on="key", how="anti").select("line").collect(engine="streaming")
    lines = [(line, "no such task") for line in lost["line"].sort()]
    visit.intake.refuse(INSTANCE.name, visit.files[INSTANCE.name].name if lines else "", lines)
    tasks = tasks.join(gangs, on="key", how="left", maintain_order="left")
    # Without any time, all that is known is that it was there: older than the log, for all one can tell.
    submit = pl.coalesce("start_time", "job_start", "first")
    tasks = tasks.with_columns(submit=submit.fill_null(submit.min()).fill_null(0.0), timeless=submit.is_null())
    return tasks.sort("submit", maintain_order=True).with_columns(task=pl.int_range(pl.len(), dtype=pl.Int64))


def _gangs(parts: list[Path], keys: pl.LazyFrame) -> pl.DataFrame:
    """What the instances tell of each task: how many rows, first start, last end, mean run time."""
    ran = pl.col("end") - pl.col("start")
    told = [pl.len().alias("rows"), pl.col("start").min().alias("first"), pl.col("end").max().alias("last")]
    staged = _staged(parts).join(keys, on="key", how="semi")
    return staged.group_by("key").agg(*told, ran.mean().alias("ran")).collect(engine="streaming")


def _staged(parts: list[Path]) -> pl.LazyFrame:
    columns = {"key": pl.UInt64, "start": pl.Float64, "end": pl.Float64, "line": pl.Int64}
    return pl.scan_parquet(parts) if parts else pl.LazyFrame(schema=columns)


# -- the workload ------------------------------------------------------------------------------------------------


def _workload(visit: _Visit, tasks: pl.DataFrame) -> tuple[Workload, float]:
    """The workload, and the second of the log that became its 0."""
    zero = float(tasks["submit"][0]) if tasks.height else 0.0
    _note_oddities(visit, tasks)
    workload = Workload.of(_columns(visit, tasks, zero), source="pai2020", epoch=zero, zone="Asia/Shanghai")
    if visit.has(TASK):
        visit.intake.keep(TASK.name, len(workload))
    return workload, zero


def _names(tasks: pl.DataFrame) -> pl.DataFrame:
    """What the log calls each task, and the GPU type it was given: it may have asked for none."""
    return tasks.select("task", name=pl.concat_str("job_name", pl.lit("/"), "task_name"), gpu_type="gpu_type")


def _columns(visit: _Visit, frame: pl.DataFrame, zero: float) -> pl.DataFrame:
    done = pl.col("status").is_in(["Terminated", "Failed"])
    known = visit.has(INSTANCE)
    start = pl.col("first") - zero
    end = pl.when(done).then(pl.coalesce("last", "end_time") - zero)
    ran = pl.col("ran") if known else pl.col("end_time") - pl.col("start_time")
    spec = pl.col("gpu_type_spec") if visit.has(GROUP) else pl.col("gpu_type").replace("CPU", None)
    asks = pl.col("plan_gpu").fill_null(0) > 0
    return frame.select(
        job=pl.col("job_name").rank("dense").cast(pl.Int64) - 1,
        user="user",
        group=pl.coalesce("group", "user"),
        app="workload",
        submit=pl.col("submit") - zero,
        service=pl.when(done).then(ran),
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


def _note_oddities(visit: _Visit, frame: pl.DataFrame) -> None:
    milli = _milli("plan_gpu")
    told = {
        "ask for more than one GPU but not for whole ones, and hold the next whole number": (milli > 1000)
        & (milli % 1000 != 0),
        "have an instance that starts before the task's row does": pl.col("first") < pl.col("submit"),
        "have no time at all, and are taken as submitted at the beginning": pl.col("timeless"),
        "have no start time in the task table: the job's, or the first instance's, is taken": pl.col(
            "start_time"
        ).is_null(),
    }
    counts = frame.select(e.sum().alias(what) for what, e in told.items()).row(0, named=True)
    visit.notes += [f"{n:,} tasks {what}" for what, n in counts.items() if n]
    if visit.has(TASK) and not visit.has(INSTANCE):
        visit.notes.append("no instance table: run times include waiting, and when tasks started is not known")
    if not visit.has(GROUP) and visit.has(TASK):
        visit.notes.append("no group table: the GPU type that a task got stands for the one that it asked for")


# -- what stays on disk ------------------------------------------------------------------------------------------


def _placements(parts: list[Path], tasks: pl.DataFrame, zero: float) -> pl.LazyFrame:
    node = pl.col("node").cast(pl.Categorical)
    times = [pl.col(c) - zero for c in ("start", "end")]
    joined = _staged(parts).join(tasks.select("key", "task").lazy(), on="key", how="inner", maintain_order="left")
    status = pl.col("status").replace(STATUS | {"Interrupted": "interrupted"})
    return joined.select("task", "worker", node, status, *times)


def _numbered(tasks: pl.DataFrame) -> Number:
    """How the task of a name is found, by bisection: quicker than a join that hashes every task for every block."""
    by_key = tasks.select("key", "task").sort("key")
    keys, ids = by_key["key"].to_numpy(), by_key["task"]

    def number(names: pl.DataFrame) -> pl.Series:
        asked = names.select(KEY.alias("key"))["key"].to_numpy()
        if not len(keys):
            return pl.repeat(None, len(asked), dtype=pl.Int64, eager=True).alias("task")
        at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        return ids.gather(at).set(pl.Series(keys[at] != asked), None)

    return number


def _usage(visit: _Visit, tasks: pl.DataFrame) -> pl.LazyFrame | None:
    """What each worker used, lifetime averages in the house's units."""
    if not visit.has(SENSOR):
        return None
    columns = [
        pl.col("task"),
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
    parts = visit.stage(SENSOR, columns, number=_numbered(tasks))
    lazy = pl.scan_parquet(parts) if parts else pl.LazyFrame(schema={"task": pl.Int64})
    visit.intake.keep(SENSOR.name, lazy.select(pl.len()).collect().item())
    return lazy


def _series(visit: _Visit, zero: float) -> dict[str, pl.LazyFrame]:
    """What machines measured while a worker ran there."""
    if not visit.has(METRIC):
        return {}
    columns = [
        pl.when(pl.col("worker_name").is_not_null()).then(pl.col("worker_name").hash(4)).alias("worker"),
        pl.col("machine").cast(pl.Categorical).alias("node"),
        (pl.col("start_time") - zero).alias("start"),
        (pl.col("end_time") - zero).alias("end"),
        *[pl.col(c).alias(c.removeprefix("machine_")) for c in list(METRIC.columns)[4:]],
    ]
    parts = visit.stage(METRIC, columns)
    lazy = pl.scan_parquet(parts) if parts else pl.LazyFrame(schema={"worker": pl.UInt64})
    visit.intake.keep(METRIC.name, lazy.select(pl.len()).collect().item())
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
