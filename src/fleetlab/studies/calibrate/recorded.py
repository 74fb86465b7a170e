"""What a log recorded of its jobs: when they started and ended, and what was in use at any time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Workload
from fleetlab.core.job_classes import gpu_type
from fleetlab.stats import Floats, Ints

WHOLE = 1000  # milli of one GPU
MOMENTS = 16  # of the wait of a job at which the recorded state is looked at


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A level that changes at certain times; 0 before the first."""

    times: Floats
    levels: Floats

    @classmethod
    def of(cls, begin: Floats, end: Floats, amount: Floats) -> Steps:
        """Add up amounts that are there from `begin` to before `end`."""
        times = np.concatenate((begin, end))
        times, where = np.unique(times, return_inverse=True)
        change = np.bincount(where, weights=np.concatenate((amount, -amount)), minlength=len(times))
        return cls(times, np.cumsum(change))

    def at(self, times: Floats) -> Floats:
        """Return the level at some times, changes at that time included."""
        index = np.searchsorted(self.times, times, side="right")
        return np.concatenate(([0.0], self.levels))[index]

    @property
    def peak(self) -> float:
        """The highest level."""
        return float(self.levels.max(initial=0.0))


class Recorded:
    """The starts and ends that a log recorded, one entry a job of the workload; NaN where it has none."""

    def __init__(self, workload: Workload, told: NDArray[np.bool_]) -> None:
        jobs = workload.frame
        self.jobs, self.workload = jobs, workload
        self.told = told  # whether the log has its run time
        self.initial = jobs["initial"].to_numpy()
        self.submit, self.start, self.end, self.runtime = (
            jobs[name].fill_null(np.nan).to_numpy() for name in ("submit", "start", "end", "runtime")
        )
        self.milli = (jobs["gpu_milli"].cast(pl.Int64) * jobs["instances"]).to_numpy().astype(np.float64)

    def __len__(self) -> int:
        return self.jobs.height

    def with_starts(self, starts: Floats) -> Recorded:
        """Return what would be recorded if jobs started at other times."""
        times = {"start": starts, "end": starts + self.runtime}
        columns = {name: pl.Series(values, nan_to_null=True) for name, values in times.items()}
        return Recorded(replace(self.workload, frame=self.jobs.with_columns(**columns)), self.told)

    def first(self, jobs: int, until: float) -> Recorded:
        """Return what was recorded of the first jobs until some time."""
        later = pl.col("start", "end") > until
        frame = self.jobs[:jobs].with_columns(pl.when(~later).then(pl.col("start", "end")))
        return Recorded(replace(self.workload, frame=frame), self.told[:jobs])

    @cached_property
    def wait(self) -> Floats:
        """Seconds from submission to the recorded start."""
        return np.asarray(self.start - self.submit)

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """The jobs of which the log has submission, start and run time: those that are compared."""
        return np.asarray((self.wait >= 0) & self.told & ~self.initial)

    @cached_property
    def gpu_hours(self) -> Floats:
        """GPU-hours of each job; 0 where its run time is unknown."""
        return np.asarray(np.nan_to_num(self.runtime) * self.milli / WHOLE / 3600)

    @cached_property
    def user(self) -> Ints:
        """The user of each job as a number, from 0; jobs without a user are one user together."""
        names = self.jobs["user"].cast(pl.String).fill_null("")
        return (names.rank("dense") - 1).to_numpy().astype(np.int64)

    @cached_property
    def users(self) -> list[str]:
        """The users by their numbers."""
        return self.jobs["user"].cast(pl.String).fill_null("").unique().sort().to_list()

    @cached_property
    def gpu_type(self) -> pl.Series:
        """The GPU types that each job may use, as text."""
        return gpu_type(self.jobs)

    @cached_property
    def interrupted(self) -> int:
        """How many jobs were in the cluster for longer than they ran: preempted, or restarted."""
        return int((self.end - self.start > self.runtime + 1.0).sum())

    # -- use over time -----------------------------------------------------------------------------------------------

    def held(self, rows: NDArray[np.bool_], latency: Floats | float = 0.0) -> Steps:
        """Return the GPU milli that some jobs held, from their start less a start-up latency to their end."""
        begin = np.where(self.initial, 0.0, np.maximum(self.start - latency, self.submit))
        return self._level(begin, rows)

    def wanted(self, rows: NDArray[np.bool_]) -> Steps:
        """Return the GPU milli that some jobs held or waited for: from their submission to their end."""
        return self._level(np.where(np.isnan(self.start) & ~self.initial, np.nan, self.submit), rows)

    def _level(self, begin: Floats, rows: NDArray[np.bool_]) -> Steps:
        rows = rows & ~np.isnan(begin)
        end = np.where(np.isnan(self.end), np.inf, np.maximum(self.end, np.nan_to_num(begin)))
        return Steps.of(begin[rows], end[rows], self.milli[rows])

    @cached_property
    def everyone(self) -> NDArray[np.bool_]:
        """All jobs."""
        return np.ones(len(self), dtype=bool)

    @cached_property
    def use(self) -> Steps:
        """The GPU milli in use."""
        return self.held(self.everyone)

    def waiting_moments(self, rows: Ints, latency: Floats) -> tuple[Ints, Floats, Floats]:
        """Return moments at which some jobs waited for GPUs: the job, the time, and the seconds that it stands for."""
        seconds = self.wait[rows] - latency[rows]
        rows, seconds = rows[seconds > 0], seconds[seconds > 0]
        share = (np.arange(MOMENTS) + 0.5) / MOMENTS
        times = self.submit[rows][:, None] + share * seconds[:, None]
        return np.repeat(rows, MOMENTS), times.ravel(), np.repeat(seconds / MOMENTS, MOMENTS)
