"""Logs of supercomputers as DIR-LAB's `lumos` publishes them: a row a job, with its nodes, waits and time limits.

A machine's nodes are alike and go to one job at a time: an instance is a node. How many nodes there are is not in the
log; it is the most that jobs held at once. Reservations, queues, outages and other nodes are not in it either.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Trace, TraceError, Workload
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import Format, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, Rule, TableSchema
from fleetlab.traces.input.times import LATEST

OPTIONAL = frozenset({"project", "new_status"})
JOBS = TableSchema.of(
    "jobs",
    "job user project gpu_num:f cpu_num:f node_num:f submit_time:f wait_time:f run_time:f wall_time:f new_status",
    optional=" ".join(sorted(OPTIONAL)),
)
STATUS = {"Pass": "completed", "Failed": "failed", "Killed": "failed"}
NODES, TYPE = 1_000_000, "gpu"
MOST = {"node_num": NODES, "cpu_num": 1e9, "gpu_num": 1e8}
TIMES = ("submit_time", "wait_time", "run_time", "wall_time")
RULES: list[Rule] = [
    ("no job", pl.col("job").is_null()),
    ("duplicate job", ~pl.col("job").is_first_distinct(), "job"),
    *[(f"`{c}` is missing", pl.col(c).is_null()) for c in (*TIMES, *MOST)],
    *[(f"`{c}` is not a number of 0 or more", (pl.col(c).is_finite() & (pl.col(c) >= 0)).not_(), c)
      for c in (*TIMES, *MOST)],
    *[(f"`{c}` is implausibly long", pl.col(c) > LATEST, c) for c in TIMES],
    *[(f"`{c}` is more than any machine has", pl.col(c) > most, c) for c, most in MOST.items()],
    ("not a number of nodes", (pl.col("node_num") < 1) | (pl.col("node_num") % 1 != 0), "node_num"),
]  # fmt: skip


def read(path: Path, intake: Intake) -> Trace:
    """Read one log; its machine has as many nodes as jobs held at once."""
    source = _file(path)
    rows = intake.validate(intake.table(source, JOBS), "jobs", source.name, RULES)
    jobs, zero = relative_to_first(_jobs(rows).sort("submit", maintain_order=True))
    workload = Workload.of(
        jobs.drop("name"), source=f"lumos:{source.stem}", epoch=zero if len(jobs) else None, zone="UTC"
    )
    intake.keep("jobs", len(workload))
    number = pl.int_range(pl.len(), dtype=pl.Int64)
    nodes = most_at_once(jobs)
    return finish(
        intake,
        workload,
        cluster=_cluster(jobs, nodes) if nodes else None,
        names=jobs.select(job=number, name="name").lazy(),
        series={"requested": jobs.select(job=number, seconds="limit").lazy()} if len(jobs) else {},
        notes=(
            f"the log has no nodes: {nodes:,} are taken, the most that jobs held at once",
            "reservations, queues and outages are not in the log",
        ),
        settings={"zero": zero},
    )


def _file(path: Path) -> SourceFile:
    logs = (
        [s for s in sources(path) if s.name.lower().endswith((".csv", ".csv.gz"))] if path.is_dir() else sources(path)
    )
    if len(logs) != 1:
        msg = f"not one log (.csv or .csv.gz) in: {path}"
        raise TraceError(msg, hint="name the log itself")
    return logs[0]


def _jobs(rows: pl.DataFrame) -> pl.DataFrame:
    start = pl.col("submit_time") + pl.col("wait_time")
    gpus = pl.col("gpu_num") / pl.col("node_num")
    return rows.select(
        name="job", user="user", group="project", submit="submit_time", runtime="run_time", start=start,
        end=start + pl.col("run_time"), limit=pl.when(pl.col("wall_time") > 0).then("wall_time"),
        instances=pl.col("node_num").cast(pl.Int32),
        cpu_milli=(1000 * pl.col("cpu_num") / pl.col("node_num")).ceil().cast(pl.Int64),
        gpu_milli=(1000 * gpus.ceil()).cast(pl.Int32), distinct_nodes=pl.lit(value=True),
        status=pl.col("new_status").replace_strict(STATUS, default="completed"),
    )  # fmt: skip


def most_at_once(jobs: pl.DataFrame) -> int:
    """Return the most nodes that jobs held at once; one that ends in the second in which another starts is gone."""
    nodes = jobs["instances"].to_numpy().astype(np.int64)
    ends, starts = np.floor(jobs["end"].to_numpy()), jobs["start"].to_numpy()
    change = np.concatenate((nodes, -nodes))
    order = np.lexsort((change, np.concatenate((starts, ends))))
    return int(np.cumsum(change[order]).max(initial=0))


def _cluster(jobs: pl.DataFrame, nodes: int) -> Cluster:
    """Return nodes of which each holds a node's part of any job."""
    gpus = int(jobs["gpu_milli"].max() or 0) // 1000  # type: ignore[arg-type]
    number = pl.int_range(1, nodes + 1, eager=True)
    frame = pl.DataFrame({"node": pl.Series([f"node{n}" for n in number])}).with_columns(
        gpus=pl.lit(gpus, dtype=pl.Int32), gpu_type=pl.lit(TYPE if gpus else None, dtype=pl.String),
        cpu_milli=pl.lit(int(jobs["cpu_milli"].max() or 0), dtype=pl.Int64),  # type: ignore[arg-type]
    )  # fmt: skip
    return Cluster.of(frame, source="lumos")


FORMAT = Format.of("lumos", read)
