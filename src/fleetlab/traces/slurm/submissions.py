"""What users asked for with their jobs, beyond amounts: from the line of submission, and from columns of sacct.

A line tells what accounting does not keep: how GPUs were asked for, a nice value, dependencies, throttles of arrays and
partitions in which a job did not run. Where there is none, columns of accounting have the rest.
"""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from fleetlab.traces.slurm.submit_line import parts_of

SUBMISSION: dict[str, Any] = {
    "partitions": pl.List(pl.String),
    "constraint": pl.String,
    "reservation": pl.String,
    "exclusive": pl.Boolean,
    "requeue": pl.Boolean,  # null: not said
    "nice": pl.Int64,
    "array_limit": pl.Int64,
    "gpus_by": pl.String,  # node, task, job: of what a number of GPUs was asked for; empty: not known
    "gpus_per_task": pl.Int64,
    "most_nodes": pl.Int64,  # 0: not said
    "wish": pl.String,  # --dependency
    "begin": pl.String,
    "hold": pl.Boolean,
}
KEYS = ("SubmitLine", "JobName", "Partition", "Constraints", "Reservation", "part")
NICE = 100  # where --nice has no value
BIGGEST_NICE = 2_147_483_645
_THROTTLE = re.compile(r"%(\d{1,9})\]?$")


def with_submission(records: pl.DataFrame) -> pl.DataFrame:
    """Give each job what its submission asked for."""
    part = pl.col("JobID").str.extract(r"\+(\d+)$").cast(pl.Int64, strict=False).fill_null(0).clip(0, 1000)
    records = records.with_columns(part=part)
    distinct = records.select(KEYS).unique(maintain_order=True)
    rows = [row | _submission(row) for row in distinct.iter_rows(named=True)]
    table = pl.DataFrame(rows, schema=dict(distinct.schema) | SUBMISSION)
    records = records.join(table, on=KEYS, how="left", maintain_order="left").drop("part")
    # Tasks that have not started tell the throttle themselves: 103_[1-5%2].
    own = pl.col("JobID").str.extract(r"_\[.*%(\d{1,9})\]$").cast(pl.Int64)
    most = pl.col("throttle").cast(pl.Int64, strict=False)
    return records.with_columns(array_limit=pl.coalesce(own, most, "array_limit")).drop("throttle")


def _submission(row: dict[str, Any]) -> dict[str, Any]:
    parts = parts_of(_with_short_name(row["SubmitLine"], row["JobName"]))
    options = parts[min(row["part"], len(parts) - 1)]
    ran_in = [name for name in row["Partition"].split(",") if name]
    named = [name for name in options.get("partition", "").split(",") if name]
    throttle = _THROTTLE.search(options.get("array", ""))
    by, per_task = _gpus_by(options)
    return {
        # One of those named is the one it ran in; if not, somebody moved it.
        "partitions": named if set(ran_in) <= set(named) else ran_in,
        "constraint": constraint(row["Constraints"] or options.get("constraint", "")),
        "reservation": row["Reservation"] or options.get("reservation") or None,
        "exclusive": options.get("exclusive", "no") in ("", "exclusive"),
        "requeue": _requeue(row["SubmitLine"], parts[0]),
        "nice": _nice(options.get("nice")),
        "array_limit": int(throttle[1]) if throttle else 0,
        "gpus_by": by,
        "gpus_per_task": per_task,
        "most_nodes": _most_nodes(options.get("nodes", "")),
        "wish": parts[0].get("dependency", ""),
        "begin": options.get("begin", ""),
        "hold": "hold" in options or options.get("priority") == "0",
    }


def _with_short_name(line: str, name: str) -> str:
    """Take a name of several words out of a line, where it would end the options."""
    if len(name.split()) < 2:
        return line
    return re.sub(rf"(-J[ =]?|--job-name[ =]){re.escape(name)}(?=\s|$)", "-J name", line)


def _requeue(line: str, options: dict[str, str]) -> bool | None:
    """Whether a job may run again; what runs at a terminal never does, and None is as the site says."""
    if line.split(" ", 1)[0].rsplit("/", 1)[-1] in ("srun", "salloc") or "no-requeue" in options:
        return False
    return True if "requeue" in options else None


def _gpus_by(options: dict[str, str]) -> tuple[str, int]:
    per_task = _amount(options.get("gpus-per-task", ""))
    if per_task:
        return "task", per_task
    if "gpus-per-node" in options or "gpu" in options.get("gres", ""):
        return "node", 0
    return ("job", 0) if "gpus" in options else ("", 0)


def _amount(text: str) -> int:
    """The number of `4`, `a100:4` or `a100:2,v100:2`, or 0."""
    numbers = [part.rsplit(":", 1)[-1] for part in text.split(",")]
    return sum(int(n) for n in numbers if n.isdigit() and len(n) < 7)


def _most_nodes(text: str) -> int:
    last = text.rsplit("-", 1)[-1]
    return int(last) if last.isdigit() and len(last) < 7 else 0


def _nice(text: str | None) -> int:
    if text is None:
        return 0
    return max(-BIGGEST_NICE, min(BIGGEST_NICE, int(text))) if re.fullmatch(r"-?\d{1,12}", text) else NICE


def constraint(text: str) -> str | None:
    """Return a constraint with &, | and parentheses alone.

    Slurm's `[a|b]` wants all nodes alike and `a*2` two nodes of a kind: they become `(a|b)` and `a`.

    >>> [constraint(text) for text in ("a100&nvlink", "[rack1|rack2]", "fast*2,ssd", "")]
    ['a100&nvlink', '(rack1|rack2)', 'fast&ssd', None]
    """
    text = re.sub(r"\*\d+", "", text.strip().strip('"'))
    text = text.replace("[", "(").replace("]", ")").replace(",", "&").replace(" ", "")
    return text if text and text.lower() not in ("(null)", "none", "n/a") else None


def inexact(text: str) -> bool:
    """Whether a constraint says more than an expression of names."""
    return bool(re.search(r"\*\d|\[", text))
