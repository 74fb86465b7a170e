"""Isotonic regression: values that can only rise, from ones that scatter."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fleetlab.stats.intervals import Floats


def isotonic(values: ArrayLike, weights: ArrayLike) -> Floats:
    """Return the rising values that are nearest to some, by weighted least squares (pool adjacent violators).

    Parameters
    ----------
    values
        In the order in which they should rise, such as shares of replicas that meet a goal by number of nodes.
    weights
        How much each counts, such as the number of replicas.

    Returns
    -------
    numpy.ndarray
        As many values: the mean of each run of values that fall.

    Examples
    --------
    >>> isotonic([0.0, 0.6, 0.4, 1.0], [1, 1, 1, 1]).tolist()
    [0.0, 0.5, 0.5, 1.0]

    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, values
    for mean, weight in np.column_stack([np.asarray(values, float), np.asarray(weights, float)]).tolist():
        block = mean, weight, 1
        while blocks and blocks[-1][0] >= block[0]:
            before = blocks.pop()
            total = before[1] + block[1]
            block = (before[0] * before[1] + block[0] * block[1]) / total, total, before[2] + block[2]
        blocks.append(block)
    return np.repeat([mean for mean, _, _ in blocks], [count for *_, count in blocks])
