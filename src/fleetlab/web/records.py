"""Records of runs, on disk: what is needed to measure a part of their jobs without simulating again.

The process that simulated writes one row a job and what runs held when; any process measures them. A part is the jobs
submitted in some time, or those that completed in two runs, or both. The schedule stays that of the whole run.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Prices, WorkloadError
from fleetlab.core.catalog import REASONS
from fleetlab.core.durations import between_text, duration
from fleetlab.core.result import finite
from fleetlab.sim import SimResult
from fleetlab.sim.figures import wait_distribution
from fleetlab.sim.holdings import Holdings
from fleetlab.sim.job_classes import by_size
from fleetlab.sim.measures import Measures, per_day
from fleetlab.stats import BLOCKS
from fleetlab.studies.requests import NEVER_RUN, never_run
from fleetlab.web.runs import encode, pack, unpack
from fleetlab.web.timelines import forget_old

if TYPE_CHECKING:
    from fleetlab.web.worker import Channel

POINTS = 100  # of a figure over time
TABLES = ("runs", "up", "waiting")  # of the holdings
MEASURED = ("job", "submit", "user", "gpu_milli", "instances", "wait", "jct", "slowdown", "bounded_slowdown")
HOUR = 3600.0
MILLISECONDS = 3  # digits: submissions are divided by the load, and compared with times of the log


@dataclass(frozen=True, slots=True)
class Part:
    """Which jobs are measured: those submitted in some seconds of the log (load 1), and `among` some."""

    between: tuple[float, float] | None = None
    rows: tuple[int, int] | None = None  # of the workload: in place of `between`, the rows it means
    among: str | None = None  # by `pack`


# -- writing ----------------------------------------------------------------------------------------------------------


def save(run: SimResult, folder: Path) -> None:
    """Write what is measured of a run; it is there whole or not at all."""
    assert run.scenario is not None
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    _jobs(run).write_ipc(made / "jobs.ipc")
    _done(run).write_ipc(made / "done.ipc")
    holdings = run.holdings
    for name in TABLES:
        getattr(holdings, name).write_ipc(made / f"{name}.ipc")
    rest = {
        "types": holdings.types,
        "load": run.scenario.load,
        "span": float(run.scenario.workload.frame["submit"].max() or 0.0),  # type: ignore[arg-type]
        "stopped": run.played.stopped,
    }
    (made / "rest.json").write_text(json.dumps(rest))
    try:
        made.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(made, ignore_errors=True)
    forget_old(folder.parent)


def _jobs(run: SimResult) -> pl.DataFrame:
    """Return all jobs of the workload, one row each: when submitted, its GPU time, and whether it ran."""
    assert run.scenario is not None
    jobs = run.scenario.workload.frame
    gpu_time = (pl.col("runtime") * pl.col("gpu_milli") * pl.col("instances")).fill_null(0.0)
    found = jobs.select(
        "job", "submit", gpu_time=gpu_time, cannot_run=pl.col("job").is_in(never_run(run.refused).implode())
    )
    why = run.refused.select("job", left_out="reason")
    return found.join(why, on="job", how="left", maintain_order="left")


def _done(run: SimResult) -> pl.DataFrame:
    """Return the jobs that completed: what is measured of them, what the log recorded, and their waits by reason."""
    reasons = [name for name in run.ledger.columns[1:] if (run.ledger[name] > 0).any()]
    done = run.completed.select(MEASURED).join(run.ledger.select("job", *reasons), on="job", maintain_order="left")
    return done.join(run.recorded.select("job", "recorded"), on="job", how="left", maintain_order="left")


# -- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """A run as it was written."""

    jobs: pl.DataFrame  # one row a job of the workload
    done: pl.DataFrame  # one row a job that completed
    holdings: Holdings
    load: float
    span: float  # the last submission
    stopped: float

    @classmethod
    def load_from(cls, folder: Path) -> RunRecord:
        """Read it."""
        rest = json.loads((folder / "rest.json").read_text())
        jobs, done, *held = (pl.read_ipc(folder / f"{name}.ipc") for name in ("jobs", "done", *TABLES))
        return cls(jobs, done, Holdings(rest["types"], *held), rest["load"], rest["span"], rest["stopped"])

    def measure(self, part: Part, prices: Prices) -> dict[str, Any]:
        """Return the numbers of a part of the jobs, as `run_scenario` does of all."""
        first, last = part.rows or self._rows(part.between)
        jobs = self.jobs[first:last]
        among = np.ones(self.jobs.height, dtype=bool) if part.among is None else unpack(part.among, self.jobs.height)
        done = self.done.filter(pl.col("job").is_between(first, last - 1))
        chosen = done.filter(pl.Series(among[done["job"].to_numpy()]))
        measures, whole = self._measures(chosen, part.between), part.between is None
        exact = [Estimate.exact(NEVER_RUN, int(jobs["cannot_run"].sum())), *per_day(measures.usage, prices)]
        blocks = measures.blocks(chosen)
        recorded = chosen.drop_nulls("recorded")
        return {
            "rows": [first, last],
            "selected": not whole,
            "jobs": jobs.height,
            "completed": pack(np.isin(jobs["job"].to_numpy(), done["job"].to_numpy(), assume_unique=True)),
            "replicates": {name: encode(replicates) for name, replicates in measures.replicates.items()},
            "reasons": {
                reason: encode(blocks.means(chosen[reason].to_numpy()))
                for reason in REASONS.names if reason in chosen.columns and (chosen[reason] > 0).any()
            },
            "exact": [e._asdict() for e in exact],
            "refused": dict(jobs.drop_nulls("left_out").group_by("left_out").len().sort("left_out").iter_rows()),
            "gpu_time_that_cannot_run": _gpu_time(jobs.filter("cannot_run")) / (_gpu_time(jobs) or 1.0),
            "waits": {
                "jobs": recorded.height, "recorded": recorded["recorded"].mean(), "simulated": recorded["wait"].mean(),
            },
            "distribution": wait_distribution(chosen["wait"].to_numpy(), blocks).to_dicts() if chosen.height else [],
            "summary": [finite(e._asdict()) for e in measures.estimates()],
            "tables": {name: finite(table.to_dicts()) for name, table in by_size(chosen, blocks).items()}
            | {"allocation": self._allocation(measures)} | ({} if whole else {"timeline": self._over_time(measures)}),
        }  # fmt: skip

    def _rows(self, between: tuple[float, float] | None) -> tuple[int, int]:
        """Return the rows of the jobs submitted between two times of the log."""
        if between is None:
            return 0, self.jobs.height
        submitted = np.round(self.jobs["submit"].to_numpy() * self.load, MILLISECONDS)
        first, last = np.searchsorted(submitted, between).tolist()
        if first == last:
            msg = f"no job is submitted {between_text(*between)}, counted from the first submission"
            raise WorkloadError(msg, hint="select a longer time, or clear the selection")
        return first, last

    def _measures(self, done: pl.DataFrame, between: tuple[float, float] | None) -> Measures:
        arriving = min(self.span, self.stopped) or self.stopped
        if between is None:
            return Measures(done, self.holdings.usage(np.linspace(0.0, arriving, BLOCKS + 1)), 0.0, self.span)
        begin, end = (time / self.load for time in between)
        if begin >= self.stopped:
            ends = f"the run ends {duration(self.stopped * self.load)} after the first submission"
            msg = f"no job submitted {between_text(*between)} was simulated: {ends}"
            raise WorkloadError(msg, hint="select an earlier time, or a later `until`")
        end = min(end, arriving if arriving > begin else self.stopped)
        return Measures(done, self.holdings.usage(np.linspace(begin, end, BLOCKS + 1)), begin, end)

    def _allocation(self, measures: Measures) -> list[dict[str, Any]]:
        """Return GPU-hours and the share of them that is allocated, by GPU type."""
        there, allocated = (x.sum(axis=0) for x in measures.usage.both)
        rows = zip(self.holdings.types, there.tolist(), allocated.tolist(), strict=True)
        return [
            {"GPU type": name, "GPU-hours": up / HOUR, "while jobs arrive": held / up if up else None}
            for name, up, held in rows
        ]

    def _over_time(self, measures: Measures) -> list[dict[str, Any]]:
        """Return what is allocated and what waits, as means of short intervals, counted from the begin of the part."""
        edges = np.linspace(measures.begin, measures.end, POINTS + 1)
        width = float(edges[1] - edges[0])
        allocated = self.holdings.usage(edges).allocated.sum(axis=1) / width
        columns = {"time": edges[:-1] - measures.begin + width / 2, "allocated": allocated}
        return pl.DataFrame(columns | {"waiting_gpus": self.holdings.waiting_gpus(edges)}).to_dicts()


def _gpu_time(jobs: pl.DataFrame) -> float:
    return float(jobs["gpu_time"].sum())


# -- in a process -----------------------------------------------------------------------------------------------------


def keep(request: Mapping[str, Any], run: SimResult) -> None:
    """Store the record of a run that was just simulated."""
    folder = Path(request["records"]) / str(request["record"])
    if not folder.exists():
        save(run, folder)


def open_record(request: Mapping[str, Any], channel: Channel) -> RunRecord:
    """Return the record of a run; simulate it again if that was deleted."""
    from fleetlab.sim import simulate
    from fleetlab.web.worker import bound

    folder = Path(request["records"]) / str(request["record"])
    if not folder.exists():
        channel.progress("simulating", 0, None)
        keep(request, simulate(bound(request, channel).replace(min_coverage=0.0), progress=channel.progress))
    os.utime(folder)
    return RunRecord.load_from(folder)


def part_of(ask: Mapping[str, Any]) -> Part:
    """Return the part that a request means."""
    between, rows = ask.get("between"), ask.get("rows")
    return Part(None if between is None else tuple(between), None if rows is None else tuple(rows), ask.get("among"))
