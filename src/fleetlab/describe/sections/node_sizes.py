"""Utilization of nodes by how many GPUs they have: P50 and P90 over nodes in each hour, and over hours of each node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.describe.ecdf import Bools, ecdf
from fleetlab.describe.node_hours import NodeHours
from fleetlab.describe.section import Section
from fleetlab.describe.trace_view import WHOLE, TraceView
from fleetlab.stats import POSITIVE, BlockBootstrap, Floats, Interval, mean_of_runs

METRIC = "machine_metric"
MEASURED, SUMMED = "node metrics", "sum of workers"
LEVELS = {"P50": 0.5, "P90": 0.9}
OVER_NODES, OVER_HOURS = "nodes in each hour", "hours of each node"
# Of what workers used: its column, the node's column, and how many of a worker's make one of a node's.
USED = {
    "CPU": ("cpu_milli", "cpu_milli", 1),
    "GPU": ("gpu_milli", "gpus", WHOLE),
    "memory": ("memory_mib", "memory_mib", 1),
    "GPU memory": ("gpu_memory_mib", "gpu_memory_mib", 1),
}
FULL = 100.0


@dataclass(frozen=True, slots=True, eq=False)
class Utilization:
    """Of one resource, in percent, by node and stretch of time."""

    resource: str
    source: str
    percent: Floats


def node_sizes(view: TraceView, section: Section, cluster: Cluster) -> None:
    """Utilization of nodes with GPUs, by their number, from what nodes measured and from what workers used."""
    nodes = cluster.frame.filter(pl.col("gpus") > 0)
    known = list(_measured(view, nodes)) if nodes.height else []
    known += _summed(view, section, nodes, {u.resource for u in known})
    if not known:
        section.absent("utilization by node size", "the trace has no node metrics, and no usage with placements")
        return
    sizes = nodes["gpus"].to_numpy()
    groups = {f"{g}-GPU nodes": sizes == g for g in sorted(set(sizes.tolist()), reverse=True)}
    rows = []
    for u in known:
        for name, where in groups.items():
            if np.isfinite(u.percent[where]).any():
                rows += [row | _beside(section, row) for row in _rows(name, u, u.percent[where])]
    section.tables["utilization by node size"] = pl.DataFrame(rows, infer_schema_length=None)
    _draw(section, known, groups)
    _say(section, rows)


# -- from the log ------------------------------------------------------------------------------------------------------


def _measured(view: TraceView, nodes: pl.DataFrame) -> Iterator[Utilization]:
    """What nodes measured while a worker ran there; of several workers at a time, the mean."""
    series = view.trace.series.get(METRIC)
    there = set(series.collect_schema().names()) if series is not None else set()
    columns = [c for c in ("cpu", "gpu") if c in there]
    if series is None or not columns or not {"node", "start", "end"} <= there:
        return
    rows = _on_nodes(series.select("node", "start", "end", *columns), nodes)
    for column in columns:
        of = rows.drop_nulls(column)
        if of.height:
            yield Utilization(column.upper(), MEASURED, _hours(of, nodes).mean(of[column].to_numpy()))


def _summed(view: TraceView, section: Section, nodes: pl.DataFrame, measured: set[str]) -> Iterator[Utilization]:
    """What the workers of a node used together, of what it has, where nodes did not measure it."""
    usage, placements = view.trace.usage, view.trace.placements
    columns = set(usage.collect_schema().names()) if usage is not None else set()
    wanted = {r: of for r, of in USED.items() if r not in measured and of[0] in columns}
    if usage is None or placements is None or not wanted or not {"job", "worker"} <= columns or not nodes.height:
        return
    used = [column for column, _, _ in wanted.values()]
    where = placements.filter(pl.col("worker").is_not_null()).select("job", "worker", "node", "start", "end")
    rows = _on_nodes(usage.select("job", "worker", *used).join(where, on=["job", "worker"]), nodes)
    for resource, (column, capacity, one) in wanted.items():
        there = nodes[capacity].cast(pl.Float64).to_numpy()
        if not there.any():
            section.absent(
                f"{resource} utilization of nodes", f"the cluster does not say how much {resource} they have"
            )
            continue
        if resource == "GPU memory":
            there = there * nodes["gpus"].to_numpy()
        of = rows.drop_nulls(column)
        if of.height:
            total = _hours(of, nodes).total(of[column].cast(pl.Float64).to_numpy() / one)
            share = np.divide(total, there[:, None], out=np.full(total.shape, np.nan), where=there[:, None] > 0)
            yield Utilization(resource, SUMMED, FULL * share)


def _on_nodes(rows: pl.LazyFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """Rows of known nodes and times, with the node's place in the cluster as `at`."""
    places = nodes.select(pl.col("node").cast(pl.String), at=pl.int_range(pl.len(), dtype=pl.Int64))
    timed = rows.filter(pl.col("start").is_not_null() & (pl.col("end") > pl.col("start")))
    return timed.with_columns(pl.col("node").cast(pl.String)).join(places.lazy(), on="node").collect()


def _hours(rows: pl.DataFrame, nodes: pl.DataFrame) -> NodeHours:
    at, start, end = (rows[c].to_numpy() for c in ("at", "start", "end"))
    return NodeHours.of(at, start, end, nodes.height)


# -- tables and figures ------------------------------------------------------------------------------------------------


def _rows(name: str, u: Utilization, percent: Floats) -> Iterator[dict[str, object]]:
    """P50 and P90, over nodes and then the mean over hours; and the other way round."""
    for over, axis in ((OVER_NODES, 0), (OVER_HOURS, 1)):
        row: dict[str, object] = {"nodes": name, "of": u.resource, "from": u.source, "quantile over": over}
        row |= {"count": int(np.isfinite(percent).any(axis=1).sum())}
        for level, q in LEVELS.items():
            each = quantiles(percent, q, axis)
            interval = _mean_over_hours(each) if axis == 0 else mean_of_runs(each, POSITIVE).interval()
            row |= dict(zip((f"mean of {level}, %", f"{level} low", f"{level} high"), interval, strict=True))
        yield row


def quantiles(percent: Floats, level: float, axis: int) -> Floats:
    """Quantiles of what is known, by linear interpolation; of rows or columns in which nothing is, none.

    >>> quantiles(np.array([[1.0, np.nan], [2.0, np.nan], [9.0, np.nan]]), 0.75, 0)
    array([5.5])
    """
    # `np.nanquantile` takes 20 times as long.
    ranked = np.sort(percent if axis else percent.T, axis=1)  # what is not a number comes last
    count = np.isfinite(ranked).sum(axis=1)
    ranked, count = ranked[count > 0], count[count > 0]
    at = level * (count - 1)
    low, row = np.floor(at).astype(np.int64), np.arange(len(count))
    below, above = ranked[row, low], ranked[row, np.minimum(low + 1, count - 1)]
    return np.asarray(below + (at - low) * (above - below), dtype=np.float64)


def _mean_over_hours(each: Floats) -> Interval:
    return BlockBootstrap.of_series(len(each)).mean(each, POSITIVE).interval()


def _beside(section: Section, row: dict[str, object]) -> dict[str, object]:
    if not section.like_pai:
        return {}
    key = f"{row['nodes']}, {row['of']}"
    return {f"{level}, published": section.published(f"{level} utilization of nodes").get(key) for level in LEVELS}


def _draw(section: Section, known: list[Utilization], groups: dict[str, Bools]) -> None:
    """The distribution over hours."""
    for level, q in LEVELS.items():
        curves = []
        for u in known:
            for name, where in groups.items():
                each = quantiles(u.percent[where], q, 0)
                made = ecdf(f"{name}, {u.resource}", each, blocks=BlockBootstrap.of_series(len(each)))
                curves += [made] if made is not None else []
        section.distributions(
            f"{level} utilization of nodes", curves, title=f"{level} utilization over nodes, by node size", unit="%",
            x=f"{level} over nodes, %", y="share of hours, %", log_x=False, tabled=False,
        )  # fmt: skip


def _say(section: Section, rows: list[dict[str, object]]) -> None:
    chosen = [r for r in rows if r["quantile over"] == OVER_NODES and r["of"] in ("CPU", "GPU")]
    of = [f"{r['nodes']} {r['of']} {r['mean of P90, %']:.0f} %" for r in chosen]
    if of:
        section.findings.append(f"P90 utilization over nodes, mean of hours: {', '.join(of)}.")
