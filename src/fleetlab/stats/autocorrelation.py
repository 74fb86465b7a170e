"""How much longer a mean takes to settle because neighboring values are alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetlab.stats.intervals import Floats

# The correlation of neighboring blocks that is assumed at most: it leaves a fifth of the blocks as independent ones. A
# queue that only grows shows a higher one, and no amount of stretching makes a long-run mean of it.
MOST = 2 / 3


def variance_inflation(values: Floats) -> float:
    """Return by how much autocorrelation raises the variance of the mean of values in order of time; at least 1.

    The values are block means, whose autocorrelation falls off like that of an AR(1) process: (1 + ρ)/(1 − ρ), with the
    correlation of neighbors corrected for its bias in short series (Kendall 1954).

    >>> round(variance_inflation(np.tile([1.0, 2.0], 20)), 2), round(variance_inflation(np.arange(40.0)), 2)
    (1.0, 5.0)
    """
    return float(variance_inflations(values[:, None])[0])


def variance_inflations(columns: Floats) -> Floats:
    """Return the same of each column."""
    n = len(columns)
    deviations = columns - columns.mean(axis=0)
    total = (deviations**2).sum(axis=0)
    known = (total > 0) & np.isfinite(total)
    lag_1 = np.divide((deviations[1:] * deviations[:-1]).sum(axis=0), total, out=np.zeros(len(total)), where=known)
    rho = np.where(known & (n > 2), np.clip(lag_1 + (1 + 4 * lag_1) / max(n, 1), 0.0, MOST), 0.0)
    return np.asarray((1 + rho) / (1 - rho))


def cluster_effect(clusters: Sequence[Sequence[bool]]) -> float | None:
    """Return how many events of clusters carry the information of one independent event; None of a single cluster.

    The variance of a share over clusters, as a ratio of sums, over that of independent events (Kish 1965); at least 1.

    >>> round(cluster_effect([[True, True], [False, False]] * 5), 2), cluster_effect([[True, False]] * 10)
    (2.22, 1.0)
    """
    sizes, hits = (np.array([f(c) for c in clusters], float) for f in (len, sum))
    n, many = float(sizes.sum()), len(clusters)
    if many < 2:
        return None
    share = float(hits.sum()) / n
    if share in (0.0, 1.0):
        return 1.0
    between = many / (many - 1) * float(((hits - share * sizes) ** 2).sum()) / n**2
    return max(1.0, between * n / (share * (1 - share)))


def design_effect(hits: np.ndarray, parts: int = 20) -> float:
    """Return how many neighboring events carry the information of one independent event; at least 1.

    Shares of parts of the run vary more than those of independent events would: the ratio of both variances.

    >>> design_effect(np.arange(1000) % 2 == 0), round(design_effect(np.arange(1000) < 500))
    (1.0, 53)
    """
    size, share = len(hits) // parts, float(hits.mean()) if len(hits) else 0.0
    if size < 2 or share in (0.0, 1.0):
        return 1.0
    shares = hits[: size * parts].reshape(parts, size).mean(1)
    return max(1.0, float(shares.var(ddof=1)) * size / (share * (1 - share)))
