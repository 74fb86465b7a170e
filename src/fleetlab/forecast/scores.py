"""How far off forecasts were, and how sure that is.

NRMSE is the root of the mean squared miss over the mean of what came. The 2025 study does not print its formula; this
is the one that fits its numbers (see docs/measurements/forecast.md). MASE is the mean absolute miss over that of the
last value, one step ahead, in what was learnt from (Hyndman and Koehler 2006); WAPE is the sum of absolute misses over
the sum of what came; pinball is the mean over the quantiles 2.5, 10, 50, 90 and 97.5 %, over the mean of what came.

Misses are autocorrelated, so intervals come from the block bootstrap over origins; both models of a pair share the
resamples.
"""

from __future__ import annotations

import numpy as np

from fleetlab.forecast.conformal import LEVELS
from fleetlab.forecast.panel import Floats
from fleetlab.stats import POSITIVE, SHARE, BlockBootstrap, Interval, Range, divide

SKILL: Range = (-np.inf, 1.0)


def nrmse(blocks: BlockBootstrap, missed: Floats, came: Floats) -> Interval:
    """Return the root mean square miss over the mean of what came."""
    squares, sums, counts = (blocks.totals(blocks.sums(x)) for x in (missed**2, came, np.ones(len(came))))
    return blocks.replicates(divide(np.sqrt(divide(squares, counts)), divide(sums, counts))).interval(POSITIVE)


def skill(blocks: BlockBootstrap, missed: Floats, other: Floats) -> Interval:
    """Return by which share the root mean square miss is smaller than another's."""
    mine, theirs = (blocks.totals(blocks.sums(x**2)) for x in (missed, other))
    return blocks.replicates(1 - np.sqrt(divide(mine, theirs))).interval(SKILL)


def probability_better(blocks: BlockBootstrap, missed: Floats, other: Floats) -> float:
    """Return the probability that the mean square miss is smaller than another's."""
    return blocks.mean(missed**2 - other**2).probability_below(0.0)


def ratio(blocks: BlockBootstrap, top: Floats, bottom: Floats) -> Interval:
    """Return one sum over another, neither of them negative."""
    return blocks.ratio(blocks.sums(top), blocks.sums(bottom), POSITIVE).interval()


def share(blocks: BlockBootstrap, hits: Floats) -> Interval:
    """Return the mean of what is 0 or 1."""
    return blocks.mean(hits, SHARE).interval()


def pinball(came: Floats, forecasts: Floats, widths: Floats) -> Floats:
    """Each origin's mean loss over the quantiles that forecast and intervals are; `widths` are [levels, origins]."""
    ends = [(q, np.maximum(forecasts + side * w, 0.0)) for level, w in zip(LEVELS, widths, strict=True)
            for side, q in ((-1, (1 - level) / 2), (1, (1 + level) / 2))]  # fmt: skip
    losses = [np.maximum(q * (came - end), (q - 1) * (came - end)) for q, end in [(0.5, forecasts), *ends]]
    return np.asarray(np.mean(losses, axis=0))
