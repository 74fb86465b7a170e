"""The main job in one go: what is in a trace, why its jobs wait, what five policies would do, and a page of it all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
import polars as pl

from fleetlab.core import Result, Trace, TraceError, Workload
from fleetlab.describe import describe
from fleetlab.report import report
from fleetlab.studies.compare import FIVE, compare
from fleetlab.studies.diagnose import diagnose

FIVE_SENTENCES = 5
MOST = 50_000  # jobs that are played
STEP = 1_000  # jobs between two beginnings that are tried
DAY = 86_400.0
Progress = Callable[[str, int, float], None]


@dataclass(frozen=True, slots=True)
class Story:
    """Where the page is, and what was found."""

    page: Path
    sentences: tuple[str, ...]


def story(trace: Trace, *, out: Path, seed: int = 0, progress: Progress | None = None) -> Story:
    """Describe, diagnose and compare, and write the page `out`."""
    if trace.cluster is None:
        msg = f"the trace has no cluster: {trace.provenance.source}"
        raise TraceError(msg, hint="--cluster FILE.toml gives it one")
    progress = progress or (lambda *_: None)
    jobs, usage, when = busiest(trace)
    # Changes and policies are played in processes of their own: a thread describes meanwhile.
    over = Event()
    with ThreadPoolExecutor(1) as aside:
        describing = aside.submit(describe, trace, seed=seed, progress=_until(over, progress))
        try:
            why = diagnose(jobs, trace.cluster, usage=usage, seed=seed, progress=progress)
            by = compare(jobs, trace.cluster, policies=FIVE, seed=seed, progress=progress)
            seen = describing.result()
        except BaseException:  # Ctrl-C too: nobody waits for the description any more
            over.set()
            raise
    progress("page", 0, 0.0)
    found: dict[str, Result] = {"the trace": seen, f"why jobs wait{when}": why, f"five policies{when}": by}
    page = report(found, out, title="What happened, and why")
    progress("page", 1, 1.0)
    same = when and " (the same jobs)"
    ends = tuple(f"{a}{b}" for a, b in zip((*why.findings[:2], by.findings[0]), (when, same, same), strict=False))
    # One of each section before a second of any: when they come, how long they run, what they ask for, and so on.
    firsts = [sentence for s in seen.sections for sentence in s.findings[-1:]]
    rest = [sentence for sentence in seen.findings if sentence not in firsts]
    told = (*[*firsts[::-1], *rest][: FIVE_SENTENCES - len(ends)][::-1], *ends)
    return Story(page, tuple(f"{said[0].upper()}{said[1:].rstrip('.')}." for said in told))


def _until(over: Event, progress: Progress) -> Progress:
    """Tells on until it is over, and then ends whoever tells."""

    def told(what: str, done: int, share: float) -> None:
        if over.is_set():
            msg = "nobody waits for it"
            raise RuntimeError(msg)
        progress(what, done, share)

    return told


def busiest(trace: Trace, *, most: int = MOST) -> tuple[Workload, pl.LazyFrame | None, str]:
    """So many jobs in a row that ask for the most GPU time a second, their use, and when that was, in words.

    They are played a dozen times and more. Where they are all of the trace, nothing is to be said of when.
    """
    frame = trace.workload.frame
    if frame.height <= most:
        return trace.workload, trace.usage, ""
    asked = frame.select(pl.col("runtime").fill_null(0.0) * pl.col("gpu_milli") * pl.col("instances")).to_series()
    total = np.concatenate([[0.0], np.cumsum(asked.to_numpy())])
    submit, begins = frame["submit"].to_numpy(), np.arange(0, frame.height - most, STEP)
    lasts = np.maximum(submit[begins + most - 1] - submit[begins], 1.0)
    first = int(begins[np.argmax((total[begins + most] - total[begins]) / lasts)])
    part = frame.slice(first, most).drop("job").with_columns(pl.col("submit", "start", "end") - submit[first])
    seen = pl.col("job").is_between(first, first + most - 1)
    usage = None if trace.usage is None else trace.usage.filter(seen).with_columns(pl.col("job") - first)
    days = [f"{submit[k] / DAY:.1f}" for k in (first, first + most - 1)]
    when = f" (days {' to '.join(days)}, the busiest {most:,} jobs)"
    return Workload.of(part, source=trace.workload.source), usage, when
