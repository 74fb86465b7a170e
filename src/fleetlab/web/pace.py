"""How long work will take: as long as the same work took last, else by the number of jobs."""

from __future__ import annotations

from collections import OrderedDict

COMPILING = "compiling a rule that is used for the first time"  # what a process reports while it does
KEPT = 256  # kinds of work
QUICK = 0.3  # s: an answer this quick was kept from before, and tells nothing about the work
# Seconds per job of what was never done yet, on two cores of a server from 2023; the first work of a kind corrects it.
PER_JOB = {"open": 5e-5, "describe": 1e-4, "run": 1e-4, "advise": 1e-3, "explain": 2e-4}


class Pace:
    """What work took."""

    def __init__(self) -> None:
        self._took: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._per_job = dict(PER_JOB)

    def expected(self, kind: str, what: str, jobs: int | None) -> float | None:
        """Return how many seconds it will take; None: nobody knows.

        >>> pace = Pace()
        >>> pace.expected("run", "a", 20_000), pace.expected("read", "a", None)
        (2.0, None)
        >>> pace.learn("run", "a", 20_000, 8.0)
        >>> pace.expected("run", "a", 20_000), pace.expected("run", "b", 10_000)
        (8.0, 4.0)
        """
        if (kind, what) in self._took:
            return self._took[kind, what]
        return None if jobs is None or kind not in self._per_job else jobs * self._per_job[kind]

    def learn(self, kind: str, what: str, jobs: int | None, seconds: float) -> None:
        """Take down what it took."""
        if seconds < QUICK:
            return
        self._took[kind, what] = seconds
        self._took.move_to_end((kind, what))
        while len(self._took) > KEPT:
            self._took.popitem(last=False)
        if jobs:
            self._per_job[kind] = seconds / jobs
