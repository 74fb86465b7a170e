"""Jobs that are submitted one after the other run alike: how much, and what that tells of those that have not ended.

Users submit batches, and a batch is much longer or shorter than others of its class. If each job is drawn by itself,
the lengths of a hundred waiting jobs cancel out, and a queue seems better known than it is. So each ten jobs of a burst
have a level that they share: in normal scores of the share of the class that a job outlives, w = level + own part.
Levels have the variance `alike`, and follow each other with the correlation `on` in a burst of submissions and `next`
from one burst to the next (a Gaussian copula with one factor).
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

GAP = 60.0  # s between submissions of one burst, at most
SIZE = 10  # jobs of a batch
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
class Observations:
    """Jobs of one or more classes: the score of the share that outlives them, as they ended or as far as they have run.

    Of a job that waits the score is that of the whole share, which says nothing.
    """

    kind: Ints  # the class of each, from 0
    submit: Floats
    score: Floats
    ended: Bools

    @classmethod
    def joined(cls, parts: Sequence[Observations]) -> Observations:
        """Return the jobs of several classes."""
        names = [one.name for one in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def batches(self) -> Batches:
        """Return the jobs in the order of class and submission, cut into bursts and these into batches."""
        order = np.lexsort((self.submit, self.kind))
        kind, submit = self.kind[order], self.submit[order]
        new_kind = np.diff(kind, prepend=-1) > 0
        new_burst = new_kind | (np.diff(submit, prepend=-np.inf) > GAP)
        begin = np.flatnonzero(new_burst)
        place = np.arange(len(kind)) - np.repeat(begin, np.diff(np.append(begin, len(kind))))
        batch = np.cumsum(place % SIZE == 0) - 1
        first = batch[new_kind]
        return Batches(order, kind, batch - np.repeat(first, np.bincount(kind)[kind[new_kind]]), np.cumsum(new_burst))


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Jobs in the order of class and submission."""

    order: Ints
    kind: Ints
    batch: Ints  # from 0 in each class
    burst: Ints  # from 1 in all


@dataclass(frozen=True, slots=True)
class Likeness:
    """Correlation of jobs of a batch, and of the levels of a batch and the next, in a burst or of the next burst."""

    alike: float
    on: float
    next: float

    @classmethod
    def of(cls, jobs: Observations, batches: Batches) -> Likeness:
        """Estimate them from pairs of jobs that ended, one submitted after the other."""
        ended = jobs.ended[batches.order]
        kind, batch, burst, own = (
            a[ended] for a in (batches.kind, batches.batch, batches.burst, jobs.score[batches.order])
        )
        product, pair = own[1:] * own[:-1], kind[1:] == kind[:-1]
        same, burst_goes_on = batch[1:] == batch[:-1], burst[1:] == burst[:-1]
        alike, on, after = (
            # Both of a pair are like their batches in so many cases.
            float(np.clip(product[which].sum() / (which.sum() + PAIRS) / (1 - ODD) ** 2, 0.0, MOST))
            for which in (pair & same, pair & burst_goes_on & ~same, pair & ~burst_goes_on)
        )
        most = max(alike, on, after, 1e-9)
        return cls(most, min(on / most, MOST), min(after / most, MOST))

    @property
    def own(self) -> float:
        """The standard deviation of a job's own part."""
        return math.sqrt(1.0 - self.alike)


def levels(jobs: Observations, rows: Ints, draws: int, rng: np.random.Generator) -> tuple[Floats, Likeness]:
    """Return the level of the batch of each wanted job, as often as it is drawn: [wanted, draws]."""
    batches = jobs.batches()
    alike = Likeness.of(jobs, batches)
    kinds = int(jobs.kind.max(initial=0)) + 1
    last = np.zeros(kinds, dtype=np.int64)
    np.maximum.at(last, batches.kind, batches.batch)
    at = np.maximum(batches.batch - last[batches.kind] + KEPT - 1, 0)  # the latest batch of a class is the last one
    slot = np.empty(len(at), dtype=np.int64)
    slot[batches.order] = at
    begins = np.zeros((kinds, KEPT), dtype=bool)
    begins[batches.kind, at] = np.diff(batches.burst, prepend=0) > 0
    grid = np.linspace(-WIDTH, WIDTH, GRID) * math.sqrt(alike.alike)
    lowest = np.full(kinds, KEPT)
    np.minimum.at(lowest, jobs.kind[rows], slot[rows])
    chain = Chain(_evidence(jobs, slot, kinds, grid, alike), begins, alike)
    index = chain.sampled(lowest, draws, rng)
    level = grid[index] + (grid[1] - grid[0]) * (rng.random(index.shape) - 0.5)
    return level[jobs.kind[rows], slot[rows]], alike


def _evidence(jobs: Observations, slot: Ints, kinds: int, grid: Floats, alike: Likeness) -> Floats:
    """Return the likelihood of what was seen of each batch, by its level: [classes, batches, levels]."""
    place, cells = jobs.kind * KEPT + slot, kinds * KEPT
    log_likelihood = np.zeros((cells, GRID))
    near = slot > 0  # those before the kept batches are not of one batch
    done, runs = np.flatnonzero(jobs.ended & near), np.flatnonzero(~jobs.ended & near & (jobs.score < _Z[-1]))
    own = (jobs.score[:, None] - grid) / alike.own
    density = np.exp(-0.5 * own[done] ** 2) / alike.own
    np.add.at(
        log_likelihood, place[done], np.log((1 - ODD) * density + ODD * np.exp(-0.5 * jobs.score[done] ** 2)[:, None])
    )
    np.add.at(
        log_likelihood, place[runs], np.log((1 - ODD) * normal(own[runs]) + ODD * normal(jobs.score[runs])[:, None])
    )
    log_likelihood -= log_likelihood.max(axis=1, keepdims=True)
    return np.exp(log_likelihood).reshape(kinds, KEPT, GRID)


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Levels that follow each other, by class."""

    likelihood: Floats  # [classes, batches, levels]
    begins: Bools  # [classes, batches]: a burst begins there
    alike: Likeness

    def _steps(self) -> Floats:
        """Return the chance of a level after another, in a burst and from one burst to the next."""
        at = np.linspace(-WIDTH, WIDTH, GRID)
        both = np.array([self.alike.on, self.alike.next])[:, None, None]
        step = np.exp(-0.5 * (at - both * at[:, None]) ** 2 / (1 - both**2))
        return np.asarray(step / step.sum(axis=2, keepdims=True))

    def _belief(self, steps: Floats) -> Floats:
        """Return the chance of each level given its batch and those before it: [classes, batches, levels]."""
        belief = np.empty_like(self.likelihood)
        usual = np.exp(-0.5 * np.linspace(-WIDTH, WIDTH, GRID) ** 2)
        prior = np.repeat(usual[None] / usual.sum(), len(belief), axis=0)
        for k in range(KEPT):
            if k:
                prior = np.where(self.begins[:, k, None], belief[:, k - 1] @ steps[1], belief[:, k - 1] @ steps[0])
            now = prior * self.likelihood[:, k]
            belief[:, k] = now / np.maximum(now.sum(axis=1, keepdims=True), 1e-300)
        return belief

    def sampled(self, lowest: Ints, draws: int, rng: np.random.Generator) -> Ints:
        """Draw levels given all batches, back to the lowest that is wanted of a class: [classes, batches, draws]."""
        steps = self._steps()
        belief = self._belief(steps)
        index = np.zeros((len(belief), KEPT, draws), dtype=np.int64)
        chance = rng.random((KEPT, len(belief), draws))
        for k in range(KEPT - 1, int(lowest.min()) - 1, -1):
            at = np.flatnonzero(lowest <= k)
            weight = np.repeat(belief[at, k][:, None], draws, axis=1)
            if k < KEPT - 1:
                step = self.begins[at, k + 1].astype(np.int64)
                weight = weight * steps[step[:, None], :, index[at, k + 1]]
            sums = np.cumsum(weight, axis=2)
            index[at, k] = np.minimum((sums < chance[k, at][..., None] * sums[..., -1:]).sum(axis=2), GRID - 1)
        return index


def together(chance: Floats, level: Floats, alike: Likeness, alive: Floats) -> Floats:
    """Return chances that jobs of a batch share: the share of those that outlived a job so far which outlives it.

    `chance` is uniform and each job's own, [jobs, draws, 2]; `left` is the share of the class that runs longer than it
    has run.
    """
    bound = score(alive)[:, None]
    like = normal((bound - level) / alike.own)
    odd = ODD * alive[:, None]
    share = normal(level + alike.own * score(chance[..., 0] * like)) / np.maximum(alive, 1e-300)[:, None]
    alone = (chance[..., 1] * (odd + (1 - ODD) * like) < odd) | (alive[:, None] <= 0)
    return np.where(alone, chance[..., 0], np.clip(share, 1e-12, 1.0))
