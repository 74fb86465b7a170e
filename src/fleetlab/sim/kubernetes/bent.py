"""The bent line of RequestedToCapacityRatio."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fleetlab.core.kubernetes import Shape
from fleetlab.sim.kubernetes.state import Ints

BEST = 100  # the highest score of a plugin


def bent(shape: Shape, share: Ints) -> Ints:
    """The value of a bent line at each share; constant before its first point and after its last."""
    points = [(at, score * (BEST // 10)) for at, score in shape.points]
    found = np.full(len(share), points[-1][1], np.int64)
    for (left, low), (right, high) in reversed(list(pairwise(points))):
        rise = (high - low) * (share - left)
        on_line = low + np.sign(rise) * (np.abs(rise) // (right - left))  # toward zero, also where it falls
        found = np.where(share <= right, on_line, found)
    return np.where(share <= points[0][0], points[0][1], found)
