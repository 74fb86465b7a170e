"""How a number of a trace is held against a published one, and how far apart they may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.traces.synthesize._joint import Bools, Floats

FEW = 10  # values beyond a quantile, with fewer of which it is none
ERRORS = 3.0  # standard errors of a sample of this size, allowed on top of what the source allows

SHARE = "printed: 1 % of it"
BAR = "a bar's length: 0.3 points"
CDF = "read off a curve: 1 point"
LOW = "read off a curve: 8 % of the value, or 1 point of the level"
HIGH = "read off a curve's end: 15 % of the value, or a tenth of the tail"
TOLD = "told in round numbers: 2 points"


@dataclass(frozen=True, slots=True)
class Target:
    """One published number, what the trace has, and the interval in which that would do."""

    target: str
    published: float
    achieved: float
    low: float
    high: float
    tolerance: str
    source: str
    needs: int = 0  # tasks below which the number cannot hold
    seen: float = np.inf  # values beyond a quantile, on its thinner side


@dataclass(frozen=True, slots=True)
class Sample:
    """Values with weights, sorted once for many questions."""

    values: Floats
    upto: Floats  # cumulated weights, the last is 1
    count: float  # how many equally weighted values would be as sure

    @classmethod
    def of(cls, values: Floats, weights: Floats | None = None, where: Bools | None = None) -> Sample:
        """Take the values that are there."""
        keep = np.isfinite(values) if where is None else where & np.isfinite(values)
        kept = values[keep]
        weight = np.ones(len(kept)) if weights is None else weights[keep].astype(float)
        order = np.argsort(kept, kind="stable")
        upto = np.cumsum(weight[order])
        total = upto[-1] if len(upto) else 1.0
        return cls(kept[order], upto / total, float(total**2 / max(float((weight**2).sum()), 1e-300)))

    def quantile(self, level: float) -> float:
        """The value below which `level` of the weight is."""
        if not len(self.values):
            return float("nan")
        at = np.searchsorted(self.upto, min(max(level, 0.0), 1.0) - 1e-12)
        return float(self.values[min(int(at), len(self.values) - 1)])

    def below(self, value: float) -> float:
        """The share of the weight that is at or below `value`."""
        at = int(np.searchsorted(self.values, value, side="right"))
        return float(self.upto[at - 1]) if at else 0.0

    def error(self, level: float) -> float:
        """The standard error of a share."""
        return float(np.sqrt(max(level * (1 - level), 0.0) / max(self.count, 1.0)))


def share(
    name: str, published: float, achieved: float, count: float, *, how: str, source: str, needs: int = 0
) -> Target:
    """Hold a share of tasks or instances against a published one."""
    margin = {SHARE: 0.01 * published, BAR: 0.003, CDF: 0.01, TOLD: 0.02}[how]
    room = margin + ERRORS * float(np.sqrt(max(published * (1 - published), 0) / max(count, 1.0)))
    return Target(name, published, achieved, published - room, published + room, how, source, needs)


def quantile(
    name: str, sample: Sample, percent: float, published: float, *, source: str, needs: int = 0, grain: float = 0.0
) -> Target:
    """Hold a quantile against one read off a curve, which may be misread along it or across it."""
    level = percent / 100
    how, part, slip = (LOW, 0.08, 0.01) if percent <= 95 else (HIGH, 0.15, 0.1 * (1 - level))
    slip += ERRORS * sample.error(level)
    achieved = sample.quantile(level)
    # The published value would do if it were the trace's at a level nearby, or near to one that is.
    below, above = sample.quantile(level - slip), sample.quantile(level + slip)
    low = published / (1 + part) - (above - achieved) - grain
    high = published * (1 + part) + (achieved - below) + grain
    seen = sample.count * min(level, 1 - level) if percent < 100 else np.inf
    return Target(name, published, achieved, low, high, how, source, needs, seen)


def number(
    name: str,
    published: float,
    achieved: float,
    part: float,
    *,
    how: str,
    source: str,
    error: float = 0.0,
    needs: int = 0,
) -> Target:
    """Hold a plain number against a published one."""
    room = part * abs(published) + ERRORS * error
    return Target(name, published, achieved, published - room, published + room, how, source, needs)
