"""Series whose true means and quantiles are known: many runs at once, a row a run."""

from __future__ import annotations

import math

import numpy as np


def ar1(rng, phi, jobs, runs):
    """Gaussian AR(1) with mean 0 and innovations of variance 1."""
    noise = rng.standard_normal((jobs, runs))
    values = np.empty((jobs, runs))
    values[0] = noise[0] / math.sqrt(1 - phi**2)
    for k in range(1, jobs):
        values[k] = phi * values[k - 1] + noise[k]
    return values.T


def mm1_waits(rng, rho, jobs, runs, speeds=(1.0,)):
    """Waits in M/M/1 queues that begin in steady state, by Lindley's recursion; for each speed, the same jobs."""
    gaps, work = rng.exponential(1 / rho, (jobs, runs)), rng.exponential(1.0, (jobs, runs))
    chance, size = rng.random(runs), rng.exponential(1.0, runs)
    found = []
    for speed in speeds:
        wait = np.where(chance < rho / speed, size / (speed - rho), 0.0)
        waits = np.empty((jobs, runs))
        for k in range(jobs):
            waits[k] = wait
            wait = np.maximum(wait + work[k] / speed - gaps[k], 0.0)
        found.append(waits.T)
    return found


def mm1_mean(rho, speed=1.0):
    return rho / speed / (speed - rho)


def mm1_quantile(rho, q, speed=1.0):
    return max(0.0, math.log(rho / speed / (1 - q)) / (speed - rho))


def coverage(statistics, truth):
    """The share of the intervals that hold the truth; NaN where most runs are too short for one."""
    intervals = [i for s in statistics if math.isfinite((i := s.interval()).high)]
    return np.mean([i.low <= truth <= i.high for i in intervals]) if len(intervals) > len(statistics) / 2 else math.nan
