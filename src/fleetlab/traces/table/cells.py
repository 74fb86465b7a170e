"""The cells of a delimited table, read as a plan asks; rows with a cell that cannot be read are rejected."""

from __future__ import annotations

import polars as pl

from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.intake import Intake, Rule, TableSchema
from fleetlab.traces.input.times import LAST, SKIPPED, by_size, iso_moments, moments
from fleetlab.traces.table.expression import (
    AMOUNTS,
    COUNTS,
    ESTIMATE,
    SPLIT,
    TEXTS,
    TIMES,
    ColumnMap,
    ColumnRef,
    Node,
    TextLiteral,
    evaluate,
)
from fleetlab.traces.table.values import amounts, model

NAME = "jobs"  # of the table, in rejects and counts

# Words for a cell that holds nothing; Go writes its zero time for a pod that has not started.
NOTHING = ["", "-", "null", "none", "na", "n/a", "nat", "unknown", "0001-01-01t00:00:00z", "1970-01-01t00:00:00z"]

STATUS = {
    "completed": "completed complete succeeded succeed success successful finished finish done passed pass ok cd "
    "exited e ended",
    "failed": "failed fail failure error crashed f "
    "timeout timedout timelimit deadline deadlineexceeded to dl outofmemory oom oomkilled "
    "nodefail nodefailed nodefailure nodelost nf bootfail bf launchfailed exit failedsetup",
    # Taken off its nodes by somebody, and not for a fault of its own.
    "cancelled": "cancelled canceled cancelling killed aborted stopped deleted revoked preempted preempt pr evicted "
    "requeued ca removed x",
    "running": "running processing active started completing r cg run",
    "waiting": "waiting pending queued submitted accepted pd pend psusp q qw h hold held idle runnable starting",
}
STATES = {word: status for status, words in STATUS.items() for word in words.split()}

SECONDS = ("runtime", "limit", ESTIMATE)

BITS = dict.fromkeys((*COUNTS, "gpu_milli"), 31)  # else 53: a float counts no further


def read(source: SourceFile, table: TableSchema, intake: Intake, plan: ColumnMap) -> pl.DataFrame:
    """Every row whose cells can be read, with its `line`; the others are rejected.

    Beside each time `t` stands `t?`, the form that it is written in; times without a column are null.
    """
    rules = _rules(plan)
    empty = pl.DataFrame(schema=dict.fromkeys(plan.columns, pl.String) | {"line": pl.Int64})
    frames = (intake.validate(_evaluated(b, plan), NAME, source.name, rules) for b in intake.batches(source, table))
    return pl.concat([_typed(_evaluated(empty, plan)), *map(_typed, frames)])


# -- reading -------------------------------------------------------------------------------------------------------


def _evaluated(batch: pl.DataFrame, plan: ColumnMap) -> pl.DataFrame:
    raw = {name: cleaned(batch[name]) for name in plan.columns}
    kinds = plan.kinds
    numbers = {name: _reckoned(raw[name], plan, kinds.get(name), clock=name in plan.clocks) for name in plan.numbers}
    columns = {"line": batch["line"]}
    for name, short in plan.columns.items():
        columns[short] = raw[name]
        if name in numbers:
            columns[f"{short}?"] = numbers[name][0].is_null() & raw[name].is_not_null()
        if name in plan.clocks:
            columns[f"{short}!"] = numbers[name][1] == SKIPPED
    for target, node in plan.nodes.items():
        columns |= _target(target, node, raw, numbers, batch.height)
    return pl.DataFrame(columns)


def cleaned(text: pl.Series) -> pl.Series:
    """Cells without the space around them; null for a word that says that nothing is there."""
    stripped = text.str.strip_chars()
    return stripped.set(stripped.str.to_lowercase().is_in(NOTHING).fill_null(value=False), None)


def _reckoned(text: pl.Series, plan: ColumnMap, kind: str | None, *, clock: bool) -> tuple[pl.Series, pl.Series]:
    if clock:
        return moments(text, plan.zone)
    number = text.cast(pl.Float64, strict=False)
    if kind is not None and (number.is_null() & text.is_not_null()).any():
        number = number.zip_with(number.is_not_null(), amounts(text, kind))
    # A column of dates can be reckoned with too: `runtime=finished-started`.
    if (number.is_null() & text.is_not_null()).any():
        number = number.zip_with(number.is_not_null(), iso_moments(text, plan.zone)[0])
    return number, pl.Series([], dtype=pl.UInt8)


def _target(
    target: str, node: Node, raw: dict[str, pl.Series], numbers: dict[str, tuple[pl.Series, pl.Series]], rows: int
) -> dict[str, pl.Series]:
    if target in TEXTS and isinstance(node, ColumnRef):
        text = raw[node.name]
        if target == "gpu_types":
            models = {one: model(one) for one in text.drop_nulls().unique()}
            text = text.replace_strict(list(models), list(models.values()), default=None, return_dtype=pl.String)
        return {target: text}
    if isinstance(node, TextLiteral):
        return {target: pl.repeat(node.value, rows, dtype=pl.String, eager=True)}
    if target in TIMES and isinstance(node, ColumnRef):
        return dict(zip((target, f"{target}?"), numbers[node.name], strict=True))
    number = evaluate(node, lambda name: numbers[name][0], rows)
    if target in TIMES:
        return dict(zip((target, f"{target}?"), by_size(number), strict=True))
    return {target: _as_text(number) if target in TEXTS else number}


def _as_text(number: pl.Series) -> pl.Series:
    """A number as people write it: 7 and not 7.0; null for what is none."""
    x = pl.col("x")
    whole = pl.when(x.is_finite() & (x.abs() < 1e15) & (x == x.round())).then(x).cast(pl.Int64).cast(pl.String)
    text = pl.coalesce(whole, pl.when(x.is_finite()).then(x).cast(pl.String))
    return pl.DataFrame({"x": number}).select(text)["x"]


def state() -> pl.Expr:
    """The column `status` in the words of a workload; null for a word that is none of any common system."""
    # `Out Of Memory`, `NODE_FAIL`, `DeadlineExceeded`; or else its first word, as Slurm writes `CANCELLED by 1234`.
    text = pl.col("status").str.to_lowercase()
    words = (text.str.replace_all(r"[\s_-]", ""), text.str.extract(r"^([\w-]+)").str.replace_all("[_-]", ""))
    return pl.coalesce(word.replace_strict(STATES, default=None, return_dtype=pl.String) for word in words)


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    there = frame.columns
    absent = [pl.lit(None, dtype=pl.Float64).alias(n) for n in (*TIMES, *SECONDS) if n not in there]
    absent += [pl.lit(0, dtype=pl.UInt8).alias(f"{t}?") for t in TIMES if t not in there]
    amounts = [pl.col(n).round().cast(pl.Int64) for n in AMOUNTS if n in there]
    words = [state().alias("status")] if "status" in there else []
    columns = ["line", *TIMES, *(f"{t}?" for t in TIMES), *SECONDS, *(n for n in (*AMOUNTS, *TEXTS) if n in there)]
    return frame.with_columns(*absent, *amounts, *words).select(columns)


# -- rejecting -----------------------------------------------------------------------------------------------------


def _rules(plan: ColumnMap) -> list[Rule]:
    targets = plan.nodes
    kinds = {name: "time" if name in plan.clocks else "number" for name in plan.numbers}
    unread: list[Rule] = [
        (f"`{name}` does not exist in {plan.zone}: clocks were set forward", pl.col(f"{short}!"), short)
        for name, short in plan.columns.items()
        if name in plan.clocks
    ]
    unread += [
        (f"`{name}` is not a {kind}", pl.col(f"{plan.columns[name]}?"), plan.columns[name])
        for name, kind in kinds.items()
    ]
    return [
        *unread,
        ("`submit` is missing", pl.col("submit").is_null()),
        *[
            (f"`{name}` is not finite", pl.col(name).is_finite().not_(), name)
            for name in (*TIMES, *SECONDS, *AMOUNTS)
            if name in targets
        ],
        *[
            (f"`{name}` is out of range for a date", pl.col(name).abs() > LAST, name)
            for name in (*TIMES, *SECONDS)
            if name in targets
        ],
        *[rule for name in AMOUNTS if name in targets for rule in _amount_rules(name)],
        *[(f"`{name}` is negative", pl.col(name) < 0, name) for name in ("limit", ESTIMATE) if name in targets],
        *(_status_rules() if "status" in targets else []),
        *([("`job` is missing", pl.col("job").is_null())] if "job" in targets.keys() - plan.guessed else []),
    ]


def _amount_rules(name: str) -> list[Rule]:
    whole = pl.col(name).round()
    rules: list[Rule] = [(f"`{name}` is too large", whole.abs() >= 2.0 ** BITS.get(name, 53), name)]
    if name in COUNTS:
        # 0.1 * 30 is not quite 3.
        rules.append((f"`{name}` is not a whole number", (pl.col(name) - whole).abs() > 1e-6, name))
    if name in ("instances", SPLIT):
        rules.append((f"`{name}` is below 1", whole < 1, name))
    elif name != "priority":
        rules.append((f"`{name}` is negative", pl.col(name) < 0, name))
    if name == "gpu_milli":
        rules.append(("less than 1/1000 of a GPU", (pl.col(name) > 0) & (whole == 0), name))
        several = (whole > 1000) & (whole % 1000 != 0)
        rules.append(("neither a fraction of one GPU nor a multiple of 1000", several, name))
    return rules


def _status_rules() -> list[Rule]:
    return [("`status` is missing", pl.col("status").is_null()), ("unknown status", state().is_null(), "status")]
