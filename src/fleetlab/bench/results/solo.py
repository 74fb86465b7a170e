"""Rates of tenants alone, the baseline of progress."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fleetlab.bench.results.cells import Cell, has_part, is_open_loop
from fleetlab.bench.results.energy import energy_times


class SoloRates:
    """Rates and watts alone on a whole GPU, by stage and block, or by mode if a block has none."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._own: dict[tuple[Any, ...], float] = {}
        many: dict[tuple[str, str], list[float]] = defaultdict(list)
        power: dict[tuple[str, str], list[float]] = defaultdict(list)
        for c in cells:
            one = c["tenants"][0] if len(c["tenants"]) == 1 else None
            if one is not None and not has_part([one]) and not is_open_loop(one) and one["rate"] > 0:
                self._own[c["stage"], c["block"], one["tenant"]] = one["rate"]
                many[c["mode"], one["tenant"]].append(one["rate"])
                power[c["mode"], one["tenant"]] += [c["gpu"]["watts"]] if (c["gpu"].get("watts") or 0) > 0 else []
        self._mode = {key: sum(rates) / len(rates) for key, rates in many.items()}
        self._watts = {key: sum(watts) / len(watts) for key, watts in power.items() if watts}

    def rate(self, cell: Cell, one: Cell) -> float | None:
        """The rate alone of a tenant of this cell; None if it was not measured, or in an open loop."""
        if is_open_loop(one):
            return None
        own = self._own.get((cell["stage"], cell["block"], one["tenant"]))
        return own or self._mode.get((cell["mode"], one["tenant"]))

    def energy_times(self, cell: Cell) -> float | None:
        """Energy of a cell relative to alone; None if a tenant has no baseline, or no counter was read."""
        watts = [self._watts.get((cell["mode"], one["tenant"])) for one in cell["tenants"]]
        return energy_times(cell["gpu"].get("watts"), zip(self.progress(cell), watts, strict=True))

    def joules_alone(self, cell: Cell, one: Cell) -> float | None:
        """Energy of an item of a tenant of this cell, alone."""
        rate, watts = self.rate(cell, one), self._watts.get((cell["mode"], one["tenant"]))
        return watts / rate if rate and watts else None

    def knows(self, cell: Cell) -> bool:
        """Whether all of its tenants have a baseline."""
        return all(self.rate(cell, one) for one in cell["tenants"])

    def progress(self, cell: Cell) -> list[float]:
        """Normalized progress of each tenant; NaN without a baseline."""
        return [one["rate"] / (self.rate(cell, one) or math.nan) for one in cell["tenants"]]
