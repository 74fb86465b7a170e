"""A service-level objective as text: `p90 wait < 600`, `mean JCT < 2h`, `p99 slowdown < 3`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from fleetlab.core import WorkloadError
from fleetlab.core.catalog import METRICS
from fleetlab.core.durations import in_seconds
from fleetlab.stats import BlockBootstrap, Floats, Statistic

METRIC_NAMES = {metric.name.lower(): metric for metric in METRICS if metric.column}
GRAMMAR = re.compile(r"(mean|p\d{1,2}(?:\.\d+)?)\s+([a-z ]+?)\s*<\s*(.+)", re.IGNORECASE)
HINT = f"such as p90 wait < 600, mean JCT < 2h or p99 slowdown < 3; metrics are {', '.join(METRIC_NAMES)}"


@dataclass(frozen=True, slots=True)
class ServiceGoal:
    """A statistic of the jobs that must stay below a limit."""

    quantile: float | None  # None: the mean
    metric: str
    limit: float  # seconds, or a ratio

    @classmethod
    def read(cls, text: str) -> ServiceGoal:
        """Read a goal.

        >>> ServiceGoal.read("p90 wait < 10m")
        ServiceGoal(quantile=0.9, metric='wait', limit=600.0)
        """
        match = GRAMMAR.fullmatch(" ".join(str(text).split()))
        if match is None or (name := match[2].lower()) not in METRIC_NAMES:
            msg = f"not a goal: `{text}`"
            raise WorkloadError(msg, hint=HINT)
        metric, statistic = METRIC_NAMES[name], match[1].lower()
        limit = _limit(match[3], seconds=metric.unit == "s")
        if not 0 < limit < math.inf:
            kind = "a duration" if metric.unit else "a number"
            msg = f"a limit of {metric.name} is {kind} above 0, not: `{match[3]}`"
            raise WorkloadError(msg, hint=HINT)
        quantile = None if statistic == "mean" else float(statistic[1:]) / 100
        if quantile == 0:
            msg = f"a percentile lies between 0 and 100: `{text}`"
            raise WorkloadError(msg, hint=HINT)
        return cls(quantile, metric.name, limit)

    def __str__(self) -> str:
        statistic = "mean" if self.quantile is None else f"P{100 * self.quantile:g}"
        return f"{statistic} {self.metric}"

    @property
    def unit(self) -> str:
        """Unit of the limit."""
        return METRICS[self.metric].unit

    @property
    def column(self) -> str:
        """Column of the table of simulated jobs."""
        return METRICS[self.metric].column

    def of(self, values: Floats) -> float:
        """Return the statistic alone."""
        return float(values.mean() if self.quantile is None else np.quantile(values, self.quantile))

    def statistic(self, values: Floats, blocks: BlockBootstrap) -> Statistic:
        """Return the statistic with its standard errors."""
        within = METRICS[self.metric].least, math.inf
        return blocks.mean(values, within) if self.quantile is None else blocks.quantile(values, self.quantile, within)


def _limit(text: str, *, seconds: bool) -> float:
    try:
        return in_seconds(text) if seconds else float(text)
    except ValueError:
        return math.nan
