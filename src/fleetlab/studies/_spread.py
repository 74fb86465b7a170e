"""How sure is a mean? Over independent runs, and over blocks of time where neighbours hang together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetlab._student import student
from fleetlab.core import Estimate

Floats = npt.NDArray[np.float64]

BLOCKS = 20
LEAST = 10 * BLOCKS  # values: with fewer, no interval is given
USUAL = 0.95


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean, its standard error, and the degrees of freedom that it was estimated with."""

    value: float
    error: float
    freedom: int

    def between(self, sure: float = USUAL) -> tuple[float, float]:
        """The interval that holds the truth with this probability."""
        half = student(self.freedom, sure) * self.error if self.freedom else float("nan")
        return self.value - half, self.value + half

    def estimate(self, metric: str, unit: str = "") -> Estimate:
        """With its 95 % interval."""
        return Estimate(metric, self.value, *self.between(), unit)


def over_runs(values: list[float] | Floats) -> Mean:
    """The mean of one value a run, where runs are independent.

    >>> over_runs([1.0, 2.0, 3.0]).estimate("wait", "s")._replace(low=0, high=0)
    Estimate(metric='wait', value=2.0, low=0, high=0, unit='s')
    """
    x = np.asarray(values, dtype=np.float64)
    error = float(x.std(ddof=1)) / len(x) ** 0.5 if len(x) > 1 else float("nan")
    return Mean(float(x.mean()), error, len(x) - 1)


def with_controls(values: Floats, controls: Floats) -> Mean:
    """The mean over runs where all controls are zero, by least squares: what they explain is chance, and is taken off.

    `controls` has a row a run and a column a control, each with the mean zero whatever the simulator does.
    """
    columns = np.column_stack([np.ones(len(values)), controls])
    fitted = np.linalg.lstsq(columns, values, rcond=None)[0]
    left = values - columns @ fitted
    freedom = len(values) - columns.shape[1]
    variance = float(left @ left) / freedom * float(np.linalg.pinv(columns.T @ columns)[0, 0])
    return Mean(float(fitted[0]), variance**0.5, freedom)


def over_time(values: Floats) -> Mean:
    """The mean of values in order of time, from block means: neighbours hang together, blocks hardly do."""
    if len(values) < LEAST:
        return Mean(float(values.mean()) if len(values) else float("nan"), float("nan"), 0)
    blocks = over_runs([float(part.mean()) for part in np.array_split(values, BLOCKS)])
    return Mean(float(values.mean()), blocks.error, blocks.freedom)


def beside(simulated: Floats, recorded: Floats) -> Mean:
    """The mean of what was simulated, as sure as its difference from what was recorded of the same, in order of time.

    Both rise and fall together, so that the interval of either alone would forgive too much.
    """
    apart = over_time(simulated - recorded)
    return Mean(float(simulated.mean()) if len(simulated) else float("nan"), apart.error, apart.freedom)


def rarely_more(lines: int, sure: float = 0.999, miss: float = 1 - USUAL) -> int:
    """Of so many honest intervals, how many miss at most, but for one time in a thousand (binomial)?

    >>> rarely_more(48)
    8
    """
    chance, total, k = (1 - miss) ** lines, 0.0, 0
    while (total := total + chance) < sure:
        chance *= (lines - k) / (k + 1) * miss / (1 - miss)
        k += 1
    return k
