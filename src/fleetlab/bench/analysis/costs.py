"""What a thousand items take of a card, of its energy and, with a price, of money; alone and with more of the same."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl

from fleetlab.bench.analysis.meetings import Gathered, Meeting
from fleetlab.bench.analysis.mixes import Mixes, spread_out
from fleetlab.bench.analysis.noise import rank
from fleetlab.bench.analysis.scale import wider
from fleetlab.bench.results.cells import frame
from fleetlab.stats import Interval

SCHEMA = {"tenant": pl.String, "mode": pl.String, "tenants": pl.Int64, "gpu_s_per_1000": pl.Float64}
HOUR = 3600.0


def cost_table(x: Mixes, *, price: float | None = None) -> pl.DataFrame:
    """One row a tenant, mode and number; a mix of several kinds has no item of its own, its `stp` tells its cost."""
    by: dict[tuple[str, str, int], list[Meeting]] = defaultdict(list)
    for m in x.gathered.meetings:
        if len(set(m.names)) == 1 and m.progress and x.gathered.kinds[m.names[0]] != "stressor" and _whole(m):
            by[m.names[0], m.mode, len(m.tenants)].append(m)
    keys = sorted(by, key=lambda at: (at[0], at[2], rank(at[1])))
    return frame((_row(x, *key, by[key], price) for key in keys), SCHEMA)


def _whole(m: Meeting) -> bool:
    """Alone on a part of the SMs leaves the rest idle: that is a curve, not a way to share."""
    return len(m.tenants) > 1 or not m.tenants[0].share


def _row(x: Mixes, tenant: str, mode: str, n: int, here: list[Meeting], price: float | None) -> dict[str, Any]:
    half = x.noise.measured_again(x.gathered, tenant, len(here))
    took = 1000 * len(here) / sum(t.rate for m in here for t in m.tenants)
    seconds = wider(Interval(took, took, took), half)
    watts = [m.gpu["watts"] for m in here if (m.gpu.get("watts") or 0) > 0]
    joules = took / 1000 * sum(watts) / len(watts) if watts else None
    money = Interval(*(s / HOUR * price for s in seconds)) if seconds and price is not None else None
    return {
        "tenant": tenant,
        "mode": mode,
        "tenants": n,
        "blocks": len(here),
        "unit": x.gathered.units[tenant],
        **spread_out("gpu_s_per_1000", seconds),
        "joules_an_item": joules,
        **({} if price is None else spread_out("cost_per_1000", money)),
    }


def short_windows(g: Gathered) -> bool:
    """Is a window shorter than the energy counter needs?"""
    return any(0 < m.window < 5 and m.gpu.get("watts") for m in g.meetings)
