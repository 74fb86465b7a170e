"""Energy and cost of an item of each tenant, by mode.

Tenants that share split each second of the GPU in proportion to their progress, so that an item takes 1 / (STP · rate
alone) GPU seconds, whichever tenant it is of; energy is split alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.folders import BASELINE
from fleetlab.bench.analysis.mixes import interval_columns
from fleetlab.bench.results.costs import HOUR
from fleetlab.devices.units import unit_scale
from fleetlab.stats import Interval


def cost_rows(f: Findings, mix: str, price: float | None) -> Iterator[dict[str, Any]]:
    """One row per tenant, alone and in each mode."""
    g, x = f.gathered, f.mixes
    for name in dict.fromkeys(x.names.get(mix, ())):
        alone = [m for m in g.meetings if m.names == (name,) and m.mode == BASELINE and not m.tenants[0].share]
        half = x.noise.measured_again(g, name, len(g.alone[name]))
        own = g.own(name)
        wide = Interval(1.0, math.exp(-half), math.exp(half))
        yield _row("alone", name, wide, own, g.units[name], _watts(alone), price)
        for mode in x.stp.modes(mix):
            here = [m for m in g.mixes() if m.mode == mode and m.mix == mix]
            yield _row(mode, name, x.throughput(mode, mix), own, g.units[name], _watts(here), price)


def _watts(cells: list[Any]) -> float | None:
    watts = [m.gpu["watts"] for m in cells if (m.gpu.get("watts") or 0) > 0]
    return sum(watts) / len(watts) if watts else None


def _row(
    mode: str, tenant: str, stp: Interval, own: float, unit: str, watts: float | None, price: float | None
) -> dict[str, Any]:
    scale, shown = unit_scale(unit)
    seconds = Interval(*(1 / (v * own * scale) for v in (stp.value, stp.high, stp.low)))
    row = {"mode": mode, "tenant": tenant, "unit": shown}
    row |= interval_columns("gpu_s_per_1000", Interval(*(1000 * s for s in seconds)))  # type: ignore[arg-type]
    row |= interval_columns("joules_an_item", Interval(*(watts * s for s in seconds)) if watts else None)  # type: ignore[arg-type]
    if price is not None:
        row |= interval_columns("cost_per_1000", Interval(*(1000 * s * price / HOUR for s in seconds)))  # type: ignore[arg-type]
    return row
