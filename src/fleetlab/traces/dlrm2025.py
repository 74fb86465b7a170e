"""Alibaba's 2025 trace of recommendation models served with disaggregated GPUs, from the Prism paper (NSDI'25).

One row an instance, one instance a job: instances of a service come and go one by one. The runtime is `app`; the role
is `group`, CN (runs on a CPU node) or HN (on a heterogeneous GPU node). RDMA is requested in percent of one network
card. Times count from the trace's beginning: an instance older than that has no creation and no scheduled time,
one that outlived the trace has no deletion time. Deletion is how an instance of a service completes.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fleetlab.core import Trace, TraceError, Workload
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import Format, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, Rule, TableSchema

TIMES = ("creation_time", "scheduled_time", "deletion_time")
# Their amount: our column, how many of ours make one of theirs (cores, GPUs, percent of a card, GiB), the most of it.
AMOUNTS = {
    "cpu": ("cpu_milli", 1000, 1e6),
    "gpu": ("gpu_milli", 1000, 1024),
    "rdma": ("rdma_milli", 10, 100),
    "memory": ("memory_mib", 1024, 1e6),
    "disk": ("disk_mib", 1024, 1e7),
}
NO_LIMIT = pl.col("max_instance_per_node") == -1
LATEST = 1e10  # seconds, some three centuries: no trace is as long

INSTANCES = TableSchema(
    "instances",
    {
        "instance_sn": pl.String,
        "role": pl.String,
        "app_name": pl.String,
        **{f"{amount}_{kind}": pl.Float64 for amount in AMOUNTS for kind in ("request", "limit")},
        "max_instance_per_node": pl.Float64,
        **dict.fromkeys(TIMES, pl.Float64),
    },
    optional=frozenset(f"{amount}_limit" for amount in AMOUNTS),
)


def _amount_rules(amount: str, most: float) -> list[Rule]:
    request, limit = f"{amount}_request", f"{amount}_limit"
    return [
        (f"`{request}` is missing", pl.col(request).is_null()),
        *[(f"`{c}` is not a number of 0 or more", _not_amount(c), c) for c in (request, limit)],
        *[(f"`{c}` is more than any node has", pl.col(c) > most, c) for c in (request, limit)],
        (f"`{request}` is above its limit", pl.col(request) > pl.col(limit), request),
    ]


def _not_amount(column: str) -> pl.Expr:
    return (pl.col(column).is_finite() & (pl.col(column) >= 0)).not_()


def _not_gpus(column: str) -> pl.Expr:
    share = (pl.col(column) * 1000).round() >= 1
    return ((pl.col(column) > 1) & (pl.col(column) != pl.col(column).floor())) | ((pl.col(column) > 0) & ~share)


RULES: list[Rule] = [
    ("no name", pl.col("instance_sn").is_null()),
    ("duplicate name", ~pl.col("instance_sn").is_first_distinct(), "instance_sn"),
    ("unknown role", pl.col("role").is_in(["CN", "HN"]).not_().fill_null(value=True), "role"),
    *[rule for amount, (_, _, most) in AMOUNTS.items() for rule in _amount_rules(amount, most)],
    ("neither a fraction of one GPU nor whole GPUs", _not_gpus("gpu_request"), "gpu_request"),
    (
        "`max_instance_per_node` is neither -1 nor a number from 1 on",
        (NO_LIMIT | pl.col("max_instance_per_node").is_between(1, 1e6) & (pl.col("max_instance_per_node") % 1 == 0))
        .not_()
        .fill_null(value=True),
        "max_instance_per_node",
    ),
    *[(f"`{c}` is not a number of 0 or more", _not_amount(c), c) for c in TIMES],
    *[(f"`{c}` is too far away", pl.col(c) > LATEST, c) for c in TIMES],
    ("scheduled before it was created", pl.col("scheduled_time") < pl.col("creation_time"), "scheduled_time"),
    ("deleted before it was scheduled", pl.col("deletion_time") < pl.col("scheduled_time"), "deletion_time"),
    ("deleted before it was created", pl.col("deletion_time") < pl.col("creation_time"), "deletion_time"),
]


def read(path: Path, intake: Intake) -> Trace:
    """Read the list of instances; `series` has what each is limited to, as `limits`."""
    source = _file(path)
    # The schema says NaN where this copy has nothing: before or after the trace.
    raw = intake.table(source, INSTANCES).with_columns(pl.col(TIMES).fill_nan(None))
    frame = intake.validate(raw, "instances", source.name, RULES)
    jobs, zero = relative_to_first(_jobs(frame))
    workload = Workload.of(jobs.drop("name", pl.selectors.starts_with("limit_")), source="dlrm2025")
    intake.keep("instances", len(workload))
    numbered = jobs.with_columns(job=pl.int_range(pl.len(), dtype=pl.Int64))
    return finish(
        intake,
        workload,
        names=numbered.select("job", "name").lazy(),
        series={"limits": numbered.select("job", **{c: f"limit_{c}" for c, _, _ in AMOUNTS.values()}).lazy()},
        notes=_notes(frame),
        settings={"zero": zero},
    )


def _file(path: Path) -> SourceFile:
    candidates = [s for s in sources(path) if "dlrm_trace" in s.stem] if path.is_dir() else sources(path)
    if len(candidates) != 1:
        msg = f"not one list of instances, which would be disaggregated_DLRM_trace.csv, in: {path}"
        raise TraceError(msg, hint="name the file itself")
    return candidates[0]


def _jobs(instances: pl.DataFrame) -> pl.DataFrame:
    return instances.select(
        name="instance_sn",
        group="role",
        app="app_name",
        submit=pl.col("creation_time").fill_null(0.0),
        initial=pl.col("creation_time").is_null(),
        runtime=pl.col("deletion_time") - pl.col("scheduled_time"),
        **{ours: _whole(f"{theirs}_request", factor) for theirs, (ours, factor, _) in AMOUNTS.items()},
        **{f"limit_{ours}": _whole(f"{theirs}_limit", factor) for theirs, (ours, factor, _) in AMOUNTS.items()},
        max_per_node=pl.when(NO_LIMIT).then(0).otherwise(pl.col("max_instance_per_node")).cast(pl.Int32),
        status=_status(),
        start="scheduled_time",
        end="deletion_time",
    )


def _whole(column: str, factor: int) -> pl.Expr:
    return (pl.col(column) * factor).round().cast(pl.Int64)


def _status() -> pl.Expr:
    alive = pl.col("deletion_time").is_null()
    # Older than the trace is another thing: such an instance has no creation time either.
    unscheduled = pl.col("creation_time").is_not_null() & pl.col("scheduled_time").is_null()
    return (
        pl.when(alive & unscheduled).then(pl.lit("waiting"))
        .when(alive).then(pl.lit("running"))
        .when(unscheduled).then(pl.lit("cancelled"))
        .otherwise(pl.lit("completed"))
    )  # fmt: skip


def _notes(instances: pl.DataFrame) -> tuple[str, ...]:
    created, scheduled, deleted = (pl.col(c).is_not_null() for c in TIMES)
    older, late, alive, complete = (
        instances.filter(which).height
        for which in (~created & ~scheduled, ~created & scheduled, ~deleted, created & scheduled & deleted)
    )
    return (
        f"{older:,} of {instances.height:,} instances are older than the trace: submit time 0, no start",
        *([f"{late:,} more were scheduled inside it: their waits are longer than recorded"] if late else []),
        f"{alive:,} instances still run at its end: their runtime is unknown; {complete:,} are complete",
        "no nodes are published: the trace has no cluster",
    )


FORMAT = Format.of("dlrm2025", read)
