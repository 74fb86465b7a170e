"""What each tenant does alone, which all progress is measured against."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fleetlab.bench.results.cells import Cell, part, timed


class Solo:
    """Rates of whole cards, by stage and block, and by mode where a block has none of its own."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._own: dict[tuple[Any, ...], float] = {}
        many: dict[tuple[str, str], list[float]] = defaultdict(list)
        for c in cells:
            one = c["tenants"][0] if len(c["tenants"]) == 1 else None
            if one is not None and not part([one]) and not timed(one) and one["rate"] > 0:
                self._own[c["stage"], c["block"], one["tenant"]] = one["rate"]
                many[c["mode"], one["tenant"]].append(one["rate"])
        self._mode = {key: sum(rates) / len(rates) for key, rates in many.items()}

    def rate(self, cell: Cell, one: Cell) -> float | None:
        """What a tenant of this cell does alone; None where that was not measured, or where it has a timetable."""
        if timed(one):
            return None
        own = self._own.get((cell["stage"], cell["block"], one["tenant"]))
        return own or self._mode.get((cell["mode"], one["tenant"]))

    def knows(self, cell: Cell) -> bool:
        """Can all of its tenants be compared?"""
        return all(self.rate(cell, one) for one in cell["tenants"])

    def progress(self, cell: Cell) -> list[float]:
        """Normalised progress of each tenant; not a number where it cannot be compared."""
        return [one["rate"] / (self.rate(cell, one) or math.nan) for one in cell["tenants"]]
