"""What happened to nodes, as `sacctmgr show event -P` lists it; as a table, and as events of a scenario."""

from __future__ import annotations

import re

import polars as pl

from fleetlab.core import Trace
from fleetlab.core.events import Drain, Event, Outage
from fleetlab.traces.input.times import moments

NODE_EVENTS = {
    "node": pl.String,
    "start": pl.Float64,
    "end": pl.Float64,  # null: not over when the list was made
    "state": pl.String,
    "reason": pl.String,
}
AT_ONCE = 2.0  # s
SHORTEST = 1.0  # s that a node is down whose list says 0: jobs on it end all the same
_DOWN = re.compile(r"DOWN|FAIL|ERROR|NO_RESPOND|\*", re.IGNORECASE)
_OUT = re.compile(r"DRAIN|DRNG|MAINT", re.IGNORECASE)
_POWER = re.compile(r"POWER", re.IGNORECASE)


def is_events(header: str) -> bool:
    """Whether a line is the header of a list of events."""
    return {"nodename", "timestart", "timeend", "state"} <= set(_names(header))


def _names(header: str) -> list[str]:
    return [name.replace(" ", "").lower() for name in header.split("|")]


def registrations(text: str, zone: str) -> list[float]:
    """Return when slurmctld registered its cluster, in Unix time: as it starts, and when what there is has changed."""
    stamps = [row["timestart"] for row in _rows(text) if not row.get("nodename") and "Registered" in row["reason"]]
    return moments(pl.Series(stamps, dtype=pl.String), zone)[0].drop_nulls().to_list()


def _rows(text: str) -> list[dict[str, str]]:
    lines = [line for line in text.splitlines() if line.strip()]
    names = _names(lines[0]) if lines else []
    return [{"reason": ""} | dict(zip(names, line.split("|"), strict=False)) for line in lines[1:]]


def read_events(text: str, zone: str, zero: float) -> pl.DataFrame:
    """Read a list of events; times count from `zero`, and rows of no node (a cluster that registers) are left out."""
    rows = [row for row in _rows(text) if row.get("nodename")]

    def column(name: str) -> pl.Series:
        return pl.Series([row.get(name, "") for row in rows], dtype=pl.String)

    table = {"node": column("nodename"), "state": column("state"), "reason": column("reason")}
    table |= {name: moments(column(f"time{name}"), zone)[0] - zero for name in ("start", "end")}
    events = pl.DataFrame(table).filter(pl.col("start").is_not_null())
    return events.select(pl.col(name).cast(kind) for name, kind in NODE_EVENTS.items()).sort("start", "node")


def node_events(trace: Trace) -> tuple[Event, ...]:
    """Return the events of a trace's nodes for a scenario: `simulate(trace, events=node_events(trace))`.

    A node that is down loses its jobs, one that drains takes no new ones. What was not over when the list was made
    lasts to the end of the log; what began before it, from its first second.
    """
    series = trace.series.get("events")
    if series is None:
        return ()
    last = trace.workload.frame.select(pl.max_horizontal(pl.col("submit", "start", "end").max())).item() or 0.0
    there = set(trace.cluster.frame["node"]) if trace.cluster is not None else None
    events: list[Event] = []
    runs = _runs(trace)
    for node, start, end, state, _ in series.collect().iter_rows():
        kind = event_kind(state)
        begin = max(0.0, _drained_since(runs, node, start) if kind == "drain" else start)
        until = max(begin + SHORTEST, last if end is None else end)
        if kind and (there is None or node in there) and (end is None or end >= 0):
            events.append(Outage(begin, until, [node]) if kind == "down" else Drain(begin, until, [node]))
    return tuple(events)


def _runs(trace: Trace) -> pl.DataFrame:
    """When jobs began and ended on which node."""
    if trace.placements is None:
        return pl.DataFrame(schema={"node": pl.String, "start": pl.Float64, "end": pl.Float64})
    placed = trace.placements.select("job", pl.col("node").cast(pl.String)).unique().collect()
    return placed.join(trace.workload.frame.select("job", "start", "end"), on="job")


def _drained_since(runs: pl.DataFrame, node: str, logged: float) -> float:
    """Return since when a node took no more jobs: Slurm logs a drain when the last job on the node has ended."""
    here = runs.filter((pl.col("node") == node) & (pl.col("start") <= logged))
    if here.filter((pl.col("end") - logged).abs() <= AT_ONCE).is_empty():
        return logged
    latest = here["start"].max()
    return float(latest) + 1.0 if isinstance(latest, float) else logged


def event_kind(state: str) -> str | None:
    """Tell whether a node was down, drained, or neither.

    >>> [event_kind(state) for state in ("DOWN*", "DRAIN", "DOWN+DRAIN", "UNK", "POWERED_DOWN")]
    ['down', 'drain', 'down', None, None]
    """
    if _POWER.search(state):
        return None  # to save energy: it comes back for a job
    return "down" if _DOWN.search(state) else "drain" if _OUT.search(state) else None
