"""A published number, the value of a trace, and the tolerance between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleetlab.traces.synthesize.joint_law import A_DAY, Bools, Floats, curve

SOME = 50_000  # jobs below which what is held, bursts and predictions hang on a few groups
MONTH = int(28 * A_DAY)  # jobs in four weeks: fewer days have no quartiles to speak of

ERRORS = 3.0  # standard errors of a sample of this size, allowed on top of what the source allows
# Above these, three standard errors leave so much room that to be met would say nothing: the row has too few values.
MOST_POINTS = 0.05  # of level
MOST_TAIL = 0.5  # of what is beyond the quantile

MIDDLE = 5.0, 95.0  # percent: between them curves were read to 8 %, beyond to 15 %

SAMPLED = "plus 3 standard errors"
SHARE = f"printed: 1 % of it, {SAMPLED}"
BAR = f"a bar's length: 0.3 points, {SAMPLED}"
CDF = f"read off a curve: 1 point, {SAMPLED}"
STATED = f"stated in round numbers: 2 points, {SAMPLED}"
MIDST = f"read off a curve: 8 % of the value, {SAMPLED}; or, at that value, 1 point of the level, {SAMPLED}"
ENDS = f"read off a curve's end: 15 % of the value, {SAMPLED}; or, at that value, a tenth of the tail, {SAMPLED}"
GRAIN = "; half a second more, as times are whole seconds"


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
    needs: int = 0  # jobs below which the number cannot hold
    few: str | None = None  # why there are too few values to hold a quantile against, in words
    level: str | None = None  # what a value outside the interval is met by: its level, in words


@dataclass(frozen=True, slots=True)
class WeightedSample:
    """Values with weights, sorted once for many questions."""

    values: Floats
    upto: Floats  # cumulated weights, the last is 1
    count: float  # how many equally weighted values would be as sure

    @classmethod
    def of(cls, values: Floats, weights: Floats | None = None, where: Bools | None = None) -> WeightedSample:
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

    def under(self, value: float) -> float:
        """The share of the weight that is below `value`, and not at it."""
        at = int(np.searchsorted(self.values, value, side="left"))
        return float(self.upto[at - 1]) if at else 0.0

    def error(self, level: float) -> float:
        """The standard error of a share."""
        return float(np.sqrt(max(level * (1 - level), 0.0) / max(self.count, 1.0)))


def share(
    name: str, published: float, achieved: float, count: float, *, how: str, source: str, needs: int = 0
) -> Target:
    """Hold a share of jobs or instances against a published one."""
    margin = {SHARE: 0.01 * published, BAR: 0.003, CDF: 0.01, STATED: 0.02}[how]
    room = margin + ERRORS * float(np.sqrt(max(published * (1 - published), 0) / max(count, 1.0)))
    return Target(name, published, achieved, max(0.0, published - room), published + room, how, source, needs)


def quantile(
    name: str,
    sample: WeightedSample,
    points: Mapping[str, float],
    percent: float,
    *,
    source: str,
    needs: int = 0,
    grain: float = 0.0,
) -> Target:
    """Hold a quantile against one read off a curve, which may be misread along it or across it."""
    level, published, achieved = percent / 100, points[f"{percent:g}"], sample.quantile(percent / 100)
    how, part = (MIDST, 0.08) if MIDDLE[0] <= percent <= MIDDLE[1] else (ENDS, 0.15)
    sampled = ERRORS * sample.error(level)
    low = along(points, level - sampled) * (1 - part) - grain
    high = along(points, level + sampled) * (1 + part) + grain
    how += GRAIN if grain else ""
    few = _few(sample, level)
    by_level = None if low <= achieved <= high else _level(sample, level, published, grain)
    return Target(name, published, achieved, max(0.0, low), high, how, source, needs, few, by_level)


def _few(sample: WeightedSample, level: float) -> str | None:
    sampled, most = ERRORS * sample.error(level), min(MOST_POINTS, MOST_TAIL * min(level, 1 - level))
    return f"effective sample size {sample.count:,.0f}: ±{100 * sampled:.2g} points" if sampled > most else None


def along(points: Mapping[str, float], level: float) -> float:
    """The value of a published curve at a level: even by factors between its points, and beyond its ends as there."""
    percents, values = curve(points)
    logs = np.log(values)
    left = int(np.clip(np.searchsorted(percents, level * 100, side="right") - 1, 0, len(percents) - 2))
    slope = (logs[left + 1] - logs[left]) / (percents[left + 1] - percents[left])
    return float(np.exp(logs[left] + slope * (level * 100 - percents[left])))


def _level(sample: WeightedSample, level: float, published: float, grain: float) -> str | None:
    """Say at which level of the trace a published quantile is, if that is near enough; a maximum has no level."""
    slip = 0.01 if MIDDLE[0] <= level * 100 <= MIDDLE[1] else 0.1 * min(level, 1 - level)
    room = slip + ERRORS * sample.error(level)
    under, upto = sample.under(published - grain), sample.below(published + grain)
    if level == 1 or not (under <= level + room and upto >= level - room):
        return None
    nearest = min(max(level, under), upto)
    return f"met by its level: {100 * nearest:.2f} %, within {100 * room:.2f} points"


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
    return Target(name, published, achieved, max(0.0, published - room), published + room, how, source, needs)
