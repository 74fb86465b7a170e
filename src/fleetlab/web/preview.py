"""Previews: a run that takes long is simulated for its first jobs before all of them.

Both scenarios simulate the same first jobs, so a preview is the correct answer for a shorter trace. Previews grow
fourfold: together they cost at most a third of the full run.
"""

from __future__ import annotations

from fleetlab.core.policy import Policy
from fleetlab.core.scenario import Scenario
from fleetlab.web.link import Link

FIRST = 1_000  # jobs of the smallest preview
GROWTH = 4  # from one preview to the next
PREVIEW_TIME = 0.4  # s: a first preview should take no longer
NO_PREVIEW = 0.7  # s: a run that takes no longer has no preview
OVERHEAD = 0.05  # s that every run takes

Group = tuple[str | None, Policy, str]  # scenarios that take about as long as each other


class RunTimes:
    """Seconds that runs under the same policy took, by their number of jobs."""

    def __init__(self) -> None:
        self._seconds: dict[Group, dict[int, float]] = {}

    def add(self, scenario: Scenario, jobs: int, seconds: float) -> None:
        """Record a run."""
        self._seconds.setdefault(_group(scenario), {})[jobs] = seconds

    def first_size(self, link: Link, jobs: int) -> int:
        """Return how many jobs to simulate first: all where that is quick, else the most that are known to be."""
        return min(self._quick(scenario, jobs) for scenario in (link.now, link.base))

    def _quick(self, scenario: Scenario, jobs: int) -> int:
        times = self._seconds.get(_group(scenario), {})
        if jobs <= FIRST or times.get(jobs, NO_PREVIEW + 1) <= NO_PREVIEW:
            return jobs
        return max([size for size, seconds in times.items() if size < jobs and seconds <= PREVIEW_TIME], default=FIRST)


def is_slow(size: int, jobs: int, seconds: float) -> bool:
    """Whether all jobs would take long, if the first `size` took so many seconds.

    >>> is_slow(1_000, 100_000, 0.055), is_slow(16_000, 100_000, 3.0)
    (False, True)
    """
    return max(0.0, seconds - OVERHEAD) * jobs / size > NO_PREVIEW


def next_size(size: int, jobs: int) -> int:
    """Return how many jobs to simulate after the first `size`; all, where a larger preview would take long itself.

    >>> next_size(1_000, 100_000), next_size(4_000, 100_000), next_size(16_000, 100_000)
    (4000, 16000, 100000)
    """
    return size * GROWTH if size * GROWTH * GROWTH <= jobs else jobs


def _group(scenario: Scenario) -> Group:
    return scenario.data.name, scenario.policy, str(scenario.events)
