"""What a log recorded of its jobs and their use of GPUs, and how far simulated waits are from the recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Workload
from fleetlab.core.job_classes import GPU_REQUEST, gpu_request, gpu_type, in_order
from fleetlab.core.steps import Steps
from fleetlab.stats import POSITIVE, BlockBootstrap, Floats, Interval, Ints, Replicates, paired_difference
from fleetlab.studies.diagnose.ledger import clock, clock_name

WHOLE = 1000  # milli of one GPU
MOMENTS = 16  # of the wait of a job at which the recorded state is looked at


class RecordedJobs:
    """The starts and ends that a log recorded, one entry a job of the workload; NaN where it has none."""

    def __init__(self, workload: Workload, has_runtime: NDArray[np.bool_]) -> None:
        jobs = workload.frame
        self.jobs, self.workload = jobs, workload
        self.has_runtime = has_runtime  # whether the log has its run time
        self.initial = jobs["initial"].to_numpy()
        self.submit, self.start, self.end, self.runtime = (
            jobs[name].fill_null(np.nan).to_numpy() for name in ("submit", "start", "end", "runtime")
        )
        self.milli = (jobs["gpu_milli"].cast(pl.Int64) * jobs["instances"]).to_numpy().astype(np.float64)

    def __len__(self) -> int:
        return self.jobs.height

    def with_starts(self, starts: Floats) -> RecordedJobs:
        """Return what would be recorded if jobs started at other times."""
        times = {"start": starts, "end": starts + self.runtime}
        columns = {name: pl.Series(values, nan_to_null=True) for name, values in times.items()}
        return RecordedJobs(replace(self.workload, frame=self.jobs.with_columns(**columns)), self.has_runtime)

    def first(self, jobs: int, until: float) -> RecordedJobs:
        """Return what was recorded of the first jobs until some time."""
        later = pl.col("start", "end") > until
        frame = self.jobs[:jobs].with_columns(pl.when(~later).then(pl.col("start", "end")))
        return RecordedJobs(replace(self.workload, frame=frame), self.has_runtime[:jobs])

    @cached_property
    def wait(self) -> Floats:
        """Seconds from submission to the recorded start."""
        return np.asarray(self.start - self.submit)

    @cached_property
    def compared(self) -> NDArray[np.bool_]:
        """The jobs of which the log has submission, start and run time: those that are compared."""
        return np.asarray((self.wait >= 0) & self.has_runtime & ~self.initial)

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

    def in_use(self, rows: NDArray[np.bool_], latency: Floats | float = 0.0) -> Steps:
        """Return the GPU milli that some jobs held, from their start less a start-up latency to their end."""
        begin = np.where(self.initial, 0.0, np.maximum(self.start - latency, self.submit))
        return self._level(begin, rows)

    def demanded(self, rows: NDArray[np.bool_]) -> Steps:
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
        return self.in_use(self.everyone)

    def waiting_moments(self, rows: Ints, latency: Floats) -> tuple[Ints, Floats, Floats]:
        """Return moments at which some jobs waited for GPUs: the job, the time, and the seconds that it stands for."""
        seconds = self.wait[rows] - latency[rows]
        rows, seconds = rows[seconds > 0], seconds[seconds > 0]
        share = (np.arange(MOMENTS) + 0.5) / MOMENTS
        times = self.submit[rows][:, None] + share * seconds[:, None]
        return np.repeat(rows, MOMENTS), times.ravel(), np.repeat(seconds / MOMENTS, MOMENTS)


# -- errors of simulated waits -----------------------------------------------------------------------------------------

LEVELS = {"median": 0.5, "P90": 0.9, "P99": 0.99}
MOST_CLASSES = 12  # classes of a kind that has no end of them: the others are one together
OTHERS = "others"
BEFORE, AFTER = "simulated", "calibrated"
WHO = ("user", "group", "app")  # columns of a log that say whose a job is


@dataclass(frozen=True, eq=False)
class WaitErrors:
    """Recorded waits, and simulated ones before and after calibration, of the same jobs."""

    log: RecordedJobs
    rows: NDArray[np.int64]  # the jobs that are compared
    waits: Mapping[str, Floats]  # by side: of these jobs
    span: float

    @classmethod
    def of(cls, log: RecordedJobs, part: NDArray[np.bool_], starts: Mapping[str, Floats]) -> WaitErrors:
        """Take the jobs of a part of the log that started on every side."""
        both = part & log.compared
        for start in starts.values():
            both = both & ~np.isnan(start)
        rows = np.flatnonzero(both)
        waits = {side: np.maximum(start[rows] - log.submit[rows], 0.0) for side, start in starts.items()}
        return cls(log, rows, waits, float(log.submit[-1]))

    @property
    def recorded(self) -> Floats:
        """The recorded waits."""
        return self.log.wait[self.rows]

    @cached_property
    def blocks(self) -> BlockBootstrap:
        """Blocks of time in which jobs were submitted."""
        return BlockBootstrap.of_times(self.log.submit[self.rows], self.span)

    def error(self, side: str) -> Interval:
        """Return the simulated less the recorded mean wait, with its paired interval."""
        return paired_difference(self.blocks.means(self.recorded), self.blocks.means(self.waits[side])).interval()

    def means(self) -> dict[str, Interval]:
        """Return the mean wait of each side, the recorded one first."""
        sides = {"recorded": self.recorded} | dict(self.waits)
        return {side: self.blocks.mean(wait, POSITIVE).interval() for side, wait in sides.items()}

    def overall(self, part: str) -> pl.DataFrame:
        """Return mean, median, P90 and P99 of the waits, recorded and simulated."""
        recorded, waits = self._statistics(self.recorded), {s: self._statistics(w) for s, w in self.waits.items()}
        rows = []
        for name, value in recorded.items():
            row: dict[str, object] = {"part": part, "statistic": name, "jobs": len(self.rows)}
            row["recorded wait"] = float(value.values[0])
            for side, statistics in waits.items():
                row |= _side(
                    side, float(statistics[name].values[0]), paired_difference(value, statistics[name]).interval()
                )
            rows.append(row)
        return _table(rows)

    def _statistics(self, wait: Floats) -> dict[str, Replicates]:
        quantiles = self.blocks.quantiles(wait, list(LEVELS.values()))
        return {"mean": self.blocks.means(wait)} | dict(zip(LEVELS, quantiles, strict=True))

    def by_class(self, partition: pl.Series | None = None) -> dict[str, pl.DataFrame]:
        """Return the mean waits of classes of jobs: by partition, whose they are, GPU type, size, and hour of the day.

        `partition` has the partition of each job of the log, where it tells them.
        """
        jobs = self.log.jobs[self.rows]
        tables = {
            "by GPU type": self._by("GPU type", _foremost(self.log.gpu_type[self.rows])),
            f"by {GPU_REQUEST}": self._by(GPU_REQUEST, jobs.select(gpu_request()).to_series()),
        }
        tables[f"by {GPU_REQUEST}"] = tables[f"by {GPU_REQUEST}"].sort(in_order(GPU_REQUEST))
        if partition is not None:
            tables["by partition"] = self._by("partition", _foremost(partition[self.rows]))
        for name in WHO:
            if jobs[name].n_unique() > 1:
                tables[f"by {name}"] = self._by(name, _foremost(jobs[name].cast(pl.String).fill_null("")))
        hour = pl.select(hour=clock(jobs["submit"], self.log.workload).dt.hour()).to_series()
        by_hour = self._by("hour", hour.cast(pl.String)).sort(pl.col("hour").cast(pl.Int64))
        return tables | {"by hour of the day": by_hour.rename({"hour": f"hour ({clock_name(self.log.workload)})"})}

    def _by(self, title: str, names: pl.Series) -> pl.DataFrame:
        rows = []
        hours = self.log.gpu_hours[self.rows]
        for name in names.unique().sort().to_list():
            inside = (names == name).to_numpy()
            blocks, recorded = self.blocks.part(inside), self.recorded[inside]
            row: dict[str, object] = {title: name, "jobs": int(inside.sum()), "GPU-hours": float(hours[inside].sum())}
            row["recorded mean wait"] = float(recorded.mean())
            for side, wait in self.waits.items():
                own = wait[inside]
                error = paired_difference(blocks.means(recorded), blocks.means(own)).interval()
                row |= _side(side, float(own.mean()), error, "mean wait")
            rows.append(row)
        return _table(rows).sort("GPU-hours", title, descending=[True, False])


def _table(rows: list[dict[str, object]]) -> pl.DataFrame:
    """Return rows as a table; limits that no row has are numbers all the same."""
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.col(pl.Null).cast(pl.Float64))


def _side(side: str, value: float, error: Interval, what: str = "wait") -> dict[str, object]:
    name = f"{side} {what}"
    low, high = (None if np.isnan(x) else x for x in error[1:])
    return {name: value, f"{name} error": error.value, f"{name} error low": low, f"{name} error high": high}


def _foremost(names: pl.Series) -> pl.Series:
    """Leave the classes with the most jobs, and make all others one."""
    counted = names.value_counts().sort("count", names.name, descending=[True, False])[names.name].to_list()
    names_of_classes = counted if len(counted) <= MOST_CLASSES else counted[: MOST_CLASSES - 1]
    return (
        names.to_frame()
        .select(pl.when(names.is_in(names_of_classes)).then(names).otherwise(pl.lit(OTHERS)))
        .to_series()
    )
