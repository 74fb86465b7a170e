"""The first screen of a trace: why its jobs wait, what would help, and what a real scheduler measured of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Scenario, Words
from fleetlab.core.data import open_trace
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import ScenarioLike
from fleetlab.stats import BETTER
from fleetlab.studies.diagnose import Diagnosis, diagnose
from fleetlab.studies.diagnose.changes import DEFAULT, NODES, gpu_types, of_site, parts_of

MOST = 10_000  # jobs that are simulated
STEP = 1_000  # jobs between two candidate windows
WARM_UP = 1  # days before the window: with all jobs before it, each simulation would take several times as long
DAY = 86_400.0
FIXES = 3
MORE = 0.05  # less wait than with any change alone: what several at once must reach
MEASURED = {"sample": ("sample:changed", "loops")}  # a run of the same jobs by the real scheduler, with this change


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that lowers the mean wait, what it takes, and what says it."""

    change: str
    title: str
    mean_wait: float
    requires: str
    line: str  # of the scheduler's configuration; empty: none
    setting: str  # options of `simulate`; empty: none

    @property
    def parts(self) -> list[str]:
        """The changes that it joins."""
        return parts_of(self.change)


@dataclass(frozen=True, repr=False)
class Demo(FieldsResult):
    """A diagnosis with what a first screen shows of it."""

    scenario: Scenario | None = None  # that is diagnosed
    window: str = ""  # which part of the trace; empty: all of it
    mean_wait: float = 0.0
    recorded: float | None = None  # mean wait in the log, s
    fixes: tuple[Fix, ...] = ()
    measured: float | None = None  # mean wait that the real scheduler had with the first fix, s

    @property
    def reasons(self) -> pl.DataFrame:
        """Which share of all waiting is due to each reason, the largest first; empty where no job waits."""
        return self.frames.get("waiting", pl.DataFrame())


def demo(
    source: ScenarioLike, cluster: Cluster | None = None, *, progress: Progress = silent, **words: Unpack[Words]
) -> Demo:
    """Diagnose a trace, of a large one its busiest part, with the changes that somebody can copy.

    Under a scheduler that proposes lines of its configuration these are its lines, more nodes, and both together.
    """
    scenario = Scenario.of(source, cluster, **words).open(progress)
    _ = scenario.cluster  # a trace without one is refused before the work begins
    part, window = busiest(scenario)
    diagnosis = diagnose(part, changes=_copyable(part), progress=progress)
    fixes = _fixes(diagnosis)
    name, change = MEASURED.get(scenario.trace.workload.source, ("", ""))
    tried = bool(fixes) and any(fix.change == change for fix in fixes)
    parts = {f: getattr(diagnosis, f) for f in FieldsResult.__dataclass_fields__}
    return Demo(
        **parts, scenario=part, window=window, fixes=fixes,
        mean_wait=diagnosis.estimates[0].value if "waiting" in diagnosis.frames else 0.0,
        recorded=None if scenario.trace.workload.synthetic else recorded_wait(part.workload.frame),
        measured=recorded_wait(open_trace(name).workload.frame) if tried else None,
    )  # fmt: skip


def recorded_wait(jobs: pl.DataFrame) -> float | None:
    """Return the mean wait that a log recorded; None where it has no starts."""
    wait = jobs.select(wait=pl.col("start") - pl.col("submit"))["wait"].drop_nulls()
    mean = wait.filter(wait >= 0).mean()
    return None if mean is None else float(mean)  # type: ignore[arg-type]


def _copyable(scenario: Scenario) -> tuple[str, ...]:
    """Return which changes to try."""
    changes = of_site(scenario)
    lines = [name for name, change in changes.items() if change.line and not change.skip(scenario)]
    if not lines:
        return DEFAULT
    return (*lines, NODES, *(f"{name}+{NODES}:{gpu_types(scenario.cluster)[0]}" for name in lines))


def _fixes(diagnosis: Diagnosis) -> tuple[Fix, ...]:
    """Return what lowers the mean wait: what can be copied first; several at once last, where they help more."""
    changes = diagnosis.frames["changes"].filter(pl.col("verdict") == BETTER)
    fixes = [
        Fix(row["change"], row["title"], row["mean wait"], row["requires"], row["line"] or "", row["setting"] or "")
        for row in changes.sort("mean wait", maintain_order=True).iter_rows(named=True)
    ]
    alone = min((fix.mean_wait for fix in fixes if len(fix.parts) == 1), default=np.inf)
    fixes = [fix for fix in fixes if len(fix.parts) == 1 or fix.mean_wait < (1 - MORE) * alone]
    fixes.sort(key=lambda fix: (len(fix.parts) > 1, not (fix.line or fix.setting)))
    return tuple(fixes[:FIXES])


def busiest(scenario: Scenario, *, most: int = MOST) -> tuple[Scenario, str]:
    """Return the scenario with the jobs in a row that request the most GPU time per second, and their time as text.

    A diagnosis simulates them a dozen times. A trace of at most `most` jobs is used as it is, and the text is empty.
    """
    frame = scenario.trace.workload.frame
    if frame.height <= most:
        return scenario, ""
    demand = frame.select(pl.col("runtime").fill_null(0.0) * pl.col("gpu_milli") * pl.col("instances")).to_series()
    total = np.concatenate([[0.0], np.cumsum(demand.to_numpy())])
    submit, begins = frame["submit"].to_numpy(), np.arange(0, frame.height - most, STEP)
    warm = begins[submit[begins] >= WARM_UP * DAY]  # the cluster has filled
    begins = warm if len(warm) else begins
    spans = np.maximum(submit[begins + most - 1] - submit[begins], 1.0)
    first = int(begins[np.argmax((total[begins + most] - total[begins]) / spans)])
    days = [f"{submit[k] / DAY:.1f}" for k in (first, first + most - 1)]
    part = scenario.replace(window=(submit[first], submit[first + most]), warm_up=f"{WARM_UP}d")
    return (
        part,
        f"the busiest {len(part.workload):,} consecutive jobs (days {' to '.join(days)} of {submit[-1] / DAY:.3g})",
    )
