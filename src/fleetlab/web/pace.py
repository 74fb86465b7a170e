"""How long runs take, learnt from those that were: what takes long is answered for the first jobs before all of them.

Both sides play the same first jobs, so that such an answer is a true one of a shorter trace. Parts grow fourfold:
all of them together cost a third of the whole at the most.
"""

from __future__ import annotations

from fleetlab.web.scenario import Link, Scenario

FIRST = 1_000  # jobs of the smallest part
GROWS = 4  # times, from one part to the next
SOON = 0.4  # s: a part should take no longer
AT_ONCE = 0.7  # s: what takes no longer needs no parts
ANYWAY = 0.05  # s that a run takes however few jobs it has

Rules = tuple[str, ...]


class Pace:
    """Seconds that runs by the same rules took, by how many jobs they had."""

    def __init__(self) -> None:
        self._took: dict[Rules, dict[int, float]] = {}

    def note(self, scenario: Scenario, jobs: int, seconds: float) -> None:
        """A run of so many jobs took so long."""
        self._took.setdefault(_rules(scenario), {})[jobs] = seconds

    def first(self, link: Link, jobs: int) -> int:
        """How many of the jobs to play first: all where that is quick, else the most that are known to be."""
        return min(self._quick(scenario, jobs) for scenario in (link.now, link.base))

    def _quick(self, scenario: Scenario, jobs: int) -> int:
        took = self._took.get(_rules(scenario), {})
        if jobs <= FIRST or took.get(jobs, AT_ONCE + 1) <= AT_ONCE:
            return jobs
        return max([size for size, seconds in took.items() if size < jobs and seconds <= SOON], default=FIRST)


def slow(size: int, jobs: int, seconds: float) -> bool:
    """Would all jobs take too long to wait for, if the first `size` took so long?

    >>> slow(1_000, 100_000, 0.055), slow(16_000, 100_000, 3.0)
    (False, True)
    """
    return max(0.0, seconds - ANYWAY) * jobs / size > AT_ONCE


def after(size: int, jobs: int) -> int:
    """How many to play after the first `size`; all, where a larger part would take long itself.

    >>> after(1_000, 100_000), after(4_000, 100_000), after(16_000, 100_000)
    (4000, 16000, 100000)
    """
    return size * GROWS if size * GROWS * GROWS <= jobs else jobs


def _rules(scenario: Scenario) -> Rules:
    return (scenario.trace, scenario.order, scenario.backfill, scenario.placement, scenario.estimate, scenario.sharing)
