"""The jobs of a Slurm log (`sacct -P`), row by row: who, when, how it ended, what it held and where.

A log repeats itself, so what is costly to read (resources, lists of nodes) is read once for each distinct text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import polars as pl

from fleetlab.schedulers.slurm.reader.attempts import first_node, in_order, resized, split_arrays
from fleetlab.schedulers.slurm.reader.conf_text import limit
from fleetlab.schedulers.slurm.reader.node_lists import count_named, expand
from fleetlab.schedulers.slurm.reader.sacct_columns import FREE_TEXT
from fleetlab.schedulers.slurm.reader.sacct_json import is_json_log, read_json
from fleetlab.schedulers.slurm.reader.submissions import (
    PART,
    SUBMISSION,
    SUBMISSION_TEXTS,
    is_jobcomp,
    read_jobcomp,
    submission,
)
from fleetlab.schedulers.slurm.reader.tres import JobRequest, JobShape, PerGpu, demand
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.format import Peek
from fleetlab.traces.input.intake import Intake, Rule, TableSchema
from fleetlab.traces.input.times import LATEST, ended_before
from fleetlab.traces.job_list import STATUS

REQUESTED = (
    "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "AllocCPUS", "NCPUS", "ReqCPUS",
    "AllocNodes", "NNodes", "ReqNodes", "ReqMem",
)  # fmt: skip
LIMITS = ("Timelimit", "TimelimitRaw")
OPTIONAL = (
    *("Cluster", "JobName", "User", "Account", "Priority", "Start", "End", "ElapsedRaw", "NodeList"),
    *("Partition", "Eligible", "QOS", "SubmitLine", "Constraints", "Reservation", "Flags", "Reason", "JobIDRaw"),
    *LIMITS,
    *REQUESTED,
)
SACCT = TableSchema(
    "jobs",
    dict.fromkeys(("JobID", "Submit", "State", *OPTIONAL), pl.String),
    optional=frozenset(OPTIONAL),
    separator="|",
    quote=False,  # sacct quotes nothing, and a job may be named `"`
    free=FREE_TEXT,
)

MOST_NAMED = 20_000_000  # nodes in all distinct lists: beyond, they are counted and not kept

NO_TIME = ["", "Unknown", "None", "N/A", "(null)"]
STAMP = "%Y-%m-%dT%H:%M:%S"
TIMES = ("Submit", "Start", "End")
RULES: list[Rule] = [
    ("no submit time", pl.col("Submit").is_in(NO_TIME)),
    *[(f"`{c}` is not a time", pl.col(c.lower()).is_null() & pl.col(c).is_in(NO_TIME).not_(), c) for c in TIMES],
    ("unknown state", pl.col("status").is_null(), "State"),
    (
        "`ElapsedRaw` is not a number of seconds",
        (pl.col("ElapsedRaw") != "") & pl.col("elapsed").is_between(0, LATEST).fill_null(value=False).not_(),
        "ElapsedRaw",
    ),
    ("`Priority` is not a number", (pl.col("Priority") != "") & pl.col("priority").is_null(), "Priority"),
]
# Of the times that count: a job that waits has no start yet, whatever is expected.
ORDER_RULES: list[Rule] = [
    ("starts before it was submitted", pl.col("start") < pl.col("submit"), "Start"),
    ("ends before it starts", pl.col("end") < pl.col("start"), "End"),
    ("ends before it was submitted", pl.col("end") < pl.col("submit"), "End"),
]
# 123, 123_4, 123_[5-9%2], 123+0; and a step of any of them after a dot.
ID = r"^\d+(?:_\d+|_\[[^\]]*\]?|\+\d+)?(?:\..+)?$"
JOB = r"^([^.\[]*(?:\[[^\]]*\]?)?)"  # what is before that dot: a long list of jobs ends in dots of its own
STEP = r"^[^.\[]*(?:\[[^\]]*\])?\."


@dataclass(frozen=True)
class JobRecords:
    """The jobs of a log, how many steps went into them, and the nodes that each distinct list names."""

    frame: pl.DataFrame
    rows: int  # of the log that are in `frame`: less than its jobs, where a row stood for several
    steps: int
    lists: pl.DataFrame | None  # NodeList, node: list; None where there are too many to keep


def read_jobs(
    logs: list[SourceFile], intake: Intake, zone: str, per_gpu: PerGpu, since: float | None = None
) -> JobRecords:
    """Read logs one after the other; a job that stands in several is taken from the last."""
    parts = [_read(source, intake, zone, per_gpu, since) for source in logs]
    records = _newest(split_arrays(pl.concat([part[0] for part in parts])), intake)
    steps = pl.concat([part[1] for part in parts])
    folded = steps.join(records.select("name").unique(), on="name", how="semi")
    _refuse(steps.join(records, on="name", how="anti"), "a step of a job that is not in the trace: ", "JobID", intake)
    return JobRecords(
        records, records.select(pl.struct("file", "line").n_unique()).item(), folded.height, _lists(records)
    )


def _lists(records: pl.DataFrame) -> pl.DataFrame | None:
    distinct = records.unique("NodeList", maintain_order=True)
    if distinct["hosts"].sum() > MOST_NAMED:
        return None
    nodes = [expand(text) for text in distinct["NodeList"]]
    return distinct.select("NodeList", node=pl.Series(nodes, dtype=pl.List(pl.String)))


def _read(
    source: SourceFile, intake: Intake, zone: str, per_gpu: PerGpu, since: float | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows = _rows(source, intake)
    throttle = () if "throttle" in rows.columns else (pl.lit("").alias("throttle"),)
    rows = rows.with_columns(pl.col(pl.String).str.strip_chars().fill_null(""), *throttle)
    rows = intake.validate(
        rows, "jobs", source.name, [("not the id of a job", ~pl.col("JobID").str.contains(ID), "JobID")]
    )
    rows = rows.with_columns(name=_name(), file=pl.lit(source.name))
    step = pl.col("JobID").str.contains(STEP)
    steps = rows.filter(step).select("file", "line", "JobID", "name", "AllocTRES", started=_moment("Start", zone))
    records = rows.filter(~step).with_columns(
        **_moments(zone),
        status=pl.col("State").str.extract(r"^([A-Za-z_]+)").str.to_uppercase().replace_strict(STATUS, default=None),
        elapsed=pl.col("ElapsedRaw").cast(pl.Float64, strict=False),
        priority=pl.col("Priority").cast(pl.Float64, strict=False).clip(-(2**31), 2**31 - 1).fill_nan(None),
    )
    records = intake.validate(records, "jobs", source.name, [*_skipped(zone), *RULES])
    records = intake.validate(
        _observed_times(resized(records), zone), "jobs", source.name, [*ORDER_RULES, *ended_before(since, "End")]
    )
    columns = len(rows.columns) - sum(bool((rows[c] == "").all()) for c in OPTIONAL)
    records = _with_texts(records, steps, per_gpu, intake)
    return records.with_columns(columns=pl.lit(columns)), steps.select("file", "line", "JobID", "name")


def _rows(source: SourceFile, intake: Intake) -> pl.DataFrame:
    """The rows of a log in any of its forms, with the columns of `sacct -P`."""
    beginning, columns = Peek(source.path).beginning(source), (*SACCT.columns, "throttle")
    if is_json_log(beginning):
        return read_json(source, intake, columns)
    if is_jobcomp(beginning):
        return read_jobcomp(source, intake, columns)
    return intake.table(source, SACCT)


def _name() -> pl.Expr:
    record = pl.col("JobID").str.extract(JOB)
    return pl.when(pl.col("Cluster") == "").then(record).otherwise(pl.concat_str("Cluster", pl.lit("/"), record))


# -- when ----------------------------------------------------------------------------------------------------------


def _moments(zone: str) -> dict[str, pl.Expr]:
    return {c.lower(): _moment(c, zone) for c in (*TIMES, "Eligible")}


def _skipped(zone: str) -> list[Rule]:
    """Where clocks are set forward an hour never comes."""
    at = [(c, pl.col(c).str.to_datetime(STAMP, strict=False, time_unit="us")) for c in TIMES]
    never = [(c, t.is_not_null() & t.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").is_null())
             for c, t in at]  # fmt: skip
    return [(f"`{c}` does not exist in {zone}: clocks were set forward", gone, c) for c, gone in never]


def _moment(column: str, zone: str, *, again: bool = False) -> pl.Expr:
    """When it was, in Unix seconds: by the clock of `zone`, by an offset of its own, or counted already.

    Where clocks are set back an hour comes twice, and a stamp means the first, or `again` the second.
    """
    text = pl.col(column)
    local = text.str.to_datetime(STAMP, strict=False, time_unit="us")
    local = local.dt.replace_time_zone(zone, ambiguous="latest" if again else "earliest", non_existent="null")
    offset = text.str.to_datetime(f"{STAMP}%z", strict=False, time_unit="us")
    counted = text.cast(pl.Float64, strict=False)
    seconds = pl.coalesce(local.dt.timestamp("us") / 1e6, offset.dt.timestamp("us") / 1e6, counted)
    return pl.when((seconds > 0) & (seconds < LATEST)).then(seconds)


def _observed_times(records: pl.DataFrame, zone: str) -> pl.DataFrame:
    """Times as the log saw them: no start of what waits or never ran, no end of what runs."""
    going, waiting = pl.col("status") == "running", pl.col("status") == "waiting"
    # A job cancelled in the queue is logged as starting the moment it is cancelled, on no node.
    no_node = (pl.col("NodeList").str.to_lowercase() == "none assigned") | (pl.col("AllocNodes") == "0")
    no_node |= (pl.col("AllocTRES") == "") & (pl.col("AllocTRES") != "").any() & (pl.col("status") == "cancelled")
    records = records.with_columns(
        start=pl.when(~(waiting | no_node)).then(_not_before("Start", pl.col("submit"), zone))
    )
    begun = pl.max_horizontal("submit", "start")  # a job that never started was submitted all the same
    records = records.with_columns(end=pl.when(~(waiting | going)).then(_not_before("End", begun, zone)))
    # What was suspended for a while ran for less than from start to end.
    ran = pl.when(pl.col("ElapsedRaw") != "").then("elapsed").otherwise(pl.col("end") - pl.col("start"))
    return records.with_columns(runtime=pl.when(pl.col("end").is_not_null() & pl.col("start").is_not_null()).then(ran))


def _not_before(column: str, moment: pl.Expr, zone: str) -> pl.Expr:
    once = pl.col(column.lower())
    return pl.when(once < moment).then(_moment(column, zone, again=True)).otherwise(once)


# -- where and what ------------------------------------------------------------------------------------------------


def _with_texts(records: pl.DataFrame, steps: pl.DataFrame, per_gpu: PerGpu, intake: Intake) -> pl.DataFrame:
    """Give each job what its texts say: nodes, time limit, submission and requests; turn away what cannot be read.

    Each distinct text is read once.
    """
    records = records.with_columns(part=PART, first=first_node(records, steps))
    for keys, schema, read in (
        (("NodeList",), {"hosts": pl.Int64}, _hosts),
        (LIMITS, {"limit": pl.Float64}, _limit),
        (SUBMISSION_TEXTS, SUBMISSION, submission),
        ((*REQUESTED, "hosts", *_SHAPE), _DEMAND, partial(_demanded, per_gpu)),
    ):
        distinct = records.select(keys).unique(maintain_order=True)
        table = [row | _tried(read, row) for row in distinct.iter_rows(named=True)]
        values = pl.DataFrame(table, schema=dict(distinct.schema) | schema | {"wrong": pl.String})
        records = records.join(values, on=keys, how="left", maintain_order="left")
        _refuse(records.filter(pl.col("wrong").is_not_null()), "", "wrong", intake)
        records = records.filter(pl.col("wrong").is_null()).drop("wrong")
    # Tasks that have not started tell the throttle themselves: 103_[1-5%2].
    own = pl.col("JobID").str.extract(r"_\[.*%(\d{1,9})\]$").cast(pl.Int64)
    most = pl.col("throttle").cast(pl.Int64, strict=False)
    records = records.with_columns(array_limit=pl.coalesce(own, most, "array_limit"))
    shape = [name for name in _SHAPE if name != "exclusive"]  # which is a column of jobs too
    return records.drop("part", "throttle", *LIMITS, *REQUESTED, *shape)


def _tried(read: Callable[[dict[str, Any]], dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
    try:
        return read(row)
    except ValueError as e:
        return {"wrong": str(e)}


def _hosts(row: dict[str, Any]) -> dict[str, int]:
    try:
        return {"hosts": count_named(row["NodeList"])}
    except ValueError as e:
        msg = f"{e}: {row['NodeList'][:80]}"
        raise ValueError(msg) from None


def _limit(row: dict[str, Any]) -> dict[str, float | None]:
    for column in LIMITS:
        try:
            if request := limit(row[column]):
                return {"limit": request}
        except ValueError as e:
            msg = f"`{column}` is {e}"
            raise ValueError(msg) from None
    return {"limit": None}


_DEMAND: dict[str, Any] = {f.name: pl.Boolean if f.type == "bool" else pl.Int64 for f in fields(JobRequest)}
_DEMAND |= {"gpu_types": pl.List(pl.String)}
_SHAPE = tuple(f.name for f in fields(JobShape))


def _demanded(per_gpu: PerGpu, row: dict[str, Any]) -> dict[str, Any]:
    shape = JobShape(**{name: row[name] for name in _SHAPE})
    request = demand({c: row[c] for c in REQUESTED}, row["hosts"], per_gpu, shape)
    return vars(request) | {"gpu_types": list(request.gpu_types)}


def _newest(records: pl.DataFrame, intake: Intake) -> pl.DataFrame:
    """Of rows of one job, keep the one that saw it end, of the log with the most columns, of the last log."""
    # A job that is put back into the queue keeps its id and gets a new time of submission.
    ended = pl.col("status").is_in(["running", "waiting"]).not_()
    records = records.with_row_index("at").with_columns(ended=ended)
    order = records.select("at", "name", "submit", "ended", "columns").sort("ended", "columns", "at")
    best = order.unique(["name", "submit"], keep="last")["at"]
    last = records["at"].is_in(best.implode())
    kept = records.filter(last)
    # A row of several jobs goes only when each of them stands again.
    gone = records.filter(~last).join(kept, on=["file", "line"], how="anti", maintain_order="left")
    gone = gone.unique(["file", "line"], keep="first", maintain_order=True)
    _refuse(gone, "superseded by a later row of the same job: ", "JobID", intake)
    return kept.drop("at", "ended").sort(*in_order(), maintain_order=True)


def _refuse(rows: pl.DataFrame, reason: str, column: str, intake: Intake) -> None:
    for (file,), part in rows.group_by("file", maintain_order=True):
        lines = [(line, f"{reason}{value}") for line, value in part.select("line", column).iter_rows()]
        intake.reject("jobs", str(file), lines)
