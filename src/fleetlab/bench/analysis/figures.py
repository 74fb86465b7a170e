"""Figures of an analysis: throughput and energy by mix, interference, SMs, copies of one tenant, open-loop requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from fleetlab.bench.analysis.modes import mode_name, mode_order
from fleetlab.bench.analysis.scale import TailGoal
from fleetlab.core import Figure

Named = Iterator[tuple[str, Figure]]
ENERGY = "energy relative to alone, one after the other"


def analysis_figures(tables: Mapping[str, pl.DataFrame], kinds: Mapping[str, str], goal: TailGoal) -> dict[str, Figure]:
    """All figures that have data, by name; `kinds` are those of tenants, `goal` the limit of the tail latency."""
    return dict(
        [
            *_by_mix(tables["mixes"], "stp", "throughput", "system throughput (STP), GPUs"),
            *_interference(tables["progress"], kinds),
            *_sm_curve(tables["curve"]),
            *_copies(tables["scale"], goal),
            *_serving(tables["serving"]),
            *_by_mix(tables["mixes"], "energy_times", "energy", ENERGY),
        ]
    )


def _by_mode(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows in the order of modes, with their readable names as series."""
    modes = sorted(frame["mode"].unique(), key=mode_order)
    rows = frame.sort(pl.col("mode").replace_strict(modes, range(len(modes))), maintain_order=True)
    return rows.with_columns(series=pl.col("mode").replace_strict({mode: mode_name(mode) for mode in modes}))


def _points(rows: pl.DataFrame, x: str, y: str) -> pl.DataFrame:
    return rows.select(pl.col(x).alias("x"), y=y, low=f"{y}_low", high=f"{y}_high", series="series")


def _extremes(points: pl.DataFrame) -> str:
    ends = points.sort("y")
    low, high = ends.row(0, named=True), ends.row(-1, named=True)
    return " and ".join(
        f"{word} {row['y']:,.3g} ({row['series']}, {row['x']})" for word, row in (("lowest", low), ("highest", high))
    )


def _by_mix(mixes: pl.DataFrame, column: str, name: str, label: str) -> Named:
    """One figure per kind of mix; only mixes in several modes, if there are any."""
    if mixes.is_empty():
        return
    # Copies of one tenant have figures of their own.
    crowd = (pl.col("tenants") > 2) & pl.col("mix").str.contains(r"^\d+ [^+]*$")
    known = mixes.filter(pl.col(column).is_not_null() & ~crowd)
    several = known.filter(pl.len().over("mix") > 1)
    rows = several if several.height else known
    for (kind,), some in rows.sort("kind", descending=True).group_by("kind", maintain_order=True):
        points = _points(_by_mode(some.sort(column, "mix", descending=[True, False])), "mix", column)
        alt = f"{label}, of each mix by mode, 1 is as alone: {_extremes(points)}"
        yield f"{name}, {kind}", Figure(f"{name.capitalize()}: {kind}", "dots", points, "mix", label, alt)


def _interference(progress: pl.DataFrame, kinds: Mapping[str, str]) -> Named:
    """One heat map per mode: progress of a row beside a column."""
    if progress.is_empty():
        return
    order = sorted(kinds, key=lambda name: ({"training": 0, "inference": 1}.get(kinds[name], 2), name))
    pairs = progress.filter(pl.col("beside").is_in(order)).sort(
        *(pl.col(column).replace_strict(order, range(len(order)), default=None) for column in ("tenant", "beside"))
    )
    for mode in sorted(pairs["mode"].unique(), key=mode_order):
        cells = pairs.filter(pl.col("mode") == mode).select(x="beside", y="tenant", value="progress")
        title = f"Interference under {mode_name(mode)}"
        worst = cells.sort("value").row(0, named=True)
        alt = f"progress relative to alone; the lowest is {worst['value']:.2f}, {worst['y']} beside {worst['x']}"
        yield f"interference, {mode}", Figure(title, "heat", cells, "beside", "progress of", alt)


def _sm_curve(curve: pl.DataFrame) -> Named:
    if curve.is_empty():
        return
    points = _points(curve.sort("tenant", "sms").with_columns(series="tenant"), "sms", "progress")
    alt = f"progress of each tenant alone on a part of the SMs under MPS: {_extremes(points)}"
    y = "progress (1: alone on all SMs, without MPS)"
    yield "sm curve", Figure("Progress on a part of the SMs", "line", points, "SMs", y, alt)


def _copies(scale: pl.DataFrame, goal: TailGoal) -> Named:
    """Total throughput and tail latency by the number of copies of each tenant."""
    for tenant in dict.fromkeys(scale["tenant"]):
        rows = scale.filter((pl.col("tenant") == tenant) & pl.col("rate").is_not_null())
        if rows.is_empty():
            continue
        rows, x, last = _by_mode(rows.sort("tenants")), f"copies of {tenant}", max(rows["tenants"].to_list())
        points = _points(rows, "tenants", "rate")
        alt = f"total throughput with up to {last} copies: {_extremes(points)}"
        title, y = f"Throughput of copies of {tenant}", f"{rows['unit'][0]} in total"
        yield f"copies, {tenant}", Figure(title, "line", points, x, y, alt, log_x=True)
        timed = rows.filter(pl.col("times").is_not_null())
        if timed.is_empty():
            continue
        points = _points(timed, "tenants", "tail_ms")
        limit = goal.slo_ms or goal.factor * timed["tail_ms"][0] / timed["times"][0]
        ends = [{"x": n, "y": limit, "series": f"limit: {goal}"} for n in (1, last)]
        alt = f"tail latency with up to {last} copies: {_extremes(points)}; the limit is {limit:,.3g} ms"
        points = pl.concat([points, pl.DataFrame(ends, schema_overrides={"x": points["x"].dtype})], how="diagonal")
        # Only open loops have P99.
        what = "latency" if timed["percentile"][0] == "P99" else "step time"
        title, y = f"Tail latency of copies of {tenant}", f"{timed['percentile'][0]} {what}, ms"
        yield f"tail of copies, {tenant}", Figure(title, "line", points, x, y, alt, log_x=True, log_y=True)


def _serving(serving: pl.DataFrame) -> Named:
    """P99 by rate, one figure per background; cells with a late generator are left out."""
    if serving.is_empty():
        return
    known = serving.filter(pl.col("p99_ms").is_not_null() & pl.col("valid"))
    for (background,), rows in known.group_by("background", maintain_order=True):
        points = _points(_by_mode(rows.sort("offered")), "offered", "p99_ms")
        where = "alone" if background == "nothing" else f"beside {background}"
        title, x = f"P99 latency of open-loop requests, {where}", "requests/s offered"
        alt = f"P99 from the scheduled time, by rate and mode: {_extremes(points)}"
        yield f"serving, {where}", Figure(title, "line", points, x, "P99 latency, ms", alt, log_y=True)
