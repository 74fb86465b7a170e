"""Student's t distribution.

scipy has it, but scipy is 143 MB and 0.2 to 0.4 s of imports for this one function, and the room also runs on GPU
hosts where only numpy is installed. So the distribution is computed here, and a test holds it against scipy.
"""

from __future__ import annotations

import math
from functools import cache

NORMAL = 1.959963984540054  # the 97.5 % quantile of the normal distribution
LARGE = 1000  # degrees of freedom: from here on the normal approximation is good to six digits


def student_cdf(t: float, df: float) -> float:
    """Return the probability that a Student variable with `df` degrees of freedom is at most `t`.

    >>> student_cdf(0.0, 5), round(student_cdf(2.093, 19), 4)
    (0.5, 0.975)
    """
    if not math.isfinite(t):
        return t if math.isnan(t) else float(t > 0)
    if df >= LARGE:  # Abramowitz and Stegun, 26.7.8
        z = t * (1 - 1 / (4 * df)) / math.sqrt(1 + t * t / (2 * df))
        return 0.5 * math.erfc(-z / math.sqrt(2))
    tail = _incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2
    return 1 - tail if t > 0 else tail


@cache
def student_quantile(p: float, df: float) -> float:
    """Return the `p` quantile, 0.5 ≤ p < 1, of Student's t with `df` degrees of freedom, by bisection.

    >>> [round(student_quantile(0.975, df), 3) for df in (1, 19, 1e9)]
    [12.706, 2.093, 1.96]
    """
    low, high = 0.0, 1.0
    while student_cdf(high, df) < p:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, df) < p else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function by its continued fraction (Abramowitz and Stegun, 26.5.8)."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    if x <= 0:
        return 0.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # Lentz's method; converges within O(√max(a, b)) terms on this side of the mean.
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, 200):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + numerator * d), 1 + numerator / c
            total *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * total / a
