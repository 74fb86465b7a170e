"""What each goal measures, by mode, with the difference between two modes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleetlab.bench.advise.mix import AskedMix, mix_of
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.noise import Measure, Spread
from fleetlab.bench.analysis.serving import ServedTenant
from fleetlab.core import DeviceError
from fleetlab.stats import Difference, Interval, student_quantile

NORMAL = 1_000_000  # degrees of freedom of a quantile from very many requests


def is_apart(mode: str) -> bool:
    """Whether tenants are processes of their own, as on a cluster."""
    return not mode.startswith("one-process")


class GoalValues(Protocol):
    """Values of a goal by mode, for one mix or several."""

    @property
    def modes(self) -> list[str]:
        """Modes that are compared: of processes, not of streams in one process."""

    def value(self, mode: str) -> Interval:
        """The value that is shown."""

    def difference(self, one: str, other: str) -> Difference:
        """Log of the ratio of two modes; above 0 if the first is better."""


@dataclass(frozen=True, slots=True)
class AdviceGoal:
    """A goal: what it measures, and in which unit."""

    name: str
    what: str
    unit: str
    values: Callable[[Findings, AskedMix], GoalValues]


@dataclass(frozen=True, slots=True)
class MeasureValues:
    """A measure of mixes in closed loops."""

    measure: Measure
    mixes: tuple[str, ...]
    high: bool
    one: Callable[[str, str], Interval]  # value of a mode and a single mix, with all of its uncertainty
    inverse: bool = False  # show 1 / value

    @property
    def modes(self) -> list[str]:
        """Modes in which all of the mixes were measured."""
        known = [set(self.measure.modes(mix)) for mix in self.mixes]
        return [mode for mode in self.measure.modes() if is_apart(mode) and all(mode in modes for modes in known)]

    def value(self, mode: str) -> Interval:
        """Of the mix, or the mean of several."""
        x = self.one(mode, self.mixes[0]) if len(self.mixes) == 1 else self.measure.mean_of(mode, self.mixes)
        return Interval(1 / x.value, 1 / x.high, 1 / x.low) if self.inverse else x

    def difference(self, one: str, other: str) -> Difference:
        """Of one mix by the noise between blocks, of three and more by that between mixes."""
        sign = 1 if self.high else -1
        each = [self.measure.apart(mix, one, other) for mix in self.mixes]
        n = len(each)
        value = sign * sum(log for log, _, _ in each) / n
        if n > 2:
            spread = sum((sign * log - value) ** 2 for log, _, _ in each) / (n - 1)
            return Difference(value, (spread, 0.0), (n, 1), n - 1)
        mix = self.mixes[0]
        blocks = [self.measure.block(mode, mix) for mode in (one, other)]
        counts = (self.measure.blocks(one, mix), self.measure.blocks(other, mix))
        means = sum(m.variance for _, m, _ in each) / n**2
        known = sum(b.variance / k for b, k in zip(blocks, counts, strict=True)) / n
        freedom = min((m.freedom for _, m, _ in each), default=0.0)
        variances = (blocks[0].variance / n, blocks[1].variance / n)
        return Difference(value, variances, counts, freedom, fixed=max(means - known, 0.0))


@dataclass(frozen=True, slots=True)
class ServedValues:
    """P99 of requests on a schedule; only of modes whose generator was on time."""

    served: dict[str, ServedTenant]
    again: Spread  # between repetitions of a tenant alone

    @property
    def modes(self) -> list[str]:
        """Modes with a known P99."""
        return [mode for mode, s in self.served.items() if s.valid and s.at(0.99)]

    def value(self, mode: str) -> Interval:
        """P99 in milliseconds."""
        tail = self.served[mode].at(0.99)
        assert tail is not None
        return Interval(*(1000 * v for v in tail))

    def difference(self, one: str, other: str) -> Difference:
        """From the intervals of both quantiles, and the noise between runs if they are of different ones."""
        tails = [self.value(mode) for mode in (one, other)]
        wide = 2 * student_quantile(0.975, NORMAL)
        errors = [math.log(t.high / t.low) / wide for t in tails]
        counts = (len(self.served[one].times), len(self.served[other].times))
        variances = (errors[0] ** 2 * counts[0], errors[1] ** 2 * counts[1])
        fixed = 0.0 if self.served[one].suites & self.served[other].suites else 2 * self.again.variance
        return Difference(math.log(tails[1].value / tails[0].value), variances, counts, NORMAL, fixed)


def _throughput(f: Findings, asked: AskedMix) -> GoalValues:
    return MeasureValues(f.mixes.stp, _closed(f, asked), high=True, one=f.mixes.throughput)


def _worst(f: Findings, asked: AskedMix) -> GoalValues:
    return MeasureValues(f.mixes.worst, _closed(f, asked), high=True, one=f.mixes.fairness)


def _cost(f: Findings, asked: AskedMix) -> GoalValues:
    """An item costs 1/STP of what it costs alone, whatever the price."""
    return MeasureValues(f.mixes.stp, _closed(f, asked), high=True, one=f.mixes.throughput, inverse=True)


def _energy(f: Findings, asked: AskedMix) -> GoalValues:
    mixes = tuple(mix for mix in _closed(f, asked) if len(f.mixes.energy.modes(mix)) > 1)
    if not mixes:
        msg = f"no energy was measured: {asked.words}"
        raise DeviceError(msg, hint="energy is read from the GPU's counter through NVML")
    return MeasureValues(f.mixes.energy, mixes, high=False, one=f.mixes.joules)


def _tail(f: Findings, asked: AskedMix) -> GoalValues:
    """P99 of requests on a schedule if the mix has them, else P95 of inference steps relative to alone."""
    served = {s.mode: s for s in f.served_tenants if mix_of(s.tenant, s.background) == asked.mixes[0]}
    if len(served) > 1:
        return ServedValues(served, f.mixes.noise.again[False])
    mixes = tuple(mix for mix in asked.mixes if len(f.mixes.latency.modes(mix)) > 1)
    if not mixes:
        msg = f"no tail latency in two modes: {asked.words}"
        raise DeviceError(msg, hint="it needs an inference tenant, or one with `poisson` requests per second")
    return MeasureValues(f.mixes.latency, mixes, high=False, one=f.mixes.latency.mean)


def _closed(f: Findings, asked: AskedMix) -> tuple[str, ...]:
    mixes = tuple(mix for mix in asked.mixes if len(f.mixes.stp.modes(mix)) > 1)
    if not mixes:
        msg = f"requests on a schedule make as much progress as they are sent: {asked.words}"
        raise DeviceError(msg, hint="--goal p99; or name the tenants without `poisson` for the other goals")
    return mixes


GOALS = {
    goal.name: goal
    for goal in (
        AdviceGoal("throughput", "total work of all tenants, in GPUs of their own", "GPUs", _throughput),
        AdviceGoal("worst", "progress of the slowest tenant, relative to alone", "of alone", _worst),
        AdviceGoal("p99", "tail latency", "", _tail),
        AdviceGoal("cost", "cost of an item, relative to alone on a GPU", "of alone", _cost),
        AdviceGoal("energy", "energy of the same work, relative to alone", "of alone", _energy),
    )
}


def best_first(values: GoalValues, modes: Sequence[str]) -> list[str]:
    """Modes in order of a goal."""
    ranked = list(modes)
    ranked.sort(key=lambda mode: -values.difference(mode, modes[0]).value)
    return ranked


def shown_unit(goal: AdviceGoal, values: GoalValues) -> str:
    """Unit of its values."""
    if goal.name != "p99":
        return goal.unit
    return "ms, P99 of requests" if isinstance(values, ServedValues) else "times alone, P95 of steps"
