"""One measure of each mix in each mode, such as its throughput: means with intervals, and differences of modes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fleetlab.bench.analysis.modes import mode_kind, mode_order
from fleetlab.bench.analysis.noise import UNKNOWN, Noise, Spread, log_interval, mean_over_mixes, pool, sum_variances
from fleetlab.stats import Difference, Interval


class NoiseSample(NamedTuple):
    """One value of one mix in one block of one mode."""

    mode: str
    mix: str
    kind: str
    works: frozenset[str]  # of its tenants: what a step is, whatever their pace
    suite: Path
    value: float
    of: str = ""  # work of the tenant whose value it is; empty for one of the whole mix
    blocks: int = 1  # that it is the mean of, because they drew the same


class Measure:
    """One measure of each mix in each mode, such as its throughput."""

    def __init__(self, samples: Iterable[NoiseSample], noise: Noise) -> None:
        self._logs: dict[tuple[str, str], list[tuple[Path, float]]] = defaultdict(list)
        self.kinds: dict[str, str] = {}
        self._works: dict[str, frozenset[str]] = {}
        self._of: dict[str, str] = {}
        self.same_draw: dict[str, int] = defaultdict(int)  # blocks of each mix that count once, as they drew the same
        for s in samples:
            self._logs[s.mode, s.mix].append((s.suite, math.log(max(s.value, 1e-12))))
            self.kinds[s.mix] = s.kind
            self._works[s.mix], self._of[s.mix] = s.works, s.of
            self.same_draw[s.mix] = max(self.same_draw[s.mix], s.blocks)
        self._noise = noise
        self._pools: dict[tuple[str, str, frozenset[str]], Spread] = {}

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
        """Variance between blocks, pooled over mixes of the same work in the same kind of mode, if any has two."""
        key = self._like(mode, mix)
        if key not in self._pools:
            self._pools[key] = pool(_by_suite(v) for at, v in self._logs.items() if self._like(*at) == key)
        return self._pools[key]

    def _like(self, mode: str, mix: str) -> tuple[str, str, frozenset[str]]:
        """What like cells have in common: the kind of mode, the tenant whose value it is, and the works."""
        return mode_kind(mode), self._of[mix], self._works[mix]

    def _run(self, mix: str) -> Spread:
        return self._noise.between_runs(self._works[mix], launch=_launch(self.kinds[mix]))

    def spread(self, mode: str, mix: str) -> Spread:
        """Variance of the mean: between blocks and between runs; unknown if that between blocks is."""
        group = self._logs[mode, mix]
        if not self.block(mode, mix).freedom:
            return UNKNOWN
        runs = len({suite for suite, _ in group})
        run = self._run(mix).over(runs)
        return sum_variances([self.block(mode, mix).over(len(group)), run])

    def mean(self, mode: str, mix: str, also: Spread = UNKNOWN) -> Interval:
        """Value with interval; `also` is additional variance."""
        freedom = self.block(mode, mix).freedom
        return log_interval(self.log(mode, mix), sum_variances([self.spread(mode, mix), also]) if freedom else UNKNOWN)

    def difference(self, mixes: Sequence[str], one: str, other: str) -> Difference:
        """Log ratio of two modes over the same mixes.

        Of three mixes and more the noise is that between mixes, as of a mean over mixes; of one or two it is that of
        their own blocks, and, if the modes were measured in different runs, that between runs.
        """
        n = len(mixes)
        logs = [self.log(one, mix) - self.log(other, mix) for mix in mixes]
        value = float(np.mean(logs))
        if n > 2:
            return Difference(value, (float(np.var(logs, ddof=1)), 0.0), (n, 1), n - 1)
        each = [[self.block(mode, mix).over(self.blocks(mode, mix)) for mode in (one, other)] for mix in mixes]
        runs = [UNKNOWN if self._met(mix, one, other) else self._run(mix) for mix in mixes]
        counts = (self.blocks(one, mixes[0]), self.blocks(other, mixes[0]))
        variances = [sum(means[k].variance for means in each) / n**2 * counts[k] for k in (0, 1)]
        parts = [*(spread for means in each for spread in means), *runs, *runs]
        known = all(spread.freedom for means in each for spread in means)
        freedom = sum_variances(parts).freedom if known else 0.0
        fixed = sum(2 * run.variance for run in runs) / n**2
        return Difference(value, (variances[0], variances[1]), counts, freedom, fixed)

    def _met(self, mix: str, one: str, other: str) -> bool:
        """Whether a suite has both modes."""
        suites = [{suite for suite, _ in self._logs[mode, mix]} for mode in (one, other)]
        return bool(suites[0] & suites[1])

    def common(self, mixes: list[str]) -> tuple[list[str], list[str]]:
        """Modes and the mixes that all of them have; a mode with too few of the mixes is left out."""
        modes = [mode for mode in self.modes() if set(self.mixes(mode)) & set(mixes)]
        while modes:
            same = [mix for mix in mixes if set(modes) <= set(self.modes(mix))]
            if 2 * len(same) >= len(mixes):
                return modes, same
            # The mode with the fewest mixes prevents the comparison of the others.
            modes.remove(min(modes, key=lambda mode: len(set(self.mixes(mode)) & set(mixes))))
        return [], []

    def mean_of(self, mode: str, mixes: Sequence[str]) -> Interval:
        """Geometric mean over mixes."""
        return mean_over_mixes([(self.log(mode, mix), self.spread(mode, mix)) for mix in mixes])


def _by_suite(group: Iterable[tuple[Path, float]]) -> list[list[float]]:
    by: dict[Path, list[float]] = defaultdict(list)
    for suite, x in group:
        by[suite].append(x)
    return list(by.values())


def _launch(kind: str) -> bool:
    """Whether the mix has a launch-bound tenant: the host varies far more than the GPU."""
    return kind.endswith("launch-bound")
