"""What the tenants of a mix get that the goal is not about, by mode: a mode that serves one may starve another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from fleetlab.bench.advise.answers import NO_LIMITS, answer_values
from fleetlab.bench.advise.goodput import goodput_values
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.mixes import interval_columns
from fleetlab.bench.analysis.modes import mode_name
from fleetlab.bench.analysis.suite_data import CellResult, TenantResult
from fleetlab.bench.analysis.wording import join_words, number
from fleetlab.stats import Interval

SCHEMA = {"mode": pl.String, "tenant": pl.String, "value": pl.Float64, "of": pl.String}
GOODPUT, ANSWER = "goodput", "answer"
SPEED = "of its speed alone"


def neighbor_rows(f: Findings, mix: str, goal: str, modes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One row per mode and tenant, of tenants that the goal is not about."""
    cells = {mode: [m for m in f.gathered.meetings if (m.mode, m.mix) == (mode, mix)] for mode in modes}
    for mode, some in cells.items():
        tenants = [t for m in some for t in m.tenants if not _is_about(f, goal, t)]
        for name in dict.fromkeys(t.name for t in tenants):
            one = next(t for t in tenants if t.name == name)
            if (found := _value(f, some[0], one)) is not None:
                value, of = found
                yield {"mode": mode, "tenant": name, **interval_columns("value", value), "of": of}


def _is_about(f: Findings, goal: str, one: TenantResult) -> bool:
    """Whether a goal is about a tenant; without open-loop requests tail latency is that of inference steps."""
    return _of(one) == goal or (goal == "p99" and f.gathered.kinds[one.name] == "inference")


def _of(one: TenantResult) -> str:
    """The goal by which a tenant is judged."""
    if one.is_open_loop:
        return GOODPUT if "llm" in one.about else "p99"
    return ANSWER if "notebook" in one.about else "throughput"


def _value(f: Findings, m: CellResult, one: TenantResult) -> tuple[Interval, str] | None:
    """What a tenant of a cell gets, over all cells of its mix and mode."""
    if "llm" in one.about:
        return goodput_values(f, m.mix, None).value(m.mode), "requests/s within its goals"
    if "notebook" in one.about:
        values = answer_values(f, m.mix)
        return values.value(m.mode), f"{values.unit}, time to answer"
    speed = f.mixes.speed(one.name, m.mode, m.names)
    return None if speed is None else (speed, SPEED)


def neighbor_sentences(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What each of them gets, in words."""
    for tenant, of in dict.fromkeys((row["tenant"], row["of"]) for row in rows):
        here = [row for row in rows if (row["tenant"], row["of"]) == (tenant, of)]
        parts = [f"{_shown(row)} under {mode_name(row['mode'])}" for row in here]
        verb = "keeps" if of == SPEED else "has"
        yield f"Meanwhile {tenant} {verb}, {of}: {join_words(parts)}."


def _shown(row: dict[str, Any]) -> str:
    value = Interval(row["value"], row["value_low"], row["value_high"])
    return number(value) if math.isfinite(value.high - value.low) else f"{value.value:.2f} ({NO_LIMITS})"
