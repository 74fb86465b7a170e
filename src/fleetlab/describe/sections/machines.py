"""Allocation and utilization by node type, CPUs per GPU, and node metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Figure
from fleetlab.core.durations import number
from fleetlab.describe import published
from fleetlab.describe.curves import Bools, Ecdf, ecdf, share
from fleetlab.describe.section import Section
from fleetlab.describe.sections.arrivals import MOST_POINTS, quartiles
from fleetlab.describe.sections.nodes import node_sizes
from fleetlab.describe.trace_view import AMOUNTS, CPU_ONLY, HOUR, WHOLE, TraceView
from fleetlab.stats import POSITIVE, SHARE, BlockBootstrap, Floats, Interval, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Occupancy:
    """Boxes in time, each from `start` until `until`, and the stretches between edges in which they are added up."""

    start: Floats
    until: Floats
    edges: Floats
    after_start: Ints  # the first edge at or after it
    after_until: Ints

    @classmethod
    def of(cls, start: Floats, until: Floats, edges: Floats) -> Occupancy:
        """Boxes of which an end is not known hold nothing."""
        closed = np.isfinite(start) & np.isfinite(until)
        begin, end = (np.where(closed, x, edges[0]) for x in (start, until))
        return cls(begin, end, edges, np.searchsorted(edges, begin), np.searchsorted(edges, end))

    @classmethod
    def by_jobs(cls, view: TraceView, edges: Floats) -> Occupancy:
        """By jobs that started and let go at known times."""
        return cls.of(view.floats("start"), view.held_until, edges)

    def mean(self, amounts: Floats, where: Bools | None = None) -> Floats:
        """The mean amount held in each stretch: the area below the sum of boxes, over its length.

        >>> edges = np.array([0.0, 5.0, 10.0, 20.0])
        >>> boxes = Occupancy.of(np.array([0.0, 5.0, np.nan]), np.array([10.0, 10.0, 7.0]), edges)
        >>> boxes.mean(np.array([1.0, 2.0, 4.0]))
        array([1., 3., 0.])
        """
        allocated = amounts if where is None else np.where(where, amounts, 0.0)
        area = self._so_far(self.after_start, self.start, allocated) - self._so_far(
            self.after_until, self.until, allocated
        )
        return np.maximum(np.diff(area) / np.diff(self.edges), 0.0)

    def _so_far(self, after: Ints, when: Floats, amounts: Floats) -> Floats:
        """What would have been held up to each edge if everything stayed from `when` on."""
        size = len(self.edges) + 1
        sums, moments = (np.cumsum(np.bincount(after, weights=w, minlength=size)) for w in (amounts, amounts * when))
        return np.asarray(sums[:-1] * self.edges - moments[:-1])


ALL = "all"
ALLOCATED, USED = "allocated", "used"
THERE = {"GPUs": ("gpus", 1), "CPUs": ("cpu_milli", WHOLE), "memory": ("memory_mib", 1024)}
METRICS = {"cpu": "%", "gpu": "%", "cpu_usr": "%", "cpu_kernel": "%", "cpu_iowait": "%", "net_receive": "as logged",
           "load_1": "processes", "num_worker": "workers"}  # fmt: skip
FULL = 100.0


def machines(view: TraceView, section: Section) -> None:
    """Put together allocation, use and metrics of machines."""
    cluster = view.trace.cluster
    if cluster is None:
        section.absent(
            "allocation and utilization of nodes", "the trace has no cluster: add one with `--cluster FILE.toml`"
        )
    else:
        section.tables["nodes"] = _nodes(cluster)
        _allocation(view, section, cluster)
        _cpus_by_gpu(view, section, cluster)
        node_sizes(view, section, cluster)
    _metrics(view, section)


def _nodes(cluster: Cluster) -> pl.DataFrame:
    sums = [(pl.col(c).cast(pl.Int64).sum() / one).alias(name) for name, (c, one) in THERE.items()]
    kind = pl.col("gpu_type").fill_null(CPU_ONLY).alias("type")
    return cluster.frame.group_by(kind).agg(pl.len().alias("nodes"), *sums).sort("GPUs", "type", descending=True)


# -- what is held and used ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class NodeGroup:
    """The nodes of one type, and the jobs that must be on them."""

    name: str
    there: dict[str, float]
    where: Bools | None


def _pools(view: TraceView, nodes: pl.DataFrame) -> list[NodeGroup]:
    """All nodes; and those of each type that jobs can be placed on."""
    every = NodeGroup(ALL, {name: float(nodes[name].sum()) for name in THERE}, None)
    types = [t for t in view.types if t in nodes["type"].to_list()]
    rows = {row["type"]: row for row in nodes.iter_rows(named=True)}
    return [every, *(NodeGroup(t, {n: float(rows[t][n]) for n in THERE}, view.is_("type", t)) for t in types)]


def _allocation(view: TraceView, section: Section, cluster: Cluster) -> None:
    """Hourly means of what is held and used, in percent of what there is, while jobs are submitted."""
    if view.span < HOUR or not np.isfinite(view.held_until).any():
        section.absent("allocation over time", "starts and ends are not in the log, or it is shorter than an hour")
        return
    edges = np.arange(0.0, view.span + 1, HOUR)
    pools = _pools(view, section.tables["nodes"])
    if unplaced := int((view.gpu & ~_any(pools[1:], view)).sum()):
        section.absent(f"node type of {unplaced:,} GPU jobs", "they may use several types, or none of this cluster")
    shares = list(_shares(view, pools, edges))
    _tabled(section, shares)
    _draw(section, shares, edges)
    if any(c.largest > FULL for _, _, _, c, _ in shares):
        section.absent(
            "a feasible schedule",
            "in some hours more is allocated than the cluster has: starts and ends do not match it",
        )


def _any(pools: list[NodeGroup], view: TraceView) -> Bools:
    placed = np.zeros(len(view.gpu), dtype=bool)
    for pool in pools:
        placed |= pool.where if pool.where is not None else False
    return placed


Allocation = tuple[str, str, str, Ecdf, Floats]  # pool, what, held or used; over the hours


def _shares(view: TraceView, pools: list[NodeGroup], edges: Floats) -> Iterator[Allocation]:
    used, allocated = view.used, Occupancy.by_jobs(view, edges)
    blocks = view.blocks_at(edges[:-1])
    for what, (column, one, _) in AMOUNTS.items():
        amounts = {ALLOCATED: view.instances * view.floats(column) / one}
        if used is not None and column in used.columns:
            amounts[USED] = view.instances * used[column].fill_null(0.0).to_numpy() / one
        for pool in pools:
            for how, values in amounts.items():
                if pool.there[what] > 0 and values.any():
                    hourly = FULL * allocated.mean(values, pool.where) / pool.there[what]
                    curve = ecdf(pool.name, hourly, blocks=blocks)
                    if curve is not None:
                        yield pool.name, what, how, curve, hourly


def _tabled(section: Section, shares: list[Allocation]) -> None:
    rows = []
    for pool, what, how, c, _ in shares:
        row: dict[str, object] = {"type": pool, "of": what, "how": how}
        for name, interval in (("mean, %", c.mean), ("P50", c.quantiles[50]), ("P90", c.quantiles[90])):
            row |= dict(zip((name, f"{name.split(',')[0]} low", f"{name.split(',')[0]} high"), interval, strict=True))
        if section.like_pai:
            paper = (
                published.numbers(f"{what} allocated").get(pool)
                if what in ("GPUs", "CPUs") and how == ALLOCATED
                else None
            )
            row["published, %"] = paper
        rows.append(row)
        if (pool, what) == (ALL, "GPUs"):
            section.say("GPU allocation" if how == ALLOCATED else "GPU utilization", c.mean, "%")
    section.tables["allocation and utilization"] = pl.DataFrame(rows, infer_schema_length=None)
    allocated = [
        (pool, c.mean[0]) for pool, what, how, c, _ in shares if what == "GPUs" and how == ALLOCATED and pool != ALL
    ]
    if len(allocated) > 1:
        most, least = max(allocated, key=lambda p: p[1]), min(allocated, key=lambda p: p[1])
        section.findings.append(
            f"Mean GPU allocation is highest for {most[0]} ({most[1]:.0f} %), lowest for {least[0]} ({least[1]:.0f} %)."
        )


def _draw(section: Section, shares: list[Allocation], edges: Floats) -> None:
    every = -(-(len(edges) - 1) // (MOST_POINTS // 5))
    starts = np.arange(0, len(edges) - 1, every)
    for what in THERE:
        for how in (ALLOCATED, USED):
            of = [(pool, hourly) for pool, w, h, _, hourly in shares if (w, h) == (what, how)]
            if of:
                frames = [_thinned(pool, hourly, edges, starts) for pool, hourly in of]
                section.figures[f"{what} {how} by node type"] = Figure(
                    f"{what} {how}, by node type", "line", pl.concat(frames), "day", f"{what} {how}, %",
                    f"{what} {how}, percent of capacity: " + ", ".join(f"{p} {h.mean():.0f} %" for p, h in of),
                )  # fmt: skip


def _thinned(pool: str, hourly: Floats, edges: Floats, starts: Ints) -> pl.DataFrame:
    means = np.add.reduceat(hourly, starts) / np.diff(np.append(starts, len(hourly)))
    return pl.DataFrame({"x": edges[:-1][starts] / 86_400, "y": means}).with_columns(series=pl.lit(pool))


# -- CPUs beside GPUs --------------------------------------------------------------------------------------------------


def _cpus_by_gpu(view: TraceView, section: Section, cluster: Cluster) -> None:
    """CPUs a GPU: what nodes have, and what instances ask for, by how many GPUs their nodes have."""
    nodes = cluster.frame.filter(pl.col("gpus") > 0)
    if not nodes.height or not view.gpu.any():
        section.absent("CPUs per GPU", "no node has GPUs, or no job requests one")
        return
    sizes = dict(nodes.group_by("gpu_type").agg(pl.col("gpus").unique()).iter_rows())
    of_size: dict[str, list[str]] = {}
    for name, counts in sorted(sizes.items()):
        of_size.setdefault(f"{counts[0]}-GPU nodes" if len(counts) == 1 else "mixed nodes", []).append(name)
    rows = [_ratio_row(section, ALL, cluster.frame, view, view.gpu)]
    for kind, types in sorted(of_size.items(), key=lambda kv: kv[0], reverse=True):
        where = view.gpu & view.frame["type"].cast(pl.String).is_in(types).to_numpy()
        rows.append(_ratio_row(section, kind, nodes.filter(pl.col("gpu_type").is_in(types)), view, where))
    section.tables["CPUs per GPU"] = pl.DataFrame(rows, infer_schema_length=None)


def _ratio_row(section: Section, kind: str, nodes: pl.DataFrame, view: TraceView, where: Bools) -> dict[str, object]:
    offered = float(nodes["cpu_milli"].sum()) / WHOLE / float(nodes["gpus"].cast(pl.Int64).sum())
    cpu, milli, many = view.floats("cpu_milli")[where], view.milli[where], view.instances[where]
    blocks = view.blocks.part(where)
    if not len(many):
        return {"nodes": kind, "offered": offered}
    each = blocks.ratio(blocks.sums(many * cpu / milli), blocks.sums(many), POSITIVE).interval()
    row: dict[str, object] = {"nodes": kind, "offered": offered}
    row |= dict(zip(("requested, mean of instances", "low", "high"), each, strict=True))
    row |= {"requested, in total": float((many * cpu).sum() / (many * milli).sum())}
    if section.like_pai:
        row |= {f"{w}, published": published.numbers(f"CPUs per GPU {w}").get(kind) for w in ("offered", "requested")}
    return row


# -- what machines measured --------------------------------------------------------------------------------------------


def _metrics(view: TraceView, section: Section) -> None:
    """Utilization, network, I/O wait and co-located workers, where nodes measured them."""
    series = view.trace.series.get("machine_metric")
    there = set(series.collect_schema().names()) if series is not None else set()
    metrics = [m for m in METRICS if m in there]
    if series is None or not metrics or not {"node", "start", "end"} <= there:
        section.absent("network, I/O wait and workers of nodes", "the trace has no node metrics")
        return
    frame = series.select("node", "start", "end", *metrics).collect()
    if view.trace.cluster is not None:
        kinds = view.trace.cluster.frame.select("node", type=pl.col("gpu_type").fill_null(CPU_ONLY))
        frame = frame.with_columns(pl.col("node").cast(pl.String)).join(kinds, on="node", how="left")
    else:
        frame = frame.with_columns(type=pl.lit(None, dtype=pl.String))
    curves = {(kind, m): c for m in metrics for kind, c in _by_type(frame, m, view)}
    rows = [_metric_row(section, kind, m, c) for (kind, m), c in curves.items()]
    section.tables["node metrics"] = pl.DataFrame(rows, infer_schema_length=None)
    for m in metrics:
        of = [c for (_, metric), c in curves.items() if metric == m]
        section.distributions(
            f"{m} of nodes", of, title=f"{m} of nodes, weighted by time", unit=METRICS[m], x=f"{m}, {METRICS[m]}",
            y="share of node time, %", log_x=m in ("cpu_iowait", "net_receive"), tabled=False,
        )  # fmt: skip


def _by_type(frame: pl.DataFrame, metric: str, view: TraceView) -> Iterator[tuple[str, Ecdf]]:
    lasted = (frame["end"] - frame["start"]).fill_null(0.0).to_numpy()
    # A row that does not say how long it lasted counts for little, but counts.
    weights = np.maximum(np.nan_to_num(lasted), 1.0)
    blocks = view.blocks_at(np.nan_to_num(frame["start"].fill_null(0.0).to_numpy()))
    values = frame[metric].cast(pl.Float64).fill_null(np.nan).to_numpy()
    for kind in (ALL, *sorted(frame["type"].drop_nulls().unique().to_list())):
        where = None if kind == ALL else (frame["type"] == kind).fill_null(value=False).to_numpy()
        curve = ecdf(kind, values, weights=weights, where=where, blocks=blocks)
        if curve is not None:
            yield kind, curve


def _metric_row(section: Section, kind: str, metric: str, c: Ecdf) -> dict[str, object]:
    row: dict[str, object] = {
        "type": kind,
        "metric": metric,
        "unit": METRICS[metric],
        "rows": c.count,
        "mean": c.mean[0],
    }
    for name, interval in (("P50", c.quantiles[50]), ("P90", c.quantiles[90])):
        row |= interval.columns(name)
    row["P95"] = c.quantiles[95][0]
    if section.like_pai:
        row["P50, published"] = published.numbers("node metrics").get(metric) if kind == ALL else None
    return row


# -- sharing ---------------------------------------------------------------------------------------------------------


SHARED, ALONE = "with sharing", "without sharing"
MOST_STEPS = 500
HALF = 0.5


def sharing(view: TraceView, section: Section) -> None:
    """Put together GPUs with and without sharing, and what is used of them."""
    if not view.gpu.any():
        section.absent("GPU sharing", "no job requests a GPU")
    elif not ((view.milli > 0) & (view.milli < WHOLE)).any():
        section.absent("effect of GPU sharing", "no job requests a fractional GPU")
    else:
        _requested(view, section)
        _allocated(view, section)
    _used(view, section)


def _rounded(view: TraceView) -> dict[str, Floats]:
    """GPUs of all instances of each job: as requested, and in whole ones."""
    return {SHARED: view.instances * view.milli / WHOLE, ALONE: view.instances * np.ceil(view.milli / WHOLE)}


def _requested(view: TraceView, section: Section) -> None:
    """GPUs that the jobs of an hour ask for."""
    amounts = _rounded(view)
    sums = [view.blocks.sums(x) for x in amounts.values()]
    saved = view.blocks.ratio(sums[1] - sums[0], sums[1], SHARE).interval().scaled(100)
    section.say("requested GPUs saved by sharing", saved, "%")
    section.findings.append(f"Fractional requests save {number(saved[0])} % of the GPUs compared with whole GPUs.")
    if not view.clocked or view.span < 2 * 86_400:
        section.absent("requested GPUs by hour of day", "no time zone, or less than two days")
        return
    first = int(view.local_hour.min())
    at = view.local_hour - first
    hours = first + np.arange(int(at.max()) + 1)
    frames, tables = [], []
    for name, values in amounts.items():
        frame, table = quartiles(hours % 24, np.bincount(at, weights=values).astype(np.float64), 24)
        frames.append(frame.filter(pl.col("series") == "median").with_columns(series=pl.lit(name)))
        tables.append(table.with_columns(GPUs=pl.lit(name)))
    if section.like_pai:
        interval = published.hours("requested GPUs by hour of day")
        for name, key in ((SHARED, "shared"), (ALONE, "alone")):
            y = [float(value) for value in interval[key]]
            series = pl.lit(name + published.SUFFIX)
            frames.append(pl.DataFrame({"x": np.arange(24.0), "y": y}).with_columns(series=series))
    section.tables["requested GPUs by hour of day"] = pl.concat(tables).rename({"at": "hour"})
    alt = f"GPUs requested per hour, medians over days: sharing saves {number(saved[0])} %"
    section.figures["requested GPUs by hour of day"] = Figure(
        "Requested GPUs with and without sharing, by hour of the day", "line", pl.concat(frames, how="diagonal"),
        "hour of the day", "GPUs", alt,
    )  # fmt: skip


def _allocated(view: TraceView, section: Section) -> None:
    """GPUs that running jobs hold, over time."""
    if view.span < HOUR or not np.isfinite(view.held_until).any():
        section.absent("allocated GPUs over time", "starts and ends are not in the log, or it is shorter than an hour")
        return
    every = HOUR * -(-int(view.span / HOUR) // MOST_STEPS)
    edges, frames, rows = np.arange(0.0, view.span + 1, every), [], []
    boxes = Occupancy.by_jobs(view, edges)
    for name, values in _rounded(view).items():
        allocated = boxes.mean(values)
        frames.append(pl.DataFrame({"x": edges[:-1] / 86_400, "y": allocated}).with_columns(series=pl.lit(name)))
        interval = BlockBootstrap.of_series(len(allocated)).mean(allocated, POSITIVE).interval()
        rows.append((name, *interval, float(allocated.max())))
    section.tables["allocated GPUs"] = pl.DataFrame(
        rows, schema=["GPUs", "mean", "low", "high", "largest"], orient="row"
    )
    less = 100 * (1 - rows[0][1] / rows[1][1]) if rows[1][1] else 0.0
    alt = f"allocated GPUs over time: mean {number(rows[0][1])}, {number(less)} % less than without sharing"
    section.figures["allocated GPUs"] = Figure(
        "Allocated GPUs with and without sharing", "line", pl.concat(frames), "day", "GPUs", alt
    )


def _used(view: TraceView, section: Section) -> None:
    """How many jobs use less than half of what they hold?"""
    used = view.used
    if used is None:
        section.absent("utilization of allocated resources", "the trace has no usage")
        return
    rows = []
    for name, (column, _, _) in AMOUNTS.items():
        if column not in used.columns:
            section.absent(f"utilization of {name}", f"the usage has no `{column}`")
            continue
        requested, of = view.floats(column), used[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
        there = (requested > 0) & np.isfinite(of)
        little = of[there] < HALF * requested[there]
        time = np.nan_to_num(view.runtime[there]) * view.instances[there] * requested[there]
        for word, weights in (("jobs", None), ("instances", view.instances[there]), ("allocated time", time)):
            interval = share(little, weights, view.blocks.part(there))
            rows.append((name, word, *interval))
            if (name, word) == ("GPUs", "jobs") and there.any():
                _say_little(section, interval)
    columns = ["of", "weighted by", "%", "low", "high"]
    section.tables["utilization below 50 %"] = pl.DataFrame(rows, schema=columns, orient="row")


def _say_little(section: Section, interval: Interval) -> None:
    section.say("GPU jobs with utilization below 50 % of their request", interval, "%")
    section.findings.append(f"{interval[0]:.3g} % of the GPU jobs use less than half of their GPU request.")
