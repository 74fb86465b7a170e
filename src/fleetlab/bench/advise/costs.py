"""Energy and cost of an item of each tenant, by mode.

Tenants that share split each second of the GPU in proportion to their progress, so that an item takes 1 / (STP · rate
alone) GPU seconds, whichever tenant it is of; energy is that alone times the energy of the mix relative to alone, so
that both change by what the goals `cost` and `energy` say. Of a mix of servers alone an item is a request that was
answered, of language models one within the goals. Beside other work a server's share of the GPU is not defined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fleetlab.bench.advise.goodput import goodput_values
from fleetlab.bench.advise.mix import AskedMix
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.mixes import interval_columns
from fleetlab.bench.analysis.modes import mode_order
from fleetlab.bench.analysis.serving import served_mix
from fleetlab.bench.analysis.values import is_apart
from fleetlab.bench.results.costs import HOUR
from fleetlab.devices.units import unit_scale
from fleetlab.stats import Interval, no_interval


def cost_rows(f: Findings, asked: AskedMix, price: float | None) -> Iterator[dict[str, Any]]:
    """One row per tenant, alone and in each mode; of a mix of servers one per mode. Of several mixes none."""
    if len(asked.mixes) == 1:
        yield from _item_rows(f, asked.mixes[0], price)
        yield from _request_rows(f, asked, price)


def _request_rows(f: Findings, asked: AskedMix, price: float | None) -> Iterator[dict[str, Any]]:
    mix = asked.mixes[0]
    cells = [m for m in f.gathered.meetings if m.mix == mix and is_apart(m.mode)]
    if not all(t.is_open_loop for m in cells for t in m.tenants):
        return
    goodput, served = goodput_values(f, mix, asked.limits), served_mix(f.gathered, mix)
    for mode in sorted({m.mode for m in cells}, key=mode_order):
        within = mode in goodput.modes
        rate = goodput.value(mode) if within else no_interval(served[mode].answered or 0.0)
        watts = [m.gpu["watts"] for m in cells if m.mode == mode and (m.gpu.get("watts") or 0) > 0]
        if rate.low > 0 or (rate.value > 0 and not math.isfinite(rate.low)):
            joules = _over(sum(watts) / len(watts), rate) if watts else None
            unit = "request within the goals" if within else "request"
            yield {"mode": mode, "tenant": mix} | _columns(unit, _over(1.0, rate), joules, price)


def _item_rows(f: Findings, mix: str, price: float | None) -> Iterator[dict[str, Any]]:
    g, x = f.gathered, f.mixes
    for name in dict.fromkeys(x.names.get(mix, ())):
        half = x.noise.measured_again(g, name, len(g.alone[name]))
        wide = Interval(1.0, math.exp(-half), math.exp(half))
        own, unit = g.own(name), g.units[name]
        seconds, joules = _over(1 / own, wide), _over(x.watts[name] / own, wide) if name in x.watts else None
        yield {"mode": "alone", "tenant": name} | _columns(unit, seconds, joules, price)
        for mode in filter(is_apart, x.stp.modes(mix)):
            seconds, joules = _over(1 / own, x.throughput(mode, mix)), x.item_joules(name, mode, mix)
            yield {"mode": mode, "tenant": name} | _columns(unit, seconds, joules, price)


def _over(amount: float, x: Interval) -> Interval:
    return Interval(amount / x.value, amount / x.high, amount / x.low)


def _columns(unit: str, seconds: Interval, joules: Interval | None, price: float | None) -> dict[str, Any]:
    scale, shown = unit_scale(unit)
    row: dict[str, Any] = {"unit": shown}
    row |= interval_columns("gpu_s_per_1000", Interval(*(1000 * s / scale for s in seconds)))
    row |= interval_columns("joules_an_item", Interval(*(j / scale for j in joules)) if joules else None)
    if price is not None:
        row |= interval_columns("cost_per_1000", Interval(*(1000 * s / scale * price / HOUR for s in seconds)))
    return row
