"""Any trace as a setting: its cluster, its site's Slurm, and its jobs in compressed time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from fleetlab.core.cluster import Cluster
from fleetlab.core.queues import Queue, QueueTree
from fleetlab.core.trace import Trace
from fleetlab.core.workload import Workload
from fleetlab.schedulers.slurm.config import Partition, Slurm
from realtest.jobs import Job, Replay
from realtest.settings import PLAIN

MOST_NODES = 100  # a slurmd each
NO_NAME = "none"


class TooLarge(ValueError):
    """More nodes than one host can play."""


def site_of(trace: Trace) -> tuple[Cluster, Slurm]:
    """Return a cluster that one host can play, and its Slurm with accounts and users of our own names."""
    cluster = trace.cluster
    if cluster is None or len(cluster) > MOST_NODES:
        msg = f"a trace with a cluster of at most {MOST_NODES} nodes is needed, each is a slurmd: {trace!r}"
        raise TooLarge(msg)
    slurm = trace.scheduler or PLAIN
    if not any(cluster.frame["partitions"].list.len()):
        everywhere = pl.lit(["all"], dtype=pl.List(pl.String()))
        cluster = Cluster.of(cluster.frame.with_columns(partitions=everywhere), source=cluster.source)
        slurm = replace(slurm, partitions=(Partition("all", default=True),))
    return cluster, replace(slurm, queues=_accounts(trace.workload))


def _accounts(workload: Workload) -> QueueTree:
    pairs = workload.frame.select(_account(), _user()).unique().sort("account", "user").iter_rows()
    of = {f"user{user}": f"account{account}" for account, user in pairs}  # a user of several is put in one of them
    accounts = [Queue(name, "root") for name in dict.fromkeys(of.values())]
    return QueueTree([Queue("root"), *accounts, *(Queue(f"{a}/{u}", a, user=u) for u, a in of.items())])


def _account() -> pl.Expr:
    return pl.coalesce("queue", "group").cast(pl.String).fill_null(NO_NAME).rank("dense").alias("account")


def _user() -> pl.Expr:
    return pl.col("user").cast(pl.String).fill_null(NO_NAME).rank("dense").alias("user")


def replay_of(workload: Workload, speed: float, count: int | None = None) -> Replay:
    """Return the first so many jobs, `speed` times as fast; limits stay whole minutes, and no job is below a second."""
    rows = workload.frame.with_columns(_user().alias("number")).filter(pl.col("gpu_milli") >= 1000)
    kept = (rows if count is None else rows.head(count)).iter_rows(named=True)
    return Replay(tuple(_jobs(kept, speed)))


def _jobs(rows: Iterable[Mapping[str, Any]], speed: float) -> Iterable[Job]:
    known: set[int] = set()
    for row in rows:
        runtime = row["runtime"] if row["runtime"] is not None else row["runtime_at_least"] or speed
        limit = row["limit"] if row["limit"] is not None else 2 * runtime
        yield Job(
            key=f"k{row['job']}",
            at=round(row["submit"] / speed, 2),
            user=f"user{row['number']}",
            nodes=row["instances"],
            gpus=row["gpu_milli"] // 1000,
            seconds=max(1, round(runtime / speed)),
            limit=max(1, math.ceil(limit / speed / 60)),
            words=tuple(_words(row, known, speed)),
        )
        known.add(row["job"])


def _words(row: Mapping[str, Any], known: set[int], speed: float) -> Iterable[str]:
    if row["partitions"]:
        yield f"-p{','.join(row['partitions'])}"
    if row["qos"]:
        yield f"-q{row['qos']}"
    if row["constraint"]:
        yield f"-C{row['constraint']}"
    if row["exclusive"]:
        yield "--exclusive"
    if row["nice"]:
        yield f"--nice={row['nice']}"
    rules = [(rule, job) for rule, job in zip(row["dependency"], row["depends_on"], strict=True) if job in known]
    if rules:
        yield "--dependency=" + ",".join(f"{rule}:{{k{job}}}" for rule, job in rules)
    elif row["eligible"] is not None and row["eligible"] - row["submit"] >= speed:
        yield f"--begin=now+{round((row['eligible'] - row['submit']) / speed)}"
