"""Run times as a trace believes them: a series by name, and how its column travels with the jobs to a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from fleetlab.core import PolicyError, Trace, TraceError

BEFORE = "believed:"  # a column with this before its name is an estimate, and no column of a workload
COLUMN = "a column"  # what an estimate is called that has no name


def believed(trace: Trace, estimate: str) -> str | pl.Series:
    """An estimate by its name, or the series of the trace that has it: seconds by job."""
    series = trace.series.get(estimate)
    if series is None:
        return estimate
    told = series.collect()
    if not {"job", "seconds"} <= set(told.columns):
        msg = f"the series `{estimate}` does not have seconds by job: {told.columns}"
        raise TraceError(msg, hint="an estimate is a series with the columns job and seconds")
    jobs = trace.workload.frame.select("job")
    return jobs.join(told, on="job", how="left", maintain_order="left")["seconds"].cast(pl.Float64)


def named(estimate: str | pl.Series, jobs: int) -> tuple[str, dict[str, pl.Series]]:
    """An estimate as rules name it, and its column, where it is one."""
    if isinstance(estimate, str):
        return estimate, {}
    must_be_complete(estimate, jobs)
    return COLUMN, {COLUMN: estimate}


def must_be_complete(estimate: pl.Series, jobs: int) -> None:
    """Refuse a column that has not one value a job."""
    if len(estimate) != jobs:
        msg = f"a column of estimates has one number of seconds a job: {len(estimate):,} values for {jobs:,} jobs"
        raise PolicyError(msg, hint="null where nothing is known of a job: then its true run time is taken")


def beside(jobs: pl.DataFrame, columns: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Jobs with their estimates, by name, as columns of the same table."""
    for seconds in columns.values():
        must_be_complete(seconds, jobs.height)
    return jobs.with_columns(**{f"{BEFORE}{name}": seconds for name, seconds in columns.items()})


def apart(jobs: pl.DataFrame, rules: Mapping[str, Any]) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The jobs alone, and the rules with the column that their estimate names, where there is one."""
    column = f"{BEFORE}{rules.get('estimate')}"
    told = {"estimate": jobs[column]} if column in jobs.columns else {}
    return jobs.select(pl.exclude(f"^{BEFORE}.*$")), {**rules, **told}
