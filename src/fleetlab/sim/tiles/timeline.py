"""The timeline of a cluster as tiles of rows × bins, and how many jobs arrive and wait over time.

At zoom z the span has 2^z tiles of BINS bins each. A level of rows (`rows.RowLevel`) has tiles of ROWS rows. A tile has
planes of bytes: `taken` is the share of its GPU time that jobs hold, `used` what they used of it, `user`, `queue` and
`size` the category that has most of it, `down` and `drained` the share of time in such a state, `fragmented` the share
of what is free that is of no use to the usual jobs (sampled; all else is exact before it is rounded to a byte).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Scenario, WorkloadError
from fleetlab.sim.codes import BY_ELIGIBLE, BY_START_UP
from fleetlab.sim.layout import WAITING, WHOLE, Floats, Ints, NodeView, table
from fleetlab.sim.ledger.ledger import ledger_over_time
from fleetlab.sim.ledger.waits import waits
from fleetlab.sim.schedule import Schedule, Segments, Up
from fleetlab.sim.schedule_check import SCHEDULED_RUN, RunTable
from fleetlab.sim.tiles.rows import Coloring, GpuRows, colorings, node_table, rows_of, used_milli
from fleetlab.sim.tiles.sums import (
    GpuRuns,
    count_gpu_runs,
    fill_gpu_runs,
    find_runs,
    sample_fragments,
    sum_intervals,
    sum_spells,
    sum_tile,
)
from fleetlab.sim.timeline import run_table
from fleetlab.sim.world import World

PIECES = 8_000_000  # of waits, which are cut at the edges of bins


def arrivals(world: World, since: float, width: float, bins: int) -> Ints:
    """Return how many measured jobs are submitted in each bin; the last one takes those at its end."""
    at = world.submitted[world.measured]
    counted, _ = np.histogram(at, bins, (since, since + width * bins))
    return counted.astype(np.int64)


def waiting(world: World, played: Schedule, since: float, width: float, bins: int) -> Floats:
    """Return the mean number of jobs that wait in each bin, whatever the reason."""
    out = np.zeros(bins)
    for begin, end in _all_waits(world, played):
        sum_intervals(begin, end, since, width, out)
    return out / width


def bins_for(world: World, played: Schedule, most: int) -> int:
    """Return into how many bins waits can be cut."""
    seconds = sum(float((end - begin).sum()) for begin, end in _all_waits(world, played))
    queue = seconds / max(played.stopped, 1e-9)
    return int(min(most, max(64, PIECES / max(queue, 1.0))))


def waiting_by_reason(world: World, played: Schedule, bins: int) -> Floats:
    """Return the mean number of jobs that wait in each bin from 0 to the end, by reason: [bins, reasons]."""
    width = played.stopped / bins
    edges = np.linspace(0.0, played.stopped, bins + 1)
    out = ledger_over_time(world, played, edges)
    for (begin, end), reason in zip(_outside(world, played), (BY_ELIGIBLE, BY_START_UP), strict=True):
        column = np.zeros(bins)
        sum_intervals(begin, end, 0.0, width, column)
        out[:, reason] += column
    return out / width


def _all_waits(world: World, played: Schedule) -> list[tuple[Floats, Floats]]:
    measured = world.frame["job"].to_numpy() >= 0
    if played.segments is not None:  # some ran more than once, and waited again between
        mine = waits(world, played).of(measured)
        return [(mine.begin, mine.end), *_outside(world, played)]
    # One wait a job: nothing needs to be sorted, which would take most of the time.
    ran = ~np.isnan(played.start)
    end = np.where(ran, played.start, played.stopped)
    rows = np.flatnonzero(measured & (ran | (played.status == WAITING)) & (end > world.eligible))
    return [(world.eligible[rows], end[rows]), *_outside(world, played)]


def _outside(world: World, played: Schedule) -> list[tuple[Floats, Floats]]:
    """Return the waits before a job is eligible, and those in which it starts up."""
    rows = world.measured
    eligible = np.minimum(world.eligible[rows], played.stopped)
    start = np.nan_to_num(played.start[rows], nan=played.stopped)
    latency = np.where(np.isnan(played.start[rows]), 0.0, world.latency[rows])
    return [(np.minimum(world.submitted[rows], eligible), eligible), (start, start + latency)]


BINS = 512  # of a tile
ROWS = 512  # of a tile
SHORTEST = 1.0  # seconds of a bin, at the deepest zoom
DEEPEST = 16
SAMPLES = 256  # instants at which fragmentation is measured
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TilePlace:
    """Which tile: level of rows, zoom, and its number along time and along the rows."""

    level: int
    zoom: int
    column: int
    block: int


@dataclass(frozen=True, slots=True, eq=False)
class Spells:
    """When the GPUs of a node were in some state: those from `first` to `end`."""

    first: Ints
    end: Ints
    begins: Floats
    ends: Floats


@dataclass(frozen=True, eq=False)
class ClusterTimeline:
    """Who was on which GPU when, ready to be cut into tiles."""

    span: float  # seconds, from 0
    rows: GpuRows
    nodes: pl.DataFrame  # node, pool, gpu_type, rack: in the order of the rows
    runs: GpuRuns
    milli: Floats  # [jobs]: of each of its GPUs
    coloring: dict[str, Coloring]
    used: Floats | None  # [jobs]: milli of each of its GPUs
    down: Spells
    drained: Spells
    fragmented: Floats | None  # [samples, nodes of the rows]: of what is free; None: not measured
    jobs: pl.DataFrame  # [jobs]: job, user, submitted, gpus, instances; and name where the log has them
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def of(
        cls, world: World, played: Schedule, cluster: Cluster, scenario: Scenario | None = None, *, whole: bool = True
    ) -> ClusterTimeline:
        """Index a schedule by GPU; what is not `whole` has what a first picture needs.

        Fragmentation is not measured then, and what jobs used and their names are not looked up.
        """
        rows = rows_of(cluster, world.nodes)
        span = float(played.stopped)
        return cls(
            span=span, rows=rows, nodes=node_table(cluster, rows), runs=index_runs(world, played, rows),
            milli=world.shapes.milli[world.shape].astype(np.float64), coloring=colorings(world),
            used=used_milli(world, scenario) if whole else None,
            down=_spells(rows, len(cluster), _down(played.up, rows.nodes, span), span),
            drained=_spells(rows, len(cluster), played.draining, span),
            fragmented=fragmented(world, played, rows) if whole and span and rows.gpus else None,
            jobs=job_table(world, scenario if whole else None),
        )  # fmt: skip

    @cached_property
    def deepest(self) -> int:
        """The zoom whose bins are shortest."""
        return min(DEEPEST, max(0, math.ceil(math.log2(max(self.span, 1.0) / (BINS * SHORTEST)))))

    @property
    def planes(self) -> tuple[str, ...]:
        """The names of all planes that there are."""
        there = ["taken", *self.coloring]
        there += ["used"] if self.used is not None else []
        there += ["down"] if len(self.down.begins) else []
        there += ["drained"] if len(self.drained.begins) else []
        return (*there, *(["fragmented"] if self.fragmented is not None else []))

    def edges(self, place: TilePlace) -> Ints:
        """Return the first GPU of each row of a tile, and the end of the last."""
        every = self.rows.levels[place.level].edges
        return every[place.block * ROWS : (place.block + 1) * ROWS + 1]

    def window(self, place: TilePlace) -> tuple[float, float]:
        """Return when a tile begins, and the seconds of a bin."""
        width = self.span / (BINS * 2**place.zoom)
        return place.column * BINS * width, width

    def check(self, place: TilePlace) -> None:
        """Refuse a tile that there is none of."""
        levels = self.rows.levels
        fits = (
            0 <= place.level < len(levels)
            and 0 <= place.zoom <= self.deepest
            and 0 <= place.column < 2**place.zoom
            and 0 <= place.block * ROWS < len(levels[place.level].edges) - 1
        )
        if not fits:
            msg = f"no such tile: level {place.level}, zoom {place.zoom}, column {place.column}, block {place.block}"
            hint = f"there are levels 0 to {len(levels) - 1} and zooms 0 to {self.deepest}"
            raise WorkloadError(msg, hint=hint)

    # -- GPU time ----------------------------------------------------------------------------------------------------

    def held(self, place: TilePlace, color: str = "") -> tuple[Floats, Bytes]:
        """Return the GPU seconds that jobs hold, [rows, bins], and the category that holds most."""
        category = self.coloring[color].of_job if color else np.zeros(len(self.milli), dtype=np.uint8)
        return self._sum(place, self.milli / WHOLE, category)

    def used_seconds(self, place: TilePlace) -> Floats:
        """Return the GPU seconds that jobs used, [rows, bins]."""
        assert self.used is not None
        return self._sum(place, self.used / WHOLE, np.zeros(len(self.milli), dtype=np.uint8))[0]

    def _sum(self, place: TilePlace, amount: Floats, category: Bytes) -> tuple[Floats, Bytes]:
        edges, (since, width) = self.edges(place), self.window(place)
        out = np.zeros((len(edges) - 1, BINS))
        most = np.zeros(out.shape, dtype=np.uint8)
        sum_tile(self.runs, edges, since, width, amount, category, out, most)
        return out, most

    def in_state(self, place: TilePlace, spells: Spells) -> Floats:
        """Return the GPU seconds for which nodes are in a state, [rows, bins]."""
        edges, (since, width) = self.edges(place), self.window(place)
        out = np.zeros((len(edges) - 1, BINS))
        sum_spells(spells.first, spells.end, spells.begins, spells.ends, edges, since, width, out)
        return out

    # -- bytes -------------------------------------------------------------------------------------------------------

    def plane(self, place: TilePlace, name: str) -> Bytes:
        """Return one plane of a tile, [rows, bins]."""
        if name in self.coloring:
            return self.held(place, name)[1]
        if name == "taken":
            return self._share(place, self.held(place)[0])
        if name == "used":
            return self._share(place, self.used_seconds(place))
        if name in ("down", "drained"):
            return self._share(place, self.in_state(place, self.down if name == "down" else self.drained))
        return self._sampled(place)

    def planes_of(self, place: TilePlace, names: Iterable[str]) -> dict[str, Bytes]:
        """Return some planes of a tile; what jobs hold is summed once where its category is asked for too."""
        planes: dict[str, Bytes] = {}
        for name in sorted(names, key=lambda name: name not in self.coloring):
            if name in self.coloring:
                seconds, planes[name] = self.held(place, name)
                planes["taken"] = self._share(place, seconds)
            elif name not in planes:
                planes[name] = self.plane(place, name)
        return {name: planes[name] for name in names}

    def within(self, since: float, until: float) -> ClusterTimeline:
        """Return it with the runs of some time only: tiles of that time are the same, and are summed sooner."""
        inside = (self.runs.end > since) & (self.runs.begin < until)
        first = np.append(0, np.cumsum(inside))[self.runs.first]
        runs = GpuRuns(first, *(column[inside] for column in (self.runs.begin, self.runs.end, self.runs.job)))
        return replace(self, runs=runs)

    def _share(self, place: TilePlace, seconds: Floats) -> Bytes:
        """Return GPU seconds as a share of all, 0 to 255; what is not nothing is at least 1."""
        gpus = np.diff(self.edges(place))[:, None]
        share = seconds / (gpus * self.window(place)[1]) * 255
        return np.where(seconds > 0, np.clip(np.rint(share), 1, 255), 0).astype(np.uint8)

    def _sampled(self, place: TilePlace) -> Bytes:
        """Return which share of what is free is of no use, by nodes, at the sample nearest to each bin."""
        assert self.fragmented is not None
        since, width = self.window(place)
        at = (since + (np.arange(BINS) + 0.5) * width) / max(self.span, 1e-9) * len(self.fragmented)
        samples = self.fragmented[np.clip(at.astype(np.int64), 0, len(self.fragmented) - 1)]
        edges, first = self.edges(place), self.rows.first
        node = np.searchsorted(first, edges[:-1], side="right") - 1
        last = np.searchsorted(first, edges[1:], side="left")
        sums = np.concatenate([np.zeros((BINS, 1)), np.cumsum(samples, axis=1)], axis=1)
        mean = (sums[:, last] - sums[:, node]) / np.maximum(last - node, 1)
        spans: Bytes = np.clip(np.rint(mean.T * 255), 0, 255).astype(np.uint8)
        return spans

    # -- who -----------------------------------------------------------------------------------------------------------

    def at(self, first: int, end: int, time: float, most: int = 5) -> tuple[int, list[dict[str, Any]]]:
        """Return how many jobs run on GPUs `first` to `end` at a time, and a few of them with their times."""
        spans = np.zeros(most, dtype=np.int64)
        first, end = max(0, first), min(end, self.rows.gpus)
        count = find_runs(self.runs, first, end, time, spans) if first < end else 0
        entries = spans[: min(count, most)]
        rows = self.jobs[self.runs.job[entries].astype(np.int64)].to_dicts()
        times = zip(self.runs.begin[entries].tolist(), self.runs.end[entries].tolist(), strict=True)
        return count, [row | {"begin": begin, "end": end} for row, (begin, end) in zip(rows, times, strict=True)]


def index_runs(world: World, played: Schedule, rows: GpuRows) -> GpuRuns:
    """Sort the runs of a schedule by GPU."""
    of, first_gpu = _in_any_order(world, played.runs(world.first)), np.ascontiguousarray(world.nodes.first_gpu)
    count = np.zeros(rows.gpus + 1, dtype=np.int64)
    stopped = float(played.stopped)
    count_gpu_runs(of, first_gpu, rows.row_of_gpu, stopped, count)
    first = np.cumsum(count)
    total = int(first[-1])
    runs = GpuRuns(first, np.empty(total), np.empty(total), np.empty(total, dtype=np.int32))
    fill_gpu_runs(of, first_gpu, rows.row_of_gpu, stopped, first[:-1].copy(), runs)
    return runs


def _in_any_order(world: World, runs: Segments) -> RunTable:
    """Return the runs as a table; they are not sorted, which would take as long as all else."""
    job, none = runs.job, np.zeros(0, dtype=np.int64)
    rows = table(
        len(job), SCHEDULED_RUN, job=job, shape_id=world.shape[job], begin=runs.begin, end=runs.end,
        first=runs.first[: len(job)], instances=runs.instances(world.instances),
    )  # fmt: skip
    return RunTable(rows, none, none, runs.where, runs.got, world.shapes)


def fragmented(world: World, played: Schedule, rows: GpuRows) -> Floats:
    """Return which share of what is free on each node is of no use to the usual jobs, at SAMPLES instants."""
    row = np.full(len(world.nodes), -1, dtype=np.int64)
    row[rows.nodes] = np.arange(len(rows.nodes))
    times = (np.arange(SAMPLES) + 0.5) * played.stopped / SAMPLES
    out = np.zeros((SAMPLES, len(rows.nodes)))
    state = NodeView(world.nodes.copy(), world.gpus.copy(), world.apps.copy())
    state.nodes.up = 1  # a run is where it is: what is down is told apart
    sample_fragments(run_table(world, played.runs(world.first)), state, times, row, world.typical, out)
    return np.clip(out, 0.0, 1.0)


def _down(up: Up | None, nodes: Ints, span: float) -> Up | None:
    """Return when nodes are not up."""
    if up is None:
        return None
    spans: list[tuple[int, float, float]] = []
    for n in nodes.tolist():
        mine, now = np.flatnonzero(up.node == n), 0.0
        for k in mine[np.argsort(up.begin[mine], kind="stable")]:
            if up.begin[k] > now:
                spans.append((n, now, float(up.begin[k])))
            now = max(now, float(up.end[k]))
        if now < span:
            spans.append((n, now, span))
    node, begin, end = np.array(spans, dtype=np.float64).reshape(-1, 3).T
    return Up(node.astype(np.int64), begin, end)


def _spells(rows: GpuRows, nodes: int, of: Up | None, span: float) -> Spells:
    """Return spells of nodes as spells of GPUs."""
    if of is None:
        none = np.zeros(0, dtype=np.int64)
        return Spells(none, none, np.zeros(0), np.zeros(0))
    place = np.full(nodes, -1, dtype=np.int64)
    place[rows.nodes] = np.arange(len(rows.nodes))
    with_gpus = np.flatnonzero(place[of.node] >= 0)
    at = place[of.node[with_gpus]]
    begin, end = of.begin[with_gpus], np.minimum(of.end[with_gpus], span)
    return Spells(rows.first[at], rows.first[at + 1], begin, end)


def job_table(world: World, scenario: Scenario | None) -> pl.DataFrame:
    """Return what a reader is told of a job."""
    jobs = world.frame.select(
        "job", pl.col("user").cast(pl.String), submitted=pl.Series(world.submitted), instances="instances",
        gpus=pl.Series(world.gpu_milli / WHOLE),
    )  # fmt: skip
    names = None if scenario is None else scenario.trace.names
    if scenario is None or names is None:
        return jobs
    own = scenario.by_job(names).select("job", pl.col("name").cast(pl.String)).collect()
    return jobs.join(own, on="job", how="left", maintain_order="left")
