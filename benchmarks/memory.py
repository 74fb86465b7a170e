"""The memory of a server and of its processes while it works: samples, and by how much they grow."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fleetlab.stats.intervals import Interval, Statistic, no_interval
from fleetlab.stats.means import degrees_of_freedom, variance_inflation

MIB = 1 << 20
WARM_UP = 1 / 3  # of the requests: libraries are imported, and answers fill the memory that is set apart for them
PER = 1000  # requests, of a slope
FEWEST = 6  # samples


@dataclass
class Memory:
    """How much a server and its processes have, after so many requests."""

    requests: list[int] = field(default_factory=list)
    server: list[float] = field(default_factory=list)  # MiB
    processes: list[list[float]] = field(default_factory=list)  # MiB, each

    def sample(self, requests: int, pid: int) -> None:
        """Look at a server now."""
        self.requests.append(requests)
        self.server.append(resident(pid))
        self.processes.append([resident(child) for child in children(pid)])

    def growth(self) -> Interval:
        """MiB that the server grows in 1,000 requests, after the warm-up."""
        return slope(self.requests, self.server)

    def growth_of_processes(self) -> Interval:
        """The same of its processes together; those that start or end are part of it."""
        return slope(self.requests, [sum(each) for each in self.processes])

    @property
    def largest_process(self) -> float:
        """MiB of the largest process ever seen."""
        return max((size for each in self.processes for size in each), default=0.0)


def slope(requests: list[int], sizes: list[float]) -> Interval:
    """Fit a line by least squares to what comes after the warm-up; its residuals are autocorrelated, as AR(1).

    >>> [round(x, 1) for x in slope(list(range(0, 3000, 100)), [200.0 + (k % 2) for k in range(30)])]
    [0.1, -0.7, 1.0]
    """
    x, y = np.asarray(requests, float), np.asarray(sizes, float)
    late = x >= WARM_UP * x.max(initial=0)
    x, y = x[late] / PER, y[late]
    if len(x) < FEWEST or not np.ptp(x):
        return no_interval()
    away = x - x.mean()
    value = float(away @ y / (away @ away))
    rest = y - y.mean() - value * away
    inflation = variance_inflation(rest)
    df = degrees_of_freedom(len(x) - 1, inflation)
    error = math.sqrt(float(rest @ rest) / (len(x) - 2) / float(away @ away) * inflation)
    return Statistic.symmetric(value, error, df).interval()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    ids: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            ids += map(int, task.read_text().split())
    return ids


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB; 0 if it is gone."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) * 1024 / MIB for line in lines if line.startswith("VmRSS")), 0.0)
    return 0.0
