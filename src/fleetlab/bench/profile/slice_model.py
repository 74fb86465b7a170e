"""What a work would do on a slice of a card, foretold from what it does on fewer SMs: nothing here was measured.

A step has time that nothing shortens, time that the SMs take, and time that the memory takes. A slice with a part f of
the SMs and a part b of the memory's bandwidth stretches the second by 1/f and the third by 1/b. The third is the part
of the time that the memory is busy when the work has the card to itself. That all three follow one another is the
worst case; if SMs and memory work at once, the longer of the two counts (the roofline): the limits span both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from fleetlab.stats import Interval

# Nine in ten predictions of an A100 slice from another were off by less, in the worst of three published tables.
OFF = 0.22


class Slice(NamedTuple):
    """A part of a card."""

    name: str
    sms: float  # of all
    memory: float  # of its bandwidth, of all


def curve(rates: Mapping[int, float]) -> dict[float, float]:
    """How much longer a step takes on a part of the SMs, never less with fewer: noise is levelled out."""
    whole = max(rates)
    levels: list[tuple[float, int]] = []  # rates that rise with the SMs, by pooling neighbours that do not
    for _, rate in sorted(rates.items()):
        levels.append((rate, 1))
        while len(levels) > 1 and levels[-2][0] > levels[-1][0]:
            (a, n), (b, m) = levels[-2:]
            levels[-2:] = [((a * n + b * m) / (n + m), n + m)]
    flat = [rate for rate, n in levels for _ in range(n)]
    return {sms / whole: flat[-1] / rate for sms, rate in zip(sorted(rates), flat, strict=True)}


def on_slice(stretch: Mapping[float, float], memory: float, part: Slice, busy: float = 1.0) -> Interval:
    """The speed on a slice of a work whose steps stretch so on fewer SMs; `busy` is the part of its time in steps."""
    sms = _between(stretch, part.sms)
    all_cut = max(1 / part.sms, 1 / part.memory)  # nothing is stretched more than by all its means being cut
    slow = min(sms + memory * (1 / part.memory - 1), max(sms, all_cut))
    fast = max(sms, memory / part.memory)
    value, low, high = (1 / (1 - busy + busy * t) for t in (slow, slow * (1 + OFF), min(fast, slow) / (1 + OFF)))
    return Interval(value, low, high)


def _between(stretch: Mapping[float, float], part: float) -> float:
    """Straight lines between points of log(time) by log(SMs); below the first, as if all of it were SMs."""
    points = sorted(stretch.items())
    if part <= points[0][0]:
        return points[0][1] * points[0][0] / part
    for (x0, y0), (x1, y1) in pairwise(points):
        if part <= x1:
            at = math.log(part / x0) / math.log(x1 / x0)
            return math.exp(math.log(y0) + at * math.log(y1 / y0))
    return points[-1][1]


def from_one(speed: float, known: Slice, memory: float, parts: Sequence[Slice]) -> dict[str, float]:
    """Speeds on other slices from that on one: where no curve was measured.

    >>> half, quarter = Slice("half", 0.5, 0.5), Slice("quarter", 0.25, 0.25)
    >>> from_one(0.5, half, 0.0, [quarter])
    {'quarter': 0.25}
    """
    shared = (1 / speed - 1) / (1 / known.memory - 1)  # if all of it were the memory
    if shared > memory:
        late = 1 / speed - 1 + memory / known.sms - memory / known.memory
        shared = late / (1 / known.sms - 1)
    bound = min(memory, shared)
    return {p.name: 1 / (1 - shared + (shared - bound) / p.sms + bound / p.memory) for p in parts}
