"""What the tenants of a mix get that the goal is not about, by mode: a mode that serves one may starve another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from fleetlab.bench.advise.answers import answer_values
from fleetlab.bench.advise.goodput import goodput_values
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.mixes import interval_columns
from fleetlab.bench.analysis.modes import mode_name
from fleetlab.bench.analysis.suite_data import TenantResult
from fleetlab.bench.analysis.wording import join_words
from fleetlab.stats import Interval, no_interval

SCHEMA = {"mode": pl.String, "tenant": pl.String, "value": pl.Float64, "of": pl.String}
GOODPUT, ANSWER = "goodput", "answer"
SPEED = "of its speed alone"


def neighbor_rows(f: Findings, mix: str, goal: str, modes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One row per mode and tenant, of tenants that the goal is not about."""
    cells = {mode: [m for m in f.gathered.meetings if (m.mode, m.mix) == (mode, mix)] for mode in modes}
    for mode, some in cells.items():
        tenants = [t for m in some for t in m.tenants if not _is_about(f, goal, t)]
        for name in dict.fromkeys(t.name for t in tenants):
            here = [t for t in tenants if t.name == name]
            if (found := _value(f, mix, mode, here)) is not None:
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


def _value(f: Findings, mix: str, mode: str, here: list[TenantResult]) -> tuple[Interval, str] | None:
    if "llm" in here[0].about:
        return goodput_values(f, mix, None).value(mode), "requests/s within its goals"
    if "notebook" in here[0].about:
        values = answer_values(f, mix)
        return values.value(mode), f"{values.unit}, time to answer"
    made = [t.progress for t in here if t.progress is not None]
    return (no_interval(sum(made) / len(made)), SPEED) if made else None


def neighbor_sentences(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What each of them gets, in words."""
    for tenant, of in dict.fromkeys((row["tenant"], row["of"]) for row in rows):
        here = [row for row in rows if (row["tenant"], row["of"]) == (tenant, of)]
        parts = [f"{row['value']:.2f} under {mode_name(row['mode'])}" for row in here]
        verb = "keeps" if of == SPEED else "has"
        yield f"Meanwhile {tenant} {verb}, {of}: {join_words(parts)}."
