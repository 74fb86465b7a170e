"""Alibaba's 2026 trace of an image-generating runtime (GenTD26): requests, and metrics of the containers behind it.

A request is a job: its user is the `groupId`, its group the kind of prediction, its app the base model. What else is
known of it stands in the series `requests`, by job. The publisher shifted the clocks of requests and of metrics by
different times, and says nothing of which container served a request: series count from their own first sample.
Metrics are scaled too, and so is their time: samples stand 57 s apart and span 82,080 s, 0.95 of a minute and a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from fleetlab.core import Trace, TraceError, Workload
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, Rule, TableSchema

REQUESTS = TableSchema.of(
    "requests",
    "gmt_create predict_type predict_status exec_time_seconds:f groupId prompt_length:f negative_prompt_length:f "
    "num_images_per_prompt:f num_inference_steps:f checkpoint_model_version_id num_lora:f",
)
# Requests of the same runtime without times or users: not jobs, but what requests look like.
PARAMETERS = TableSchema.of(
    "request_parameters",
    "predict_type exec_time_seconds:f style_type prompt_length:f negative_prompt_length:f num_images_per_prompt:f "
    "num_inference_steps:f checkpoint_model_version_id lora_args",
)
METRIC: dict[str, type[pl.DataType]] = {"timestamp_anon": pl.Float64, "value": pl.Float64, "container_ip": pl.String}
# The file of each metric, the series it becomes, and its unit.
METRICS = {
    "qps": ("qps", "requests a second"),
    "queue_size_raw_anon": ("queue_size", "requests"),
    "queue_rt_raw_anon": ("queue_rt", "ms"),
    "pipeline_update_latency_anon": ("pipeline_update_latency", "ms"),
    "basemodel_update_latency_anon": ("base_model_update_latency", "ms"),
    "base_model_update_latency_anon": ("base_model_update_latency", "ms"),  # as the description spells it
    "lora_update_latency_anon": ("lora_update_latency", "ms"),
    "controlnet_latency_data_anon": ("controlnet_latency", "ms"),
    "model_predict_data_anon": ("model_predict", "ms"),
    "pipeline_inference_data_anon": ("pipeline_inference", "ms"),
    "pod_memory_util_anon": ("pod_memory_util", "share"),
    "pod_gpu_duty_cycle_anon": ("pod_gpu_duty_cycle", "%"),
    "pod_gpu_memory_used_bytes_anon": ("pod_gpu_memory_used_bytes", "bytes"),
}
TABLES = {"lora_request_trace": "requests", "data_trace_processed": "request_parameters"} | {
    stem: series for stem, (series, _) in METRICS.items()
}

STATUS = {"SUCCEED": "completed", "FAILED": "failed", "PROCESSING": "running", "PENDING": "waiting"}
ENDED = pl.col("predict_status").is_in(["SUCCEED", "FAILED"])
LATEST = 1e10  # seconds of Unix time, in the year 2286
CREATED = (
    pl.col("gmt_create").str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False).dt.epoch("us") / 1e6
)


def _number_rules(table: TableSchema) -> list[Rule]:
    """Amounts may be absent; one that is there is finite, not negative, and not absurd."""
    numbers = [c for c, kind in table.columns.items() if kind == pl.Float64]
    return [
        (f"`{c}` is not a number from 0 to 1e9", (pl.col(c).is_finite() & pl.col(c).is_between(0, 1e9)).not_(), c)
        for c in numbers
    ]


REQUEST_RULES: list[Rule] = [
    ("`gmt_create` is not a time", CREATED.is_between(0, LATEST).not_().fill_null(value=True), "gmt_create"),
    ("unknown status", pl.col("predict_status").is_in(list(STATUS)).not_().fill_null(value=True), "predict_status"),
    *_number_rules(REQUESTS),
    ("the request ended, but its `exec_time_seconds` is missing", ENDED & pl.col("exec_time_seconds").is_null()),
]
# A metric may be a hair below 0: the publisher scaled them, and one sample of memory use is.
METRIC_RULES: list[Rule] = [
    (
        "`timestamp_anon` is not a Unix time in seconds",
        pl.col("timestamp_anon").is_between(0, LATEST).not_().fill_null(value=True),
        "timestamp_anon",
    ),
    (
        "`value` is not a number of 0 or more",
        (pl.col("value").is_finite() & pl.col("value").is_between(-1e-3, 1e15)).not_().fill_null(value=True),
        "value",
    ),
]


def read(path: Path, intake: Intake) -> Trace:
    """Read the requests, the containers' metrics, or both."""
    files = _files(path)
    metrics = {name: file for name, file in files.items() if name not in ("requests", "request_parameters")}
    requests, zero = relative_to_first(_requests(files.get("requests"), intake))
    workload = Workload.of(_as_jobs(requests), source="genai2026")
    series = _samples(metrics, intake)
    if "requests" in files:
        intake.keep("requests", len(workload))
        series["requests"] = _parameters_by_job(requests).lazy()
    if "request_parameters" in files:
        series["request_parameters"] = _parameters(files["request_parameters"], intake)
    return finish(intake, workload, series=series, notes=_notes(files, metrics), settings={"zero": zero})


def _files(path: Path) -> dict[str, SourceFile]:
    files: dict[str, SourceFile] = {}
    peek = Peek(path)
    for source in sources(path):
        # A single file is what it is whatever its name: then it is read as a table of requests.
        name = TABLES.get(source.stem, None if path.is_dir() else "requests")
        if name == "requests" and "lora_args" in peek.beginning(source).split("\n", 1)[0]:
            name = "request_parameters"  # under the same file name, in an earlier release
        if name in files:
            msg = f"two files for one table: {files[name].name} and {source.name}"
            raise TraceError(msg, hint="leave one of them in the folder")
        if name is not None:
            files[name] = source
    if not files:
        msg = f"no table of this trace in: {path}"
        raise TraceError(msg, hint="lora_request_trace.csv, or metrics such as qps.tar.gz")
    return files


# -- requests ----------------------------------------------------------------------------------------------------


def _requests(source: SourceFile | None, intake: Intake) -> pl.DataFrame:
    if source is None:
        return pl.DataFrame(schema=dict(REQUESTS.columns)).with_columns(submit=CREATED)
    frame = intake.validate(intake.table(source, REQUESTS), "requests", source.name, REQUEST_RULES)
    return frame.with_columns(submit=CREATED)


def _as_jobs(requests: pl.DataFrame) -> pl.DataFrame:
    return requests.select(
        user="groupId",
        group="predict_type",
        app="checkpoint_model_version_id",
        submit="submit",
        # One that has not ended shows how long it has run so far.
        runtime=pl.when(ENDED).then(pl.col("exec_time_seconds")),
        status=pl.col("predict_status").replace_strict(STATUS, return_dtype=pl.String),
    )


def _parameters_by_job(requests: pl.DataFrame) -> pl.DataFrame:
    columns = ("prompt_length", "negative_prompt_length", "num_images_per_prompt", "num_inference_steps", "num_lora")
    return requests.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("job"), *columns)


def _parameters(source: SourceFile, intake: Intake) -> pl.LazyFrame:
    frame = intake.validate(intake.table(source, PARAMETERS), PARAMETERS.name, source.name, _number_rules(PARAMETERS))
    intake.keep(PARAMETERS.name, frame.height)
    return frame.drop("line").lazy()


# -- metrics -----------------------------------------------------------------------------------------------------


def _samples(metrics: Mapping[str, SourceFile], intake: Intake) -> dict[str, pl.LazyFrame]:
    """Every metric's samples as (time, container, value), with time from the first sample of all."""
    samples = {name: _metric(name, source, intake) for name, source in metrics.items()}
    zero = min((float(frame["time"].to_numpy().min()) for frame in samples.values() if frame.height), default=0.0)
    return {name: frame.with_columns(pl.col("time") - zero).lazy() for name, frame in samples.items()}


def _metric(name: str, source: SourceFile, intake: Intake) -> pl.DataFrame:
    table = TableSchema(name, METRIC | ({"request_type": pl.String} if name == "qps" else {}))
    parts = [_narrow(pl.DataFrame(schema=dict(table.columns)))]
    # Narrowed block by block: in all a day of samples takes some fifteen megabytes, so none need be staged on disk.
    parts += [_narrow(intake.validate(b, name, source.name, METRIC_RULES)) for b in intake.batches(source, table)]
    frame = pl.concat(parts)
    intake.keep(name, frame.height)
    return frame


def _narrow(samples: pl.DataFrame) -> pl.DataFrame:
    # The publisher asks to take both words for nothing.
    container = pl.col("container_ip").replace(["NULL", "None"], None)
    return samples.select(
        pl.col("timestamp_anon").alias("time"),
        container.cast(pl.Categorical).alias("container"),
        "value",
        *(pl.col(c).cast(pl.Categorical) for c in samples.columns if c == "request_type"),
    )


# -- what it says of itself --------------------------------------------------------------------------------------


def _notes(files: Mapping[str, SourceFile], metrics: Mapping[str, SourceFile]) -> tuple[str, ...]:
    of_requests = (
        "GPU requests are not published: set to 0",
        "starts are not published: waits are unknown",
        "dates are shifted by an unknown time: hour of the day and weekday are unknown",
    )
    of_metrics = (
        "series count from their first sample: their clock differs from that of the requests",
        f"metrics are scaled by the publisher, values and time; units: {_units(metrics)}",
    )
    return (
        *(of_requests if "requests" in files else ["no requests with times: the workload is empty"]),
        *(of_metrics if metrics else []),
        "no nodes are published: the trace has no cluster",
    )


def _units(metrics: Mapping[str, SourceFile]) -> str:
    units = sorted({(unit, name) for name, unit in METRICS.values() if name in metrics})
    by_unit = {unit: ", ".join(name for u, name in units if u == unit) for unit, _ in units}
    return "; ".join(f"{unit} of {names}" for unit, names in by_unit.items())


FORMAT = Format.of("genai2026", read)
