"""Pods as jobs: which of them are one gang, and where each ran."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from fleetlab.core.catalog import REQUESTS
from fleetlab.core.trace import PLACEMENTS
from fleetlab.schedulers.kubernetes.reader.nodes import Fleet
from fleetlab.schedulers.kubernetes.reader.pods import Pod
from fleetlab.schedulers.kubernetes.reader.requests import demand

TEXTS = ("user", "group", "app", "queue", "constraint")
ASKS = ("priority", *REQUESTS)
SAME = (*TEXTS, *ASKS, "gpu_types")  # what the pods of a gang have in common
JOB: dict[str, pl.DataType] = {
    **dict.fromkeys(("name", "workload", "set", "status", *TEXTS), pl.String()),
    **dict.fromkeys(("at", "parent", "instances", *ASKS), pl.Int64()),
    **dict.fromkeys(("least", "completions"), pl.Int64()),
    **dict.fromkeys(("submit", "start", "end", "stretch"), pl.Float64()),
    "gpu_types": pl.List(pl.String()),
    "unsized": pl.Boolean(),
}

Row = dict[str, Any]


def row_of(pod: Pod, fleet: Fleet) -> Row:
    """A pod in the words of a workload; Malformed if it asks for what cannot be."""
    plain = ("name", "group", "app", "queue", "node", "priority", "submit", "start", "end", "status", "rank")
    gang = f"{pod.namespace}/{pod.gang}" if pod.gang else None
    known = {"user": pod.namespace, "gang": gang, "parent": gang or pod.owner}
    known["constraint"] = pod.rules.constraint(fleet.taints)
    return {name: getattr(pod, name) for name in plain} | known | demand(pod, fleet)


def gangs_of(rows: Iterable[Row]) -> list[list[Row]]:
    """Pods that are one job: those of a gang that ask for the same, and every other by itself."""
    every = list(rows)
    tries = _tries(every)
    gangs: dict[object, list[Row]] = {}
    for k, row in enumerate(every):
        same = (row["gang"], tries[k], *(row[name] for name in SAME)) if row["gang"] else k
        # Pods that take the place of others are a part of their job, whatever it asks for.
        gangs.setdefault(same, []).append(row | {"parallel": None, "count": None} if tries[k] else row)
    return list(gangs.values())


def _tries(rows: list[Row]) -> list[int]:
    """How many pods of the same rank came before each: those that take the place of others are another try."""
    before: Counter[tuple[str, str]] = Counter()
    tries = [0] * len(rows)
    for k in sorted(range(len(rows)), key=lambda k: rows[k]["submit"]):
        if rows[k]["gang"] and rows[k]["rank"]:
            place = (rows[k]["gang"], rows[k]["rank"])
            tries[k] = before[place]
            before[place] += 1
    return tries


def jobs_of(gangs: list[list[Row]]) -> pl.DataFrame:
    """One row a gang, in the order given."""
    parents: dict[str, int] = {}
    rows = [
        _job(gang) | {"at": k, "parent": parents.setdefault(gang[0]["parent"], len(parents))}
        for k, gang in enumerate(gangs)
    ]
    runtime = (pl.col("end") - pl.col("start")) / pl.col("stretch")
    return _named(pl.DataFrame(rows, schema=JOB).with_columns(runtime=runtime))


def _named(jobs: pl.DataFrame) -> pl.DataFrame:
    """Call the job with most GPUs of a Workload by its name, and the others by their set of pods too."""
    gpus = pl.col("gpu_milli") * pl.col("instances")
    first = (gpus.rank("ordinal", descending=True).over("workload") == 1) | pl.col("workload").is_null()
    return jobs.with_columns(name=pl.when(first).then("name").otherwise(pl.concat_str("name", pl.lit("/"), "set")))


def _job(gang: list[Row]) -> Row:
    """A gang has started when the last pod that it runs at once has, and ends with its last one."""
    first, told = gang[0], gang[0]["parallel"]
    at_once = gang if told is None else sorted(gang, key=_start)[: told.admitted]
    states = {row["status"] for row in gang}
    counts = {row["set"]: row["count"] for row in gang if row["count"]}  # pods of each set, as their Workload says
    status = next(s for s in ("running", "waiting", "failed", "cancelled", "completed") if s in states)
    starts, ends = [row["start"] for row in at_once], [row["end"] for row in gang]
    if status == "waiting" and len(at_once) < len(gang) and None not in starts:
        status = "running"  # it waits for pods that take the place of others
    return {name: first[name] for name in SAME} | {
        "name": first["gang"] if len(gang) > 1 or first["workload"] else first["name"],
        "workload": first["workload"],
        "set": first["set"],
        "instances": sum(counts.values()) or (len(gang) if told is None else told.instances(len(gang))),
        "least": None if told is None else told.asked.least,
        "completions": None if told is None else told.asked.completions,
        "stretch": 1.0 if told is None else told.stretch,
        "status": status,
        "submit": min(row["submit"] for row in gang),
        "start": max(starts) if None not in starts and status != "waiting" else None,
        "end": max(ends) if None not in ends else None,
        "gpu_types": list(first["gpu_types"]),
        "unsized": any(row["unsized"] for row in gang),
    }


def _start(row: Row) -> float:
    return math.inf if row["start"] is None else float(row["start"])


def placements_of(gangs: list[list[Row]], jobs: pl.DataFrame, zero: float) -> pl.LazyFrame | None:
    """Where each pod ran; `jobs` says which number each gang has got."""
    schema: dict[str, pl.DataType] = {"at": pl.Int64()} | {k: v for k, v in PLACEMENTS.items() if k != "job"}
    frame = pl.DataFrame(list(_placed(gangs)), schema=schema, orient="row")
    frame = frame.with_columns(pl.col("start") - zero, pl.col("end") - zero)
    frame = frame.join(jobs.select("at", "job"), on="at").sort("job", "worker").select(list(PLACEMENTS))
    return frame.lazy() if frame.height else None


def _placed(gangs: list[list[Row]]) -> Iterator[tuple[Any, ...]]:
    for at, gang in enumerate(gangs):
        for worker, row in enumerate(gang):
            if row["node"] and row["start"] is not None:
                yield at, worker, row["node"], row["status"], row["start"], row["end"]
