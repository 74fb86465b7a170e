"""GPU seconds, energy and, with a price, money per thousand items; alone and with several copies."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl

from fleetlab.bench.analysis.mixes import MixMeasures, interval_columns
from fleetlab.bench.analysis.modes import mode_order
from fleetlab.bench.analysis.scale import widen
from fleetlab.bench.analysis.suite_data import CellResult, SuiteData
from fleetlab.bench.results.cells import table
from fleetlab.stats import Interval

SCHEMA = {"tenant": pl.String, "mode": pl.String, "tenants": pl.Int64, "gpu_s_per_1000": pl.Float64}
HOUR = 3600.0


def cost_table(x: MixMeasures, *, price: float | None = None) -> pl.DataFrame:
    """One row per tenant, mode and number of copies; mixes of several tenants have no common item, see their `stp`."""
    by: dict[tuple[str, str, int], list[CellResult]] = defaultdict(list)
    for m in x.gathered.meetings:
        if len(set(m.names)) == 1 and m.progress and x.gathered.kinds[m.names[0]] != "stressor" and _whole(m):
            by[m.names[0], m.mode, len(m.tenants)].append(m)
    keys = sorted(by, key=lambda at: (at[0], at[2], mode_order(at[1])))
    return table((_row(x, *key, by[key], price) for key in keys), SCHEMA)


def _whole(m: CellResult) -> bool:
    """Whether it uses the whole GPU: alone on a part of the SMs is not a way to share."""
    return len(m.tenants) > 1 or not m.tenants[0].share


def _row(x: MixMeasures, tenant: str, mode: str, n: int, here: list[CellResult], price: float | None) -> dict[str, Any]:
    half = x.noise.measured_again(x.gathered, tenant, len(here))
    took = 1000 * len(here) / sum(t.rate for m in here for t in m.tenants)
    seconds = widen(Interval(took, took, took), half)
    joules = x.item_joules(tenant, mode, here[0].mix) if n > 1 else _joules_alone(here, seconds)
    money = Interval(*(s / HOUR * price for s in seconds)) if seconds and price is not None else None
    return {
        "tenant": tenant,
        "mode": mode,
        "tenants": n,
        "blocks": len(here),
        "unit": x.gathered.units[tenant],
        **interval_columns("gpu_s_per_1000", seconds),
        **interval_columns("joules_an_item", joules),
        **({} if price is None else interval_columns("cost_per_1000", money)),
    }


def _joules_alone(here: list[CellResult], seconds: Interval | None) -> Interval | None:
    """Energy of an item alone in a mode."""
    watts = [m.gpu["watts"] for m in here if (m.gpu.get("watts") or 0) > 0]
    if not watts or seconds is None:
        return None
    return Interval(*(sum(watts) / len(watts) * taken / 1000 for taken in seconds))


def short_windows(g: SuiteData) -> bool:
    """Whether a window is too short for the energy counter."""
    return any(0 < m.window < 5 and m.gpu.get("watts") for m in g.meetings)
