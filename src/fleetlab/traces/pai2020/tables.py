"""The seven tables of Alibaba's PAI trace as they are published: columns, and what makes a row impossible.

The CSVs have no header row; a copy with one is taken too. Zero times stand for missing ones, percentages are of a core
or of a GPU, memory is in GiB (29.296875 is 30,000 MiB).
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.intake import Rule, TableSchema

S, F = pl.String, pl.Float64


def _table(name: str, text: str, numbers: str) -> TableSchema:
    columns: dict[str, type[pl.DataType]] = dict.fromkeys(text.split(), S)
    columns |= dict.fromkeys(numbers.split(), F)
    return TableSchema(name, columns, header=False, quote=False)


def _ordered(table: TableSchema, order: str) -> TableSchema:
    return replace(table, columns={c: table.columns[c] for c in order.split()})


JOB = _table("pai_job_table", "job_name inst_id user status", "start_time end_time")
TASK = _ordered(
    _table(
        "pai_task_table",
        "job_name task_name status gpu_type",
        "inst_num start_time end_time plan_cpu plan_mem plan_gpu",
    ),
    "job_name task_name inst_num status start_time end_time plan_cpu plan_mem plan_gpu gpu_type",
)
INSTANCE = _ordered(
    _table(
        "pai_instance_table", "job_name task_name inst_name worker_name inst_id status machine", "start_time end_time"
    ),
    "job_name task_name inst_name worker_name inst_id status start_time end_time machine",
)
SENSOR = _table(
    "pai_sensor_table",
    "job_name task_name worker_name inst_id machine gpu_name",
    "cpu_usage gpu_wrk_util avg_mem max_mem avg_gpu_wrk_mem max_gpu_wrk_mem read write read_count write_count",
)
GROUP = _table("pai_group_tag_table", "inst_id user gpu_type_spec group workload", "")
SPEC = _table("pai_machine_spec", "machine gpu_type", "cap_cpu cap_mem cap_gpu")
METRIC = _table(
    "pai_machine_metric",
    "worker_name machine",
    "start_time end_time machine_cpu_iowait machine_cpu_kernel machine_cpu_usr machine_gpu machine_load_1"
    " machine_net_receive machine_num_worker machine_cpu",
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
        *_amounts(*[c for c, kind in SENSOR.columns.items() if kind == F]),
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
