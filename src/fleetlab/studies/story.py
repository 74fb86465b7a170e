"""Describe a trace, diagnose its waits and compare five policies, on one page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Result, Scenario, Trace, Words, Workload
from fleetlab.core.progress import Progress, silent
from fleetlab.core.scenario import ScenarioLike
from fleetlab.describe import describe
from fleetlab.report import report
from fleetlab.studies.compare import FIVE, compare
from fleetlab.studies.diagnose import diagnose

SENTENCES = 5
MOST = 50_000  # jobs that are simulated
STEP = 1_000  # jobs between two candidate windows
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Story:
    """The page, and its main findings."""

    page: Path
    findings: tuple[str, ...]


def story(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    out: Path,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Story:
    """Describe, diagnose and compare, and write the page `out`.

    Of a large trace, the busiest 50,000 jobs in a row are simulated.
    """
    scenario = Scenario.of(source, cluster, **words).open(progress)
    _ = scenario.cluster  # a trace without one is refused before the work begins
    part, window = busiest(scenario)
    # Changes and policies are simulated in processes of their own; a thread describes the trace meanwhile.
    stop = Event()
    with ThreadPoolExecutor(1) as thread:
        description = thread.submit(describe, scenario.trace, seed=scenario.seed, progress=_until(stop, progress))
        try:
            diagnosis = diagnose(part, progress=progress)
            comparison = compare(part, policies=FIVE, progress=progress)
            described = description.result()
        except BaseException:  # Ctrl-C too: the description is not needed any more
            stop.set()
            raise
    progress("page", 0, 0.0)
    of = f": {window}" if window else ""
    sections: dict[str, Result] = {
        "the trace": described, f"why jobs wait{of}": diagnosis, f"five policies{of}": comparison
    }  # fmt: skip
    page = report(sections, out, title="Trace, waits and policies")
    progress("page", 1, 1.0)
    simulated = (*diagnosis.findings[:2], comparison.findings[0])
    which = (window, "the same jobs", "the same jobs") if window else ("", "", "")
    ends = [f"{jobs}: {s[0].lower()}{s[1:]}" if jobs else s for s, jobs in zip(simulated, which, strict=False)]
    # One sentence of each section before a second of any.
    firsts = [sentence for s in described.sections for sentence in s.findings[-1:]]
    rest = [sentence for sentence in described.findings if sentence not in firsts]
    sentences = (*[*firsts[::-1], *rest][: SENTENCES - len(ends)][::-1], *ends)
    return Story(page, tuple(f"{sentence[0].upper()}{sentence[1:].rstrip('.')}." for sentence in sentences))


def _until(stop: Event, progress: Progress) -> Progress:
    """Report progress until a computation is to stop, then end the thread that reports."""

    def report_or_end(what: str, count: int, fraction: float) -> None:
        if stop.is_set():
            msg = "stopped"
            raise RuntimeError(msg)
        progress(what, count, fraction)

    return report_or_end


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
    spans = np.maximum(submit[begins + most - 1] - submit[begins], 1.0)
    first = int(begins[np.argmax((total[begins + most] - total[begins]) / spans)])
    days = [f"{submit[k] / DAY:.1f}" for k in (first, first + most - 1)]
    estimate = scenario.policy.estimate
    words: dict[str, Any] = {} if isinstance(estimate, str) else {"estimate": estimate.slice(first, most)}
    part = scenario.replace(trace=_slice(scenario.trace, first, most), cluster=scenario.data.cluster, **words)
    return part, f"the busiest {most:,} consecutive jobs (days {' to '.join(days)} of {submit[-1] / DAY:.3g})"


def _slice(trace: Trace, first: int, count: int) -> Trace:
    """Return a trace of `count` jobs from the first on, with what was recorded of them; times count from its submit."""

    def rows(table: pl.LazyFrame) -> pl.LazyFrame:
        if "job" not in table.collect_schema():
            return table
        return table.filter(pl.col("job").is_between(first, first + count - 1)).with_columns(pl.col("job") - first)

    whole = trace.workload
    begin = whole.frame["submit"][first]
    jobs = whole.frame.slice(first, count).drop("job").with_columns(pl.col("submit", "start", "end") - begin)
    epoch = None if whole.epoch is None else whole.epoch + begin
    workload = Workload.of(jobs, source=whole.source, epoch=epoch, zone=whole.zone)
    usage = None if trace.usage is None else rows(trace.usage)
    series = {name: rows(table) for name, table in trace.series.items()}
    # The tables stay on disk as long as the whole trace is there.
    return replace(trace, workload=workload, usage=usage, placements=None, names=None, series=series, scratch=trace)
