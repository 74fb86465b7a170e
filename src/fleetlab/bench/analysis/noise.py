"""Intervals of measures, and when two modes differ.

All variances are of logarithms, because noise is relative. Two blocks say little about their own noise, so it is pooled
over the cells of one mode and one kind of mix (over the kind, or over all, if these are too few). Modes are mostly
measured in different runs, so the variance between runs is added; it is estimated from cells that were measured in
several suites. Degrees of freedom are combined after Satterthwaite (Biometrics Bulletin 2, 1946).
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

INNER = 2 * CONFIDENCE - 1  # of the interval of two one-sided tests
FEW = 3  # minimum degrees of freedom of a pool


class Spread(NamedTuple):
    """A variance of logarithms and its degrees of freedom; 0 if unknown."""

    variance: float
    freedom: float

    def over(self, n: float) -> Spread:
        """Variance of the mean of `n`."""
        return Spread(self.variance / n, self.freedom)


UNKNOWN = Spread(0.0, 0.0)


class NoiseSample(NamedTuple):
    """One value of one mix in one block of one mode."""

    mode: str
    mix: str
    kind: str
    suite: Path
    value: float


EQUIVALENT = 0.05  # relative difference below which two modes are equivalent, if a test shows it


class ModeRatio(NamedTuple):
    """Ratio of one mode to another, its interval, and the variation between repetitions of the same cell."""

    value: float
    low: float
    high: float
    floor: float
    inner: tuple[float, float] = (math.nan, math.nan)  # its 90 % interval

    @property
    def equivalent(self) -> bool:
        """Whether they are the same within 5 %, by two one-sided tests: the 90 % interval is within that margin."""
        low, high = self.inner
        return low > 1 / (1 + EQUIVALENT) and high < 1 + EQUIVALENT

    @property
    def differ(self) -> bool | None:
        """Whether they differ; None if single blocks cannot tell."""
        if not math.isfinite(self.low):
            return None
        return not self.low <= 1 <= self.high and abs(math.log(self.value)) > self.floor


class Noise(NamedTuple):
    """Variance between repetitions of a tenant alone; of launch-bound tenants (True) and others (False)."""

    again: dict[bool, Spread]  # between blocks or runs
    run: dict[bool, Spread]  # between runs, beyond that between blocks

    def own(self, g: SuiteData, name: str) -> Spread:
        """Variance of a tenant's rate alone: the median of its measurements."""
        n = len(g.alone[name])
        wider = math.pi / 2 if n > 2 else 1.0  # variance of a median relative to a mean
        return self.again[g.kinds.get(name) == "launch-bound"].over(n / wider)

    def measured_again(self, g: SuiteData, name: str, n: int) -> float:
        """Half width of the interval of the log of a mean of `n`, for values without enough blocks of their own."""
        return half_width(self.again[g.kinds.get(name) == "launch-bound"].over(n))


def alone_noise(g: SuiteData) -> Noise:
    """Estimate it from each tenant alone in each mode and share, by block and suite."""
    by: dict[tuple[str, str, str], list[tuple[Path, float]]] = defaultdict(list)
    for m in g.meetings:
        if len(m.tenants) == 1 and m.tenants[0].rate > 0 and not m.tenants[0].is_open_loop:
            one = m.tenants[0]
            by[m.mode, one.name, one.share].append((m.suite, math.log(one.rate)))
    noise = Noise({}, {})
    for launch in (False, True):
        groups = [v for (_, name, _), v in by.items() if (g.kinds[name] == "launch-bound") == launch]
        other, same = (_apart(groups, {runs}) for runs in (True, False))
        noise.again[launch] = _apart(groups, {True, False})
        noise.run[launch] = Spread(max(other.variance - same.variance, 0.0), other.freedom)
    return noise


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


def _by_suite(group: Iterable[tuple[Path, float]]) -> list[list[float]]:
    by: dict[Path, list[float]] = defaultdict(list)
    for suite, x in group:
        by[suite].append(x)
    return list(by.values())


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


class Measure:
    """One measure of each mix in each mode, such as its throughput."""

    def __init__(self, samples: Iterable[NoiseSample], noise: Noise) -> None:
        self._logs: dict[tuple[str, str], list[tuple[Path, float]]] = defaultdict(list)
        self.kinds: dict[str, str] = {}
        for s in samples:
            self._logs[s.mode, s.mix].append((s.suite, math.log(max(s.value, 1e-12))))
            self.kinds[s.mix] = s.kind
        self._run = noise.run
        self._pools: dict[tuple[str, str], Spread] = {}

    def modes(self, mix: str | None = None) -> list[str]:
        """Modes with measurements of a mix, or of any."""
        return sorted({mode for mode, of in self._logs if mix in (None, of)}, key=mode_order)

    def mixes(self, mode: str | None = None) -> list[str]:
        """Mixes with measurements in a mode, or in any."""
        return list(dict.fromkeys(of for at, of in self._logs if mode in (None, at)))

    def blocks(self, mode: str, mix: str) -> int:
        """Number of blocks."""
        return len(self._logs[mode, mix])

    def log(self, mode: str, mix: str) -> float:
        """Mean of the logs."""
        return float(np.mean([x for _, x in self._logs[mode, mix]]))

    def block(self, mode: str, mix: str) -> Spread:
        """Variance between blocks of such a mix."""
        kind = self.kinds[mix]
        if (mode, kind) not in self._pools:
            self._pools[mode, kind] = self._pool(mode, kind)
        return self._pools[mode, kind]

    def _pool(self, mode: str, kind: str) -> Spread:
        """Pooled over this mode and kind; if that is too small, over the kind, over similar kinds, or over all."""
        here = [(at, self.kinds[of], _by_suite(group)) for (at, of), group in self._logs.items()]
        pools = (
            pool(lists for at, of, lists in here if (at, of) == (mode, kind)),
            pool(lists for _, of, lists in here if of == kind),
            pool(lists for _, of, lists in here if _launch(of) == _launch(kind)),
            pool(lists for _, _, lists in here),
        )
        return next((p for p in pools if p.freedom >= FEW), pools[-1])

    def spread(self, mode: str, mix: str) -> Spread:
        """Variance of the mean: between blocks and between runs."""
        group = self._logs[mode, mix]
        runs = len({suite for suite, _ in group})
        run = self._run[_launch(self.kinds[mix])].over(runs)
        return sum_variances([self.block(mode, mix).over(len(group)), run])

    def mean(self, mode: str, mix: str, also: Spread = UNKNOWN) -> Interval:
        """Value with interval; `also` is additional variance."""
        freedom = self.block(mode, mix).freedom
        return log_interval(self.log(mode, mix), sum_variances([self.spread(mode, mix), also]) if freedom else UNKNOWN)

    def apart(self, mix: str, one: str, other: str) -> tuple[float, Spread, Spread]:
        """Log ratio of two modes for the same mix; its variance, and that of single blocks."""
        groups = [self._logs[mode, mix] for mode in (one, other)]
        blocks = [self.block(mode, mix) for mode in (one, other)]
        log = self.log(one, mix) - self.log(other, mix)
        if not all(b.freedom for b in blocks):
            return log, UNKNOWN, UNKNOWN
        met = {suite for suite, _ in groups[0]} & {suite for suite, _ in groups[1]}
        run = UNKNOWN if met else self._run[_launch(self.kinds[mix])]
        means = [b.over(len(group)) for b, group in zip(blocks, groups, strict=True)]
        return log, sum_variances([*means, run, run]), sum_variances([*blocks, run, run])

    def ratio(self, mix: str, one: str, other: str) -> ModeRatio:
        """Ratio of two modes for the same mix."""
        log, means, blocks = self.apart(mix, one, other)
        return ModeRatio(*log_interval(log, means), half_width(blocks), log_interval(log, means, INNER)[1:])

    def mean_of(self, mode: str, mixes: Sequence[str]) -> Interval:
        """Geometric mean over mixes."""
        return mean_over_mixes([(self.log(mode, mix), self.spread(mode, mix)) for mix in mixes])

    def ratio_of(self, mixes: Sequence[str], one: str, other: str) -> ModeRatio:
        """Ratio of two modes over the same mixes."""
        each = [self.apart(mix, one, other) for mix in mixes]
        blocks = sum_variances(block.over(len(each) ** 2) for _, _, block in each)
        floor = half_width(blocks) if all(block.freedom for _, _, block in each) else 0.0
        logs = [(log, means) for log, means, _ in each]
        return ModeRatio(*mean_over_mixes(logs), floor, mean_over_mixes(logs, INNER)[1:])


def _launch(kind: str) -> bool:
    """Whether the mix has a launch-bound tenant: the host varies far more than the GPU."""
    return kind.endswith("launch-bound")


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


def mode_order(mode: str) -> tuple[int, str]:
    """Sort key of modes: time slicing, MPS, then the rest."""
    known = ("time-slicing", "mps", "mig", "one-process")
    return next((k for k, word in enumerate(known) if mode.startswith(word)), len(known)), mode
