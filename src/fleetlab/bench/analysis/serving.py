"""Requests by a timetable beside a background: the tail of the answers, by rate, background and mode.

Times run from when a request was due, so a stall counts for every request that it holds up. A cell whose timetable was
sent more than 1 ms late at P99 is not valid: it measured the sender.
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
from fleetlab.bench.analysis.meetings import Gathered, Meeting, Tenant
from fleetlab.bench.analysis.mixes import quantile, spread_out
from fleetlab.bench.analysis.noise import Compared, Noise, rank, reach, together
from fleetlab.bench.histogram import Histogram
from fleetlab.bench.results.cells import Cell, frame, listed
from fleetlab.bench.results.latency import LAG, lag_p99
from fleetlab.stats import Interval

SCHEMA = {"served": pl.String, "background": pl.String, "mode": pl.String, "offered": pl.Float64, "p99_ms": pl.Float64}


@dataclass(slots=True)
class Served:
    """One tenant by a timetable, beside one background, in one mode: all its blocks."""

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

    def add(self, m: Meeting, one: Tenant) -> None:
        """Another block."""
        self.times.append(one.times())
        self.sent.append(one.about)
        self.unsent += int(one.about.get("unsent", 0))
        self.offered += one.about.get("offered", one.about.get("steps", 0))
        self.answered += one.about.get("steps", 0)
        self.window += m.window
        self.others += [t.progress for t in m.tenants if t.progress is not None]
        self.suites.add(m.suite)

    def at(self, p: float) -> Interval | None:
        """The quantile over all blocks."""
        return quantile(Histogram.sum(self.times), p)

    @property
    def lag(self) -> float | None:
        """P99 of how late requests were sent."""
        return lag_p99(self.sent)

    @property
    def valid(self) -> bool:
        """Did the sender keep up?"""
        return self.lag is None or self.lag < LAG


def served(g: Gathered) -> list[Served]:
    """All of them, the same tenant's copies as one; by tenant, background and mode."""
    found: dict[tuple[str, str, str], Served] = {}
    for m in g.meetings:
        timed = sorted({t.name for t in m.tenants if t.timed})
        # Several of the same are a crowd, not a background.
        if len(timed) == 1 and sum(t.timed for t in m.tenants) == 1:
            background = listed([t.name for t in m.tenants if not t.timed]) or "nothing"
            one = next(t for t in m.tenants if t.timed)
            key = one.name, background, m.mode
            found.setdefault(key, Served(*key)).add(m, one)
    return sorted(found.values(), key=lambda s: (s.background != "nothing", s.background, _rate(s), rank(s.mode)))


def _rate(s: Served) -> float:
    return s.offered / s.window if s.window else 0.0


def serving_table(found: list[Served]) -> pl.DataFrame:
    """One row a tenant, background and mode."""
    return frame((_row(s) for s in found), SCHEMA)


def _row(s: Served) -> dict[str, Any]:
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
        **{column: value for name, at in ms.items() for column, value in spread_out(name, at).items()},
        "lag_p99_ms": None if s.lag is None else 1000 * s.lag,
        "valid": s.valid,
        "background_progress": sum(s.others) / len(s.others) if s.others else None,
    }


def by_serving(found: list[Served], noise: Noise) -> Iterator[Advice]:
    """The mode with the shortest P99, for each tenant and background in at least two modes; valid cells only."""
    by: dict[str, dict[str, Interval]] = defaultdict(dict)
    for s in found:
        if s.valid and (tail := s.at(0.99)):
            by[f"{s.tenant} beside {s.background}"][s.mode] = Interval(*(1000 * v for v in tail))
    again = reach(together([noise.again[False], noise.again[False]]))
    for mix, tails in by.items():
        if len(tails) > 1:
            yield _advised(mix, tails, 0.0 if math.isnan(again) else again)


def _advised(mix: str, tails: dict[str, Interval], floor: float) -> Advice:
    ranked = sorted(tails, key=lambda mode: tails[mode].value)
    behind = {mode: _longer(tails[mode], tails[ranked[0]], floor) for mode in ranked[1:]}
    level = [mode for mode, c in behind.items() if not c.differ]
    return Advice(mix, "latency", tuple(ranked), tails[ranked[0]], behind[ranked[1]], (ranked[0], *level))


def _longer(one: Interval, other: Interval, floor: float) -> Compared:
    """The ratio of two quantiles; limits from both at their ends, which is more than sure enough."""
    return Compared(one.value / other.value, one.low / other.high, one.high / other.low, floor)
