"""The jobs of a Slurm log (`sacct -P`), row by row: who, when, how it ended, what it held and where.

A log repeats itself, so what is costly to read (resources, lists of nodes) is read once for each distinct text.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import polars as pl

from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.format import Peek
from fleetlab.traces.input.intake import Intake, Rule, TableSchema
from fleetlab.traces.input.log_start import ended_before
from fleetlab.traces.input.timestamps import LATEST
from fleetlab.traces.slurm.arrays import split_arrays
from fleetlab.traces.slurm.attempts import in_order, resized, with_first_node
from fleetlab.traces.slurm.hostlist import expand
from fleetlab.traces.slurm.jobcomp import is_jobcomp, read_jobcomp
from fleetlab.traces.slurm.sacct_columns import FREE_TEXT
from fleetlab.traces.slurm.sacct_json import is_json_log, read_json
from fleetlab.traces.slurm.states import STATUS
from fleetlab.traces.slurm.submissions import with_submission
from fleetlab.traces.slurm.time_limit import limit
from fleetlab.traces.slurm.tres import JobRequest, JobShape, PerGpu, demand

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
    rows = rows.with_columns(pl.col(pl.String).str.strip_chars().fill_null(""))
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
    records = with_submission(_with_time_limit(_placed(records, intake), intake))
    columns = len(rows.columns) - sum(bool((rows[c] == "").all()) for c in OPTIONAL)
    records = _with_requests(with_first_node(records, steps), per_gpu, intake)
    return records.with_columns(columns=pl.lit(columns)), steps.select("file", "line", "JobID", "name")


def _rows(source: SourceFile, intake: Intake) -> pl.DataFrame:
    """The rows of a log in any of its forms, with the columns of `sacct -P`."""
    beginning, columns = Peek(source.path).beginning(source), (*SACCT.columns, "throttle")
    if is_json_log(beginning):
        return read_json(source, intake, columns)
    if is_jobcomp(beginning):
        return read_jobcomp(source, intake, columns)
    return intake.table(source, SACCT).with_columns(throttle=pl.lit(""))


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


def _placed(records: pl.DataFrame, intake: Intake) -> pl.DataFrame:
    """Count the nodes of each list, and turn away jobs whose list cannot be read."""
    known = [(text, *_counted(text)) for text in records["NodeList"].unique()]
    table = pl.DataFrame(known, schema={"NodeList": pl.String, "hosts": pl.Int64, "wrong": pl.String}, orient="row")
    return _without_bad(records.join(table, on="NodeList", how="left", maintain_order="left"), intake)


def _counted(text: str) -> tuple[int, str | None]:
    try:
        return len(expand(text)), None
    except ValueError as e:
        return 0, f"{e}: {text[:80]}"


def _with_time_limit(records: pl.DataFrame, intake: Intake) -> pl.DataFrame:
    """Give each job the time that was asked for, and turn away those of which it cannot be read."""
    known = [(*texts, *_limit(*texts)) for texts in records.select(LIMITS).unique().iter_rows()]
    schema = dict.fromkeys(LIMITS, pl.String) | {"limit": pl.Float64, "wrong": pl.String}
    table = pl.DataFrame(known, schema=schema, orient="row")
    return _without_bad(records.join(table, on=LIMITS, how="left", maintain_order="left"), intake).drop(LIMITS)


def _limit(*texts: str) -> tuple[float | None, str | None]:
    for column, text in zip(LIMITS, texts, strict=True):
        try:
            if request := limit(text):
                return request, None
        except ValueError as e:
            return None, f"`{column}` is {e}"
    return None, None


def _with_requests(records: pl.DataFrame, per_gpu: PerGpu, intake: Intake) -> pl.DataFrame:
    """Give each job its demand, and turn away those whose resources cannot be read."""
    keys = [*REQUESTED, "hosts", *_SHAPE]
    distinct = records.select(keys).unique(maintain_order=True)
    known = [row | _demanded(row, per_gpu) for row in distinct.iter_rows(named=True)]
    table = pl.DataFrame(known, schema=dict(distinct.schema) | _DEMAND | {"wrong": pl.String})
    records = records.join(table, on=keys, how="left", maintain_order="left")
    return _without_bad(records, intake).drop(*REQUESTED, *_SHAPE)


_DEMAND = {f.name: pl.Boolean if f.type == "bool" else pl.Int64 for f in fields(JobRequest)}
_DEMAND |= {"gpu_types": pl.List(pl.String)}  # type: ignore[dict-item]
_SHAPE = tuple(f.name for f in fields(JobShape))


def _demanded(row: dict[str, object], per_gpu: PerGpu) -> dict[str, object]:
    hosts = row["hosts"]
    assert isinstance(hosts, int)
    shape = JobShape(**{name: row[name] for name in _SHAPE})  # type: ignore[arg-type]
    try:
        request = demand({c: str(row[c]) for c in REQUESTED}, hosts, per_gpu, shape)
    except ValueError as e:
        return dict.fromkeys(_DEMAND) | {"wrong": str(e)}
    return vars(request) | {"gpu_types": list(request.gpu_types), "wrong": None}


def _without_bad(records: pl.DataFrame, intake: Intake) -> pl.DataFrame:
    _refuse(records.filter(pl.col("wrong").is_not_null()), "", "wrong", intake)
    return records.filter(pl.col("wrong").is_null()).drop("wrong")


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
