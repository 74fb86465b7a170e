"""Runs of the page: each is simulated once, stored on disk, and measured there by any process, whole or in part.

The process that simulated writes one row a job and what runs held when. A part is the jobs submitted in some time, or
those that completed in two runs, or both; the schedule stays that of the whole run. Two runs of one trace have the same
jobs. Beside a run lie the replicas of it that were simulated, so that a baseline has one set for all that is compared.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Estimate, Prices, WorkloadError
from fleetlab.core.catalog import REASONS
from fleetlab.core.durations import between_text, duration, plural
from fleetlab.core.files import atomic_write
from fleetlab.core.progress import Progress
from fleetlab.core.scenario import Scenario
from fleetlab.core.site_change import SiteChange
from fleetlab.sim import SimResult
from fleetlab.sim.figures import wait_distribution
from fleetlab.sim.holdings import Holdings
from fleetlab.sim.job_classes import by_size
from fleetlab.sim.measures import Measures, per_day
from fleetlab.stats import BLOCKS
from fleetlab.studies.compare.runs import measure
from fleetlab.studies.model_error import ModelError
from fleetlab.studies.sentences import NEVER_RUN, never_run
from fleetlab.web.timelines import forget_old
from fleetlab.web.traces import MOST_NODES

if TYPE_CHECKING:
    from fleetlab.web.messages import SettingRow, SimulatedScheduler
    from fleetlab.web.worker import Channel

Time = tuple[float, float]
TABLES = ("runs", "up")  # of the holdings
MEASURED = ("job", "submit", "user", "gpu_milli", "instances", "wait", "jct", "slowdown", "bounded_slowdown")
HOUR = 3600.0
MILLISECONDS = 3  # digits: submissions are divided by the load, and compared with times of the log


def save(run: SimResult, folder: Path) -> None:
    """Write what is measured of a run; it is there whole or not at all."""
    scenario = run.scenario
    assert scenario is not None
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=folder.parent))
    _jobs(run, scenario).write_ipc(new / "jobs.ipc")
    _done(run).write_ipc(new / "done.ipc")
    holdings = run.holdings
    for name in TABLES:
        getattr(holdings, name).write_ipc(new / f"{name}.ipc")
    gpu_nodes = scenario.cluster.frame.group_by("gpu_type").len().filter(pl.col("gpu_type").is_not_null())
    facts = {
        "title": scenario.title,  # of the scenario with its trace open: it names the scheduler of the site
        "types": holdings.types,
        "load": scenario.load,
        "span": float(scenario.workload.frame["submit"].max() or 0.0),  # type: ignore[arg-type]
        "stopped": run.played.stopped,
        "nodes": dict(gpu_nodes.iter_rows()),
        "clock": [scenario.workload.epoch, scenario.workload.zone],
        "instances": scenario.trace.workload.instances,
        "source": run.provenance.source,
        "covered": "" if run.coverage is None else run.coverage.line,
        "notes": list(run.notes),
        "scheduler": _scheduler(scenario),
        "synthetic": scenario.trace.workload.synthetic,
    }
    (new / "facts.json").write_text(json.dumps(facts))
    try:
        new.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(new, ignore_errors=True)
    forget_old(folder.parent)


def _scheduler(scenario: Scenario) -> SimulatedScheduler:
    """Say what schedules the jobs of a scenario, and which settings of the site it changes."""
    own, now, option = scenario.trace.scheduler, scenario.scheduler, scenario.policy.scheduler
    settings: list[SettingRow] = []
    notes: tuple[str, ...] = ()
    title = "/".join(str(scenario.words()[name]) for name in ("order", "backfill", "placement"))
    if now is not None:
        title = f"{now.title} as configured" if now == own else now.title
    if own is not None and isinstance(option, SiteChange):
        change = option.change(own, scenario.data.cluster)
        settings = [{"name": s.name, "was": s.was, "becomes": s.becomes} for s in change.settings]
        title, notes = f"{own.title} with {plural(len(settings), 'setting')} changed", change.notes
    replaces = own.title if own is not None and type(now) is not type(own) else ""
    model = ModelError.of(scenario)
    error, accuracy = ("", "") if model is None else (model.percent, model.accuracy())
    return {
        "title": title, "replaces": replaces, "error": error, "accuracy": accuracy, "settings": settings,
        "notes": list(notes),
    }  # fmt: skip


def _jobs(run: SimResult, scenario: Scenario) -> pl.DataFrame:
    """Return all jobs of the workload, one row each: when submitted, its GPU time, and whether it ran."""
    jobs = scenario.workload.frame
    gpu_time = (pl.col("runtime") * pl.col("gpu_milli") * pl.col("instances")).fill_null(0.0)
    cannot_run = pl.col("job").is_in(never_run(run.refused).implode())
    why = run.refused.select("job", left_out="reason")
    rows = jobs.select("job", "submit", gpu_time=gpu_time, cannot_run=cannot_run)
    return rows.join(why, on="job", how="left", maintain_order="left")


def _done(run: SimResult) -> pl.DataFrame:
    """Return the jobs that completed: what is measured of them, what the log recorded, and their waits by reason."""
    reasons = [name for name in run.ledger.columns[1:] if (run.ledger[name] > 0).any()]
    done = run.completed.select(MEASURED).join(run.ledger.select("job", *reasons), on="job", maintain_order="left")
    return done.join(run.recorded.select("job", "recorded"), on="job", how="left", maintain_order="left")


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """A run as it was written."""

    folder: Path
    jobs: pl.DataFrame  # one row a job of the workload
    done: pl.DataFrame  # one row a job that completed
    holdings: Holdings
    facts: Mapping[str, Any]

    @classmethod
    def load(cls, folder: Path) -> RunRecord:
        """Read it."""
        facts = json.loads((folder / "facts.json").read_text())
        jobs, done, *tables = (pl.read_ipc(folder / f"{name}.ipc") for name in ("jobs", "done", *TABLES))
        return cls(folder, jobs, done, Holdings(facts["types"], *tables), facts)

    def measure(
        self,
        prices: Prices,
        *,
        between: Time | None = None,
        rows: tuple[int, int] | None = None,
        among: NDArray[np.int64] | None = None,
    ) -> RunNumbers:
        """Measure the jobs submitted in some seconds of the log (load 1), or those `rows`, and `among` some jobs."""
        first, last = rows or self._rows(between)
        completed = self.done.filter(pl.col("job").is_between(first, last - 1))
        done = completed if among is None else completed.filter(np.isin(completed["job"].to_numpy(), among))
        measures = self._measures(done, between)
        return RunNumbers(self, (first, last), self.jobs[first:last], completed.height, measures, prices, between)

    def _rows(self, between: Time | None) -> tuple[int, int]:
        """Return the rows of the jobs submitted between two times of the log."""
        if between is None:
            return 0, self.jobs.height
        submitted = np.round(self.jobs["submit"].to_numpy() * self.facts["load"], MILLISECONDS)
        first, last = np.searchsorted(submitted, between).tolist()
        if first == last:
            msg = f"no job is submitted {between_text(*between)}, counted from the first submission"
            raise WorkloadError(msg, hint="select a longer time, or clear the selection")
        return first, last

    def _measures(self, done: pl.DataFrame, between: Time | None) -> Measures:
        load, span, stopped = (self.facts[name] for name in ("load", "span", "stopped"))
        arriving = min(span, stopped) or stopped
        if between is None:
            return Measures(done, self.holdings.usage(np.linspace(0.0, arriving, BLOCKS + 1)), 0.0, span)
        begin, end = (time / load for time in between)
        if begin >= stopped:
            ends = f"the run ends {duration(stopped * load)} after the first submission"
            msg = f"no job submitted {between_text(*between)} was simulated: {ends}"
            raise WorkloadError(msg, hint="select an earlier time, or a later `until`")
        end = min(end, arriving if arriving > begin else stopped)
        return Measures(done, self.holdings.usage(np.linspace(begin, end, BLOCKS + 1)), begin, end)


@dataclass(frozen=True, eq=False)
class RunNumbers:
    """What is measured of some jobs of a run."""

    run: RunRecord
    rows: tuple[int, int]
    jobs: pl.DataFrame  # the rows of the run
    completed: int  # of these jobs: more than are measured, where another run completed fewer
    measures: Measures
    prices: Prices
    between: Time | None

    @property
    def done(self) -> pl.DataFrame:
        """The jobs that are measured."""
        return self.measures.done

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """The numbers by metric."""
        cannot_run = Estimate.exact(NEVER_RUN, int(self.jobs["cannot_run"].sum()))
        every = [cannot_run, *per_day(self.measures.usage, self.prices), *self.measures.estimates()]
        return {e.metric: e for e in every}

    @property
    def reasons(self) -> dict[str, float]:
        """The mean wait by reason, where there is any: all reasons add up to the mean wait."""
        seconds = {name: self.done[name].to_numpy() for name in REASONS.names if name in self.done.columns}
        return {name: float(values.mean()) for name, values in seconds.items() if (values > 0).any()}

    @property
    def refused(self) -> dict[str, int]:
        """How many jobs are left out, by reason."""
        return dict(self.jobs.drop_nulls("left_out").group_by("left_out").len().sort("left_out").iter_rows())

    @property
    def gpu_time_that_cannot_run(self) -> float:
        """The share of the GPU time that is of jobs that can never run."""
        return float(self.jobs.filter("cannot_run")["gpu_time"].sum()) / (float(self.jobs["gpu_time"].sum()) or 1.0)

    @property
    def distribution(self) -> pl.DataFrame:
        """How waits are distributed; empty where no job completed."""
        if self.done.is_empty():
            return pl.DataFrame()
        return wait_distribution(self.done["wait"].to_numpy(), self.measures.blocks(self.done))

    @property
    def by_size(self) -> dict[str, pl.DataFrame]:
        """Waits by GPUs per instance, and by number of instances."""
        return by_size(self.done, self.measures.blocks(self.done))

    @property
    def allocation(self) -> dict[str, tuple[float, float | None]]:
        """GPU-hours by GPU type, and the share of them that is allocated."""
        there, allocated = (x.sum(axis=0).tolist() for x in self.measures.usage.both)
        rows = zip(self.run.holdings.types, there, allocated, strict=True)
        return {name: (up / HOUR, of / up if up else None) for name, up, of in rows}


def same_jobs(
    base: RunRecord, now: RunRecord, prices: tuple[Prices, Prices], between: Time | None
) -> tuple[RunNumbers, RunNumbers]:
    """Measure the same jobs of both runs: those that completed in both, and were submitted in the time meant.

    A job that only one side ran would change the mean of that side. Rows of jobs are those of the baseline: at another
    load the same jobs have other times.
    """
    if base.jobs.height != now.jobs.height:
        sides = f"the baseline is of {base.jobs.height:,} jobs, and the scenario of {now.jobs.height:,}"
        msg = f"{sides}: they cannot be compared"
        raise WorkloadError(msg, hint="`window` and `censored` choose the jobs: set this scenario as baseline, too")
    both = None
    if not base.done["job"].equals(now.done["job"]):
        both = np.intersect1d(base.done["job"].to_numpy(), now.done["job"].to_numpy(), assume_unique=True)
    before = base.measure(prices[0], between=between, among=both)
    if base is now:
        return before, before
    return before, now.measure(prices[1], between=between, rows=before.rows, among=both)


# -- in a process -----------------------------------------------------------------------------------------------------


def check_size(scenario: Scenario) -> Scenario:
    """Return a scenario as the page simulates it, or refuse it: what cannot run is counted, and does not end it."""
    if len(scenario.cluster) > MOST_NODES:
        msg = f"a cluster on this page has at most {MOST_NODES:,} nodes, not {len(scenario.cluster):,}"
        raise WorkloadError(msg, hint="`fleetlab simulate` takes more")
    return scenario.replace(min_coverage=0.0)


def folder_of(request: Mapping[str, Any], side: str = "record") -> Path:
    """Return where the record of a run is stored."""
    return Path(request["records"]) / str(request[side])


def keep(request: Mapping[str, Any], run: SimResult) -> None:
    """Store the record of a run that was just simulated."""
    if not folder_of(request).exists():
        save(run, folder_of(request))


def open_record(request: Mapping[str, Any], channel: Channel) -> RunRecord:
    """Return the record of a run; simulate it again if that was deleted."""
    from fleetlab.sim import simulate
    from fleetlab.web.worker import bound

    folder = folder_of(request)
    if not folder.exists():
        channel.progress("simulating", 0, None)
        run = simulate(check_size(bound(request, channel)), progress=channel.progress)
        keep(request, run)
    os.utime(folder)
    return RunRecord.load(folder)


def measure_replica(scenario: Scenario, folder: Path, progress: Progress) -> dict[str, Any]:
    """Return what a comparison measures of a replica; it is stored beside the run, and simulated once."""
    path = folder / f"replica-{scenario.replica}.npz"
    if not path.exists():
        arrays = measure(scenario, progress)
        buffer = BytesIO()
        np.savez(buffer, **arrays)
        atomic_write(path, buffer.getvalue())
    with np.load(path) as stored:
        return dict(stored)
