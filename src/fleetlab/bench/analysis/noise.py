"""How sure a number of a mix is, and when two modes differ.

Everything is in logs: noise is a share of the value. Two blocks say little about their own noise, so it is pooled over
the cells of one mode and one kind of mix (over the mode, or over all, where these are too few). Modes are mostly
measured in different runs, so what one run differs from the next by counts too; it is seen where the same cell was
measured in several suites. Degrees of freedom are put together after Satterthwaite (Biometrics Bulletin 2, 1946).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fleetlab.bench.analysis.meetings import Gathered
from fleetlab.stats import CONFIDENCE, Interval, student_quantile

FEW = 3  # degrees of freedom below which a pool is too small to stand alone


class Spread(NamedTuple):
    """A variance of logs, and how many degrees of freedom it was seen with; none is nothing seen."""

    variance: float
    freedom: float

    def over(self, n: float) -> Spread:
        """Of the mean of `n`."""
        return Spread(self.variance / n, self.freedom)


UNSEEN = Spread(0.0, 0.0)


class Sample(NamedTuple):
    """One number of one mix in one block of one mode."""

    mode: str
    mix: str
    kind: str
    suite: Path
    value: float


class Compared(NamedTuple):
    """One mode over another: the ratio, its limits, and what the same cell may differ by when measured again."""

    value: float
    low: float
    high: float
    floor: float

    @property
    def differ(self) -> bool | None:
        """Do they? None where a single block cannot tell."""
        if not math.isfinite(self.low):
            return None
        return not self.low <= 1 <= self.high and abs(math.log(self.value)) > self.floor


class Noise(NamedTuple):
    """What the same tenant alone differs by when measured again; calm tenants (False) and launch-bound ones (True)."""

    again: dict[bool, Spread]  # in another block or run
    run: dict[bool, Spread]  # in another run, beyond what blocks of one run differ by

    def own(self, g: Gathered, name: str) -> Spread:
        """Of a tenant's rate on a card of its own: the median of what was measured."""
        n = len(g.alone[name])
        wider = math.pi / 2 if n > 2 else 1.0  # a median is less sure than a mean
        return self.again[g.kinds.get(name) == "launch-bound"].over(n / wider)

    def measured_again(self, g: Gathered, name: str, n: int) -> float:
        """How far the log of a mean of `n` may be off: for what has too few blocks of its own."""
        return reach(self.again[g.kinds.get(name) == "launch-bound"].over(n))


def alone_noise(g: Gathered) -> Noise:
    """From each tenant alone in each mode and share, by block and by suite."""
    by: dict[tuple[str, str, str], list[tuple[Path, float]]] = defaultdict(list)
    for m in g.meetings:
        if len(m.tenants) == 1 and m.tenants[0].rate > 0 and not m.tenants[0].timed:
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
    """The variance of one measurement, from how far two of the same cell are apart, in different runs or in one.

    From the median distance, 0.954 standard deviations if noise is normal (Shamos, 1976): a hiccup of the host in one
    block must not widen every limit. Of two values alone a median uses 0.37 of what they say, of many 0.86.
    """
    apart, freedom = [], 0.0
    for group in groups:
        here = [abs(x - y) for (s, x), (t, y) in combinations(group, 2) if (s != t) in runs]
        many = (math.isqrt(1 + 8 * len(here)) + 1) // 2  # values that make so many pairs
        freedom += (many - 1) * (0.86 if many > 2 else 0.37) if here else 0
        apart += here
    return Spread((float(np.median(apart)) / 0.954) ** 2, max(freedom, 1.0)) if apart else UNSEEN


def _by_suite(group: Iterable[tuple[Path, float]]) -> list[list[float]]:
    by: dict[Path, list[float]] = defaultdict(list)
    for suite, x in group:
        by[suite].append(x)
    return list(by.values())


def pool(groups: Iterable[list[list[float]]]) -> Spread:
    """The variance of values inside the innermost lists, all of them together."""
    lists = [np.asarray(x) for group in groups for x in group]
    freedom = sum(x.size - 1 for x in lists)
    return Spread(sum(float(((x - x.mean()) ** 2).sum()) for x in lists) / freedom, freedom) if freedom else UNSEEN


def together(parts: Iterable[Spread]) -> Spread:
    """The variance of a sum of independent parts; unseen parts are passed over."""
    seen = [p for p in parts if p.freedom]
    variance = sum(p.variance for p in seen)
    below = sum(p.variance**2 / p.freedom for p in seen)
    freedom = variance**2 / below if below else max((p.freedom for p in seen), default=0.0)
    return Spread(variance, freedom)


def reach(spread: Spread) -> float:
    """How far to each side of a log its limits are; NaN where no noise was seen."""
    if not spread.freedom:
        return math.nan
    return student_quantile((1 + CONFIDENCE) / 2, max(int(spread.freedom), 1)) * math.sqrt(spread.variance)


def limits(middle: float, spread: Spread) -> Interval:
    """Of a log, as an ordinary number."""
    half = reach(spread)
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


class Measure:
    """One number of each mix in each mode, such as its throughput."""

    def __init__(self, samples: Iterable[Sample], noise: Noise) -> None:
        self._logs: dict[tuple[str, str], list[tuple[Path, float]]] = defaultdict(list)
        self.kinds: dict[str, str] = {}
        for s in samples:
            self._logs[s.mode, s.mix].append((s.suite, math.log(max(s.value, 1e-12))))
            self.kinds[s.mix] = s.kind
        self._run = noise.run
        self._pools: dict[tuple[str, str], Spread] = {}

    def modes(self, mix: str | None = None) -> list[str]:
        """Those it was measured in; of one mix, or of any."""
        return sorted({mode for mode, of in self._logs if mix in (None, of)}, key=rank)

    def mixes(self, mode: str | None = None) -> list[str]:
        """Those that were measured; in one mode, or in any."""
        return list(dict.fromkeys(of for at, of in self._logs if mode in (None, at)))

    def blocks(self, mode: str, mix: str) -> int:
        """How often."""
        return len(self._logs[mode, mix])

    def log(self, mode: str, mix: str) -> float:
        """The mean of its logs."""
        return float(np.mean([x for _, x in self._logs[mode, mix]]))

    def block(self, mode: str, mix: str) -> Spread:
        """What one block of such a mix differs by from the next."""
        kind = self.kinds[mix]
        if (mode, kind) not in self._pools:
            self._pools[mode, kind] = self._pool(mode, kind)
        return self._pools[mode, kind]

    def _pool(self, mode: str, kind: str) -> Spread:
        """Of this mode and kind; if that is too small of the kind in all modes, of all as calm, or of everything."""
        here = [(at, self.kinds[of], _by_suite(group)) for (at, of), group in self._logs.items()]
        pools = (
            pool(lists for at, of, lists in here if (at, of) == (mode, kind)),
            pool(lists for _, of, lists in here if of == kind),
            pool(lists for _, of, lists in here if _launch(of) == _launch(kind)),
            pool(lists for _, _, lists in here),
        )
        return next((p for p in pools if p.freedom >= FEW), pools[-1])

    def spread(self, mode: str, mix: str) -> Spread:
        """Of its mean: noise of its blocks, and of its runs."""
        group = self._logs[mode, mix]
        runs = len({suite for suite, _ in group})
        run = self._run[_launch(self.kinds[mix])].over(runs)
        return together([self.block(mode, mix).over(len(group)), run])

    def mean(self, mode: str, mix: str, also: Spread = UNSEEN) -> Interval:
        """Its value with limits; `also` is what else it hangs on."""
        seen = self.block(mode, mix).freedom
        return limits(self.log(mode, mix), together([self.spread(mode, mix), also]) if seen else UNSEEN)

    def apart(self, mix: str, one: str, other: str) -> tuple[float, Spread, Spread]:
        """The log of one mode over another for the same mix; its spread, and that of a single block of each."""
        groups = [self._logs[mode, mix] for mode in (one, other)]
        blocks = [self.block(mode, mix) for mode in (one, other)]
        log = self.log(one, mix) - self.log(other, mix)
        if not all(b.freedom for b in blocks):
            return log, UNSEEN, UNSEEN
        met = {suite for suite, _ in groups[0]} & {suite for suite, _ in groups[1]}
        run = UNSEEN if met else self._run[_launch(self.kinds[mix])]
        means = [b.over(len(group)) for b, group in zip(blocks, groups, strict=True)]
        return log, together([*means, run, run]), together([*blocks, run, run])

    def ratio(self, mix: str, one: str, other: str) -> Compared:
        """One mode over another for the same mix."""
        log, means, blocks = self.apart(mix, one, other)
        return Compared(*limits(log, means), reach(blocks))

    def mean_of(self, mode: str, mixes: Sequence[str]) -> Interval:
        """The geometric mean over mixes."""
        return over_mixes([(self.log(mode, mix), self.spread(mode, mix)) for mix in mixes])

    def ratio_of(self, mixes: Sequence[str], one: str, other: str) -> Compared:
        """One mode over another, over the same mixes."""
        each = [self.apart(mix, one, other) for mix in mixes]
        blocks = together(block.over(len(each) ** 2) for _, _, block in each)
        floor = reach(blocks) if all(block.freedom for _, _, block in each) else 0.0
        return Compared(*over_mixes([(log, means) for log, means, _ in each]), floor)


def _launch(kind: str) -> bool:
    """Is one of such a mix launch-bound? The host varies far more than the card does."""
    return kind.endswith("launch-bound")


def over_mixes(each: Sequence[tuple[float, Spread]]) -> Interval:
    """The geometric mean of mixes, from their logs.

    Mixes differ more than blocks do: with three or more, limits are Student's over mixes. One or two say nothing about
    others: limits are then of the noise alone.
    """
    logs, n = np.asarray([log for log, _ in each]), len(each)
    if n > 2:
        return limits(float(logs.mean()), Spread(float(logs.var(ddof=1)) / n, n - 1))
    seen = all(spread.freedom for _, spread in each)
    return limits(float(logs.mean()), together(s.over(n**2) for _, s in each) if seen else UNSEEN)


def rank(mode: str) -> tuple[int, str]:
    """The order in which modes are told: by turns, then MPS, then the rest."""
    known = ("time-slicing", "mps", "mig", "one-process")
    return next((k for k, word in enumerate(known) if mode.startswith(word)), len(known)), mode
