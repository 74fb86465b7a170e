"""Open-loop requests beside a background: tail latency by rate, background and mode.

Latency counts from the scheduled time, so a stall counts for every request that it delays. A server that answers fewer
requests than fall due falls behind: its latency grows as long as one measures. A cell that keeps up, but whose
generator had a P99 lag above 1 ms, is not valid: it only says how requests wait in groups. Nor does a window in which
few requests of a language model end tell whether it keeps up. Requests of one queue wait alike, so the interval of a
quantile is that of fewer independent ones; where that was not recorded, there is none. A request that the end of the
window cut off counts with its time so far: where these are more than lie above a quantile, that is a lower limit and
no value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench.analysis.mixes import interval_columns
from fleetlab.bench.analysis.modes import mode_order
from fleetlab.bench.analysis.suite_data import CellResult, SuiteData, TenantResult
from fleetlab.bench.results.cells import Cell, mix_name, table
from fleetlab.bench.results.latency import (
    MAX_LAG,
    cuts,
    effective_size,
    falls_behind,
    lag_p99,
    long_windows,
    request_rates,
    sum_times,
    too_short,
    unfinished,
)
from fleetlab.bench.statistics import tail
from fleetlab.stats import Interval

SCHEMA = {"served": pl.String, "background": pl.String, "mode": pl.String, "offered": pl.Float64, "p99_ms": pl.Float64}


@dataclass(slots=True)
class ServedTenant:
    """One open-loop tenant beside one background in one mode, over all blocks."""

    tenant: str
    background: str
    mode: str
    cells: list[tuple[CellResult, TenantResult]] = field(default_factory=list)

    def _kept(self) -> list[tuple[CellResult, TenantResult]]:
        """Blocks in which it fell behind; if none, those whose generator was on time; all of them if none was."""
        return self._behind() or [at for at in self._long() if _on_time([at[1].about])] or self._long()

    def _long(self) -> list[tuple[CellResult, TenantResult]]:
        """Blocks whose window is long enough to tell, where there are some."""
        return long_windows(self.cells, lambda at: [at[1].about])

    def _behind(self) -> list[tuple[CellResult, TenantResult]]:
        """All servers of blocks in which one fell behind."""
        blocks = {(m.suite, m.cell) for m, one in self._long() if falls_behind(one.about, m.window)}
        return [(m, one) for m, one in self._long() if (m.suite, m.cell) in blocks]

    @property
    def behind(self) -> bool:
        """Whether it fell behind its arrival rate, in one block or more."""
        return bool(self._behind())

    @property
    def keeps_up(self) -> bool | None:
        """Whether it keeps up; None if every window was too short to tell."""
        return None if too_short(self.sent) else not self.behind

    def shortfall(self) -> str:
        """How far it falls behind: answered and offered requests per second, those of all servers together."""
        return f"falls behind: {self.answered or 0.0:,.0f} of {self.offered or 0.0:,.0f} requests/s"

    @property
    def sent(self) -> list[Cell]:
        """What was recorded of the requests of each block."""
        return [one.about for _, one in self._kept()]

    @property
    def blocks(self) -> int:
        """How many blocks count."""
        return len({(m.suite, m.cell) for m, _ in self._kept()})

    @property
    def suites(self) -> set[Path]:
        """The suites of these blocks."""
        return {m.suite for m, _ in self._kept()}

    @property
    def others(self) -> list[float]:
        """Progress of the background."""
        return [t.progress for m, _ in self._kept() for t in m.tenants if t.progress is not None]

    @property
    def offered(self) -> float | None:
        """Requests per second that fell due, of all servers of a cell."""
        return self._rate(0)

    @property
    def answered(self) -> float | None:
        """Requests per second that were answered inside the window: fewer than offered if it falls behind."""
        return self._rate(1)

    def _rate(self, of: int) -> float | None:
        rates = [request_rates(one.about, m.window)[of] for m, one in self._kept()]
        return sum(rates) / self.blocks if rates else None

    @property
    def unfinished(self) -> int:
        """Requests that the end of the window cut off."""
        return sum(map(unfinished, self.sent))

    def at(self, p: float) -> Interval | None:
        """Quantile over all blocks; its limits are NaN where it is not known how requests wait in groups.

        None if these are too few, or if too many were cut off.
        """
        return None if self.above(p) is not None else self._recorded(p)

    def above(self, p: float) -> float | None:
        """What the quantile is above, where so many requests were cut off that it has no value; else None."""
        if not cuts(p, sum_times(self.sent), self.unfinished):
            return None
        found = self._recorded(p)
        return None if found is None else found.value

    def by_run(self, p: float) -> list[float]:
        """Log of the quantile of each suite that has one."""
        kept = self._kept()
        runs = [replace(self, cells=[at for at in kept if at[0].suite == suite]) for suite in sorted(self.suites)]
        return [math.log(found.value) for run in runs if (found := run.at(p))]

    def _recorded(self, p: float) -> Interval | None:
        alike = [one.about for _, one in self.cells]
        return tail(sum_times(self.sent), p, effective_size(self.sent, f"p{100 * p:g}", alike))

    @property
    def lag(self) -> float | None:
        """P99 lag of the generator."""
        return lag_p99(self.sent)

    @property
    def valid(self) -> bool:
        """Whether the generator was on schedule."""
        return _on_time(self.sent)


def _on_time(sent: list[Cell]) -> bool:
    lag = lag_p99(sent)
    return lag is None or lag < MAX_LAG


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
            tenants.setdefault(key, ServedTenant(*key)).cells.append((m, one))
    return sorted(
        tenants.values(),
        key=lambda s: (s.background != "nothing", s.background, s.offered or 0.0, mode_order(s.mode)),
    )


def served_mix(g: SuiteData, mix: str) -> dict[str, ServedTenant]:
    """All open-loop tenants of a mix by mode, copies and different ones as one."""
    served: dict[str, ServedTenant] = {}
    for m in g.meetings:
        for one in m.tenants if m.mix == mix else ():
            if one.is_open_loop:
                served.setdefault(m.mode, ServedTenant(mix, "", m.mode)).cells.append((m, one))
    return dict(sorted(served.items(), key=lambda at: mode_order(at[0])))


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
        "blocks": s.blocks,
        "offered": s.offered,
        "answered": s.answered,
        "requests": sum_times(s.sent).n,
        "unsent": sum(int(one.get("unsent", 0)) for one in s.sent),
        **{column: value for name, at in ms.items() for column, value in interval_columns(name, at).items()},
        "lag_p99_ms": None if s.lag is None else 1000 * s.lag,
        "keeps_up": s.keeps_up,
        "valid": s.valid,
        "background_progress": sum(s.others) / len(s.others) if s.others else None,
    }
