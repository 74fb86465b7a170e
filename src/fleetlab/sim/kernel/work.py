"""The work of a job whose runs may be cut short: what is done, what is in checkpoints, and what is lost.

The arithmetic is that of the loop that knows all rules (`sim.reference.work`), which is compiled with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fleetlab.core.events import Recovery
from fleetlab.sim.layout import TICK, Floats, Ints
from fleetlab.sim.reference import work as reference

work_done: Any = getattr(reference.work_done, "py_func", reference.work_done)
run_length: Any = getattr(reference.run_length, "py_func", reference.run_length)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How often jobs write checkpoints and what that takes, in seconds; `every` 0: a run that fails is lost."""

    checkpoint_every: float = 0.0
    save: float = 0.0
    restart: float = 0.0
    on_signal: bool = False  # whether a job that is asked to go saves what it has done

    @classmethod
    def of(cls, recovery: Recovery | None) -> Self:
        """Return what a scenario says; without it nothing is ever saved."""
        if recovery is None:
            return cls()
        return cls(on_tick(recovery.every), on_tick(recovery.save), on_tick(recovery.restart), on_signal=True)


@dataclass(slots=True)
class JobWork:
    """What is known of a job's work; a run does it at `speed` own seconds in a second.

    Examples
    --------
    >>> job, rules = JobWork(100.0), Checkpoints(checkpoint_every=30.0)
    >>> job.begin(0.0, rules)
    100.0
    >>> job.interrupt(70.0, rules, saved=False)
    >>> job.work, job.lost
    (40.0, 10.0)
    """

    runtime: float
    work: float = math.nan  # seconds not done when this run began
    overhead: float = 0.0  # seconds of saving and restarting before that
    since: float = 0.0  # begin of the run
    speed: float = 1.0
    lost: float = 0.0
    preemptions: int = 0
    failures: int = 0

    def __post_init__(self) -> None:
        self.work = self.runtime

    def begin(self, now: float, rules: Checkpoints, speed: float = 1.0) -> float:
        """Begin a run, and return how many seconds it takes if nothing cuts it short."""
        self.since, self.speed = now, speed
        self.overhead *= speed  # to save and restart takes its time, at any speed
        seconds: float = run_length(rules, self)
        return seconds if speed == 1.0 else on_tick(seconds / speed)

    def interrupt(self, now: float, rules: Checkpoints, *, saved: bool) -> None:
        """End a run early: work is kept up to now if it is saved, else up to the last checkpoint."""
        own, done, in_checkpoints = self._own(now, rules)
        work = min(self.work, done if saved else in_checkpoints)
        self.lost += own - work
        self.work -= work
        self.overhead = 0.0
        if self.work < self.runtime:  # there is something to load again
            self.overhead = rules.restart + (rules.save if saved and work > 0 else 0.0)

    def finish(self, rules: Checkpoints) -> None:
        """End a run that has done all the work."""
        self.lost += run_length(rules, self) - self.work

    def stop(self, now: float, rules: Checkpoints) -> None:
        """Count what a run that still goes on has lost until now."""
        own, done, _ = self._own(now, rules)
        self.lost += own - min(self.work, done)

    def _own(self, now: float, rules: Checkpoints) -> tuple[float, float, float]:
        """Return the own seconds of the run, the work done in them, and how much of it is in checkpoints."""
        own = min(run_length(rules, self), (now - self.since) * self.speed)
        return own, *work_done(own - self.overhead, rules.checkpoint_every, rules.save)


def columns_of(jobs: Sequence[JobWork]) -> dict[str, Ints | Floats]:
    """Return what a schedule has of the work of jobs."""
    return {
        "preemptions": np.array([one.preemptions for one in jobs], dtype=np.int64),
        "failures": np.array([one.failures for one in jobs], dtype=np.int64),
        "lost": np.array([one.lost for one in jobs], dtype=np.float64),
    }


def on_tick(seconds: float) -> float:
    """Return the first tick at a time or later."""
    return math.ceil(seconds / TICK) * TICK
