"""A timeline as a page takes it: plain values that say what there is, and compressed tiles, as many as fit."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fleetlab.core import Scenario
from fleetlab.core.catalog import REASONS
from fleetlab.core.durations import duration, plural
from fleetlab.core.figure import TimelineFigure
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.tiles.timeline import (
    BINS,
    ROWS,
    ClusterTimeline,
    TilePlace,
    arrivals,
    bins_for,
    waiting,
    waiting_by_reason,
)
from fleetlab.sim.world import World

PANEL_BINS = 2048  # of queue and arrivals
MOST_TILES = 96  # in one page: each takes a few milliseconds
MOST_RUNS = 40_000  # whose jobs a page can name
TITLE = "Cluster timeline"


class Clock(NamedTuple):
    """When second 0 of a run is, where the log tells it, and how many seconds of the log one of the run is."""

    epoch: float | None = None
    zone: str | None = None
    pace: float = 1.0

    @classmethod
    def of(cls, scenario: Scenario | None) -> Clock:
        """Return the clock of a scenario."""
        return cls() if scenario is None else cls(scenario.workload.epoch, scenario.workload.zone, scenario.load)


def panels(world: World, played: Schedule, *, reasons: bool = True) -> dict[str, Any]:
    """Return arrivals and waiting jobs over time, by reason or (at once) without."""
    if not played.stopped:
        return {"bins": 1, "arrivals": [len(world.measured)], "waiting": {}}
    bins = bins_for(world, played, PANEL_BINS) if reasons else PANEL_BINS
    width = played.stopped / bins
    arrived = arrivals(world, 0.0, width, bins).tolist()
    if not reasons:
        return {"bins": bins, "arrivals": arrived, "waiting": {"all": _short(waiting(world, played, 0, width, bins))}}
    by_reason = waiting_by_reason(world, played, bins)
    most = np.argsort(-by_reason.sum(axis=0), kind="stable")
    by_name = {REASONS.names[k]: _short(by_reason[:, k]) for k in most if by_reason[:, k].any()}
    return {"bins": bins, "arrivals": arrived, "waiting": by_name}


def _short(values: Floats) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]


def about(timeline: ClusterTimeline, label: str, clock: Clock, over_time: dict[str, Any]) -> dict[str, Any]:
    """Return what a picture needs to know beside its tiles, as plain values."""
    nodes = timeline.nodes
    types = list(dict.fromkeys(nodes["gpu_type"].fill_null("").to_list()))
    levels = timeline.rows.levels
    return {
        "label": label,
        "span": timeline.span,
        "arriving": _last(over_time["arrivals"]) * timeline.span / over_time["bins"],
        "epoch": clock.epoch,
        "zone": clock.zone,
        "pace": clock.pace,
        "bins": BINS,
        "rows": ROWS,
        "deepest": timeline.deepest,
        "gpus": timeline.rows.gpus,
        "levels": [{"name": level.name, "edges": _differences(level.edges)} for level in levels[1:]],
        "finest": levels[0].name,
        "first": _differences(timeline.rows.first),
        "nodes": nodes["node"].to_list(),
        "pools": _repeats(nodes["pool"].to_list()),
        "racks": _repeats(nodes["rack"].to_list()) if nodes["rack"].n_unique() > 1 else [],
        "types": types,
        "type": [types.index(name) for name in nodes["gpu_type"].fill_null("").to_list()],
        "planes": list(timeline.planes),
        "labels": {name: list(coloring.labels) for name, coloring in timeline.coloring.items()},
        "meanings": {reason.name: reason.meaning for reason in REASONS if reason.name in over_time["waiting"]},
        "panels": over_time,
    }


def _last(counts: list[int]) -> int:
    """Return how many bins there are up to the last that is not 0."""
    return max((k + 1 for k, count in enumerate(counts) if count), default=len(counts))


def _differences(edges: Ints) -> list[int]:
    """Return edges from 0 as differences: they are short, and repeat."""
    return np.diff(edges).tolist()  # type: ignore[no-any-return]


def _repeats(names: list[str]) -> list[tuple[str, int]]:
    """Return each run of equal names with its length."""
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return runs


def packed(timeline: ClusterTimeline, place: TilePlace, names: Iterable[str]) -> dict[str, bytes]:
    """Return planes of a tile, compressed; nothing where one is all 0."""
    planes = timeline.planes_of(place, names)
    return {name: zlib.compress(plane.tobytes(), 6) if plane.any() else b"" for name, plane in planes.items()}


def figure(timeline: ClusterTimeline, label: str, clock: Clock, over_time: dict[str, Any], most: int) -> TimelineFigure:
    """Return a timeline that stands alone, with tiles of at most so many bytes: coarse ones first, then finer."""
    tiles: dict[str, bytes] = {}
    zooms: list[tuple[int, int]] = []
    remaining, count = most, MOST_TILES
    for level, zoom in _from_coarse_to_fine(timeline):
        more = _tiles(timeline, level, zoom, remaining, count)
        if more is None:
            break
        tiles |= more
        count -= sum(1 for _ in _places(timeline, level, zoom))
        remaining -= sum(map(len, more.values()))
        zooms.append((level, zoom))
    values = about(timeline, label, clock, over_time) | {"held": zooms}
    if len(timeline.runs.begin) <= MOST_RUNS and remaining > 40 * len(timeline.runs.begin):
        values["jobs"] = named_jobs(timeline)
    return TimelineFigure(TITLE, values, alt(timeline, over_time), tiles)


def _from_coarse_to_fine(timeline: ClusterTimeline) -> list[tuple[int, int]]:
    """Return levels and zooms in the order in which a reader needs them: first what fills a screen."""
    sizes = [len(level.edges) - 1 for level in timeline.rows.levels]
    screen = next((k for k, size in enumerate(sizes) if size <= ROWS), len(sizes) - 1)
    both = [(level, zoom) for level in range(screen + 1) for zoom in range(timeline.deepest + 1)]
    return sorted(both, key=lambda at: ((screen - at[0]) * 1.5 + at[1], at))


def _places(timeline: ClusterTimeline, level: int, zoom: int) -> Iterator[TilePlace]:
    blocks = -(-(len(timeline.rows.levels[level].edges) - 1) // ROWS)
    for column in range(2**zoom):
        for block in range(blocks):
            yield TilePlace(level, zoom, column, block)


def _tiles(timeline: ClusterTimeline, level: int, zoom: int, most: int, count: int) -> dict[str, bytes] | None:
    """Return all tiles of a level and zoom; None if they are too many."""
    places, contents = list(_places(timeline, level, zoom)), dict[str, bytes]()
    if len(places) > count:
        return None
    part, column = timeline, -1
    for place in places:
        if place.column != column and zoom:
            since, width = timeline.window(place)
            part, column = timeline.within(since, since + BINS * width), place.column
        for plane, content in packed(part, place, timeline.planes).items():
            if content:
                contents[f"{level}/{zoom}/{place.column}/{place.block}/{plane}"] = content
                most -= len(content)
        if most < 0:
            return None
    return contents


def named_jobs(timeline: ClusterTimeline) -> dict[str, Any]:
    """Return which job is on which GPU when, as columns."""
    runs, jobs = timeline.runs, timeline.jobs
    ran, at = np.unique(runs.job, return_inverse=True)
    mine = jobs[ran.astype(np.int64)]
    users = list(dict.fromkeys(mine["user"].fill_null("").to_list()))
    number = {name: k for k, name in enumerate(users)}
    names = mine["name"].to_list() if "name" in mine.columns else mine["job"].to_list()
    return {
        "runs": np.diff(runs.first).tolist(),
        "begin": _short_times(runs.begin),
        "end": _short_times(runs.end),
        "job": at.tolist(),
        "names": [_name(name, job) for name, job in zip(names, mine["job"].to_list(), strict=True)],
        "user": [number[name or ""] for name in mine["user"].to_list()],
        "users": users,
        "gpus": mine["gpus"].to_list(),
        "submitted": _short_times(mine["submitted"].to_numpy()),
    }


def _name(name: object, job: int) -> str:
    """Return the log's name of a job, or its number; nothing of one that ran before the log begins."""
    return "" if job < 0 else str(job if name is None else name)


def _short_times(times: Floats) -> list[float]:
    return np.round(times, 1).tolist()  # type: ignore[no-any-return]


def alt(timeline: ClusterTimeline, over_time: dict[str, Any]) -> str:
    """Say what a timeline shows."""
    place = TilePlace(len(timeline.rows.levels) - 1, 0, 0, 0)
    share = timeline.held(place)[0].sum() / max(timeline.rows.gpus * timeline.span, 1e-9)
    size = (
        f"{plural(timeline.rows.gpus, 'GPU')} of {plural(len(timeline.nodes), 'node')} over {duration(timeline.span)}"
    )
    waits = [sum(column) for column in zip(*over_time["waiting"].values(), strict=True)]
    queue_text = f"; up to {max(waits):,.0f} jobs wait" if waits and max(waits) >= 1 else ""
    return f"{size}: jobs hold {share:.0%} of the GPU time{queue_text}"
