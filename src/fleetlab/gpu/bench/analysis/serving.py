"""Servers and notebooks by mode: tail latency of open-loop requests by rate and background, goodput, time to answer.

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.gpu.bench.analysis.measure import SuiteData
from fleetlab.gpu.bench.analysis.wording import count_noun, mode_name, mode_order
from fleetlab.gpu.bench.histogram import interval_columns, tail
from fleetlab.gpu.bench.results.cells import (
    BASELINE,
    CellResult,
    Limits,
    Record,
    TenantResult,
    grouped,
    mix_name,
    table,
)
from fleetlab.gpu.bench.results.latency import (
    LLM,
    MAX_LAG,
    NOTEBOOK,
    cuts,
    effective_size,
    falls_behind,
    lag_p99,
    long_windows,
    request_rates,
    rows_llm,
    rows_notebook,
    shortfall,
    sum_times,
    too_short,
    unfinished,
)
from fleetlab.stats import Interval

SCHEMA = {"served": pl.String, "background": pl.String, "mode": pl.String, "offered": pl.Float64, "p99_ms": pl.Float64}


@dataclass(slots=True)
class ServedTenant:
    """One open-loop tenant beside one background in one mode, over all blocks."""

    tenant: str
    background: str
    mode: str
    cells: list[tuple[CellResult, TenantResult]] = field(default_factory=list)

    def _selected(self) -> list[tuple[CellResult, TenantResult]]:
        """Blocks in which it fell behind; if none, those whose generator was on time; all of them if none was."""
        return self._behind() or [at for at in self._long() if _on_time([at[1].about])] or self._long()

    def _long(self) -> list[tuple[CellResult, TenantResult]]:
        """Blocks whose window is long enough to tell, where there are some, with all of their servers."""
        return long_windows(self.cells, lambda at: _models(at[0]) or [at[1].about])

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
        return shortfall(self.answered or 0.0, self.offered or 0.0)

    @property
    def sent(self) -> list[Record]:
        """What was recorded of the requests of each block."""
        return [one.about for _, one in self._selected()]

    @property
    def blocks(self) -> int:
        """How many blocks count."""
        return len({(m.suite, m.cell) for m, _ in self._selected()})

    @property
    def suites(self) -> set[Path]:
        """The suites of these blocks."""
        return {m.suite for m, _ in self._selected()}

    @property
    def others(self) -> list[float]:
        """Progress of the background."""
        return [t.progress for m, _ in self._selected() for t in m.tenants if t.progress is not None]

    @property
    def offered(self) -> float | None:
        """Requests per second that fell due, of all servers of a cell."""
        return self._rate(0)

    @property
    def answered(self) -> float | None:
        """Requests per second that were answered inside the window: fewer than offered if it falls behind."""
        return self._rate(1)

    def _rate(self, of: int) -> float | None:
        rates = [request_rates(one.about, m.window)[of] for m, one in self._selected()]
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
        quantile = self._recorded(p)
        return None if quantile is None else quantile.value

    def by_run(self, p: float) -> list[float]:
        """Log of the quantile of each suite that has one."""
        selected = self._selected()
        runs = [replace(self, cells=[at for at in selected if at[0].suite == suite]) for suite in sorted(self.suites)]
        return [math.log(quantile.value) for run in runs if (quantile := run.at(p))]

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


def _models(m: CellResult) -> list[Record]:
    """Servers of language models of a block: they say whether its window is long enough, for its other servers too."""
    return [t.about for t in m.tenants if "llm" in t.about]


def _on_time(sent: list[Record]) -> bool:
    lag = lag_p99(sent)
    return lag is None or lag < MAX_LAG


def served_tenants(g: SuiteData) -> list[ServedTenant]:
    """All of them, by tenant, background and mode."""
    tenants: dict[tuple[str, str, str], ServedTenant] = {}
    for m in g.cells:
        timed = sorted({t.name for t in m.tenants if t.is_open_loop})
        # Copies of one tenant are a scaling curve, not a background.
        if len(timed) == 1 and sum(t.is_open_loop for t in m.tenants) == 1:
            background = mix_name([t.name for t in m.tenants if not t.is_open_loop]) or "nothing"
            one = next(t for t in m.tenants if t.is_open_loop)
            key = one.name, background, m.mode
            tenants.setdefault(key, ServedTenant(*key)).cells.append((m, one))
    return sorted(
        tenants.values(), key=lambda s: (s.background != "nothing", s.background, s.offered or 0.0, mode_order(s.mode))
    )


def served_mix(g: SuiteData, mix: str) -> dict[str, ServedTenant]:
    """All open-loop tenants of a mix by mode, copies and different ones as one."""
    served: dict[str, ServedTenant] = {}
    for m in g.cells:
        for one in m.tenants if m.mix == mix else ():
            if one.is_open_loop:
                served.setdefault(m.mode, ServedTenant(mix, "", m.mode)).cells.append((m, one))
    return dict(sorted(served.items(), key=lambda at: mode_order(at[0])))


def serving_table(tenants: list[ServedTenant]) -> pl.DataFrame:
    """One row per tenant, background and mode."""
    return table((_row(s) for s in tenants), SCHEMA)


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


# --- language models and notebooks over all suites -------------------------------------------------------------------


ENOUGH = 0.9  # fraction of requests within the goals; named in the finding


def _cells(g: SuiteData, mix: str | None = None) -> list[CellResult]:
    """Cells by mode; the mode has the limits of the tenants, so their names need none. Or those of a mix, and alone."""
    here = [m for m in g.cells if mix in (None, m.mix) or len(m.tenants) == 1]
    return [replace(m, stage=m.mode, tenants=tuple(replace(t, limits=Limits()) for t in m.tenants)) for m in here]


def llm_table(g: SuiteData) -> pl.DataFrame:
    """Servers of language models: TTFT, TPOT and goodput."""
    rows = sorted(
        rows_llm(_cells(g)), key=lambda r: (r["beside"] != "", r["servers"], r["beside"], mode_order(r["stage"]))
    )
    return table(rows, LLM).rename({"stage": "mode"})


def notebook_table(g: SuiteData, mix: str | None = None) -> pl.DataFrame:
    """Users of notebooks, or those of a mix: time to answer, over that of one user alone without MPS."""
    rows = rows_notebook(_cells(g, mix), baseline=BASELINE)
    return table(
        sorted(rows, key=lambda r: (r["beside"], r["users"], mode_order(r["stage"]), r["cell"])), NOTEBOOK
    ).rename({"stage": "mode"})


def user_findings(llm: pl.DataFrame, notebook: pl.DataFrame) -> Iterator[str]:
    """How many servers of a language model meet their goals, and how much longer users of notebooks wait."""
    rows = llm.iter_rows(named=True)
    by = grouped(((row["tenant"], "" if _beside_itself(row) else row["beside"]), row) for row in rows)
    for (tenant, beside), group in by.items():
        modes = dict.fromkeys(row["mode"] for row in group)
        parts = [f"{_servers([r for r in group if r['mode'] == mode])} under {mode_name(mode)}" for mode in modes]
        where = f" beside {beside}" if beside else ""
        goal = "servers with 90 % of requests within the goals (95 % confidence)"
        sentence = f"{tenant}{where}: {goal}: {', '.join(parts)}"
        yield sentence + ("; the lower number counts unfinished requests as missed." if " to " in sentence else ".")
    yield from _user_findings(notebook.iter_rows(named=True))


def _beside_itself(row: dict[str, Any]) -> bool:
    """Whether it is alone, or beside copies of itself only."""
    return row["beside"] in ("", row["tenant"]) or row["beside"] == f"{row['servers'] - 1} {row['tenant']}"


def _servers(rows: list[dict[str, Any]]) -> str:
    """The most servers that meet their goals; two numbers where that depends on requests that did not finish."""
    valid = [r for r in rows if r["valid"] or r["keeps_up"] is False]  # one that falls behind makes its generator late
    if not valid:
        return "not valid (late generator)"
    decided = [r for r in valid if r["keeps_up"] is not None]
    if not decided:
        return "not known (windows too short)"
    meeting = [r for r in decided if r["goodput_low"] >= ENOUGH]
    high = max((r["servers"] for r in meeting), default=0)
    low = max((r["servers"] for r in meeting if r["goodput_least"] >= ENOUGH), default=0)
    return f"{high}" if low == high else f"{low} to {high}"


def _user_findings(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["cell"] == "train" and row["low"] is not None and row["low"] > 1.0:
            where = f" beside {row['beside']}" if row["beside"] else ""
            slow = f"{row['slowdown']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
            who = f"{count_noun(row['users'], 'notebook user')}{where}"
            yield f"{who} under {mode_name(row['mode'])}: training takes {slow} times as long."
