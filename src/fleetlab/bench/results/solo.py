"""Rates of tenants alone, the baseline of progress."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fleetlab.bench.results.cells import Cell, has_part, is_open_loop


class SoloRates:
    """Rates alone on a whole GPU, by stage and block, or by mode if a block has none."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._own: dict[tuple[Any, ...], float] = {}
        many: dict[tuple[str, str], list[float]] = defaultdict(list)
        for c in cells:
            one = c["tenants"][0] if len(c["tenants"]) == 1 else None
            if one is not None and not has_part([one]) and not is_open_loop(one) and one["rate"] > 0:
                self._own[c["stage"], c["block"], one["tenant"]] = one["rate"]
                many[c["mode"], one["tenant"]].append(one["rate"])
        self._mode = {key: sum(rates) / len(rates) for key, rates in many.items()}

    def rate(self, cell: Cell, one: Cell) -> float | None:
        """The rate alone of a tenant of this cell; None if it was not measured, or in an open loop."""
        if is_open_loop(one):
            return None
        own = self._own.get((cell["stage"], cell["block"], one["tenant"]))
        return own or self._mode.get((cell["mode"], one["tenant"]))

    def knows(self, cell: Cell) -> bool:
        """Whether all of its tenants have a baseline."""
        return all(self.rate(cell, one) for one in cell["tenants"])

    def progress(self, cell: Cell) -> list[float]:
        """Normalized progress of each tenant; NaN without a baseline."""
        return [one["rate"] / (self.rate(cell, one) or math.nan) for one in cell["tenants"]]
