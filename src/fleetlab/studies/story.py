"""Describe a trace, diagnose its waits and compare five policies, on one page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Result, Scenario, Words
from fleetlab.core.progress import Progress, silent
from fleetlab.core.scenario import ScenarioLike
from fleetlab.describe import describe
from fleetlab.report import report
from fleetlab.studies.compare import FIVE, compare
from fleetlab.studies.diagnose import diagnose

SENTENCES = 5
MOST = 50_000  # jobs that are simulated
STEP = 1_000  # jobs between two candidate windows
WARM_UP = "2d"  # before the window: with all jobs before it, each simulation would take several times as long
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
    part = scenario.replace(window=(submit[first], submit[first + most]), warm_up=WARM_UP)
    return (
        part,
        f"the busiest {len(part.workload):,} consecutive jobs (days {' to '.join(days)} of {submit[-1] / DAY:.3g})",
    )
