"""Sums of the wait ledger: by reason, GPU type, request, gang size and hour; worst hours and longest waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from fleetlab.core import Workload
from fleetlab.core.catalog import HOLDERS, REASONS
from fleetlab.core.job_classes import GPU_REQUEST, WHOLE, gang_size, gpu_request, gpu_type, in_order, partitions, queue
from fleetlab.sim import SimResult
from fleetlab.stats import POSITIVE, Floats, Interval, Ints, over_replicas

WORST = 10  # hours in the table of the worst
TAIL = 0.01  # of the jobs: those that waited longest
SHARE_OF_WAITING = "share of waiting"
LISTED = 20  # jobs in a table
SHARE_COLUMNS = ("share", "low", "high")
BLOCKED = "head_of_line"
NAMES = list(REASONS.names)
PER_INSTANCE = (pl.col("gpu_milli") / WHOLE).alias(GPU_REQUEST)


def waits(result: SimResult, workload: Workload) -> pl.DataFrame:
    """Return one row per job that completed: its classes, its wait, and the seconds by reason."""
    jobs = result.completed
    at = clock(jobs["submit"], workload)
    hour, day = pl.select(hour=at.dt.hour(), day=at.dt.date())
    table = jobs.select(
        "job", "submit", "runtime", "instances", "gpu_milli", "user", "wait", "jct",
        gpu_type(jobs), gpu_request(), gang_size(), partitions(), queue(), hour, day, "gpu_types",
    )  # fmt: skip
    return table.join(result.ledger, on="job", how="left", maintain_order="left")


def clock(submit: pl.Series, workload: Workload) -> pl.Expr:
    """Return the time by the clock of the workload; a log without one begins at midnight."""
    at = ((pl.lit(submit) + (workload.epoch or 0.0)) * 1e6).cast(pl.Int64).cast(pl.Datetime("us", "UTC"))
    return at if workload.epoch is None else at.dt.convert_time_zone(workload.zone or "UTC")


def clock_name(workload: Workload) -> str:
    """Return what hours of the day count from: the time zone of the log, or its first submission."""
    return "from the first submission" if workload.epoch is None else workload.zone or "UTC"


def reasons(total: float, shares: Mapping[str, Interval]) -> pl.DataFrame:
    """Return seconds of waiting by reason, which add up to the total, and its share, which is a mean over replicas."""
    rows = [(name, total * x.value, *x, REASONS[name].meaning) for name, x in shares.items() if x.value > 0]
    table = pl.DataFrame(rows, schema=["reason", "total wait", *SHARE_COLUMNS, "meaning"], orient="row")
    return table.with_columns(pl.col("low", "high").fill_nan(None)).sort("share", descending=True)


def holders(result: SimResult, table: pl.DataFrame, total: float) -> pl.DataFrame:
    """Return seconds of waiting by who holds what is missing, which add up to the total, and its share of one run."""
    mine = result.holders.filter(pl.col("job").is_in(table["job"].implode()))
    each = {name: float(mine[name].sum()) for name in HOLDERS.names}
    share = {name: part / sum(each.values()) for name, part in each.items() if part > 0}
    rows = [(name, total * part, part, HOLDERS[name].meaning) for name, part in share.items()]
    both = pl.DataFrame(rows, schema=["held by", "total wait", "share", "meaning"], orient="row")
    return both.sort("total wait", descending=True, maintain_order=True)


def holding_users(result: SimResult) -> pl.DataFrame:
    """Return the users whose running jobs hold most of what jobs wait for, beside their GPU time and own waiting."""
    jobs, user = result.jobs, pl.col("user").cast(pl.String).fill_null("")
    gpu_time = pl.col("gpu_milli") * pl.col("instances") * pl.col("runtime")
    own = jobs.group_by(user).agg(pl.len().alias("jobs"), gpu_time.sum().alias("time"), pl.col("wait").sum())
    blocking = result.held_by_user.filter(pl.col("seconds") > 0).head(LISTED).join(own, on="user", how="left")
    return blocking.select(
        "user", "jobs",
        (pl.col("seconds") / (jobs["wait"].sum() or 1.0)).alias("holds, share of all waiting"),
        (pl.col("time") / (own["time"].sum() or 1.0)).alias("share of GPU time"),
        (pl.col("wait") / (jobs["wait"].sum() or 1.0)).alias("own share of waiting"),
    )  # fmt: skip


def by(table: pl.DataFrame, title: str, replicas: Sequence[Floats]) -> pl.DataFrame:
    """Return one row per class: its jobs, mean wait, share of all waiting, and main reasons.

    `replicas` has the waits of the same jobs in each replica, which the mean is over; there are none of other jobs, and
    then it is that of the log as it is.
    """
    names = sorted(set(table[title]))
    code = table[title].replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
    mean = _means(code, len(names), replicas or [table["wait"].to_numpy()])
    total = float(table["wait"].sum()) or 1.0
    sums = table.group_by(title).agg(pl.len().alias("jobs"), pl.col("wait", *NAMES).sum()).sort(title)
    columns = {name: pl.Series(values, nan_to_null=True) for name, values in zip(_MEAN, mean.T, strict=True)}
    main = pl.Series("main reasons", [_main_reasons(row) for row in sums.iter_rows(named=True)], dtype=pl.String)
    share = (pl.col("wait") / total).alias(SHARE_OF_WAITING)
    rows = sums.select(title, "jobs", share).with_columns(**columns).with_columns(main)
    return rows if title == "hour" else rows.sort(in_order(title), -pl.col(SHARE_OF_WAITING), title)


_MEAN = ("mean wait", "low", "high")


def _means(code: Ints, classes: int, replicas: Sequence[Floats]) -> Floats:
    """Return the mean and interval of each class."""
    each = [[float(wait[there].mean()) if (there := part & ~np.isnan(wait)).any() else np.nan for wait in replicas]
            for part in (code == k for k in range(classes))]  # fmt: skip
    limits = [over_replicas(values, POSITIVE).interval() for values in each]
    return np.array(limits, dtype=np.float64).reshape(classes, 3)


def _main_reasons(row: dict[str, float]) -> str:
    """Return the first two reasons of a class, with their shares."""
    total = sum(row[w] for w in NAMES)
    first = sorted(NAMES, key=lambda w: -row[w])[:2]
    return ", ".join(f"{w} {100 * row[w] / total:.0f} %" for w in first if row[w] >= 0.005 * total) if total else ""


def at_limits(table: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return whose jobs wait at limits: by class of service, account and whether their array has a limit of its own.

    `jobs` has a row for each of the table.
    """
    whose = jobs.select(
        pl.col("qos").cast(pl.String).fill_null("none").alias("QOS"), queue(),
        pl.when(pl.col("array_limit") > 0).then(pl.lit("yes")).otherwise(pl.lit("no")).alias("array with a limit"),
    )  # fmt: skip
    rows = pl.concat([whose, table.select("limit")], how="horizontal").filter(pl.col("limit") > 0)
    sums = rows.group_by(whose.columns, maintain_order=True).agg(pl.len().alias("jobs"), pl.col("limit").sum())
    share = (pl.col("limit") / (float(table["wait"].sum()) or 1.0)).alias(SHARE_OF_WAITING)
    sums = sums.sort("limit", descending=True, maintain_order=True).head(LISTED)
    return sums.select(*whose.columns, "jobs", pl.col("limit").alias("wait at limits"), share)


def worst_hours(table: pl.DataFrame, workload: Workload, replicas: Sequence[Floats]) -> pl.DataFrame:
    """Return the hours, by the same clock as the hours of the day, whose jobs waited most in total.

    `replicas` are those of `by`.
    """
    begin = pl.select(begin=clock(table["submit"], workload).dt.truncate("1h")).to_series()
    of_job = np.mean(replicas or [table["wait"].to_numpy()], axis=0)
    in_hours = table.with_columns(begin, pl.Series("mean wait", of_job, nan_to_null=True)).group_by("begin")
    sums = in_hours.agg(pl.len().alias("jobs"), pl.col("mean wait").mean(), pl.col("wait", *NAMES).sum())
    sums = sums.sort("wait", "begin", descending=[True, False]).head(WORST)
    main = pl.Series("main reasons", [_main_reasons(row) for row in sums.iter_rows(named=True)], dtype=pl.String)
    form = "day %j, %H:%M" if workload.epoch is None else "%a %Y-%m-%d %H:%M"  # without an epoch, day 1 is the first
    total = float(table["wait"].sum()) or 1.0
    return sums.select(
        pl.col("begin").dt.strftime(form).alias(f"hour begins ({clock_name(workload)})"), "jobs",
        (pl.col("wait") / total).alias(SHARE_OF_WAITING), "mean wait",
    ).with_columns(main)  # fmt: skip


def longest_waits(table: pl.DataFrame) -> tuple[pl.DataFrame, float, int]:
    """Return the jobs that waited longest, and of the longest percent their share of all waiting and their number."""
    count = max(1, round(TAIL * table.height))
    longest = table.sort("wait", "job", descending=[True, False]).head(count).filter(pl.col("wait") > 0)
    total = float(table["wait"].sum()) or 1.0
    top = longest.head(LISTED)
    main = pl.Series("main reasons", [_main_reasons(row) for row in top.iter_rows(named=True)], dtype=pl.String)
    columns = top.select("job", "user", "instances", PER_INSTANCE, "GPU type", "submit", "runtime", "wait")
    return columns.with_columns(main), float(longest["wait"].sum()) / total, longest.height


def blocking_jobs(table: pl.DataFrame) -> pl.DataFrame:
    """Return, for backfill `none`, the jobs that blocked a queue longest, and how long others waited behind them."""
    rows = pl.concat(_blocking(part) for part in table.partition_by("partitions", maintain_order=True))
    return rows.sort("behind", "job", descending=[True, False]).head(LISTED)


def _blocking(table: pl.DataFrame) -> pl.DataFrame:
    submit, start = table["submit"].to_numpy(), (table["submit"] + table["wait"]).to_numpy()
    # The first job to start at an instant was the head since the instant before at which a job started.
    heads = table.with_columns(start=pl.Series(start)).sort("start", "submit", "job").unique("start", keep="first")
    heads = heads.sort("start").with_columns(since=pl.max_horizontal("submit", pl.col("start").shift(1)))
    heads = heads.with_columns(blocked=pl.col("start") - pl.col("since")).filter(pl.col("blocked") > 0)
    ends = heads["start"].to_numpy()
    both = [_elapsed(submit, at) - _elapsed(start, at) for at in (ends, ends - heads["blocked"].to_numpy())]
    rows = heads.with_columns(behind=pl.Series(both[0] - both[1]) - heads["blocked"])
    return rows.select("job", "user", "instances", PER_INSTANCE, "GPU type", "submit", "blocked", "behind")


def _elapsed(events: Floats, times: Floats) -> Floats:
    """Return the time since each earlier event, summed, at some times."""
    ranked = np.sort(events)
    before = np.searchsorted(ranked, times)
    return np.asarray(before * times - np.append(0.0, np.cumsum(ranked))[before])
