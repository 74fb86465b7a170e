"""Rows of a Slurm log that stand for several tasks of an array: `103_[1-5%2]` is 103_1 to 103_5, two at a time.

Slurm writes jobs that have not started as one row, and may cut a long list of them off. A few characters can name a
billion jobs, so they are counted before any is written out; a row of too many, or of an unknown number, stays one.
"""

from __future__ import annotations

import re

import polars as pl

MOST = 100_000  # jobs of one row
IN_ALL = 1_000_000  # and of all rows together: no cluster holds as many in its queue

_ARRAY = re.compile(r"(.*)_\[([^\[\]%]+)(?:%\d+)?\]")
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


def split_arrays(records: pl.DataFrame) -> pl.DataFrame:
    """One row a job: `array` is true where its row stood for several, `untold` where it still does."""
    several = records.filter(pl.col("name").str.contains("[", literal=True))["name"].value_counts(sort=False)
    known: list[tuple[str, list[str] | None]] = []
    total = 0
    for name, times in several.sort("name").iter_rows():
        fits = total + size(name) * times <= IN_ALL
        jobs = jobs_of(name) if fits else None
        total += len(jobs or ()) * times
        known.append((name, jobs))
    table = pl.DataFrame(known, schema={"name": pl.String, "jobs": pl.List(pl.String)}, orient="row")
    records = records.join(table, on="name", how="left", maintain_order="left")
    array = pl.col("jobs").is_not_null()
    records = records.with_columns(array=array, untold=~array & pl.col("name").str.contains("[", literal=True))
    return records.with_columns(name=pl.coalesce("jobs", pl.concat_list("name"))).drop("jobs").explode("name")


def jobs_of(name: str) -> list[str] | None:
    """The names of the jobs that a row stands for; None where they cannot be told, or are too many.

    >>> jobs_of("103_[1-3,7,10-20:5%2]")
    ['103_1', '103_2', '103_3', '103_7', '103_10', '103_15', '103_20']
    """
    spans = _spans(name)
    if not spans or size(name) > MOST:
        return None
    record = name[: name.rindex("_[")]
    return [f"{record}_{k}" for k in dict.fromkeys(k for span in spans for k in span)]


def size(name: str) -> int:
    """How many jobs a row stands for; 0 where it cannot be told."""
    return sum(len(span) for span in _spans(name))


def _spans(name: str) -> list[range]:
    match = _ARRAY.fullmatch(name)
    parts = [_SPAN.fullmatch(part) for part in match[2].split(",")] if match else []
    spans = [_span(part) for part in parts if part]
    return spans if len(spans) == len(parts) and all(spans) else []


def _span(part: re.Match[str]) -> range:
    first, last, step = int(part[1]), int(part[2] or part[1]), int(part[3] or 1)
    return range(first, last + 1, step) if step else range(0)
