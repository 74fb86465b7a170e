"""The wait ledger added up: by reason, by pool, by class, over the day; the worst hours, and who carries the tail."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core import Workload
from fleetlab.core.catalog import REASONS
from fleetlab.sim import SimResult
from fleetlab.studies._blocks import Blocks, Floats, Ints

HOUR = 3600
WORST = 10  # hours that are listed
TAIL = 0.01  # of the jobs: those that waited longest
CARRIERS = 20  # of them that are listed
GANGS = {"1": 1, "2 to 7": 2, "8 to 31": 8, "32 and more": 32}  # by their least
QUEUED, BLOCKED = "queue_order", "head_of_line"  # reasons that name no resource
MEANS = REASONS.meanings()


def waited(run: SimResult, workload: Workload) -> pl.DataFrame:
    """One row a job that ran: its classes, its wait, and the seconds by reason."""
    gang = pl.lit("1")
    for name, least in GANGS.items():
        gang = pl.when(pl.col("instances") >= least).then(pl.lit(name)).otherwise(gang)
    jobs = run.jobs.select(
        "job", "submit", "runtime", "instances", "gpu_milli", "user", "wait", "jct",
        pools(run.jobs), requests(), gang.alias("gang size"), hour_of(run.jobs["submit"], workload),
    )  # fmt: skip
    return pl.concat([jobs, run.ledger.drop("job")], how="horizontal")


def pools(jobs: pl.DataFrame) -> pl.Series:
    """The GPU types that each job may use, in words."""
    lists = jobs["gpu_types"].unique().to_frame().with_columns(named=pl.col("gpu_types").list.join(", "))
    named = jobs.select("gpu_types").join(lists, on="gpu_types", how="left", maintain_order="left")["named"]
    word = pl.when(pl.col("gpu_milli") == 0).then(pl.lit("no GPU")).when(named == "").then(pl.lit("any"))
    return jobs.select(word.otherwise(named).alias("pool"))["pool"]


def requests() -> pl.Expr:
    """What an instance asks for, of GPUs."""
    gpu = pl.col("gpu_milli")
    return (
        pl.when(gpu == 0).then(pl.lit("no GPU")).when(gpu < 1000).then(pl.lit("a share"))
        .when(gpu == 1000).then(pl.lit("one GPU")).otherwise(pl.lit("more GPUs")).alias("request")
    )  # fmt: skip


def hour_of(submit: pl.Series, workload: Workload) -> pl.Series:
    """The hour of the day by the clock of the workload; from the first submission on where that is not known."""
    return pl.select(hour=_clock(submit, workload).dt.hour()).to_series()


def _clock(submit: pl.Series, workload: Workload) -> pl.Expr:
    at = ((pl.lit(submit) + (workload.epoch or 0.0)) * 1e6).cast(pl.Int64).cast(pl.Datetime("us", "UTC"))
    return at.dt.convert_time_zone(workload.zone or "UTC")


def reasons_of(run: SimResult) -> list[str]:
    """The words of the ledger."""
    return [name for name in run.ledger.columns if name != "job"]


def shortages(ledger: pl.DataFrame, jobs: pl.DataFrame) -> dict[str, float]:
    """Waited seconds by what is scarce: `queue_order` is shared out over what jobs of the same kind lacked.

    A job is charged with `queue_order` when the room there was went to those ahead: it stands in the queue for what the
    first of its kind (the same pool and request) lack. Where nothing is named for a kind, what is named for all is.
    """
    words = [name for name in ledger.columns if name != QUEUED]
    kinds = pl.concat([ledger, jobs.select(pools(jobs), requests())], how="horizontal")
    sums = kinds.group_by("pool", "request").agg(pl.all().sum())
    named, queued = sums.select(words).to_numpy(), sums[QUEUED].to_numpy()
    if not named.sum():
        return dict.fromkeys(words, 0.0) | {QUEUED: float(queued.sum())}
    known = named.sum(axis=1, keepdims=True)
    parts = np.where(known > 0, named / np.where(known > 0, known, 1.0), named.sum(axis=0) / named.sum())
    total = named.sum(axis=0) + (queued[:, None] * parts).sum(axis=0)
    return dict(zip(words, total.tolist(), strict=True)) | {QUEUED: 0.0}


def reasons(run: SimResult, blocks: Blocks) -> pl.DataFrame:
    """Waited seconds by reason, and the share of all waiting with its interval; then with the queue for each."""
    words = reasons_of(run)
    each = {name: blocks.sums(run.ledger[name].to_numpy()) for name in words}
    total = np.sum(list(each.values()), axis=0)
    shared = shortages(run.ledger.drop("job"), run.jobs)
    rows = [
        (w, float(each[w].sum()), *blocks.share(each[w], total), shared[w] / (total.sum() or 1.0), MEANS.get(w, ""))
        for w in words
    ]
    schema = ["reason", "seconds", "share", "low", "high", "with its queue", "meaning"]
    found = pl.DataFrame(rows, schema=schema, orient="row", schema_overrides={"share": pl.Float64})
    found = found.with_columns(pl.col("share", "low", "high").fill_nan(None))
    return found.sort("seconds", descending=True, maintain_order=True)


def by(table: pl.DataFrame, title: str, words: list[str], blocks: Blocks) -> pl.DataFrame:
    """A row for each class: its jobs, its mean wait, its share of all waiting, and what it mostly waited for."""
    names = sorted(set(table[title]))
    code = table[title].replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
    mean = _means(code, len(names), table["wait"].to_numpy(), blocks)
    total = float(table["wait"].sum()) or 1.0
    sums = table.group_by(title).agg(pl.len().alias("jobs"), pl.col("wait").sum(), pl.col(words).sum()).sort(title)
    columns = {name: pl.Series(values, nan_to_null=True) for name, values in zip(_MEAN, mean.T, strict=True)}
    mostly = pl.Series([_mostly(row, words) for row in sums.iter_rows(named=True)], dtype=pl.String)
    rows = sums.select(title, "jobs", share=pl.col("wait") / total).with_columns(**columns, mostly=mostly)
    rows = rows.with_columns(pl.col("low").clip(lower_bound=0.0))
    if title == "hour":
        return rows
    return rows.sort(pl.col(title).replace_strict(GANGS, default=-pl.col("share"), return_dtype=pl.Float64), title)


_MEAN = ("mean wait", "low", "high")


def _means(code: Ints, classes: int, wait: Floats, blocks: Blocks) -> Floats:
    """Mean and interval of each class, from its sums over the blocks."""
    cell, size = code * blocks.count + blocks.of, classes * blocks.count
    both = [
        np.bincount(cell, weights=of, minlength=size).astype(np.float64).reshape(classes, blocks.count)
        for of in (wait, np.ones(len(wait)))
    ]
    return np.array([blocks.ratio(s, t) for s, t in zip(*both, strict=True)]).reshape(classes, 3)


def _mostly(row: dict[str, float], words: list[str]) -> str:
    """The first two reasons of a class, with their shares."""
    total = sum(row[w] for w in words)
    first = sorted(words, key=lambda w: -row[w])[:2]
    return ", ".join(f"{w} {100 * row[w] / total:.0f} %" for w in first if row[w] >= 0.005 * total) if total else ""


def worst_hours(table: pl.DataFrame, words: list[str], workload: Workload) -> pl.DataFrame:
    """The hours whose jobs waited most in all, with when they were."""
    hours = table.with_columns(at=(pl.col("submit") // HOUR).cast(pl.Int64))
    sums = hours.group_by("at").agg(pl.len().alias("jobs"), pl.col("wait").sum(), pl.col(words).sum())
    sums = sums.sort("wait", "at", descending=[True, False]).head(WORST)
    mostly = pl.Series([_mostly(row, words) for row in sums.iter_rows(named=True)], dtype=pl.String)
    begins = pl.select(_clock((sums["at"] * HOUR).cast(pl.Float64), workload).dt.strftime("%a %d %b %H:%M")).to_series()
    total = float(table["wait"].sum()) or 1.0
    told = {"begins": begins} if workload.epoch is not None else {}
    return sums.select("at", "jobs", share=pl.col("wait") / total, mean=pl.col("wait") / pl.col("jobs")).select(
        pl.col("at").alias("hour"), "jobs", "share", pl.col("mean").alias("mean wait")
    ).with_columns(**told, mostly=mostly)  # fmt: skip


def tail(table: pl.DataFrame, words: list[str]) -> tuple[pl.DataFrame, float, int]:
    """The jobs that waited longest; which share of all waiting the longest percent of jobs carries, and how many."""
    count = max(1, round(TAIL * table.height))
    longest = table.sort("wait", "job", descending=[True, False]).head(count).filter(pl.col("wait") > 0)
    total = float(table["wait"].sum()) or 1.0
    mostly = pl.Series(
        "mostly", [_mostly(row, words) for row in longest.head(CARRIERS).iter_rows(named=True)], dtype=pl.String
    )
    shown = longest.head(CARRIERS).select("job", "user", "instances", "gpu_milli", "pool", "submit", "runtime", "wait")
    return shown.with_columns(mostly), float(longest["wait"].sum()) / total, longest.height


def heads(table: pl.DataFrame, words: list[str]) -> pl.DataFrame:
    """Under `none`: who stood at the head and did not fit, and how long all others waited in that time."""
    own = pl.sum_horizontal(w for w in words if w not in (QUEUED, BLOCKED))
    submit, start = table["submit"].to_numpy(), (table["submit"] + table["wait"]).to_numpy()
    stood = table.with_columns(blocked=own, start=pl.Series(start)).filter(pl.col("blocked") > 0)
    ends = stood["start"].to_numpy()
    both = [_so_far(submit, at) - _so_far(start, at) for at in (ends, ends - stood["blocked"].to_numpy())]
    found = stood.with_columns(behind=pl.Series(both[0] - both[1]) - stood["blocked"])
    found = found.sort("behind", "job", descending=[True, False]).head(CARRIERS)
    return found.select("job", "user", "instances", "gpu_milli", "pool", "submit", "blocked", "behind")


def _so_far(events: Floats, times: Floats) -> Floats:
    """The time since each event that lies before, added up, at some times."""
    ranked = np.sort(events)
    before = np.searchsorted(ranked, times)
    return np.asarray(before * times - np.append(0.0, np.cumsum(ranked))[before])
