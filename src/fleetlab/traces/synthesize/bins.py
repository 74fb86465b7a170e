"""Quantities in bins that are even by factors: how a published quantile is asked for, and how a value is drawn.

Values are not drawn one by one: those of a pool are ranked by some score, and the ranks are spread over the pool's law.
So the law holds to a part in the pool's size whatever the scores are, and the scores are free to say who is like whom.
"""

from __future__ import annotations

import numpy as np

from fleetlab.traces.synthesize.joint_law import Floats, Ints


def grid(low: float, high: float, bins: int) -> Floats:
    """Edges of bins that are even by factors."""
    return np.geomspace(low, high, bins + 1)


def below(edges: Floats, value: float) -> Floats:
    """Which part of each bin is below `value`."""
    logs = np.log(edges)
    part: Floats = np.clip((np.log(value) - logs[:-1]) / np.diff(logs), 0.0, 1.0)
    return part


def means(edges: Floats) -> Floats:
    """The mean of each bin."""
    mean: Floats = np.diff(edges) / np.diff(np.log(edges))
    return mean


def summed(at: Ints, weight: Floats | Ints, size: int = 0) -> Floats:
    """The sum of the weights at each place."""
    return np.asarray(np.bincount(at, weights=weight.astype(np.float64), minlength=size), dtype=np.float64)


def ranked(pool: Ints, score: Floats) -> Floats:
    """Where each stands in its pool by score, evenly over (0, 1)."""
    order = np.lexsort((score, pool))
    sizes = np.bincount(pool)
    first = np.cumsum(sizes) - sizes
    place = np.empty(len(pool))
    place[order] = np.arange(len(pool)) - first[pool[order]] + 0.5
    return np.asarray(place / sizes[pool])


def drawn(law: Floats, edges: Floats, pool: Ints, at: Floats) -> tuple[Floats, Ints]:
    """The value at quantile `at` of its pool's law, and the bin that it is in."""
    pools, bins = law.shape
    total = law.sum(axis=1, keepdims=True)
    # A pool that the law has no jobs in is drawn from what all pools say together.
    share = np.where(total > 0, law / np.where(total > 0, total, 1), law.sum(axis=0) / law.sum())
    upto = np.cumsum(share, axis=1)
    upto /= upto[:, -1:]
    flat = (upto + np.arange(pools)[:, None]).ravel()
    bin = np.clip(np.searchsorted(flat, pool + at, side="right") - pool * bins, 0, bins - 1)
    part = np.clip(1 - (upto[pool, bin] - at) / np.maximum(share[pool, bin], 1e-300), 0.0, 1.0)
    logs = np.log(edges)
    return np.exp(logs[bin] + part * (logs[bin + 1] - logs[bin])), bin
