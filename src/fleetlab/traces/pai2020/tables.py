"""The PAI tables: which files there are, how their rows are counted, and what their columns mean.

The CSVs have no header row; a copy with one is taken too. Zero times stand for missing ones, percentages are of a core
or of a GPU, memory is in GiB (29.296875 is 30,000 MiB).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import Peek
from fleetlab.traces.input.intake import Intake, Rule, TableSchema

# Job and task names together; seeds keep `a, b` from meeting `b, a`.
KEY = pl.col("job_name").hash(1) ^ pl.col("task_name").hash(2)
# One row of an instance: a retry has another worker. Where no worker is named, only a row that is the same all through
# is the same row.
WHOLE_KEY = (
    KEY
    ^ pl.col("inst_name").hash(3)
    ^ pl.when(pl.col("worker_name").is_not_null())
    .then(pl.col("worker_name").hash(4))
    .otherwise(pl.struct("status", "start_time", "end_time", "machine").hash(5))
)


ORPHAN: list[Rule] = [("no such task", pl.col("job").is_null(), "job_name")]
Number = Callable[[pl.DataFrame], pl.Series]  # the task of each (job_name, task_name), null where there is none


@dataclass
class PaiTables:
    """The files there are, how each is shaped, and what is worth noting."""

    intake: Intake
    files: dict[str, SourceFile]
    shapes: dict[str, TableSchema]
    notes: list[str]

    def has(self, table: TableSchema) -> bool:
        """Is there such a table?"""
        return table.name in self.files

    def whole(self, table: TableSchema) -> pl.DataFrame:
        """A table that fits in memory, without rejected rows."""
        source = self.files[table.name]
        frame = self.intake.table(source, self.shapes[table.name])
        if "start_time" in table.columns:
            frame = null_for_zero(frame)
        return self.intake.validate(frame, table.name, source.name, RULES[table.name])

    def stage(self, table: TableSchema, select: list[pl.Expr], *, number: Number | None = None) -> list[Path]:
        """Copy a large table to disk in blocks; with `number`, rows of no task are rejected."""
        source = self.files[table.name]
        parts: list[Path] = []
        for batch in self.intake.batches(source, self.shapes[table.name]):
            frame = null_for_zero(batch) if "start_time" in table.columns else batch
            frame = self.intake.validate(frame, table.name, source.name, RULES[table.name])
            if number is not None:
                frame = self.intake.validate(frame.with_columns(number(frame)), table.name, source.name, ORPHAN)
            if frame.height:
                parts.append(Path(self.intake.scratch.name) / f"{table.name}-{len(parts):05}.parquet")
                write_part(frame.select(select), parts[-1])
        return parts


def write_part(frame: pl.DataFrame, part: Path) -> None:
    """Put a block aside on disk."""
    try:
        frame.write_parquet(part, compression="lz4", statistics=False)
    except (OSError, pl.exceptions.PolarsError) as e:
        msg = f"cannot write temporary files in {part.parent}: {str(e).splitlines()[0]}"
        raise TraceError(msg, hint="about 1 GiB is needed; set TMPDIR to use another folder") from None


def find_tables(path: Path, intake: Intake) -> PaiTables:
    """See which of the seven tables are there."""
    there = sources(path)
    tables_ = PaiTables(intake, {}, {}, [])
    for table in TABLES:
        source, others = choose(there, table)
        if others:
            msg = f"more than one file could be {table.name}: {', '.join(s.name for s in others)}"
            raise TraceError(msg, hint="give the file itself, or keep only one in the folder")
        if source is not None:
            tables_.files[table.name] = source
            first = Peek(path).beginning(source).split("\n", 1)[0].rstrip("\r")
            tables_.shapes[table.name] = with_header(table, first)
    if not tables_.files:
        msg = f"none of the seven PAI tables found in: {path}"
        raise TraceError(msg, hint=f"they are {', '.join(t.name for t in TABLES)}, as .csv, .csv.gz or .tar.gz")
    return tables_


def _table(name: str, columns: str) -> TableSchema:
    return TableSchema.of(name, columns, header=False, quote=False)


JOB = _table("pai_job_table", "job_name inst_id user status start_time:f end_time:f")
TASK = _table(
    "pai_task_table",
    "job_name task_name inst_num:f status start_time:f end_time:f plan_cpu:f plan_mem:f plan_gpu:f gpu_type",
)
INSTANCE = _table(
    "pai_instance_table", "job_name task_name inst_name worker_name inst_id status start_time:f end_time:f machine"
)
SENSOR = _table(
    "pai_sensor_table",
    "job_name task_name worker_name inst_id machine gpu_name cpu_usage:f gpu_wrk_util:f avg_mem:f max_mem:f "
    "avg_gpu_wrk_mem:f max_gpu_wrk_mem:f read:f write:f read_count:f write_count:f",
)
GROUP = _table("pai_group_tag_table", "inst_id user gpu_type_spec group workload")
SPEC = _table("pai_machine_spec", "machine gpu_type cap_cpu:f cap_mem:f cap_gpu:f")
METRIC = _table(
    "pai_machine_metric",
    "worker_name machine start_time:f end_time:f machine_cpu_iowait:f machine_cpu_kernel:f machine_cpu_usr:f "
    "machine_gpu:f machine_load_1:f machine_net_receive:f machine_num_worker:f machine_cpu:f",
)
TABLES = (SPEC, JOB, GROUP, TASK, INSTANCE, SENSOR, METRIC)

STATUS = {"Terminated": "completed", "Failed": "failed", "Running": "running", "Waiting": "waiting"}
PACKED = (".csv", ".csv.gz", ".tar.gz", ".tgz", ".tar")


def with_header(table: TableSchema, first_line: str) -> TableSchema:
    """The table with or without a header row, as this copy of it has one or not."""
    return replace(table, header=first_line.split(",") == list(table.columns))


def null_for_zero(frame: pl.DataFrame) -> pl.DataFrame:
    """Zero times mean that nothing was recorded."""
    return frame.with_columns(pl.when(pl.col(c) != 0).then(pl.col(c)).alias(c) for c in ("start_time", "end_time"))


def _absent(*columns: str) -> list[Rule]:
    return [(f"no `{c}`", pl.col(c).is_null()) for c in columns]


def _amounts(*columns: str) -> list[Rule]:
    wrong = [(f"`{c}` is not finite", pl.col(c).is_finite().not_(), c) for c in columns]
    return [*wrong, *[(f"`{c}` is negative", pl.col(c) < 0, c) for c in columns]]


def _broken(column: str) -> pl.Expr:
    return pl.col(column) != pl.col(column).floor()


def _too_large(largest: float, *columns: str) -> list[Rule]:
    return [(f"`{c}` is implausibly large", pl.col(c) > largest, c) for c in columns]


TIMES: list[Rule] = [
    *_amounts("start_time", "end_time"),
    ("ends before it starts", pl.col("end_time") < pl.col("start_time"), "end_time"),
]

RULES: dict[str, list[Rule]] = {
    "pai_machine_spec": [
        *_absent("machine", "cap_cpu", "cap_mem", "cap_gpu"),
        ("duplicate machine", pl.col("machine").is_first_distinct().not_(), "machine"),
        *_amounts("cap_cpu", "cap_mem", "cap_gpu"),
        *_too_large(1e6, "cap_cpu", "cap_mem", "cap_gpu"),
        ("`cap_gpu` is not a number of GPUs", _broken("cap_gpu"), "cap_gpu"),
        ("GPUs of no type", (pl.col("cap_gpu") > 0) & pl.col("gpu_type").is_null()),
    ],
    "pai_job_table": [
        *_absent("job_name"),
        ("duplicate job", pl.col("job_name").is_first_distinct().not_(), "job_name"),
        *TIMES,
    ],
    "pai_group_tag_table": [
        *_absent("inst_id"),
        ("duplicate inst_id", pl.col("inst_id").is_first_distinct().not_(), "inst_id"),
    ],
    "pai_task_table": [
        *_absent("job_name", "task_name", "inst_num", "status"),
        ("duplicate task", pl.struct("job_name", "task_name").is_first_distinct().not_(), "job_name"),
        ("unknown status", pl.col("status").is_in(list(STATUS)).not_(), "status"),
        *TIMES,
        *_amounts("inst_num", "plan_cpu", "plan_mem", "plan_gpu"),
        ("`inst_num` is not a number of instances", (pl.col("inst_num") < 1) | _broken("inst_num"), "inst_num"),
        *_too_large(1e6, "inst_num", "plan_mem"),
        *_too_large(1e8, "plan_cpu", "plan_gpu"),
    ],
    "pai_instance_table": [
        *_absent("job_name", "task_name", "inst_name", "status"),
        ("unknown status", pl.col("status").is_in([*STATUS, "Interrupted"]).not_(), "status"),
        *TIMES,
    ],
    "pai_sensor_table": [
        *_absent("job_name", "task_name"),
        *_amounts(*[c for c, kind in SENSOR.columns.items() if kind == pl.Float64]),
    ],
    "pai_machine_metric": [*_absent("machine"), *TIMES, *_amounts(*list(METRIC.columns)[4:])],
}


def choose(candidates: list[SourceFile], table: TableSchema) -> tuple[SourceFile | None, list[SourceFile]]:
    """Of the files that hold a table, the one to read: unpacked before packed; and others that could be meant."""
    candidates = [s for s in candidates if s.name.lower().endswith(PACKED)]
    exact = [s for s in candidates if s.stem == table.name]
    if exact:
        exact.sort(key=lambda s: (not s.name.lower().endswith(".csv"), s.name))
        return exact[0], []
    part = [s for s in candidates if s.stem.startswith(table.name)]
    return (part[0], []) if len(part) == 1 else (None, part)
