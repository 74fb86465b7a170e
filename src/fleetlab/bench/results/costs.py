"""The cost of an item: GPU seconds, joules and money, for a tenant alone and for tenants that share.

Tenants that share a GPU split each of its seconds in proportion to their progress. With NP the progress, R the rate
alone and STP the sum of all NP, an item then costs
(NP/STP) / (NP·R) = 1 / (STP·R) GPU seconds: sharing makes every tenant's items cheaper by the same factor, STP.
Equal tenants split by items, which is the same. Energy is split as `results.energy` has it. In an open loop the
progress of a tenant is the offered load: beside other kinds of tenants its share is undefined, and it has no row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import polars as pl

from fleetlab.bench.results.cells import Cell, Schema, neighbors
from fleetlab.bench.results.solo import SoloRates
from fleetlab.core import DeviceError
from fleetlab.devices.units import unit_scale
from fleetlab.stats import Interval, geometric_means

COSTS: Schema = {"stage": pl.String, "tenant": pl.String, "beside": pl.String, "unit": pl.String}
COSTS |= {"gpu_s_per_1000": pl.Float64, "joules_an_item": pl.Float64}
HOUR = 3600.0


class ItemCost(NamedTuple):
    """Cost of an item of one tenant in one block."""

    seconds: float  # GPU seconds
    joules: float | None  # None if no counter was read


def rows_costs(cells: Iterable[Cell], solo: SoloRates, price: float | None) -> Iterable[dict[str, Any]]:
    """By tenant and neighbors: GPU seconds and joules per item, and money at `price` per GPU hour."""
    if price is not None and not 0 <= price < float("inf"):
        msg = f"not a price of a GPU hour: {price}"
        raise DeviceError(msg, hint="such as --price 3.5")
    by, units = _by_tenant(cells, solo)
    seconds = geometric_means([[one.seconds for one in blocks] for blocks in by.values()])
    joules = _energy(by)
    for (key, blocks), taken in zip(by.items(), seconds, strict=True):
        stage, tenant, others = key
        scale, unit = unit_scale(units[key])
        row = {"stage": stage, "tenant": tenant, "beside": others, "unit": unit, "blocks": len(blocks)}
        row |= _limits("gpu_s", "_per_1000", taken, 1000 / scale)
        row |= _limits("joules", "_an_item", joules.get(key), 1 / scale)
        yield row if price is None else row | _limits("cost", "_per_1000", taken, 1000 / scale * price / HOUR)


Key = tuple[str, str, str]


def _by_tenant(cells: Iterable[Cell], solo: SoloRates) -> tuple[dict[Key, list[ItemCost]], dict[Key, str]]:
    by: dict[Key, list[ItemCost]] = defaultdict(list)
    units: dict[Key, str] = {}
    for cell in cells:
        seats = [t["seat"] for t in cell["tenants"]]
        for one in {t["seat"]: t for t in cell["tenants"]}.values():  # copies of one tenant have the same cost
            if taken := _card_seconds(cell, one, solo):
                key = (cell["stage"], one["seat"], neighbors(seats, one["seat"]))
                by[key].append(ItemCost(taken, _item_joules(cell, one, solo, taken)))
                units[key] = one["unit"]
    return by, units


def _card_seconds(cell: Cell, one: Cell, solo: SoloRates) -> float | None:
    """GPU seconds per item of this tenant in this cell."""
    if len({t["tenant"] for t in cell["tenants"]}) == 1:
        rate = sum(t["rate"] for t in cell["tenants"])
    elif solo.knows(cell):
        rate = sum(solo.progress(cell)) * (solo.rate(cell, one) or 0.0)
    else:
        return None
    return 1 / rate if rate > 0 else None


def _item_joules(cell: Cell, one: Cell, solo: SoloRates, taken: float) -> float | None:
    """Equal tenants share the power by items; others have the same multiple of their energy alone."""
    watts = cell["gpu"].get("watts") or 0.0
    if len({t["tenant"] for t in cell["tenants"]}) == 1:
        return watts * taken if watts > 0 else None
    times, alone = solo.energy_times(cell), solo.joules_alone(cell, one)
    return times * alone if times and alone else None


def _energy(by: dict[Key, list[ItemCost]]) -> dict[Key, Interval]:
    known = {key: [one.joules for one in blocks if one.joules] for key, blocks in by.items()}
    known = {key: values for key, values in known.items() if values}
    return dict(zip(known, geometric_means(list(known.values())), strict=True)) if known else {}


def _limits(name: str, of: str, found: Interval | None, times: float) -> dict[str, float | None]:
    value, low, high = (None, None, None) if found is None else (times * x for x in found)
    return {name + of: value, f"{name}_low": low, f"{name}_high": high}
