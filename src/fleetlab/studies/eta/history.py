"""What a log tells of each job, and what of that was known at one instant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from fleetlab.core import Trace
from fleetlab.core.censoring import Bools, Floats
from fleetlab.core.resample import Ints
from fleetlab.sim import SimResult

LOG, SIMULATED = "log", "simulated"
STARTED_BY = "started_by"  # the series of a Slurm log that tells which loop started a job


@dataclass(frozen=True, eq=False)
class History:
    """When each job came, started and ended; rows are in order of submission."""

    frame: pl.DataFrame  # the columns of a workload; `job` is negative for jobs of a warm-up
    submit: Floats
    start: Floats  # nan: it did not, or nobody knows
    end: Floats  # nan: nobody knows; inf: it still runs when the log ends
    origin: str  # LOG or SIMULATED: whose starts these are
    places: tuple[Ints, Ints, Ints] | None = None  # by row the first instance; of each instance its node and its GPUs
    nodes: pl.Series | None = None  # by row the names of the nodes that the log saw it on
    cycles: Floats | None = None  # when Slurm's backfill loop started jobs, ascending
    until: float = 0.0  # up to when it is known what came; a log of its own does not tell

    @classmethod
    def of_log(cls, trace: Trace) -> History:
        """Return what the log recorded."""
        frame = trace.workload.frame
        older = pl.col("initial") & pl.col("start").is_null()  # it ran when the log began: at least since then
        start = pl.when(older).then(0.0).otherwise("start")
        runs = (pl.col("status") == "running") & pl.col("runtime_at_least").is_not_null()
        end = pl.coalesce("end", pl.col("start") + pl.col("runtime"), pl.when(runs).then(float("inf")))
        times = frame.select(pl.col("submit"), start=start, end=end)
        submit, began, ended = (_floats(times[name]) for name in ("submit", "start", "end"))
        until = float(trace.provenance.settings.get("watched_until") or 0.0)
        return cls(frame, submit, began, ended, LOG, nodes=_nodes(trace), cycles=_cycles(trace), until=until)

    @classmethod
    def of_simulation(cls, result: SimResult) -> History:
        """Return what a simulation found, also of the jobs that it simulated first."""
        world, played = result.world, result.played
        order = np.argsort(world.submitted, kind="stable")
        end = np.where(np.isnan(played.end) & ~np.isnan(played.start), np.inf, played.end)
        start = played.start + world.latency
        places = (world.first[:-1][order], played.where, played.got) if played.segments is None else None
        return cls(world.frame[order], world.submitted[order], start[order], end[order], SIMULATED, places)

    def with_request(self, job: pl.DataFrame, at: float) -> tuple[History, int]:
        """Return it with a job that is submitted now, and its row: after all that have come."""
        row = int(np.searchsorted(self.submit, at, side="right"))
        mine = job.with_columns(submit=pl.lit(at)).select(self.frame.columns).cast(self.frame.schema)
        frame = pl.concat([self.frame[:row], mine, self.frame[row:]])
        came = ((self.submit, at), (self.start, np.nan), (self.end, np.nan))
        submit, start, end = (np.insert(values, row, new) for values, new in came)
        places = self.places
        if places is not None:
            places = (np.insert(places[0], row, 0), *places[1:])
        nodes = self.nodes
        if nodes is not None:
            nodes = pl.concat([nodes[:row], nodes.clear(1), nodes[row:]])
        return History(frame, submit, start, end, self.origin, places, nodes, self.cycles, self.until), row

    @property
    def wait(self) -> Floats:
        """The seconds from submission to start; nan where there is no start."""
        return self.start - self.submit

    @cached_property
    def may_wait(self) -> Bools:
        """Which jobs without a start waited until they ended, or still wait: of others the log just lost it."""
        status = self.frame["status"].cast(pl.String).to_numpy()
        gave_up = (status == "cancelled") & ~np.isnan(self.end)
        return np.asarray(~np.isnan(self.start) | gave_up | (status == "waiting"))

    @property
    def last_known(self) -> float:
        """When the last job came, or up to when it was watched: later nothing is known of what else came."""
        return max(float(self.submit.max(initial=0.0)), self.until)

    def last_wait(self) -> float | None:
        """Return the last moment up to the last submission at which a job waits; None: none ever does."""
        at = self.last_known
        if len(self.at(at).waiting):
            return at
        waited = (self.wait > 0) & (self.submit <= at)
        return float(np.minimum(self.start[waited], at).max() - 1e-3) if waited.any() else None

    def at(self, at: float, row: int | None = None) -> Snapshot:
        """Return what is known at an instant; of a `row` that is asked about as it comes, that it waits."""
        seen = self.submit <= at
        if row is not None and self.submit[row] == at:
            seen &= (self.submit < at) | (np.arange(len(seen)) <= row)  # those of the same instant come later
        started = self.start <= at
        if row is not None:
            started[row] = False
        gone = self.end <= at
        running = seen & started & ~gone & ~np.isnan(self.end)
        waiting = seen & ~started & ~gone & self.may_wait
        ended = np.flatnonzero(seen & started & gone)
        return Snapshot(self, at, np.flatnonzero(running), np.flatnonzero(waiting), ended)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The cluster at one instant, by rows of the history: nothing in it is from later."""

    history: History
    at: float
    running: Ints
    waiting: Ints
    ended: Ints

    @property
    def elapsed(self) -> Floats:
        """How long each of the running jobs has run."""
        return np.maximum(self.at - self.history.start[self.running], 0.0)

    @property
    def runtime(self) -> Floats:
        """How long each of the ended jobs ran."""
        return self.history.end[self.ended] - self.history.start[self.ended]


def _nodes(trace: Trace) -> pl.Series | None:
    """Return the nodes of each job, by row."""
    if trace.placements is None:
        return None
    seen = trace.placements.select("job", pl.col("node").cast(pl.String)).unique().sort("job", "node")
    by_job = seen.group_by("job").agg("node").collect()
    return trace.workload.frame.select("job").join(by_job, on="job", how="left", maintain_order="left")["node"]


def _cycles(trace: Trace) -> Floats | None:
    """Return when the backfill loop started jobs, as far as the log tells which loop it was."""
    if STARTED_BY not in trace.series:
        return None
    by = trace.series[STARTED_BY].filter(pl.col("loop") == "backfill").select("job").collect()
    start = trace.workload.frame.join(by, on="job", how="semi")["start"].drop_nulls()
    return start.sort().to_numpy()


def _floats(column: pl.Series) -> Floats:
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
