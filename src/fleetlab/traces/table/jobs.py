"""The rows of a delimited table, settled: what their times say of each job's state, and of one another."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from fleetlab.traces.input.files import Source
from fleetlab.traces.input.intake import Intake, Rule
from fleetlab.traces.input.log_start import ended_before
from fleetlab.traces.input.times import EPOCH, LOCAL, MILLI, SECONDS, SIZES, TWICE, second, shown
from fleetlab.traces.table.cells import NAME
from fleetlab.traces.table.expression import Column
from fleetlab.traces.table.mapping import AMOUNTS, TIMES, Plan, suggested

WHERE_EMPTY = {"instances": 1}  # else 0
MOST_ON_A_NODE = 16  # GPUs; as thousandths of one they would be hardly any


@dataclass
class About:
    """What was found out on the way, for the notes."""

    dated: bool
    forms: dict[str, set[int]]
    zeros: int = 0
    passed_over: int = 0
    most_gpu: int = 0  # the largest `gpu_milli`
    empty: dict[str, int] = field(default_factory=dict)

    def notes(self, plan: Plan, *, told: bool) -> tuple[str, ...]:
        """What a reader of the trace should know of it; `told` if the user said by which clock it was written."""
        return (*self._clocks(plan, told=told), *self._cells(), *self._slips(plan), *_absent(plan))

    def _clocks(self, plan: Plan, *, told: bool) -> list[str]:
        found = []
        for unit, (name, _, _) in SIZES.items():
            if targets := [t for t, forms in self.forms.items() if unit in forms]:
                found.append(f"{', '.join(targets)}: Unix time in {name}, by its size")
        every = set().union(*self.forms.values())
        if every & {LOCAL, TWICE} and not told:
            found.append("times without a zone are taken as UTC; `zone` says by which clock they were written")
        if TWICE in every:
            found.append(
                f"an hour that the clock of {plan.zone} went through twice is taken as the earlier one, "
                "or the later where a job would else end before it started"
            )
        if not self.dated:
            found.append("times are seconds from an unknown moment: no hour of the day, no weekday")
        return found

    def _cells(self) -> list[str]:
        found = [f"empty cells of `{n}` are taken as {WHERE_EMPTY.get(n, 0)}: {k:,}" for n, k in self.empty.items()]
        if self.zeros:
            found.append(f"0 or -1 as a start or an end means that there was none: {self.zeros:,}")
        if self.passed_over:
            found.append(f"a runtime or an end of jobs that have not ended is passed over: {self.passed_over:,}")
        return found

    def _slips(self, plan: Plan) -> list[str]:
        """The likeliest slip of a map: GPUs where thousandths are asked for."""
        if not 0 < self.most_gpu <= MOST_ON_A_NODE:
            return []
        node = plan.nodes["gpu_milli"]
        times = suggested("gpu_milli", node.name, "*1000") if isinstance(node, Column) else "multiply them by 1000"
        return [f"gpu_milli never exceeds {self.most_gpu}: if these are GPUs, {times}"]


def _absent(plan: Plan) -> list[str]:
    found = []
    if "status" not in plan.nodes:
        found.append(_no_status(plan))
    if not plan.nodes.keys() & {"runtime", "end"}:
        found.append("no runtime and no end: how long jobs ran is unknown")
    if "gpu_milli" not in plan.nodes:
        found.append("no gpu_milli: no job asks for a GPU")
    return found


def _no_status(plan: Plan) -> str:
    """What `_told_by_times` makes of a table that tells no status."""
    over = " or ".join(word for n, word in (("end", "an end"), ("runtime", "a runtime")) if n in plan.nodes)
    if not over and "start" not in plan.nodes:
        return "no status, start or end: all jobs are taken as completed"
    if not over:
        return "no status and no end: a job without a start is taken as waiting, any other as completed"
    waits = ", or as waiting if it has no start either" if "start" in plan.nodes else ""
    return f"no status: a job without {over} is taken as running{waits}"


def settled(
    rows: pl.DataFrame, source: Source, intake: Intake, plan: Plan, since: float | None = None
) -> tuple[pl.DataFrame, About]:
    """Jobs as a workload asks for them, with a `name`; rows that contradict themselves or others are turned away."""
    about = About(_dated(rows), {t: set(rows[f"{t}?"].unique()) for t in TIMES})
    if about.dated:
        rows = _in_order(_without_zeros(rows, about), plan.zone)
    rows = rows.with_columns(status=pl.col("status") if "status" in plan.nodes else _told_by_times(plan))
    ended = ~pl.col("status").is_in(["running", "waiting"])
    about.passed_over = rows.filter(~ended & (pl.col("runtime").is_not_null() | pl.col("end").is_not_null())).height
    rows = rows.with_columns(
        start=pl.when(pl.col("status") != "waiting").then(pl.col("start")),
        end=pl.when(ended).then(pl.col("end")),
        runtime=pl.when(ended).then(pl.coalesce("runtime", pl.col("end") - pl.col("start"))),
    )
    rules = [*_rules(plan, dated=about.dated), *ended_before(since, _shown("end", plan))]
    rows = intake.sieve(rows, NAME, source.name, rules)
    if "gpu_milli" in rows.columns:
        about.most_gpu = rows.select(pl.col("gpu_milli").max().fill_null(0)).item()
    about.empty = {n: k for n in AMOUNTS if n in rows.columns and (k := rows[n].null_count())}
    return _as_workload(rows), about


def _dated(rows: pl.DataFrame) -> bool:
    """Do the times of this table stand in a calendar? Most of them decide."""
    forms = pl.concat([rows[f"{t}?"].rename("form") for t in TIMES])
    counted = rows.filter(pl.col("submit?") == SECONDS)["submit"].median()
    return int((forms >= MILLI).sum()) > int((forms == SECONDS).sum()) or (
        isinstance(counted, float) and counted >= EPOCH
    )


def _without_zeros(rows: pl.DataFrame, about: About) -> pl.DataFrame:
    # Among Unix times, 0 and -1 are how programs write that it has not happened.
    for t in ("start", "end"):
        none = rows[t].is_in([0.0, -1.0]).fill_null(value=False)
        about.zeros += int(none.sum())
        rows = rows.with_columns(rows[t].set(none, None))
    return rows


def _in_order(rows: pl.DataFrame, zone: str) -> pl.DataFrame:
    """Of an hour that came twice the second is meant, where the first would be before what must have been."""
    for t, earlier in (("start", ("submit",)), ("end", ("submit", "start"))):
        back = (pl.col(f"{t}?") == TWICE) & (pl.col(t) < pl.max_horizontal(earlier))
        if rows.select(back.any()).item():
            rows = rows.with_columns(pl.when(back).then(second(pl.col(t), zone)).otherwise(t).alias(t))
    return rows


def _shown(t: str, plan: Plan) -> pl.Expr:
    return shown(pl.col(t), pl.col(f"{t}?"), plan.zone)


def _told_by_times(plan: Plan) -> pl.Expr:
    over = pl.col("end").is_not_null() | pl.col("runtime").is_not_null()
    waits = pl.col("start").is_null() & pl.lit("start" in plan.nodes)
    open_ended = pl.lit(bool(plan.nodes.keys() & {"end", "runtime"}))
    return (
        pl.when(over).then(pl.lit("completed"))
        .when(waits).then(pl.lit("waiting"))
        .when(open_ended).then(pl.lit("running"))
        .otherwise(pl.lit("completed"))
    )  # fmt: skip


def _rules(plan: Plan, *, dated: bool) -> list[Rule]:
    again = pl.col("job").is_duplicated() & ~pl.col("job").is_first_distinct()
    return [
        *(_unlike(t, _shown(t, plan), dated=dated) for t in TIMES),
        ("started before it was submitted", pl.col("start") < pl.col("submit"), _shown("start", plan)),
        ("ended before it started", pl.col("end") < pl.col("start"), _shown("end", plan)),
        ("ended before it was submitted", pl.col("end") < pl.col("submit"), _shown("end", plan)),
        ("`runtime` is negative", pl.col("runtime") < 0, "runtime"),
        *([("the job stands twice", again, "job")] if "job" in plan.nodes else []),
    ]


def _unlike(t: str, value: pl.Expr, *, dated: bool) -> Rule:
    if dated:
        return (f"`{t}` is no Unix time, as others here are", pl.col(t) < EPOCH, value)
    return (
        f"`{t}` is a date, where others here are seconds",
        (pl.col(f"{t}?") >= MILLI) & pl.col(t).is_not_null(),
        value,
    )


def _as_workload(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.with_columns(pl.col(n).fill_null(WHERE_EMPTY.get(n, 0)) for n in AMOUNTS if n in rows.columns)
    if "gpu_types" in rows.columns:
        types = pl.col("gpu_types").fill_null("").str.replace_all(";", "|", literal=True).str.split("|")
        rows = rows.with_columns(types.list.eval(pl.element().str.strip_chars()).list.filter(pl.element() != ""))
    if "parent" in rows.columns:
        rows = rows.with_columns(parent=_parents(rows["parent"]))
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
