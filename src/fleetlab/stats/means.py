"""Means, differences and ratios of values that are independent, or follow each other in time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fleetlab.stats.intervals import ANY, CONFIDENCE, Floats, Interval, Range, Statistic, no_interval, student_quantile

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
    varies = (total > 0) & np.isfinite(total)
    lag_1 = np.divide((deviations[1:] * deviations[:-1]).sum(axis=0), total, out=np.zeros(len(total)), where=varies)
    rho = np.where(varies & (n > 2), np.clip(lag_1 + (1 + 4 * lag_1) / max(n, 1), 0.0, MOST), 0.0)
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


BATCHES = 40
LEAST = 200  # values: with fewer, no interval is given


def mean_of_runs(values: ArrayLike, within: Range = ANY) -> Statistic:
    """Return the mean of one value a run, where runs are independent (Student).

    >>> [round(x, 2) for x in mean_of_runs([1.0, 2.0, 3.0]).interval()]
    [2.0, -0.48, 4.48]
    """
    x = np.asarray(values, dtype=np.float64)
    error = float(x.std(ddof=1)) / len(x) ** 0.5 if len(x) > 1 else math.nan
    return Statistic.symmetric(float(x.mean()) if len(x) else math.nan, error, len(x) - 1, within)


def batch_means(values: Floats, within: Range = ANY) -> Statistic:
    """Return the mean of values in order of time by batch means.

    Batches of long-range correlated values are still alike, so the variance is inflated by the autocorrelation of the
    batch means, and the degrees of freedom fall as much. With fewer than 200 values there is no standard error.
    """
    value = float(values.mean()) if len(values) else math.nan
    if len(values) < LEAST:
        return Statistic.symmetric(value, math.nan, 0, within)
    batches = np.array([part.mean() for part in np.array_split(values, BATCHES)])
    inflation = variance_inflation(batches)
    error = float(batches.std(ddof=1)) * math.sqrt(inflation / BATCHES)
    return Statistic.symmetric(value, error, degrees_of_freedom(BATCHES, inflation), within)


def degrees_of_freedom(blocks: int, inflation: float) -> float:
    """Return those of a variance over so many blocks that are worth fewer independent ones; in tenths, for a cache."""
    return max(1.0, math.floor(10 * (blocks / inflation - 1)) / 10)


def control_variates(values: Floats, controls: Floats) -> Statistic:
    """Return the mean over runs at controls of zero, by least squares.

    `controls` has a row a run and a column a control, each with expectation zero; the variance that they explain is
    removed (Lavenberg and Welch 1981).
    """
    columns = np.column_stack([np.ones(len(values)), controls])
    coefficients = np.linalg.lstsq(columns, values, rcond=None)[0]
    residuals = values - columns @ coefficients
    df = len(values) - columns.shape[1]
    variance = float(residuals @ residuals) / df * float(np.linalg.pinv(columns.T @ columns)[0, 0])
    return Statistic.symmetric(float(coefficients[0]), variance**0.5, df)


def pool(runs: Sequence[Statistic]) -> Statistic:
    """Return one statistic for several runs, from the variance within and between them (Rubin 1987).

    Degrees of freedom are those of Barnard and Rubin (1999). Where one run has no standard error, the result has none.
    """
    m, value = len(runs), float(np.mean([run.value for run in runs]))
    if m == 1:
        return runs[0]
    below, above = (float(np.mean([getattr(run, side) ** 2 for run in runs])) for side in ("below", "above"))
    df, within = min(run.df for run in runs), (below + above) / 2
    if not math.isfinite(value + within) or df <= 0:
        return Statistic(value, math.sqrt(below), math.sqrt(above), df, runs[0].within)
    between = (1 + 1 / m) * float(np.var([run.value for run in runs], ddof=1))
    if between:
        missing = between / (within + between)
        observed = (df + 1) / (df + 3) * df * (1 - missing)
        rubin = (m - 1) / missing**2
        df = observed * rubin / (observed + rubin) if observed else rubin
    df = max(1.0, round(df, 1))
    return Statistic(value, math.sqrt(below + between), math.sqrt(above + between), df, runs[0].within)


def geometric_means(groups: Sequence[ArrayLike], *, confidence: float = CONFIDENCE) -> list[Interval]:
    """Return the geometric mean of each group of positive values, with limits from the variance of all groups.

    Two values say little about their own variance, twenty groups of two a lot, if the variance relative to the mean is
    the same in each: that is assumed. Where no group has two values, limits are NaN.
    """
    logs = [np.log(np.asarray(group, float)) for group in groups]
    df = sum(x.size - 1 for x in logs)
    if not df:
        return [no_interval(math.exp(x.mean())) for x in logs]
    noise = math.sqrt(sum(float(((x - x.mean()) ** 2).sum()) for x in logs) / df)
    reach = student_quantile((1 + confidence) / 2, df) * noise
    middles = [(float(x.mean()), reach / math.sqrt(x.size)) for x in logs]
    return [Interval(*(math.exp(x) for x in (middle, middle - half, middle + half))) for middle, half in middles]


def weighted_mean(values: Floats, weights: Floats) -> Interval:
    """Return the mean of independent weighted values with Student's interval for their effective number."""
    total, size = float(weights.sum()), effective_size(weights)
    if not total:
        return no_interval()
    value = float(values @ weights) / total
    if size < 2:
        return no_interval(value)
    variance = float(((values - value) ** 2) @ weights) / total * size / (size - 1)
    mean = Statistic.symmetric(value, (variance / size) ** 0.5, max(1, int(size) - 1))
    return mean.interval().clipped((float(values.min()), float(values.max())))


def effective_size(weights: Floats) -> float:
    """Return how many equally weighted values carry as much information: (Σw)²/Σw² (Kish 1965)."""
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares else 0.0
