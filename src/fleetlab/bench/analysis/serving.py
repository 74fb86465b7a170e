"""Open-loop requests beside a background: tail latency by rate, background and mode.

Latency counts from the scheduled time, so a stall counts for every request that it delays. A cell whose generator had
a P99 lag above 1 ms is not valid.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench.analysis.advice import Advice
from fleetlab.bench.analysis.mixes import interval_columns
from fleetlab.bench.analysis.noise import ModeRatio, Noise, half_width, mode_order, sum_variances
from fleetlab.bench.analysis.suite_data import CellResult, SuiteData, TenantResult
from fleetlab.bench.histogram import Histogram
from fleetlab.bench.results.cells import Cell, mix_name, table
from fleetlab.bench.results.latency import MAX_LAG, lag_p99
from fleetlab.bench.statistics import known_percentile
from fleetlab.stats import Interval

SCHEMA = {"served": pl.String, "background": pl.String, "mode": pl.String, "offered": pl.Float64, "p99_ms": pl.Float64}


@dataclass(slots=True)
class ServedTenant:
    """One open-loop tenant beside one background in one mode, over all blocks."""

    tenant: str
    background: str
    mode: str
    times: list[Histogram] = field(default_factory=list)
    sent: list[Cell] = field(default_factory=list)
    offered: float = 0.0
    answered: float = 0.0
    unsent: int = 0
    window: float = 0.0
    others: list[float] = field(default_factory=list)
    suites: set[Path] = field(default_factory=set)

    def add(self, m: CellResult, one: TenantResult) -> None:
        """Add a block."""
        self.times.append(one.times())
        self.sent.append(one.about)
        self.unsent += int(one.about.get("unsent", 0))
        self.offered += one.about.get("offered", one.about.get("steps", 0))
        self.answered += one.about.get("steps", 0)
        self.window += m.window
        self.others += [t.progress for t in m.tenants if t.progress is not None]
        self.suites.add(m.suite)

    def at(self, p: float) -> Interval | None:
        """Quantile over all blocks."""
        return known_percentile(Histogram.sum(self.times), p)

    @property
    def lag(self) -> float | None:
        """P99 lag of the generator."""
        return lag_p99(self.sent)

    @property
    def valid(self) -> bool:
        """Whether the generator was on schedule."""
        return self.lag is None or self.lag < MAX_LAG


def served_tenants(g: SuiteData) -> list[ServedTenant]:
    """All of them, by tenant, background and mode."""
    tenants: dict[tuple[str, str, str], ServedTenant] = {}
    for m in g.meetings:
        timed = sorted({t.name for t in m.tenants if t.is_open_loop})
        # Copies of one tenant are a scaling curve, not a background.
        if len(timed) == 1 and sum(t.is_open_loop for t in m.tenants) == 1:
            background = mix_name([t.name for t in m.tenants if not t.is_open_loop]) or "nothing"
            one = next(t for t in m.tenants if t.is_open_loop)
            key = one.name, background, m.mode
            tenants.setdefault(key, ServedTenant(*key)).add(m, one)
    return sorted(
        tenants.values(), key=lambda s: (s.background != "nothing", s.background, _rate(s), mode_order(s.mode))
    )


def _rate(s: ServedTenant) -> float:
    return s.offered / s.window if s.window else 0.0


def serving_table(found: list[ServedTenant]) -> pl.DataFrame:
    """One row per tenant, background and mode."""
    return table((_row(s) for s in found), SCHEMA)


def _row(s: ServedTenant) -> dict[str, Any]:
    ms = {
        name: Interval(*(1000 * v for v in at)) if (at := s.at(p)) else None
        for name, p in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))
    }
    return {
        "served": s.tenant,
        "background": s.background,
        "mode": s.mode,
        "blocks": len(s.times),
        "offered": _rate(s),
        "answered": s.answered / s.window if s.window else None,
        "requests": Histogram.sum(s.times).n,
        "unsent": s.unsent,
        **{column: value for name, at in ms.items() for column, value in interval_columns(name, at).items()},
        "lag_p99_ms": None if s.lag is None else 1000 * s.lag,
        "valid": s.valid,
        "background_progress": sum(s.others) / len(s.others) if s.others else None,
    }


def by_serving(found: list[ServedTenant], noise: Noise) -> Iterator[Advice]:
    """The mode with the lowest P99 for each tenant and background in at least two modes; only valid cells."""
    by: dict[str, dict[str, Interval]] = defaultdict(dict)
    for s in found:
        if s.valid and (tail := s.at(0.99)):
            by[f"{s.tenant} beside {s.background}"][s.mode] = Interval(*(1000 * v for v in tail))
    again = half_width(sum_variances([noise.again[False], noise.again[False]]))
    for mix, tails in by.items():
        if len(tails) > 1:
            yield _advice(mix, tails, 0.0 if math.isnan(again) else again)


def _advice(mix: str, tails: dict[str, Interval], floor: float) -> Advice:
    ranked = sorted(tails, key=lambda mode: tails[mode].value)
    behind = {mode: _longer(tails[mode], tails[ranked[0]], floor) for mode in ranked[1:]}
    level = [mode for mode, c in behind.items() if not c.differ]
    same = all(behind[mode].equivalent for mode in level)
    return Advice(mix, "latency", tuple(ranked), tails[ranked[0]], behind[ranked[1]], (ranked[0], *level), same)


def _longer(one: Interval, other: Interval, floor: float) -> ModeRatio:
    """Ratio of two quantiles, with a conservative interval from the ends of both."""
    low, high = one.low / other.high, one.high / other.low
    return ModeRatio(one.value / other.value, low, high, floor, (low, high))
