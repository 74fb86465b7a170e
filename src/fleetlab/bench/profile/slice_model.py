"""Predict the speed of a workload on a MIG slice from its speed on fewer SMs.

A step has a constant part, a part that the SMs take, and a part that memory takes. A slice with a fraction f of the SMs
and b of the memory bandwidth stretches the second by 1/f and the third by 1/b. The third is the memory utilization of
the workload alone. In the worst case the three do not overlap; if SMs and memory overlap, the longer one counts
(roofline). The interval spans both cases. No step is shorter on a slice than on the whole GPU: no speed, and no limit
of its interval, is above 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from fleetlab.stats import Interval

# P90 of the relative error of predictions between A100 slices, in the worst of three published tables.
ERROR_P90 = 0.22


class GpuSlice(NamedTuple):
    """A slice of a GPU."""

    name: str
    sms: float  # fraction
    memory: float  # fraction of the bandwidth


def stretch_curve(rates: Mapping[int, float]) -> dict[float, float]:
    """Relative step time by fraction of SMs, made monotonic to remove noise."""
    whole = max(rates)
    levels: list[tuple[float, int]] = []  # increasing rates, by pooling adjacent violators
    for _, rate in sorted(rates.items()):
        levels.append((rate, 1))
        while len(levels) > 1 and levels[-2][0] > levels[-1][0]:
            (a, n), (b, m) = levels[-2:]
            levels[-2:] = [((a * n + b * m) / (n + m), n + m)]
    flat = [rate for rate, n in levels for _ in range(n)]
    return {sms / whole: flat[-1] / rate for sms, rate in zip(sorted(rates), flat, strict=True)}


def on_slice(stretch: Mapping[float, float], memory: float, part: GpuSlice, busy: float = 1.0) -> Interval:
    """Predict the speed on a slice from the step-time curve; `busy` is the fraction of time in steps."""
    sms = _between(stretch, part.sms)
    all_cut = max(1 / part.sms, 1 / part.memory)  # no step is stretched more than by the scarcest resource
    slow = min(sms + memory * (1 / part.memory - 1), max(sms, all_cut))
    fast = max(sms, memory / part.memory)
    value, low, high = (
        1 / (1 - busy + busy * max(t, 1.0)) for t in (slow, slow * (1 + ERROR_P90), min(fast, slow) / (1 + ERROR_P90))
    )
    return Interval(value, low, high)


def _between(stretch: Mapping[float, float], part: float) -> float:
    """Interpolate log(time) over log(SMs); below the first point time is inverse to SMs."""
    points = sorted(stretch.items())
    if part <= points[0][0]:
        return points[0][1] * points[0][0] / part
    for (x0, y0), (x1, y1) in pairwise(points):
        if part <= x1:
            at = math.log(part / x0) / math.log(x1 / x0)
            return math.exp(math.log(y0) + at * math.log(y1 / y0))
    return points[-1][1]
