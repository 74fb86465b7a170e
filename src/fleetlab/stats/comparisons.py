"""Many comparisons at once: each must be surer than 95 % for all of them to hold together."""

from __future__ import annotations

from fleetlab.stats.intervals import CONFIDENCE


def bonferroni(comparisons: int, confidence: float = CONFIDENCE) -> float:
    """Return the confidence that each of several intervals needs so that all hold together.

    >>> bonferroni(5)
    0.99
    """
    return 1 - (1 - confidence) / max(1, comparisons)


def allowed_misses(intervals: int, *, confidence: float = CONFIDENCE, sure: float = 0.999) -> int:
    """Return how many of so many valid intervals miss the truth at most, with probability `sure` (binomial).

    >>> allowed_misses(48)
    8
    """
    miss = 1 - confidence
    chance, total, k = confidence**intervals, 0.0, 0
    while (total := total + chance) < sure:
        chance *= (intervals - k) / (k + 1) * miss / confidence
        k += 1
    return k


def spent_at_look(look: int, error: float) -> float:
    """Return the error probability to spend on the k-th look at growing data, counted from 1: error/(k(k + 1)).

    The sum over all looks there could ever be is `error` (Bonferroni over time, an α-spending function).
    """
    return error / (look * (look + 1))
