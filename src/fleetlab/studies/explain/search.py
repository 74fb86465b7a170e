"""Find a job: by the log's own id, its number, what it is called, its user or group, or how long it waited."""

from __future__ import annotations

from difflib import get_close_matches

import polars as pl

from fleetlab.core import Scenario, WorkloadError
from fleetlab.core.names import clip

WHO = ("user", "group", "app", "queue")  # columns to search by COLUMN=VALUE, and by a name alone
NUMBER = "#"  # before the number of a job, where the log's own ids are numbers too
NEAR = 3  # names that a hint repeats
MOST_NAMES = 200_000  # that are compared with a name that none has


def names_of(scenario: Scenario) -> pl.DataFrame:
    """Return the log's own id of each job, as `job` and `name`; empty where the trace has none."""
    names = scenario.trace.names
    if names is None or "name" not in names.collect_schema().names():
        return pl.DataFrame(schema={"job": pl.Int64, "name": pl.String})
    return scenario.by_job(names).select("job", pl.col("name").cast(pl.String)).collect()


def find_jobs(scenario: Scenario, words: str, names: pl.DataFrame) -> list[int]:
    """Return the jobs that some words mean; several where they name a user, a group, an array or a shared name."""
    text, frame = words.strip(), scenario.workload.frame
    column, equals, value = text.partition("=")
    if equals and column.strip() in WHO:
        return _by_column(frame, column.strip(), value.strip())
    if found := _by_name(names, text):
        return found
    digits = text.removeprefix(NUMBER)
    if digits.isascii() and digits.isdigit() and int(digits) < frame.height:
        return [int(digits)]
    for name in WHO:
        if found := frame.filter(pl.col(name).cast(pl.String) == text)["job"].to_list():
            return found
    msg = f"no job is called that: `{clip(text)}`"
    raise WorkloadError(msg, hint=_hint(frame, names, text))


def _by_name(names: pl.DataFrame, text: str) -> list[int]:
    """Return the jobs with that id: as the log has it, without its cluster or namespace, or of an array or parts."""
    name, inner = pl.col("name"), pl.col("name").str.split("/").list.last()
    parts = [whole.str.starts_with(f"{text}{mark}") for whole in (name, inner) for mark in "_+"]
    for meant in (name == text, inner == text, pl.any_horizontal(parts)):
        if text and (found := names.filter(meant)["job"].to_list()):
            return found
    return []


def _by_column(frame: pl.DataFrame, column: str, value: str) -> list[int]:
    text = pl.col(column).cast(pl.String)
    if found := frame.filter(text == value)["job"].to_list():
        return found
    known = frame[column].cast(pl.String).drop_nulls()
    near = get_close_matches(value, known.unique().to_list(), NEAR, 0.0)
    msg = f"no job has the {column}: `{clip(value)}`"
    hint = f"near to it are {', '.join(map(clip, near))}" if near else f"the log names no {column} of any job"
    raise WorkloadError(msg, hint=hint)


def _hint(frame: pl.DataFrame, names: pl.DataFrame, text: str) -> str:
    known = [frame[name].cast(pl.String).drop_nulls().unique() for name in WHO]
    every = pl.concat([names["name"].head(MOST_NAMES), *known]).unique(maintain_order=True).to_list()
    near = get_close_matches(text, every, NEAR, 0.5)
    close = f"near to it are {', '.join(map(clip, near))}; " if near else ""
    return f"{close}a job is the log's own id, {NUMBER}0 to {NUMBER}{frame.height - 1}, user=… or group=…"
