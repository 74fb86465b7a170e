"""Lanes of a track: slices that overlap are drawn beside each other."""

from __future__ import annotations

import numpy as np

from fleetlab.sim.jit import loop
from fleetlab.sim.layout import Floats, Ints


@loop
def assign_lanes(order: Ints, track: Ints, begin: Floats, end: Floats, lane: Ints) -> None:
    """Give each slice the lowest lane of its track that is free; `order` sorts them by track and begin."""
    ends, used, now = np.zeros(len(order)), 0, -1
    for k in order:
        if track[k] != now:
            now, used = track[k], 0
        chosen = 0
        while chosen < used and ends[chosen] > begin[k]:
            chosen += 1
        used = max(used, chosen + 1)
        ends[chosen], lane[k] = end[k], chosen
