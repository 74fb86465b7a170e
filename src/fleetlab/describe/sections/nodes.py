"""Utilization of nodes by how many GPUs they have, and metrics of containers over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Figure, Trace
from fleetlab.core.durations import number
from fleetlab.describe.curves import Bools, Ecdf, ecdf
from fleetlab.describe.section import Section
from fleetlab.describe.trace_view import WHOLE, TraceView
from fleetlab.stats import POSITIVE, BlockBootstrap, Floats, Ints, mean_of_runs

MOST_CELLS = 30_000_000
HOUR = 3600.0
SHORTEST = 1e-3  # seconds: below that, what is left of an area is rounding


@dataclass(frozen=True, slots=True, eq=False)
class NodeHours:
    """Rows with their node, start and end; stretches of time are an hour, or longer where the log is very long."""

    node: Ints
    start: Floats
    end: Floats
    nodes: int
    width: float
    count: int  # of stretches

    @classmethod
    def of(cls, node: Ints, start: Floats, end: Floats, nodes: int) -> NodeHours:
        """Of rows whose times are known; what lies before 0 is left out."""
        last = max(float(end.max(initial=0.0)), HOUR)
        width = HOUR * max(1.0, np.ceil(last / HOUR * nodes / MOST_CELLS))
        count = int(np.ceil(last / width))
        begin = np.clip(start, 0.0, count * width)
        return cls(node, begin, np.clip(end, begin, count * width), nodes, width, count)

    def area(self, values: Floats) -> Floats:
        """Return the sum over rows of value times seconds, by node and stretch.

        >>> rows = NodeHours.of(np.array([0, 1]), np.array([1800.0, 0.0]), np.array([7200.0, 900.0]), 2)
        >>> rows.area(np.array([2.0, 4.0])).tolist()
        [[3600.0, 7200.0], [3600.0, 0.0]]
        """
        first, last = ((x // self.width).astype(np.int64) for x in (self.start, self.end))
        # Whole stretches from the first to the last that a row touches, less what it leaves free of both.
        whole = self._sum(first, values * self.width) - self._sum(last + 1, values * self.width)
        whole = np.cumsum(whole, axis=1)
        whole -= self._sum(first, values * (self.start - first * self.width))
        whole -= self._sum(last, values * ((last + 1) * self.width - self.end))
        return np.asarray(np.maximum(whole[:, : self.count], 0.0))

    def _sum(self, at: Ints, values: Floats) -> Floats:
        columns = self.count + 2  # a row may end with the last stretch
        cells = np.bincount(self.node * columns + at, weights=values, minlength=self.nodes * columns)
        return cells.reshape(self.nodes, columns).astype(np.float64)

    def mean(self, values: Floats) -> Floats:
        """Return the mean of the rows by time, by node and stretch; NaN where there is no row."""
        seconds = self.area(np.ones(len(values)))
        means = np.full(seconds.shape, np.nan)
        return np.asarray(np.divide(self.area(values), seconds, out=means, where=seconds > SHORTEST))

    def total(self, values: Floats) -> Floats:
        """Return the sum of the rows, as a mean over each stretch; NaN where there is no row."""
        covered = self.area(np.ones(len(values))) > SHORTEST
        return np.asarray(np.where(covered, self.area(values) / self.width, np.nan))


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
    utilizations = list(_measured(view, nodes)) if nodes.height else []
    utilizations += _summed(view, section, nodes, {u.resource for u in utilizations})
    if not utilizations:
        section.absent("utilization by node size", "the trace has no node metrics, and no usage with placements")
        return
    sizes = nodes["gpus"].to_numpy()
    groups = {f"{g}-GPU nodes": sizes == g for g in sorted(set(sizes.tolist()), reverse=True)}
    rows = []
    for u in utilizations:
        for name, where in groups.items():
            if np.isfinite(u.percent[where]).any():
                rows += [row | _beside(section, row) for row in _rows(name, u, u.percent[where])]
    section.tables["utilization by node size"] = pl.DataFrame(rows, infer_schema_length=None)
    _draw(section, utilizations, groups)
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
    resources = {r: of for r, of in USED.items() if r not in measured and of[0] in columns}
    if usage is None or placements is None or not resources or not {"job", "worker"} <= columns or not nodes.height:
        return
    used = [column for column, _, _ in resources.values()]
    where = placements.filter(pl.col("worker").is_not_null()).select("job", "worker", "node", "start", "end")
    rows = _on_nodes(usage.select("job", "worker", *used).join(where, on=["job", "worker"]), nodes)
    for resource, (column, capacity, one) in resources.items():
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
            mean = BlockBootstrap.of_series(len(each)).mean if axis == 0 else mean_of_runs
            interval = mean(each, POSITIVE).interval()
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


def _beside(section: Section, row: dict[str, object]) -> dict[str, object]:
    if not section.like_pai:
        return {}
    key = f"{row['nodes']}, {row['of']}"
    return {f"{level}, published": section.published(f"{level} utilization of nodes").get(key) for level in LEVELS}


def _draw(section: Section, utilizations: list[Utilization], groups: dict[str, Bools]) -> None:
    """The distribution over hours."""
    for level, q in LEVELS.items():
        curves = []
        for u in utilizations:
            for name, where in groups.items():
                each = quantiles(u.percent[where], q, 0)
                curve = ecdf(f"{name}, {u.resource}", each, blocks=BlockBootstrap.of_series(len(each)))
                curves += [curve] if curve is not None else []
        section.distributions(
            f"{level} utilization of nodes", curves, title=f"{level} utilization over nodes, by node size", unit="%",
            x=f"{level} over nodes, %", y="share of hours, %", log_x=False, tabled=False,
        )  # fmt: skip


def _say(section: Section, rows: list[dict[str, object]]) -> None:
    chosen = [r for r in rows if r["quantile over"] == OVER_NODES and r["of"] in ("CPU", "GPU")]
    of = [f"{r['nodes']} {r['of']} {r['mean of P90, %']:.0f} %" for r in chosen]
    if of:
        section.findings.append(f"P90 utilization over nodes, mean of hours: {', '.join(of)}.")


SAMPLES = {"time", "container", "value"}
DUTY, MEMORY = "pod_gpu_duty_cycle", "pod_gpu_memory_used_bytes"
UNITS = {DUTY: "%", MEMORY: "bytes", "pod_memory_util": "share", "qps": "requests/s", "queue_size": "requests"}
TIMED = ("_latency", "_rt", "model_predict", "pipeline_inference")  # in ms
POINTS = 300


def names(trace: Trace) -> list[str]:
    """The series that have samples by container."""
    return [name for name, lazy in trace.series.items() if set(lazy.collect_schema().names()) >= SAMPLES]


def unit(name: str) -> str:
    """What a series is measured in, where it is one that is known."""
    return UNITS.get(name, "ms" if name.endswith(TIMED) else "")


def metrics(view: TraceView, section: Section) -> None:
    """One row a metric; curves of duty cycles and latencies."""
    metric_names = names(view.trace)
    if not metric_names:
        section.absent("duty cycles and latencies of containers", "the trace has no container metrics")
        return
    samples = {name: view.trace.series[name].select(sorted(SAMPLES)).collect() for name in metric_names}
    span = max((float(s["time"].max() or 0.0) for s in samples.values()), default=0.0)  # type: ignore[arg-type]
    curves = {name: c for name, s in samples.items() for c in _curve(name, s, span)}
    section.tables["container metrics"] = pl.DataFrame(
        [_row(name, c, samples[name]) for name, c in curves.items()], infer_schema_length=None
    )
    timed = [c for name, c in curves.items() if unit(name) == "ms"]
    section.distributions(
        "latencies of containers", timed, title="Container latencies", unit="ms", x="latency, ms",
        y="share of samples, %", tabled=False,
    )  # fmt: skip
    if DUTY in curves:
        _duty(section, samples[DUTY], curves[DUTY], span)
    if MEMORY in curves:
        section.say("mean GPU memory per container", curves[MEMORY].mean.scaled(1 / 2**30), "GiB")


def _curve(name: str, samples: pl.DataFrame, span: float) -> list[Ecdf]:
    blocks = BlockBootstrap.of_times(samples["time"].to_numpy(), span)
    curve = ecdf(name, samples["value"].fill_null(np.nan).to_numpy(), blocks=blocks)
    return [curve] if curve is not None else []


def _row(name: str, c: Ecdf, samples: pl.DataFrame) -> dict[str, object]:
    row: dict[str, object] = {"metric": name, "unit": unit(name), "samples": c.count}
    row |= {"containers": samples["container"].drop_nulls().n_unique()}
    row |= dict(zip(("mean", "low", "high"), c.mean, strict=True)) | {"at 0, %": 100 * c.zero}
    return row | {f"P{p}": c.quantiles[p][0] for p in (50, 90, 99)}


def _duty(section: Section, samples: pl.DataFrame, c: Ecdf, span: float) -> None:
    """How busy GPUs are: over samples, over containers, over time."""
    means = (
        samples.drop_nulls("container")
        .group_by("container", maintain_order=True)
        .agg(pl.col("value").mean())
        .sort("container")
    )
    each = ecdf("means of containers", means["value"].to_numpy()) if means.height else None
    curves: Sequence[Ecdf] = [c] if each is None else [c, each]
    section.distributions(
        "duty cycle", curves, title="GPU duty cycle", unit="%", x="duty cycle, %", y="share, %", log_x=False
    )
    every = max(span / POINTS, 1.0)
    hour = (pl.col("time") / every).floor() * every / 3600
    frame = samples.group_by(hour.alias("x"), maintain_order=True).agg(pl.col("value").mean().alias("y")).sort("x")
    busy = frame["y"].to_numpy()
    section.figures["duty cycle over time"] = Figure(
        "GPU duty cycle, mean of containers", "line", frame, "hour", "duty cycle, %",
        f"the mean duty cycle lies between {number(busy.min())} and {number(busy.max())} %",
    )  # fmt: skip
    section.say("GPU duty cycle", c.mean, "%")
    section.findings.append(f"Mean GPU duty cycle is {number(c.mean[0])} %; {100 * c.zero:.3g} % of the samples are 0.")
