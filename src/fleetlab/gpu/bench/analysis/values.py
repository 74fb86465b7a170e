"""Values of a goal by mode, and the difference between two modes: what modes are chosen by."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fleetlab.gpu.bench.analysis.measure import Measure, Noise
from fleetlab.gpu.bench.analysis.serving import ServedTenant
from fleetlab.gpu.bench.results.latency import sum_times
from fleetlab.stats import Difference, Interval, Spread, pooled_variance, student_quantile

LATE = "its generator of requests was late"
IN_ONE_PLAN = "measure both in one plan, with blocks"
CUT_OFF = "had not ended with the window"
NORMAL = 1_000_000  # degrees of freedom of a quantile or a share of very many requests


def is_apart(mode: str) -> bool:
    """Whether tenants are processes of their own, as on a cluster."""
    return not mode.startswith("one-process")


class GoalValues(ABC):
    """Values of a goal by mode, for one mix or several."""

    less: str = ""  # how a lower value is better: `shorter`, `lower`; empty if a higher one is

    @property
    @abstractmethod
    def no_noise(self) -> str:
        """Why the noise of a difference is not known, where it is not, and what to measure."""

    @property
    @abstractmethod
    def modes(self) -> list[str]:
        """Modes that are compared: of processes, not of streams in one process."""

    @abstractmethod
    def value(self, mode: str) -> Interval:
        """The value that is shown."""

    @abstractmethod
    def difference(self, one: str, other: str) -> Difference:
        """Log of the ratio of two modes; above 0 if the first is better."""

    @property
    def falls_behind(self) -> dict[str, str]:
        """Modes in which a server does not keep up, and by how much: none of them can be the best."""
        return {}

    @property
    def not_compared(self) -> dict[str, str]:
        """Modes whose value is not known, and why."""
        return {}

    def by_mix(self, one: str, other: str) -> dict[str, Difference]:
        """The difference in each mix, where the interval of the difference is that between mixes; else nothing."""
        return {}

    def in_part(self, best: str) -> dict[str, PartDifference]:
        """The difference of the best to modes that were measured in a part of the mixes only, over these."""
        return {}


class PartDifference(NamedTuple):
    """A difference over a part of the mixes."""

    difference: Difference
    mixes: int
    of: int


@dataclass(frozen=True)
class MeasureValues(GoalValues):
    """A measure of mixes in closed loops."""

    measure: Measure
    mixes: tuple[str, ...]
    high: bool
    one: Callable[[str, str], Interval]  # value of a mode and a single mix, with all of its uncertainty
    inverse: bool = False  # show 1 / value
    less: str = ""
    all_mixes: tuple[str, ...] = ()  # all that were requested, where some lack a mode

    @property
    def no_noise(self) -> str:
        """Single blocks, or blocks that count as one."""
        if (blocks := max(self.measure.same_draw[mix] for mix in self.mixes)) > 1:
            why = f"its {blocks} blocks of one run drew the same cells of notebooks, and count once"
            return f"{why}; measure both again in one plan, in which each block draws its own"
        why = "single blocks cannot tell: neither this mix nor one of the same work was measured twice in one run"
        return f"{why}; {IN_ONE_PLAN}"

    @property
    def modes(self) -> list[str]:
        """Modes in which all of the mixes were measured."""
        each = [set(self.measure.modes(mix)) for mix in self.mixes]
        return [mode for mode in self.measure.modes() if is_apart(mode) and all(mode in modes for modes in each)]

    def value(self, mode: str) -> Interval:
        """Of the mix, or the mean of several."""
        x = self.one(mode, self.mixes[0]) if len(self.mixes) == 1 else self.measure.mean_of(mode, self.mixes)
        return Interval(1 / x.value, 1 / x.high, 1 / x.low) if self.inverse else x

    def difference(self, one: str, other: str) -> Difference:
        """Of one mix by the noise between like blocks, of three and more by that between mixes."""
        return self._over(self.mixes, one, other)

    def by_mix(self, one: str, other: str) -> dict[str, Difference]:
        """Of three mixes and more: more blocks of each change nothing of how far the mixes differ."""
        if len(self.mixes) <= 2:
            return {}
        return {mix: self._over([mix], one, other) for mix in self.mixes}

    def _over(self, mixes: Sequence[str], one: str, other: str) -> Difference:
        return self.measure.difference(mixes, *((one, other) if self.high else (other, one)))

    def in_part(self, best: str) -> dict[str, PartDifference]:
        """Modes that would else be left out without a word."""
        mixes = self.all_mixes or self.mixes
        parts = {}
        for mode in self.measure.modes():
            here = [mix for mix in mixes if {mode, best} <= set(self.measure.modes(mix))]
            if here and is_apart(mode) and mode not in self.modes:
                parts[mode] = PartDifference(self._over(here, best, mode), len(here), len(mixes))
        return parts


@dataclass(frozen=True)
class ServedValues(GoalValues):
    """P99 of open-loop requests; only of modes in which the server keeps up and the generator was on time.

    A P99 of one run says nothing of how far runs differ. Of several runs their variance is pooled over modes, and an
    interval is never narrower than by it.
    """

    served: dict[str, ServedTenant]
    noise: Noise
    less: str = "shorter"

    @property
    def no_noise(self) -> str:
        """Without an interval of the P99."""
        why = "the P99 has no interval: how requests wait in groups was not recorded, or these are too few"
        return f"{why}; {IN_ONE_PLAN}"

    @property
    def modes(self) -> list[str]:
        """Modes with a known P99."""
        return [mode for mode in self._apart() if self._known(mode)]

    def _apart(self) -> list[str]:
        return [mode for mode in self.served if is_apart(mode)]

    def _known(self, mode: str) -> bool:
        s = self.served[mode]
        return s.valid and not s.behind and s.at(0.99) is not None

    @property
    def falls_behind(self) -> dict[str, str]:
        """By requests per second."""
        return {mode: self.served[mode].shortfall() for mode in self._apart() if self.served[mode].behind}

    @property
    def not_compared(self) -> dict[str, str]:
        """A late generator, too few requests, or too many that the end of the window cut off."""
        unknown = [mode for mode in self._apart() if not self._known(mode) and not self.served[mode].behind]
        return {mode: _why_unknown(self.served[mode]) for mode in unknown}

    def value(self, mode: str) -> Interval:
        """P99 in milliseconds."""
        tail = self._tail(mode)
        half = self._between_runs.over(len(self.served[mode].suites)).half()
        if math.isfinite(half) and math.isfinite(tail.low):
            low, high = tail.value * math.exp(-half), tail.value * math.exp(half)
            tail = Interval(tail.value, min(tail.low, low), max(tail.high, high))
        return Interval(*(1000 * v for v in tail))

    def _tail(self, mode: str) -> Interval:
        """From the requests of all runs together."""
        tail = self.served[mode].at(0.99)
        assert tail is not None
        return tail

    @cached_property
    def _between_runs(self) -> Spread:
        """Variance of the log of the P99 of one run; unknown if no mode was measured in two."""
        return pooled_variance(logs for mode in self.modes if (logs := self.served[mode].by_run(0.99)))

    def difference(self, one: str, other: str) -> Difference:
        """From the intervals of both quantiles, and the noise between runs."""
        tails = [self._tail(mode) for mode in (one, other)]
        value = math.log(tails[1].value / tails[0].value)
        # What could close the gap: a higher quantile of the better mode, a lower one of the other.
        better, worse = tails if value >= 0 else tails[::-1]
        ends = [better.high / better.value, worse.value / worse.low]
        if not all(map(math.isfinite, ends)):
            return Difference(value, (0.0, 0.0), (1, 1), 0.0)
        wide = student_quantile(0.975, NORMAL)
        errors = [math.log(end) / wide for end in (ends if value >= 0 else ends[::-1])]
        counts = (self.served[one].blocks, self.served[other].blocks)
        variances = (errors[0] ** 2 * counts[0], errors[1] ** 2 * counts[1])
        fixed = 0.0 if self.served[one].suites & self.served[other].suites else 2 * self.noise.again[False].variance
        within = Spread(errors[0] ** 2 + errors[1] ** 2, NORMAL)
        runs = self._between_runs.over(1 / sum(1 / len(self.served[mode].suites) for mode in (one, other)))
        if not runs.half() > within.half():
            return Difference(value, variances, counts, NORMAL, fixed)
        # The variance between runs has that of their requests in it.
        part = min(runs.variance / within.variance, 1.0) if within.variance else 1.0
        beyond = max(runs.variance - within.variance, fixed, 0.0)
        return Difference(value, (part * variances[0], part * variances[1]), counts, runs.freedom, beyond)


def _why_unknown(s: ServedTenant) -> str:
    if not s.valid:
        return LATE
    if (above := s.above(0.99)) is None:
        return "too few requests for a P99"
    requests = sum_times(s.sent).n
    return f"P99 above {1000 * above:,.0f} ms: {s.unfinished:,} of {requests:,} requests {CUT_OFF}"


def best_first(values: GoalValues, modes: Sequence[str]) -> list[str]:
    """Modes in order of a goal."""
    ranked = list(modes)
    ranked.sort(key=lambda mode: -values.difference(mode, modes[0]).value)
    return ranked
