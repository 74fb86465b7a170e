"""Random arrival schedules, reproducible by seed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fleetlab.devices.errors import BenchError


def arrivals(
    rate: float, seconds: float, *, seed: int | tuple[int, ...], burstiness: float = 1.0
) -> NDArray[np.float64]:
    """Arrival times from 0 to `seconds` with gamma inter-arrival times: shape 1 is Poisson, below 1 bursty (CV 1/√b).

    >>> arrivals(2, 3, seed=0).round(2).tolist()
    [0.34, 0.85, 0.86, 0.86, 1.14, 1.95, 2.29, 2.67]
    """
    if not (math.isfinite(rate) and rate > 0 and math.isfinite(seconds) and seconds >= 0 and 0 < burstiness < math.inf):
        msg = f"not an arrival process: {rate} per second for {seconds} s with shape {burstiness}"
        raise BenchError(msg, hint="rate and shape must be above 0")
    rng = np.random.default_rng(seed)
    parts, now = [], 0.0
    while now < seconds:
        # In chunks of fixed size, so that a longer schedule starts like a shorter one.
        gaps = rng.gamma(burstiness, 1 / (burstiness * rate), size=256)
        times = now + np.cumsum(gaps)
        parts.append(times)
        now = float(times[-1])
    times = np.concatenate(parts) if parts else np.empty(0)
    return times[times < seconds]
