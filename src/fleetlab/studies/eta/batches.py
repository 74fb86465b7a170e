"""Run times of jobs alike, drawn together: what one job of a batch runs tells of the others.

A batch is jobs of the same user, group and request submitted less than an hour apart. On the scale of normal scores
of its class, a job's run time is the level of its batch plus its own part, as in a one-way random-effects model: the
share of the variance between batches is from an analysis of variance of the logarithms of run times that are known. The
level of a batch is known from its ended jobs (exactly) and from those that run (that they run longer), and the less of
them there are, the wider it is drawn; the class itself is known as well as so many batches tell it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from fleetlab.core.censoring import Bools, Floats, product_limit
from fleetlab.core.resample import Ints

PAUSE = 3600.0  # s between two submissions that parts batches
MOST = 0.95  # share of the variance between batches
LONGEST = 20.0  # times the longest run that was seen, for what outlasts it
WIDTH = np.linspace(-4.0, 4.0, 81)  # standard deviations of the level of a batch
TINY = 1e-15


@cache
def _normal() -> tuple[Floats, Floats]:
    """Return the normal distribution as a table: half a million of values are looked up for one answer."""
    at = np.linspace(-8.0, 8.0, 6401)
    return at, np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in at.tolist()])


def below(score: Floats) -> Floats:
    """Return the share of a normal distribution below a score."""
    return np.interp(score, *_normal())


def score(share: Floats) -> Floats:
    """Return the score below which a share of a normal distribution is.

    >>> score(below(np.array([-2.0, 0.0, 1.5]))).round(3).tolist()
    [-2.0, 0.0, 1.5]
    """
    at, shares = _normal()
    return np.interp(share, shares, at)


def batches(code: Ints, submit: Floats) -> Ints:
    """Return the batch of each job: jobs of one code, without a long pause between them; `submit` is ascending.

    >>> batches(np.array([1, 2, 1, 1]), np.array([0.0, 5.0, 60.0, 9000.0])).tolist()
    [0, 2, 0, 1]
    """
    order = np.argsort(code, kind="stable")
    parted = (np.diff(code[order]) != 0) | (np.diff(submit[order]) > PAUSE)
    batch = np.zeros(len(code), dtype=np.int64)
    batch[order] = np.append(0, np.cumsum(parted))[: len(code)]
    return batch


def by_appearance(code: Ints) -> tuple[Ints, Ints]:
    """Return the codes in the order in which they first appear, and for each entry which of them it has."""
    codes, first, own = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(codes), dtype=np.int64)
    place[order] = np.arange(len(codes))
    return codes[order], place[own]


def alike(runtime: Floats, code: Ints, batch: Ints) -> float:
    """Return which share of the variance of log run times within classes is between their batches, by ANOVA.

    Each batch is of one class. Where no class has two batches, nothing is known of it: 0.

    >>> alike(np.array([1.0, 1, 9, 9]), np.zeros(4, dtype=int), np.array([0, 0, 1, 1]))
    0.95
    """
    log = np.log(np.maximum(runtime, 1.0))
    codes, own = np.unique(code, return_inverse=True)
    groups, first, part = np.unique(batch, return_index=True, return_inverse=True)
    between, within = len(groups) - len(codes), len(log) - len(groups)
    if between <= 0 or within <= 0:
        return 0.0
    size, class_size = np.bincount(part), np.bincount(own)
    mean, class_mean = np.bincount(part, log) / size, np.bincount(own, log) / class_size
    among = float((size * (mean - class_mean[own[first]]) ** 2).sum()) / between
    inside = float(((log - mean[part]) ** 2).sum()) / within
    usual = (len(log) - float((size**2 / class_size[own[first]]).sum())) / between  # jobs of a batch
    total = among + (usual - 1) * inside
    return float(np.clip((among - inside) / total, 0.0, MOST)) if total > 0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Survival:
    """Kaplan and Meier's estimate of a class; beyond what was seen, a run is as likely twice as long as not."""

    when: Floats
    alive: Floats
    longest: float

    @classmethod
    def of(cls, time: Floats, ended: Bools) -> Survival:
        """Estimate from how long jobs were seen, and whether they ended then."""
        when, risk, deaths = product_limit(time, ended)
        return cls(when, np.cumprod(1 - deaths / risk, dtype=np.float64), float(time.max(initial=0.0)))

    def beyond(self, seconds: Floats) -> Floats:
        """Return the share that runs longer."""
        return np.append(1.0, self.alive)[np.searchsorted(self.when, seconds, side="right")]

    def middle(self, seconds: Floats) -> Floats:
        """Return the share that runs longer, of those that run just as long counting half."""
        before = np.append(1.0, self.alive)[np.searchsorted(self.when, seconds, side="left")]
        return np.asarray((before + self.beyond(seconds)) / 2)

    def runtime(self, chance: Floats, elapsed: Floats) -> Floats:
        """Return what is outlasted with a chance, given how long a job has run: [jobs, draws]."""
        left = self.beyond(elapsed)[:, None]
        level = chance * left
        index = len(self.alive) - np.searchsorted(self.alive[::-1], level, side="right")
        index = np.maximum(index, np.searchsorted(self.when, elapsed, side="right")[:, None])
        last = float(self.alive[-1]) if len(self.alive) else 1.0
        share = np.where(left > 0, level / max(last, TINY), chance)  # of those that outlast all that ended
        longer = np.maximum(self.longest, elapsed)[:, None] / np.clip(share, 1 / LONGEST, 1.0)
        return np.where(index < len(self.when), np.append(self.when, 0.0)[np.minimum(index, len(self.when))], longer)


@dataclass(frozen=True, slots=True, eq=False)
class Mates:
    """The jobs of a class that are known: how long they were seen, whether they ended then, and their batches."""

    time: Floats
    ended: Bools
    batch: Ints
    share: float  # of the variance that is between batches

    def chances(self, survival: Survival, jobs: Wanted, general: Floats) -> Floats:
        """Return the chance to outlast a run, given what each job has run: [jobs, draws]."""
        level = self._levels(survival, jobs, general)[jobs.part]
        left = survival.beyond(jobs.elapsed)[:, None]
        rest = math.sqrt(1 - self.share)
        beyond = np.maximum(below((level - score(1 - left)) / rest), TINY)  # to have come so far, at that level
        alive = below(rest * score(jobs.own * beyond) - level)
        outlasted = below(rest * score(jobs.own) - math.sqrt(self.share) * jobs.common[jobs.part])
        return np.where(left > 0, np.minimum(alive / np.maximum(left, TINY), 1.0), outlasted)

    def _levels(self, survival: Survival, jobs: Wanted, general: Floats) -> Floats:
        """Draw the level of each wanted batch: [batches, draws]."""
        part = np.searchsorted(jobs.sorted_batches, self.batch)
        part = np.minimum(part, len(jobs.sorted_batches) - 1)
        mine = jobs.sorted_batches[part] == self.batch
        part = jobs.order[part]
        count, spread = len(jobs.order), 1 - self.share
        done = mine & self.ended
        known = np.bincount(part[done], minlength=count)
        total = np.bincount(part[done], score(1 - survival.middle(self.time[done])), minlength=count)
        unsure = self._unsure()
        precision = 1 / (unsure + self.share) + known / spread
        mean, deviation = total / spread / precision, 1 / np.sqrt(precision)
        at = mean[:, None] + deviation[:, None] * WIDTH
        weight = np.tile(-(WIDTH**2) / 2, (count, 1))
        runs = np.flatnonzero(mine & ~self.ended)
        if len(runs):
            sofar = score(1 - np.maximum(survival.beyond(self.time[runs]), 0.5 / len(self.time)))
            outlives = np.log(np.maximum(below((at[part[runs]] - sofar[:, None]) / math.sqrt(spread)), TINY))
            np.add.at(weight, part[runs], outlives)
        shares = np.cumsum(np.exp(weight - weight.max(axis=1, keepdims=True)), axis=1)
        shares = (shares - shares[:, :1] / 2) / shares[:, -1:]
        # What is not known of the class is the same for all its batches.
        own = self.share / (self.share + spread / np.maximum(known, 1)) * (known > 0)
        same = np.clip((1 - own) ** 2 * unsure / deviation**2, 0.0, 1.0)[:, None]
        chance = below(np.sqrt(same) * general + np.sqrt(1 - same) * jobs.common)
        drawn = [np.interp(chance[k], shares[k], WIDTH) for k in range(count)]
        return np.asarray(mean[:, None] + deviation[:, None] * np.array(drawn))

    def _unsure(self) -> float:
        """Return the variance of the mean of the class, as its batches tell it."""
        size = np.unique(self.batch[self.ended], return_counts=True)[1]
        return float(1 / (1 / (self.share + (1 - self.share) / size)).sum()) if len(size) else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """The jobs of a class whose run times are drawn, by batch, and the random numbers that they are drawn by."""

    elapsed: Floats
    batch: Ints  # of each of `common`
    part: Ints  # [jobs]: which of these batches
    own: Floats  # [jobs, draws]: uniform
    common: Floats  # [batches, draws]: normal

    @property
    def order(self) -> Ints:
        """The batches in the order of their numbers."""
        return np.argsort(self.batch, kind="stable")

    @property
    def sorted_batches(self) -> Ints:
        """The numbers of the batches, ascending."""
        return np.sort(self.batch)
