"""Intervals that hold what they promise: as wide as the model's own misses, and corrected by every step that comes.

The first width is that of split conformal prediction: the quantile of the misses on past folds. Then it follows the
series: after a miss it grows, after a hit it shrinks a little, so that misses come as often as promised whatever the
series does (Gibbs and Candès 2021; Angelopoulos, Candès and Tibshirani 2023). It is the logarithm of the width that
moves, so the pace does not depend on units: over T steps the share of misses is off by at most the change of that
logarithm over `PACE` T.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.forecast.panel import Floats

LEVELS = (0.8, 0.95)
PACE = 0.1
TINY = 1e-5  # of a series' mean: a width from which it can still grow


class Widths(NamedTuple):
    """Half widths of the intervals of each origin, and those after the last."""

    each: Floats  # [levels, origins, horizon, series]
    last: Floats  # [levels, horizon, series]


def split(missed: Floats, level: float) -> Floats:
    """The half width that held so many of the misses [origins, horizon, series], and one more to come.

    >>> split(np.arange(1.0, 20.0).reshape(19, 1, 1), 0.8).item()
    16.0
    """
    count = len(missed)
    rank = min(count, int(np.ceil((count + 1) * level)))
    return np.asarray(np.sort(missed, axis=0)[rank - 1])


def follow(before: Floats, missed: Floats, scale: Floats) -> Widths:
    """Widths for a stretch of origins in a row, of which `missed` tells how far off each turned out to be.

    `before` are misses of origins that are over. The miss of an origin at step h is known h steps later: not sooner.
    """
    count, horizon, series = missed.shape
    width = np.stack([split(before, level) for level in LEVELS])
    each = np.empty((len(LEVELS), count, horizon, series))
    out = np.zeros((count, len(LEVELS), horizon, series), dtype=bool)
    promised = 1 - np.array(LEVELS)[:, None, None]
    steps = np.arange(horizon)
    for t in range(count + 1):
        decided = t - 1 - steps  # the origin whose miss at each step ahead has just become known
        late = out[np.maximum(decided, 0), :, steps].transpose(1, 0, 2)
        moved = width * np.exp(PACE * (late - promised))
        width = np.maximum(np.where((decided >= 0)[None, :, None], moved, width), TINY * scale)
        if t < count:
            each[:, t], out[t] = width, missed[t] > width
    return Widths(each, width)
