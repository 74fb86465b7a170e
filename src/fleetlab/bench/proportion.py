"""How sure is a share that was counted?"""

from __future__ import annotations

import math
from statistics import NormalDist

from fleetlab.bench.statistics import Interval


def wilson(hits: int, of: int, *, confidence: float = 0.95) -> Interval:
    """Wilson's interval (1927) of a share: it never leaves 0 to 1, and says something even where all or none hit.

    >>> tuple(round(x, 3) for x in wilson(9, 10))
    (0.9, 0.596, 0.982)
    """
    if of < 1:
        return Interval(math.nan, math.nan, math.nan)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = hits / of, 1 + z * z / of
    middle = (share + z * z / (2 * of)) / weight
    half = z / weight * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    # At the ends rounding may leave a limit beside the value that it must hold.
    return Interval(share, min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share))
