"""Evidence from replicas: one number of each replica of a run, or the difference of a pair; an interval and a verdict.

A replica is the same log nudged (scope *this log*), or another log of the same kind. The mean over replicas estimates
the mean over all nudges, with Student's interval, which is wider by the skewness of the replicas over √K: without that
it covers 88 % where a queue grows as long as jobs come. Days of one log that are drawn again differ from that log as it
differs from other logs: there the spread between replicas is what is not known of the mean, however many are drawn, and
more replicas only remove their own noise: (1 + 1/K) times the variance (Rubin 1987, with nothing known within a draw).
A log whose waiting comes from a few busy hours says little of that spread. So Student's degrees of freedom are at most
one less than the number of blocks of time that would say as much, if all had as much waiting; below two blocks there
is no interval.

There is *no difference* where the 90 % interval is within a margin (two one-sided tests); a difference is *better* or
*worse* where nine in ten replicas have its sign and its 95 % interval excludes zero; else it is *not decided*. The
margin comes first: a difference of 2 % would else be worse by one draw of the replicas and none by another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fleetlab.stats.intervals import ANY, CONFIDENCE, Range, Statistic, bonferroni
from fleetlab.stats.means import effective_size

BETTER: Literal["better"] = "better"
WORSE: Literal["worse"] = "worse"
NO_DIFFERENCE: Literal["no difference"] = "no difference"
NOT_DECIDED: Literal["not decided"] = "not decided"
Verdict = Literal["better", "worse", "no difference", "not decided"]

SIGNS = 0.9  # share of the replicas that have the sign of the difference
MARGIN = 0.05  # of the baseline: a smaller difference is none
LEAST_BLOCKS = 2.0  # of a log, or weeks, that say what others are like: fewer have no spread
EARLY = 0.99  # confidence of a verdict that ends a study before its last look: looking often finds chance
DRAWS = 4000  # of all means, for the probability of being first


def over_replicas(
    values: ArrayLike, within: Range = ANY, *, blocks: float | None = None, levels: ArrayLike | None = None
) -> Statistic:
    """Return the mean over replicas with its standard error.

    Parameters
    ----------
    values
        One number a replica.
    within
        The range of possible values, in which the interval stays.
    blocks
        Where replicas are drawn again from one log, to speak of others: the effective number of its blocks of time.
    levels
        Where replicas are independent, such as weeks: the mean wait of each. Where one has nearly all, it is as if
        there were few: the degrees of freedom are those of their effective number, and below two there is no interval.

    Returns
    -------
    Statistic
        Without a standard error for a single replica, and for a log of fewer than two blocks.

    Examples
    --------
    >>> [round(x, 2) for x in over_replicas([1.0, 2.0, 3.0]).interval()]
    [2.0, -0.48, 4.48]
    >>> [round(x, 2) for x in over_replicas([1.0, 2.0, 3.0], blocks=20).interval()]
    [2.0, -2.97, 6.97]
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    count = len(x)
    if count < 2:
        return Statistic.symmetric(float(x[0]) if count else math.nan, math.nan, 0, within)
    deviation = float(x.std(ddof=1))
    if blocks is not None:
        freedom = min(count, blocks) - 1 if blocks >= LEAST_BLOCKS else 0
        return Statistic.symmetric(float(x.mean()), deviation * math.sqrt(1 + 1 / count), freedom, within)
    skewness = float(((x - x.mean()) ** 3).mean()) / deviation**3 if deviation else 0.0
    error = deviation / math.sqrt(count) * (1 + abs(skewness) / math.sqrt(count))
    several = count if levels is None else min(count, effective_size(np.asarray(levels, dtype=np.float64)))
    return Statistic.symmetric(float(x.mean()), error, several - 1 if several >= LEAST_BLOCKS else 0, within)


def verdict(
    differences: ArrayLike,
    baseline: float,
    *,
    lower_is_better: bool = True,
    blocks: float | None = None,
    levels: ArrayLike | None = None,
    confidence: float = CONFIDENCE,
    margin: float = MARGIN,
) -> Verdict:
    """Return what paired replicas say of a change.

    Parameters
    ----------
    differences
        The change minus the baseline, one number a replica.
    baseline
        The mean over replicas of the baseline, which the margin is a share of.
    lower_is_better
        Whether a negative difference is better, as of a wait.
    blocks, levels
        As `over_replicas` takes them.
    confidence
        Of the interval that excludes zero; `bonferroni` where several hold together.
    margin
        A difference of less than this share of the baseline is none.

    Returns
    -------
    str
        better, worse, no difference or not decided; a single replica decides only where nothing changed.

    Examples
    --------
    >>> verdict([-9.0, -10.0, -12.0, -10.0, -11.0], 80.0), verdict([0.0, 0.1, -0.1, 0.0, 0.1], 80.0)
    ('better', 'no difference')
    >>> verdict([-9.0, 10.0, -12.0, 10.0, -11.0], 80.0)
    'not decided'
    """
    x = np.asarray(differences, dtype=np.float64)
    x = x[~np.isnan(x)]
    if len(x) and not x.any() and (blocks is None or blocks >= LEAST_BLOCKS):
        return NO_DIFFERENCE
    mean = over_replicas(x, blocks=blocks, levels=levels)
    low, high = mean.interval(2 * confidence - 1)[1:]  # two one-sided tests
    if -margin * abs(baseline) < low and high < margin * abs(baseline):
        return NO_DIFFERENCE
    for sign in (-1, 1):
        clear = mean.interval(confidence)
        limit = clear.high if sign < 0 else -clear.low
        if limit < 0 and float((sign * x > 0).mean()) >= SIGNS:
            return BETTER if (sign < 0) == lower_is_better else WORSE
    return NOT_DECIDED


def is_decided(
    differences: ArrayLike,
    baseline: float,
    *,
    blocks: float | None = None,
    comparisons: int = 1,
    margin: float = MARGIN,
) -> bool:
    """Return whether more replicas would hardly change the verdict: it holds with a confidence of 99 % too."""
    confidence = max(EARLY, bonferroni(comparisons))
    return verdict(differences, baseline, blocks=blocks, confidence=confidence, margin=margin) != NOT_DECIDED


def chances_of_first(
    values: Mapping[str, ArrayLike], *, lowest: bool = True, blocks: float | None = None
) -> dict[str, float]:
    """Return with which probability each of several has the best mean over replicas.

    The replicas are paired: the k-th number of each is of the same replica. Means are drawn from Student's distribution
    of several variables, so that of two the probability is that of a paired t-test. `blocks` is as in `over_replicas`.

    >>> chances_of_first({"a": [1.0, 2.0, 3.0], "b": [2.0, 3.0, 4.0]})
    {'a': 1.0, 'b': 0.0}
    """
    table = np.array([np.asarray(x, dtype=np.float64) for x in values.values()])
    table = np.where(np.isnan(table), np.inf, table if lowest else -table)
    means, count = table.mean(axis=1, keepdims=True), table.shape[1]
    if count > 1 and np.isfinite(table).all():
        rng = np.random.default_rng(0)
        freedom = count - 1 if blocks is None else max(min(count, blocks), LEAST_BLOCKS) - 1
        several = 1 / count if blocks is None else 1 + 1 / count
        scale = np.sqrt(several * freedom / rng.chisquare(freedom, DRAWS) / (count - 1))
        means = means + (table - means) @ rng.standard_normal((count, DRAWS)) * scale
    best = np.isclose(means, means.min(axis=0), rtol=1e-12)
    return dict(zip(values, (best / best.sum(axis=0)).mean(axis=1).round(3).tolist(), strict=True))
