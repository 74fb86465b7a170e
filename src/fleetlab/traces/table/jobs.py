"""The rows of a delimited table, settled: what their times say of each job's state, and of one another."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.intake import Intake, Rule
from fleetlab.traces.input.times import (
    EPOCH,
    LOCAL,
    MILLI,
    SECONDS,
    SIZES,
    TWICE,
    as_written,
    ended_before,
    later_occurrence,
)
from fleetlab.traces.table.cells import NAME
from fleetlab.traces.table.expression import AMOUNTS, NODES, SPLIT, TIMES, ColumnMap, ColumnRef, map_option
from fleetlab.traces.table.values import node_names

WHERE_EMPTY = {"instances": 1}  # else 0
MOST_ON_A_NODE = 16  # GPUs; as thousandths of one they would be hardly any
WHOLE = 1000  # milli of a GPU
# Of Slurm: sacct lists steps beside their jobs.
STEP = r"^\d+(?:_\d+|_\[.*\])?(?:\+\d+)?\.(?:batch|extern|interactive|\d+)$"
LISTS = {"gpu_types": ";|", "partitions": ",;|"}  # columns with several names in a cell, and what is between them
DIVIDED = NODE_AMOUNTS  # with the GPUs; GPU memory is that of each GPU


@dataclass
class TableNotes:
    """What was found out on the way, for the notes."""

    dated: bool
    forms: dict[str, set[int]]
    zeros: int = 0
    passed_over: int = 0
    most_gpu: int = 0  # the largest `gpu_milli`
    split: int = 0  # jobs of more GPUs than a node has
    spread: int = 0  # jobs that ran on several nodes
    empty: dict[str, int] = field(default_factory=dict)

    def notes(self, plan: ColumnMap, *, zone_given: bool) -> tuple[str, ...]:
        """What a reader of the trace should know of it; `zone_given`: the user named its time zone."""
        return (*self._clocks(plan, zone_given=zone_given), *self._cells(), *self._slips(plan), *_absent(plan))

    def _clocks(self, plan: ColumnMap, *, zone_given: bool) -> list[str]:
        notes = []
        for unit, (name, _, _) in SIZES.items():
            if targets := [t for t, forms in self.forms.items() if unit in forms]:
                notes.append(f"{', '.join(targets)}: Unix time in {name}, judged by magnitude")
        every = set().union(*self.forms.values())
        if every & {LOCAL, TWICE} and not zone_given:
            notes.append("times without a zone are read as UTC; set `zone` to change this")
        if TWICE in every:
            notes.append(
                f"ambiguous local times (clocks set back in {plan.zone}) are read as the earlier one, "
                "or as the later one where a job would otherwise end before it starts"
            )
        if not self.dated:
            notes.append("times count from an unknown date: no hour of the day, no weekday")
        return notes

    def _cells(self) -> list[str]:
        notes = [f"empty cells of `{n}` are read as {WHERE_EMPTY.get(n, 0)}: {k:,}" for n, k in self.empty.items()]
        if self.zeros:
            notes.append(f"starts or ends of 0 or -1, read as missing: {self.zeros:,}")
        if self.passed_over:
            notes.append(f"runtimes or ends of jobs that have not ended, ignored: {self.passed_over:,}")
        if self.spread:
            notes.append(f"jobs that ran on several nodes, read as equal instances, one a node: {self.spread:,}")
        if self.split:
            notes.append(f"jobs of more GPUs than `{SPLIT}`, split equally over the fewest nodes: {self.split:,}")
        return notes

    def _slips(self, plan: ColumnMap) -> list[str]:
        """The likeliest slip of a map: GPUs where thousandths of one are expected."""
        if not 0 < self.most_gpu <= MOST_ON_A_NODE:
            return []
        node = plan.nodes["gpu_milli"]
        times = map_option("gpu_milli", node.name, "*1000") if isinstance(node, ColumnRef) else "multiply by 1000"
        return [f"gpu_milli never exceeds {self.most_gpu}: if these are GPUs, {times}"]


def _absent(plan: ColumnMap) -> list[str]:
    notes = []
    if "status" not in plan.nodes:
        notes.append(_no_status(plan))
    if not plan.nodes.keys() & {"runtime", "end"}:
        notes.append("no runtime and no end: run times are unknown")
    if "gpu_milli" not in plan.nodes:
        notes.append("no gpu_milli: no job requests a GPU")
    return notes


def _no_status(plan: ColumnMap) -> str:
    """What `_told_by_times` makes of a table that tells no status."""
    over = " or ".join(word for n, word in (("end", "an end"), ("runtime", "a runtime")) if n in plan.nodes)
    if not over and "start" not in plan.nodes:
        return "no status, start or end: all jobs are read as completed"
    if not over:
        return "no status and no end: a job without a start is read as waiting, any other as completed"
    waits = ", or as waiting if it has no start" if "start" in plan.nodes else ""
    return f"no status: a job without {over} is read as running{waits}"


def to_jobs(
    rows: pl.DataFrame, source: SourceFile, intake: Intake, plan: ColumnMap, since: float | None = None
) -> tuple[pl.DataFrame, TableNotes]:
    """Jobs as a workload has them, with a `name`; rows that contradict themselves or others are rejected."""
    info = TableNotes(_dated(rows), {t: set(rows[f"{t}?"].unique()) for t in TIMES})
    if info.dated:
        rows = _resolve_ambiguous_hours(_without_zeros(rows, info), plan.zone)
    rows = rows.with_columns(status=pl.col("status") if "status" in plan.nodes else _status_from_times(plan))
    ended = ~pl.col("status").is_in(["running", "waiting"])
    info.passed_over = rows.filter(~ended & (pl.col("runtime").is_not_null() | pl.col("end").is_not_null())).height
    rows = rows.with_columns(
        start=pl.when(pl.col("status") != "waiting").then(pl.col("start")),
        end=pl.when(ended).then(pl.col("end")),
        runtime=pl.when(ended).then(pl.coalesce("runtime", pl.col("end") - pl.col("start"))),
    )
    rules = [*_rules(plan, dated=info.dated), *ended_before(since, _as_written("end", plan))]
    rules += _split_rules(rows.columns) if SPLIT in rows.columns else []
    rows = intake.validate(rows, NAME, source.name, rules)
    if SPLIT in rows.columns:
        info.split = int(rows.select((_nodes() > 1).sum()).item())
        rows = _split(rows)
    if "gpu_milli" in rows.columns:
        info.most_gpu = rows.select(pl.col("gpu_milli").max().fill_null(0)).item()
    info.empty = {n: k for n in AMOUNTS if n in rows.columns and (k := rows[n].null_count())}
    if NODES in rows.columns and "instances" not in plan.nodes:
        rows, info.spread = _over_nodes(rows)
    return _as_workload(rows), info


def _over_nodes(rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Make of a job on several nodes as many equal instances, where its GPUs can be divided so."""
    lists = {one: len(node_names(one)) for one in rows[NODES].drop_nulls().unique()}
    hosts = pl.col(NODES).replace_strict(lists, default=1, return_dtype=pl.Int64).clip(1)
    gpus = pl.col("gpu_milli") if "gpu_milli" in rows.columns else pl.lit(0)
    even = (gpus % (WHOLE * hosts) == 0).fill_null(value=True)
    nodes = pl.when(even).then(hosts).otherwise(1)
    amounts = [
        ((pl.col(n) + nodes - 1) // nodes).alias(n) for n in ("gpu_milli", *DIVIDED) if n in rows.columns
    ]  # fmt: skip
    return rows.with_columns(*amounts, instances=nodes), int(rows.select((nodes > 1).sum()).item())


def _nodes() -> pl.Expr:
    """The fewest nodes that have the GPUs of one instance: 1 where they are on one."""
    most = WHOLE * pl.col(SPLIT)
    return ((pl.col("gpu_milli") + most - 1) // most).clip(1).fill_null(1)


def _split(rows: pl.DataFrame) -> pl.DataFrame:
    """Make of 16 GPUs on nodes of 8 two instances of 8."""
    parts = [((pl.col(n) + _nodes() - 1) // _nodes()).alias(n) for n in DIVIDED if n in rows.columns]
    split = rows.with_columns(pl.col("gpu_milli") // _nodes(), _instances(rows.columns) * _nodes(), *parts)
    return split.drop(SPLIT)


def _instances(columns: list[str]) -> pl.Expr:
    return (pl.col("instances").fill_null(1) if "instances" in columns else pl.lit(1)).alias("instances")


def _split_rules(columns: list[str]) -> list[Rule]:
    gpus, nodes = pl.col("gpu_milli") // WHOLE, _nodes()
    request = pl.format("{} GPUs on {} nodes", gpus, nodes)
    return [
        (f"cannot be split equally over the fewest nodes of `{SPLIT}`", (nodes > 1) & (gpus % nodes != 0), request),
        ("`instances` is too large once split", _instances(columns) * nodes >= 2**31, _instances(columns)),
    ]


def _dated(rows: pl.DataFrame) -> bool:
    """Do the times of this table stand in a calendar? Most of them decide."""
    forms = pl.concat([rows[f"{t}?"].rename("form") for t in TIMES])
    counted = rows.filter(pl.col("submit?") == SECONDS)["submit"].median()
    return int((forms >= MILLI).sum()) > int((forms == SECONDS).sum()) or (
        isinstance(counted, float) and counted >= EPOCH
    )


def _without_zeros(rows: pl.DataFrame, info: TableNotes) -> pl.DataFrame:
    # Among Unix times, 0 and -1 are how programs write that it has not happened.
    for t in ("start", "end"):
        none = rows[t].is_in([0.0, -1.0]).fill_null(value=False)
        info.zeros += int(none.sum())
        rows = rows.with_columns(rows[t].set(none, None))
    return rows


def _resolve_ambiguous_hours(rows: pl.DataFrame, zone: str) -> pl.DataFrame:
    """Of an hour that came twice the second is meant, where the first would be before what must have been."""
    for t, earlier in (("start", ("submit",)), ("end", ("submit", "start"))):
        back = (pl.col(f"{t}?") == TWICE) & (pl.col(t) < pl.max_horizontal(earlier))
        if rows.select(back.any()).item():
            rows = rows.with_columns(pl.when(back).then(later_occurrence(pl.col(t), zone)).otherwise(t).alias(t))
    return rows


def _as_written(t: str, plan: ColumnMap) -> pl.Expr:
    return as_written(pl.col(t), pl.col(f"{t}?"), plan.zone)


def _status_from_times(plan: ColumnMap) -> pl.Expr:
    over = pl.col("end").is_not_null() | pl.col("runtime").is_not_null()
    waits = pl.col("start").is_null() & pl.lit("start" in plan.nodes)
    open_ended = pl.lit(bool(plan.nodes.keys() & {"end", "runtime"}))
    return (
        pl.when(over).then(pl.lit("completed"))
        .when(waits).then(pl.lit("waiting"))
        .when(open_ended).then(pl.lit("running"))
        .otherwise(pl.lit("completed"))
    )  # fmt: skip


def _rules(plan: ColumnMap, *, dated: bool) -> list[Rule]:
    same = pl.struct("job", "submit")
    again = same.is_duplicated() & ~same.is_first_distinct() & pl.col("job").is_not_null()
    step = pl.col("job").str.contains(STEP)
    return [
        *(_mixed_times(t, _as_written(t, plan), dated=dated) for t in TIMES),
        ("started before it was submitted", pl.col("start") < pl.col("submit"), _as_written("start", plan)),
        ("ended before it started", pl.col("end") < pl.col("start"), _as_written("end", plan)),
        ("ended before it was submitted", pl.col("end") < pl.col("submit"), _as_written("end", plan)),
        ("`runtime` is negative", pl.col("runtime") < 0, "runtime"),
        *([("a step of a job", step, "job"), ("duplicate job", again, "job")] if "job" in plan.nodes else []),
    ]


def _mixed_times(t: str, value: pl.Expr, *, dated: bool) -> Rule:
    if dated:
        return (f"`{t}` is not a Unix time, unlike other rows", pl.col(t) < EPOCH, value)
    return (
        f"`{t}` is a date, but other rows have seconds",
        (pl.col(f"{t}?") >= MILLI) & pl.col(t).is_not_null(),
        value,
    )


def _as_workload(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.with_columns(pl.col(n).fill_null(WHERE_EMPTY.get(n, 0)) for n in AMOUNTS if n in rows.columns)
    for column, separators in LISTS.items():
        if column in rows.columns:
            parts = pl.col(column).fill_null("").str.replace_all(f"[{separators}]", "|").str.split("|")
            rows = rows.with_columns(parts.list.eval(pl.element().str.strip_chars()).list.filter(pl.element() != ""))
    if "parent" in rows.columns:
        rows = rows.with_columns(parent=_parents(rows["parent"]))
    # Nobody starts before being eligible: what a log says to the contrary is when it started.
    eligible = pl.max_horizontal("submit", pl.min_horizontal(pl.coalesce("eligible", "submit"), "start"))
    rows = rows.with_columns(eligible=eligible)
    name = pl.col("job") if "job" in rows.columns else pl.lit(None, dtype=pl.String)
    return rows.with_columns(name=name).drop("line", "job", *(f"{t}?" for t in TIMES), strict=False)


def _parents(text: pl.Series) -> pl.Series:
    """Numbers as they are, words numbered from 0; a row that names no parent is one of its own."""
    number = text.cast(pl.Int64, strict=False)
    if text.null_count() == 0 and (number.cast(pl.String) == text).fill_null(value=False).all():
        return number
    alone = pl.concat_str(pl.lit("\0"), pl.int_range(pl.len()))
    ranks = pl.coalesce("parent", alone).rank("dense").cast(pl.Int64) - 1
    return pl.DataFrame({"parent": text}).select(ranks.alias("parent"))["parent"]
