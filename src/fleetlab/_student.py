"""Student's t, for whoever gives an interval: it imports nothing, because some do so where little is installed."""

from __future__ import annotations

import math
from functools import cache


@cache
def student(freedom: int, sure: float) -> float:
    """How many standard errors to each side hold the truth with probability `sure`: Student's t, by bisection.

    >>> round(student(19, 0.95), 3), round(student(1, 0.95), 3), round(student(10**9, 0.95), 3)
    (2.093, 12.706, 1.96)
    """
    low, high = 0.0, 1.0
    while _inside(freedom, high) < sure:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(freedom, middle) < sure else (low, middle)
    return high


def _inside(freedom: int, t: float) -> float:
    """The chance that |T| is below `t`: Abramowitz and Stegun, 26.7.3 and 26.7.4; for many degrees the normal law."""
    if freedom >= 300:
        # Abramowitz and Stegun, 26.7.8: off by less than a millionth from here on.
        return math.erf(t * (1 - 1 / (4 * freedom)) / math.sqrt(1 + t * t / (2 * freedom)) / math.sqrt(2))
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term = cosine if odd else 1.0
    total = 0.0 if odd and freedom == 1 else term
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
