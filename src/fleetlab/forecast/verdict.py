"""Findings: what is predictable how far ahead, by which model, and what that means for scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from fleetlab.core import Estimate, say
from fleetlab.core.catalog import RESOURCES
from fleetlab.forecast.catalogue import SIMPLE

MEANS = {
    "predictable": "capacity can follow the forecast with a reserve of {reserve}",
    "partly": "the forecast helps; keep a reserve of {reserve} for work that must not wait",
    "not predictable": "do not scale ahead on it: keep a reserve of {reserve}, or let jobs wait",
}


def spoken(seconds: float) -> str:
    """A time as people say it.

    >>> spoken(300), spoken(3600), spoken(5400), spoken(172800), spoken(20)
    ('5 min', '1 h', '1.5 h', '2 days', '20 s')
    """
    for size, unit in ((2 * 86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / (86_400 if unit == 'days' else size):.3g} {unit}"
    return f"{seconds:.3g} s"


def sentences(rows: pl.DataFrame, models: pl.Series, every: float) -> list[str]:
    """One for each resource at its first and last step, and one on whether anything beats the simple models.

    `rows` are of the steps that are looked at one by one, `models` those taken for every series and step.
    """
    lines = []
    for (part, resource), mine in rows.group_by("part", "resource", maintain_order=True):
        name = str(resource) if part == "all" else f"{resource} of {part}"
        ends = mine.sort("steps ahead")
        lines += [_one(name, row, every) for row in ends[[0, -1] if ends.height > 1 else [0]].iter_rows(named=True)]
    return [*lines, _simple(rows, models)]


def _one(name: str, row: Mapping[str, Any], every: float) -> str:
    lead = f"{name}, {spoken(row['steps ahead'] * every)} ahead: {row['verdict']}"
    if row["NRMSE"] is None:
        return f"{lead}: no demand in the held-out period"
    unit = RESOURCES[row["resource"]].unit
    reserve = f"{row['reserve 95%']:,.3g} {unit}" if row["reserve 95%"] < 1000 else f"{row['reserve 95%']:,.0f} {unit}"
    value, low, high = (float("nan") if row[c] is None else row[c] for c in ("NRMSE", "low", "high"))
    error = Estimate("NRMSE", value, low, high, "")
    return f"{lead}, {say(error)} by `{row['model']}`{_skill(row)}; {MEANS[row['verdict']].format(reserve=reserve)}"


def _skill(row: Mapping[str, Any]) -> str:
    if row["model"] in SIMPLE:
        return ", as no model beat it significantly on past folds"
    if row["skill"] is None:
        return ""
    low, high = row["skill low"], row["skill high"]
    interval = "" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f})"
    word = "better" if row["skill"] >= 0 else "worse"
    return f", {abs(100 * row['skill']):.1f} % {word}{interval} than `{row['against']}`"


def _simple(rows: pl.DataFrame, models: pl.Series) -> str:
    clever = int((~models.is_in(SIMPLE)).sum())
    if not clever:
        return "no model beats the simple ones significantly: the simple ones are used"
    beaten = rows.filter(~pl.col("model").is_in(SIMPLE))
    better, significant = (beaten.filter(pl.col(c) > 0).height for c in ("skill", "skill low"))
    text = f"in {clever} of {len(models)} cases a model beat the best simple one significantly on past folds; "
    if beaten.is_empty():
        return f"{text}none of them is among the {rows.height} evaluated on the held-out period"
    of = f"of the {beaten.height} evaluated on the held-out period it was better in {better}"
    return f"{text}{of}, significantly in {significant}"
