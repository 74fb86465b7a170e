"""How long steps took, and requests that came by a timetable: histograms of all blocks added, never percentiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import polars as pl

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.quantiles import COLUMNS, QUANTILES, quantiles
from fleetlab.bench.results.cells import Cell, Schema, beside, mean, timed
from fleetlab.bench.statistics import percentile
from fleetlab.devices.errors import BenchError

LAG = 1e-3  # s: a sender that is later than this at P99 measured itself
LATENCY: Schema = {"stage": pl.String, "tenant": pl.String, "beside": pl.String, "n": pl.Int64}
LATENCY |= dict.fromkeys(COLUMNS, pl.Float64)
SERVING: Schema = LATENCY | {"lag_p99_ms": pl.Float64, "unsent": pl.Int64, "valid": pl.Boolean}


def pooled_times(ones: Iterable[Cell], of: str = "times") -> Histogram:
    """The times of all of them as one."""
    return Histogram.sum(Histogram.from_json(one[of]) for one in ones if of in one)


def rows_latency(cells: Iterable[Cell]) -> Iterable[dict[str, Any]]:
    """Step times of each tenant that goes as fast as it can, alone and beside others."""
    for (stage, tenant, others), (ones, blocks) in _met(cells, by_timetable=False).items():
        times = pooled_times(one for one, _ in ones)
        found, why = quantiles(times)
        about = {"stage": stage, "tenant": tenant, "beside": others, "blocks": blocks, "n": times.n}
        yield about | found | {"short": "; ".join(why)}


def rows_serving(cells: Iterable[Cell]) -> Iterable[dict[str, Any]]:
    """Requests of each tenant that has a timetable, from when they were due."""
    for (stage, tenant, others), (ones, blocks) in _met(cells, by_timetable=True).items():
        times = pooled_times(one for one, _ in ones)
        lag = lag_p99(one for one, _ in ones)
        found, why = quantiles(times, _worth([one for one, _ in ones]))
        yield {
            "stage": stage,
            "tenant": tenant,
            "beside": others,
            "blocks": blocks,
            "offered": mean(one["offered"] / cell["window"] for one, cell in ones if "offered" in one),
            "answered": mean(one["rate"] for one, _ in ones),
            "n": times.n,
            **found,
            "lag_p99_ms": None if lag is None else 1000 * lag,
            "unsent": sum(one.get("unsent", 0) for one, _ in ones),
            "valid": None if lag is None else lag < LAG,
            "short": "; ".join(why),
        }


def _worth(ones: list[Cell]) -> dict[str, float]:
    """Requests of one queue wait alike; each cell says how many of its own count as one."""
    names = [name for name, _ in QUANTILES]
    sized = [(Histogram.from_json(one["times"]).n, one) for one in ones]
    return {name: sum(n / one.get("clumps", {}).get(name, 1.0) for n, one in sized) for name in names}


def lag_p99(ones: Iterable[Cell]) -> float | None:
    """How late steps were sent, at P99; of a sample that cannot carry that, the largest."""
    lags = pooled_times(ones, "lag")
    if not lags.n:
        return None
    try:
        return percentile(lags, 0.99).value
    except BenchError:
        return lags.at(lags.n)


Met = dict[tuple[str, str, str], tuple[list[tuple[Cell, Cell]], int]]


def _met(cells: Iterable[Cell], *, by_timetable: bool) -> Met:
    """Tenants with their cells, by stage, seat and company; and in how many cells that was."""
    ones: dict[tuple[str, str, str], list[tuple[Cell, Cell]]] = defaultdict(list)
    names: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for cell in cells:
        seats = [t["seat"] for t in cell["tenants"]]
        for one in cell["tenants"]:
            if timed(one) == by_timetable and "times" in one:
                key = (cell["stage"], one["seat"], beside(seats, one["seat"]))
                ones[key].append((one, cell))
                names[key].add(cell["cell"])
    return {key: (found, len(names[key])) for key, found in ones.items()}
