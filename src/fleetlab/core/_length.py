"""A length of time as people write it: one language for all that takes one."""

from __future__ import annotations

import math
import re

SIZES = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
HINT = "seconds, or a number with s, m, h or d after it: 5m"


def in_seconds(told: str | float) -> float:
    """Seconds, or a number with s, m, h or d after it; nan where it is no length of time.

    >>> in_seconds("5m"), in_seconds("90"), in_seconds(3600), in_seconds("often")
    (300.0, 90.0, 3600.0, nan)
    """
    if not isinstance(told, str):
        return float(told) if 0 <= told < math.inf else math.nan
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\d+)?) *([smhd]?)", told.strip().lower())
    return float(found[1]) * SIZES[found[2]] if found else math.nan
