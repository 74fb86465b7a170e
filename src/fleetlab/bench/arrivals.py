"""When requests are due: timetables that no server can hold up, the same for the same seed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fleetlab.devices.errors import BenchError


def arrivals(
    rate: float, seconds: float, *, seed: int | tuple[int, ...], burstiness: float = 1.0
) -> NDArray[np.float64]:
    """Times from 0 to `seconds` with Gamma gaps: burstiness 1 is Poisson, below it comes in bursts (CV 1/√b).

    >>> arrivals(2, 3, seed=0).round(2).tolist()
    [0.34, 0.85, 0.86, 0.86, 1.14, 1.95, 2.29, 2.67]
    """
    if not (math.isfinite(rate) and rate > 0 and math.isfinite(seconds) and seconds >= 0 and 0 < burstiness < math.inf):
        msg = f"no timetable: {rate} a second for {seconds} s with burstiness {burstiness}"
        raise BenchError(msg, hint="a rate and a burstiness above 0")
    rng = np.random.default_rng(seed)
    parts, now = [], 0.0
    while now < seconds:
        # In lots of one size, so that a longer timetable begins like a shorter one.
        gaps = rng.gamma(burstiness, 1 / (burstiness * rate), size=256)
        times = now + np.cumsum(gaps)
        parts.append(times)
        now = float(times[-1])
    times = np.concatenate(parts) if parts else np.empty(0)
    return times[times < seconds]
