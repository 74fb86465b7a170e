"""Jobs that are submitted one after the other run alike: how much, and what that tells of those that have not ended.

Users submit batches, and a batch is much longer or shorter than others of its class. If each job is drawn by itself,
the lengths of a hundred waiting jobs cancel out, and a queue seems better known than it is. So each batch has a level,
which all of its jobs share: in normal scores of the share of the class that a job outlives, w = level + own part, where
levels have the variance `alike` and follow each other with the correlation `next` (a Gaussian copula with one factor).
Some jobs are not like their batch, such as those that fail at once: a share of `ODD` is drawn from the whole class.
What has ended of a batch, and how long the rest has run, tells its level; levels are drawn given that, by forward
filtering and backward sampling over a grid (Carter and Kohn 1994; Scott 2002).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from fleetlab.core.censoring import Bools, Floats
from fleetlab.core.resample import Ints

GAP = 60.0  # s between submissions of one batch, at most
KEPT = 64  # batches of a class that are looked at, the latest
GRID = 31  # levels
WIDTH = 3.2  # standard deviations that the grid reaches to each side
ODD = 0.2
PAIRS = 30  # pairs of jobs that count as if batches were not alike
MOST = 0.95  # correlation
_Z = np.linspace(-8.0, 8.0, 8001)
_P = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in _Z])


def normal(score: Floats) -> Floats:
    """Return the share of a normal distribution below a score.

    >>> normal(np.array([0.0, 1.959964])).round(3).tolist()
    [0.5, 0.975]
    """
    return np.asarray(np.interp(score, _Z, _P))


def score(share: Floats) -> Floats:
    """Return the score that a share of a normal distribution is below."""
    return np.asarray(np.interp(share, _P, _Z))


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Jobs of one or more classes: the score of the share that outlives them, as they ended or as far as they have run.

    Of a job that waits the score is that of the whole share, which says nothing.
    """

    kind: Ints  # the class of each, from 0
    submit: Floats
    score: Floats
    ended: Bools

    @classmethod
    def joined(cls, parts: Sequence[Seen]) -> Seen:
        """Return the jobs of several classes."""
        names = [one.name for one in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def batches(self) -> tuple[Ints, Ints]:
        """Return the jobs in the order of class and submission, and the batch of each, from 0 in its class."""
        order = np.lexsort((self.submit, self.kind))
        kind, submit = self.kind[order], self.submit[order]
        first = np.diff(kind, prepend=-1) > 0
        batch = np.cumsum(first | (np.diff(submit, prepend=-np.inf) > GAP))
        return order, batch - np.repeat(batch[first], np.diff(np.append(np.flatnonzero(first), len(kind))))


@dataclass(frozen=True, slots=True)
class Likeness:
    """Correlation of jobs of a batch, and of a batch and the next of its class."""

    alike: float
    next: float

    @classmethod
    def of(cls, seen: Seen, order: Ints, batch: Ints) -> Likeness:
        """Estimate both from pairs of jobs that ended, one submitted after the other."""
        ended = seen.ended[order]
        kind, level, own = seen.kind[order][ended], batch[ended], seen.score[order][ended]
        product, together = own[1:] * own[:-1], kind[1:] == kind[:-1]
        same = together & (level[1:] == level[:-1])
        other = together & ~same
        # Both of a pair are like their batches in so many cases.
        like = (1 - ODD) ** 2
        alike = float(np.clip(product[same].sum() / (same.sum() + PAIRS) / like, 0.0, MOST))
        between = float(np.clip(product[other].sum() / (other.sum() + PAIRS) / like, 0.0, MOST))
        return cls(max(alike, between), min(between / max(alike, between, 1e-9), MOST))

    @property
    def own(self) -> float:
        """The standard deviation of a job's own part."""
        return math.sqrt(1.0 - self.alike)


def levels(seen: Seen, wanted: Ints, draws: int, rng: np.random.Generator) -> tuple[Floats, Likeness]:
    """Return the level of the batch of each wanted job, as often as it is drawn: [wanted, draws]."""
    order, batch = seen.batches()
    alike = Likeness.of(seen, order, batch)
    kinds = int(seen.kind.max(initial=0)) + 1
    last = np.zeros(kinds, dtype=np.int64)
    np.maximum.at(last, seen.kind[order], batch)
    slot = np.empty(len(order), dtype=np.int64)  # the latest batch of a class is the last one
    slot[order] = np.maximum(batch - last[seen.kind[order]] + KEPT - 1, 0)
    grid = np.linspace(-WIDTH, WIDTH, GRID) * math.sqrt(alike.alike)
    lowest = np.full(kinds, KEPT)
    np.minimum.at(lowest, seen.kind[wanted], slot[wanted])
    chosen = _sampled(_evidence(seen, slot, kinds, grid, alike), alike, (lowest, draws), rng)
    width = grid[1] - grid[0]
    found = grid[chosen] + width * (rng.random(chosen.shape) - 0.5)
    return found[seen.kind[wanted], slot[wanted]], alike


def _evidence(seen: Seen, slot: Ints, kinds: int, grid: Floats, alike: Likeness) -> Floats:
    """Return the likelihood of what was seen of each batch, by its level: [classes, batches, levels]."""
    place, cells = seen.kind * KEPT + slot, kinds * KEPT
    told = np.zeros((cells, GRID))
    near = slot > 0  # those before the kept batches are not of one batch
    done, runs = np.flatnonzero(seen.ended & near), np.flatnonzero(~seen.ended & near & (seen.score < _Z[-1]))
    own = (seen.score[:, None] - grid) / alike.own
    density = np.exp(-0.5 * own[done] ** 2) / alike.own
    np.add.at(told, place[done], np.log((1 - ODD) * density + ODD * np.exp(-0.5 * seen.score[done] ** 2)[:, None]))
    np.add.at(told, place[runs], np.log((1 - ODD) * normal(own[runs]) + ODD * normal(seen.score[runs])[:, None]))
    told -= told.max(axis=1, keepdims=True)
    return np.exp(told).reshape(kinds, KEPT, GRID)


def _sampled(likelihood: Floats, alike: Likeness, wanted: tuple[Ints, int], rng: np.random.Generator) -> Ints:
    """Draw levels of the batches of each class, back to the lowest that is wanted: [classes, batches, draws]."""
    kinds, (lowest, draws) = len(likelihood), wanted
    standard = np.linspace(-WIDTH, WIDTH, GRID)
    first = np.exp(-0.5 * standard**2)
    step = np.exp(-0.5 * (standard - alike.next * standard[:, None]) ** 2 / (1 - alike.next**2))
    step /= step.sum(axis=1, keepdims=True)
    belief = np.empty_like(likelihood)
    prior = np.repeat(first[None] / first.sum(), kinds, axis=0)
    for k in range(KEPT):
        now = prior * likelihood[:, k]
        belief[:, k] = now / np.maximum(now.sum(axis=1, keepdims=True), 1e-300)
        prior = belief[:, k] @ step
    chosen = np.zeros((kinds, KEPT, draws), dtype=np.int64)
    chance = rng.random((KEPT, kinds, draws))
    for k in range(KEPT - 1, int(lowest.min()) - 1, -1):
        at = np.flatnonzero(lowest <= k)
        weight = np.repeat(belief[at, k][:, None], draws, axis=1)
        if k < KEPT - 1:
            weight = weight * step.T[chosen[at, k + 1]]
        sums = np.cumsum(weight, axis=2)
        chosen[at, k] = np.minimum((sums < chance[k, at][..., None] * sums[..., -1:]).sum(axis=2), GRID - 1)
    return chosen


def together(chance: Floats, level: Floats, alike: Likeness, left: Floats) -> Floats:
    """Return chances that jobs of a batch share: the share of those that outlived a job so far which outlives it.

    `chance` is uniform and each job's own, [jobs, draws, 2]; `left` is the share of the class that runs longer than it
    has run.
    """
    bound = score(left)[:, None]
    like = normal((bound - level) / alike.own)
    odd = ODD * left[:, None]
    share = normal(level + alike.own * score(chance[..., 0] * like)) / np.maximum(left, 1e-300)[:, None]
    alone = (chance[..., 1] * (odd + (1 - ODD) * like) < odd) | (left[:, None] <= 0)
    return np.where(alone, chance[..., 0], np.clip(share, 1e-12, 1.0))
