"""Intervals of measures, and when two modes differ.

All variances are of logarithms, because noise is relative. Two blocks say little about their own noise, so it is pooled
over like cells: mixes of the same work, whatever its pace or number, in the same kind of mode. Where none of these was
measured twice, the noise is not known. That of a tenant alone is pooled over all modes in which its work was repeated,
and over all tenants where that was too seldom. Modes are mostly measured in different runs, so the variance between
runs is added; it is estimated from the same work alone in several suites. Degrees of freedom are combined after
Satterthwaite (Biometrics Bulletin 2, 1946).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fleetlab.bench.analysis.suite_data import SuiteData
from fleetlab.stats import CONFIDENCE, Interval, student_quantile


class Spread(NamedTuple):
    """A variance of logarithms and its degrees of freedom; 0 if unknown."""

    variance: float
    freedom: float

    def over(self, n: float) -> Spread:
        """Variance of the mean of `n`."""
        return Spread(self.variance / n, self.freedom)


UNKNOWN = Spread(0.0, 0.0)
OWN = 2  # degrees of freedom from which on a tenant's own repetitions say how far it varies
MANY = 5  # degrees of freedom from which on outliers among them count little


class Noise(NamedTuple):
    """Variance between repetitions of a tenant alone; of launch-bound tenants (True) and others (False)."""

    again: dict[bool, Spread]  # between blocks or runs
    again_of: dict[str, Spread]  # the same of each tenant whose work was measured often enough
    run: dict[bool, Spread]  # between runs, beyond that between blocks
    run_of: dict[str, Spread]  # the same of each work that was measured in several runs

    def between_runs(self, works: Iterable[str], *, launch: bool) -> Spread:
        """Variance between runs of the least steady of these works; of all works, if one was measured in one run."""
        known = [self.run_of.get(work, UNKNOWN) for work in works]
        return max(known, key=lambda s: s.variance) if known and all(s.freedom for s in known) else self.run[launch]

    def own(self, g: SuiteData, name: str) -> Spread:
        """Variance of a tenant's rate alone: the median of its measurements."""
        n = len(g.alone[name])
        wider = math.pi / 2 if n > 2 else 1.0  # variance of a median relative to a mean
        return self.one(g, name).over(n / wider)

    def measured_again(self, g: SuiteData, name: str, n: int) -> float:
        """Half width of the interval of the log of a mean of `n`, for values without enough blocks of their own."""
        return half_width(self.one(g, name).over(n))

    def note(self, g: SuiteData, names: Iterable[str]) -> str:
        """Whose repetitions the intervals of the rates alone of these tenants rest on."""
        seldom = sorted({name for name in names if name in g.alone and name not in self.again_of})
        whose = "of its own repetitions" + (", of those of all tenants for " + ", ".join(seldom) if seldom else "")
        return f"noise of the rate of a tenant alone is that {whose}"

    def one(self, g: SuiteData, name: str) -> Spread:
        """Variance of one measurement of a tenant alone: by its own repetitions, or by those of all tenants.

        A program that its host limits varies by far more than one that the GPU limits.
        """
        return self.again_of.get(name, self.again[g.kinds.get(name) == "launch-bound"])


def alone_noise(g: SuiteData) -> Noise:
    """Estimate it from each tenant alone in each mode and share, by block and suite."""
    by: dict[tuple[str, str, str], list[tuple[Path, float]]] = defaultdict(list)
    for m in g.meetings:
        if len(m.tenants) == 1 and m.tenants[0].rate > 0 and not m.tenants[0].is_open_loop:
            one = m.tenants[0]
            by[m.mode, one.name, one.share].append((m.suite, math.log(one.rate)))
    sides = {side: [v for at, v in by.items() if (g.kinds[at[1]] == "launch-bound") == side] for side in (False, True)}
    works: dict[str, list[list[tuple[Path, float]]]] = defaultdict(list)
    for (_, name, _), values in by.items():
        works[g.work_of(name)].append(values)
    often = {work: _repeated(groups) for work, groups in works.items()}
    return Noise(
        again={side: _apart(groups, {True, False}) for side, groups in sides.items()},
        again_of={name: spread for _, name, _ in by if (spread := often[g.work_of(name)]).freedom >= OWN},
        run={side: _beyond_blocks(groups) for side, groups in sides.items()},
        run_of={work: _beyond_blocks(groups) for work, groups in works.items()},
    )


def _repeated(groups: list[list[tuple[Path, float]]]) -> Spread:
    """Variance of one measurement of one work, between blocks or runs.

    A median of a few distances is no safer from an outlier than the plain variance, and says less.
    """
    plain = pool([[[x for _, x in values] for values in groups]])
    return plain if plain.freedom < MANY else _apart(groups, {True, False})


def _beyond_blocks(groups: list[list[tuple[Path, float]]]) -> Spread:
    """Variance between runs, less that between blocks of one run."""
    other, same = (_apart(groups, {runs}) for runs in (True, False))
    return Spread(max(other.variance - same.variance, 0.0), other.freedom)


def _apart(groups: list[list[tuple[Path, float]]], runs: set[bool]) -> Spread:
    """Variance of one measurement, from pairwise distances of repetitions, between runs or within one.

    It uses the median distance, 0.954 standard deviations of normal noise (Shamos, 1976), so that one outlier does not
    widen every interval. The efficiency is 0.37 for two values and 0.86 for many.
    """
    apart, freedom = [], 0.0
    for group in groups:
        here = [abs(x - y) for (s, x), (t, y) in combinations(group, 2) if (s != t) in runs]
        many = (math.isqrt(1 + 8 * len(here)) + 1) // 2  # number of values with so many pairs
        freedom += (many - 1) * (0.86 if many > 2 else 0.37) if here else 0
        apart += here
    return Spread((float(np.median(apart)) / 0.954) ** 2, max(freedom, 1.0)) if apart else UNKNOWN


def pool(groups: Iterable[list[list[float]]]) -> Spread:
    """Pooled variance within the innermost lists."""
    lists = [np.asarray(x) for group in groups for x in group]
    freedom = sum(x.size - 1 for x in lists)
    return Spread(sum(float(((x - x.mean()) ** 2).sum()) for x in lists) / freedom, freedom) if freedom else UNKNOWN


def sum_variances(parts: Iterable[Spread]) -> Spread:
    """Variance of a sum of independent parts; unknown parts are ignored."""
    known = [p for p in parts if p.freedom]
    variance = sum(p.variance for p in known)
    below = sum(p.variance**2 / p.freedom for p in known)
    freedom = variance**2 / below if below else max((p.freedom for p in known), default=0.0)
    return Spread(variance, freedom)


def half_width(spread: Spread, confidence: float = CONFIDENCE) -> float:
    """Half width of the interval of a log; NaN if the variance is unknown."""
    if not spread.freedom:
        return math.nan
    return student_quantile((1 + confidence) / 2, max(int(spread.freedom), 1)) * math.sqrt(spread.variance)


def log_interval(middle: float, spread: Spread, confidence: float = CONFIDENCE) -> Interval:
    """Interval of a log, transformed back."""
    half = half_width(spread, confidence)
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def mean_over_mixes(each: Sequence[tuple[float, Spread]], confidence: float = CONFIDENCE) -> Interval:
    """Geometric mean of mixes, from their logs.

    Mixes differ more than blocks: with three or more, the interval is Student's over mixes. With one or two it covers
    only the noise of these.
    """
    logs, n = np.asarray([log for log, _ in each]), len(each)
    if n > 2:
        return log_interval(float(logs.mean()), Spread(float(logs.var(ddof=1)) / n, n - 1), confidence)
    known = all(spread.freedom for _, spread in each)
    spread = sum_variances(s.over(n**2) for _, s in each) if known else UNKNOWN
    return log_interval(float(logs.mean()), spread, confidence)
