"""What sharing did, in numbers that know how sure they are.

Normalised progress NP is a tenant's rate beside others over its rate alone. System throughput STP and average
normalised turnaround ANTT are a pair (Eyerman and Eeckhout, IEEE Micro 28(3), 2008): the one is what the card does,
the other what a tenant feels, and one without the other misleads. Fairness is after Jain, Chiu and Hawe (1984).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetlab._student import student
from fleetlab.bench.histogram import Histogram
from fleetlab.devices.errors import BenchError

Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """A value and where it lies with the confidence asked for."""

    value: float
    low: float
    high: float


def progress(shared: ArrayLike, alone: ArrayLike) -> Floats:
    """NP of each tenant: its rate beside the others over its rate alone."""
    beside, by_itself = np.asarray(shared, float), np.asarray(alone, float)
    if not (
        np.isfinite(beside).all() and np.isfinite(by_itself).all() and (by_itself > 0).all() and (beside >= 0).all()
    ):
        msg = "rates that cannot be compared: alone must be above 0, shared at least 0"
        raise BenchError(msg)
    ratio: Floats = beside / by_itself
    return ratio


def stp(np_: ArrayLike) -> float:
    """System throughput: how many cards' worth of work one card did.

    >>> stp([0.5, 0.6])
    1.1
    """
    return float(_tenants(np_).sum())


def antt(np_: ArrayLike) -> float:
    """Average normalised turnaround time: how many times as long a tenant's work took; infinite if one stood still.

    >>> antt([0.5, 0.25])
    3.0
    """
    with np.errstate(divide="ignore"):
        return float((1 / _tenants(np_)).mean())


def harmonic(np_: ArrayLike) -> float:
    """Harmonic mean of NP: one tenant that starves cannot be made good by the others."""
    return 1 / antt(np_)


def jain(np_: ArrayLike) -> float:
    """Jain's index: 1 if all make the same progress, 1/n if one makes all.

    >>> jain([0.5, 0.5]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    x = _tenants(np_)
    return float(x.sum() ** 2 / (x.size * (x**2).sum())) if x.any() else math.nan


def unfairness(np_: ArrayLike) -> float:
    """The largest slowdown over the smallest; infinite if one stood still."""
    x = _tenants(np_)
    return float(x.max() / x.min()) if x.min() > 0 else math.inf


def _tenants(np_: ArrayLike) -> Floats:
    x = np.asarray(np_, float)
    if x.ndim != 1 or not x.size or not np.isfinite(x).all() or (x < 0).any():
        msg = f"not the progress of tenants: {np_!r}"
        raise BenchError(msg, hint="one number of at least 0 for each")
    return x


# --- percentiles -----------------------------------------------------------------------------------------------------


def enough(p: float, *, confidence: float = 0.95) -> int:
    """The fewest independent samples that carry the quantile `p`, so that both its limits exist.

    >>> enough(0.95), enough(0.99), enough(0.999)
    (59, 299, 2995)
    """
    miss = 1 - confidence
    n = max(1, math.floor(math.log(miss) / math.log(max(p, 1 - p))))
    while p**n + (1 - p) ** n > miss:
        n += 1
    return n


def percentile(times: Histogram, p: float, *, confidence: float = 0.95, worth: float = math.inf) -> Interval:
    """The quantile `p` with limits from order statistics, which ask nothing of the distribution.

    They ask that the times are independent; those of neighbours often are not, and then the limits are too near, unless
    `worth` says as how many independent ones they count. A sample that cannot carry the quantile is refused.
    """
    n = times.n
    if n < (need := enough(p, confidence=confidence)):
        msg = f"n too small for P{100 * p:g}: {n} of {need}"
        raise BenchError(msg, hint="measure longer, or ask for a lower percentile")
    few = n if worth >= n else max(math.floor(worth), need)
    low, high = ranks(few, p, confidence=confidence)
    value = times.at(min(n, math.floor(p * n) + 1))
    return Interval(value, times.at(1 + (low - 1) * n // few), times.at(math.ceil(high * n / few)))


PARTS = 20


def clumping(hits: NDArray[np.bool_]) -> float:
    """How many in a row are worth one independent one; 1 at least.

    Requests that wait in one queue wait alike. Parts of the run in a row tell how much: their shares vary more than
    those of independent requests would, and the ratio of the two variances is what is asked (batch means).

    >>> clumping(np.arange(1000) % 2 == 0), round(clumping(np.arange(1000) < 500))
    (1.0, 53)
    """
    size, share = len(hits) // PARTS, float(hits.mean()) if len(hits) else 0.0
    if size < 2 or share in (0.0, 1.0):
        return 1.0
    parts = hits[: size * PARTS].reshape(PARTS, size).mean(1)
    return max(1.0, float(parts.var(ddof=1)) * size / (share * (1 - share)))


def ranks(n: int, p: float, *, confidence: float = 0.95) -> tuple[int, int]:
    """The ranks between which the quantile `p` of `n` samples lies.

    With B ~ Binomial(n, p) the true quantile is below the sample of rank l with chance P(B < l), and above that of
    rank u with chance P(B >= u). The misses are split evenly unless one side needs more to have a limit at all.
    """
    miss, above, below = 1 - confidence, p**n, (1 - p) ** n
    over = min(max(miss / 2, above), miss - below)
    tail = _binomial_cdf(n, p)  # tail[k] = P(B <= k)
    low = int(np.searchsorted(tail, miss - over, side="right"))  # the largest l with P(B <= l - 1) <= miss - over
    high = int(np.searchsorted(tail, 1 - over - 1e-12)) + 1  # the smallest u with P(B >= u) <= over
    return max(low, 1), min(high, n)


def _binomial_cdf(n: int, p: float) -> Floats:
    k = np.arange(n + 1)
    steps = np.log(np.maximum(n - k[:-1], 1)) - np.log(k[1:]) + math.log(p) - math.log1p(-p)
    logs = np.concatenate(([0.0], np.cumsum(steps))) + n * math.log1p(-p)
    total: Floats = np.minimum(np.cumsum(np.exp(logs)), 1.0)
    return total


# --- intervals over blocks -------------------------------------------------------------------------------------------


def over_blocks(values: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """The mean over blocks with Student's interval: for few blocks, where resampling them is far too sure."""
    x = np.asarray(values, float)
    if x.ndim != 1 or x.size < 2:
        msg = f"an interval over blocks needs at least 2 of them: {x.size}"
        raise BenchError(msg, hint="measure more blocks")
    half = student(x.size - 1, confidence) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return Interval(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half)


def paired_bootstrap(
    blocks: Sequence[ArrayLike],
    statistic: Callable[[Floats], float],
    *,
    seed: int,
    draws: int = 2000,
    confidence: float = 0.95,
) -> Interval:
    """A statistic of per-block values, by resampling whole blocks, so that what was measured together stays together.

    `blocks` has one row a block, such as the NP of every tenant in it; `statistic` takes any selection of rows. The
    limits are bias-corrected and accelerated (Efron, 1987). Below five blocks resampling says little: refused.
    """
    rows = np.asarray(blocks, float)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if len(rows) < 5:
        msg = f"a bootstrap over blocks needs at least 5 of them: {len(rows)}"
        raise BenchError(msg, hint="measure more blocks, or use Student's interval")
    rng = np.random.default_rng(seed)
    seen = statistic(rows)
    drawn = np.sort([statistic(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(draws)])
    low, high = _bca(seen, drawn, rows, statistic, confidence)
    return Interval(seen, low, high)


def _bca(
    seen: float, drawn: Floats, rows: Floats, statistic: Callable[[Floats], float], confidence: float
) -> tuple[float, float]:
    below = (drawn < seen).mean() + 0.5 * (drawn == seen).mean()
    if not 0 < below < 1:
        return float(min(drawn[0], seen)), float(max(drawn[-1], seen))
    bias = _probit(float(below))
    without = np.array([statistic(np.delete(rows, k, axis=0)) for k in range(len(rows))])
    lean = without.mean() - without
    spread = float((lean**2).sum() ** 1.5)
    bend = float((lean**3).sum()) / (6 * spread) if spread else 0.0
    ends = [bias + _probit(q) for q in ((1 - confidence) / 2, (1 + confidence) / 2)]
    low, high = (_normal_cdf(bias + z / (1 - bend * z)) for z in ends)
    return float(np.quantile(drawn, low)), float(np.quantile(drawn, high))


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _probit(q: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(q)


def pooled(groups: Sequence[ArrayLike], *, confidence: float = 0.95) -> list[Interval]:
    """The geometric mean of each group of positive values, its limits from the noise of all groups together.

    Two blocks say little about their own noise, twenty cells of two blocks a lot, if the noise is the same share of
    the value in each: that is what is assumed. Where no group has two values there is no noise to see: limits are NaN.
    """
    logs = [np.log(np.asarray(group, float)) for group in groups]
    freedom = sum(x.size - 1 for x in logs)
    if not freedom:
        return [Interval(float(np.exp(x.mean())), math.nan, math.nan) for x in logs]
    noise = math.sqrt(sum(float(((x - x.mean()) ** 2).sum()) for x in logs) / freedom)
    reach = student(freedom, confidence) * noise
    found = []
    for x in logs:
        middle, half = float(x.mean()), reach / math.sqrt(x.size)
        found.append(Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half)))
    return found
