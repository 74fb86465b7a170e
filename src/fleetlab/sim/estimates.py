"""The numbers of a run with their replicates, from which intervals and paired differences follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetlab.stats import BlockBootstrap, Floats, Replicates

QUANTILES = (0.5, 0.9, 0.99)
FEWEST = 20  # users: with fewer, fairness has no interval
RESAMPLES = 400  # of users


def distribution(name: str, values: Floats, blocks: BlockBootstrap) -> dict[str, Replicates]:
    """Return the mean, P50, P90 and P99 of a value of each job."""
    quantiles = blocks.quantiles(values, QUANTILES)
    named = {f"P{100 * q:.0f} {name}": replicates for q, replicates in zip(QUANTILES, quantiles, strict=True)}
    return {f"mean {name}": blocks.means(values), **named}


def jain(values: Sequence[float] | Floats) -> float:
    """Return Jain's fairness index: 1 where all have the same, 1/n where one of n has everything.

    >>> jain([1.0, 1.0, 1.0]), jain([3.0, 0.0, 0.0])
    (1.0, 0.3333333333333333)
    """
    return float(fairness(np.asarray(values, dtype=np.float64)).values[0])


def fairness(values: Floats) -> Replicates:
    """Return Jain's index over users, who are resampled: the interval holds for other users like these."""
    users = BlockBootstrap.of_units(np.arange(len(values)), len(values), resamples=RESAMPLES)
    weights = users.weights if len(values) >= FEWEST else users.weights[:1]
    count, total, squares = (weights @ x for x in (np.ones(len(values)), values, values**2))
    index = np.divide(total**2, count * squares, out=np.ones(len(weights)), where=squares > 0)
    return users.replicates(index)
