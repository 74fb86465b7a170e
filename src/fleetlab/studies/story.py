"""A trace on one page: what it is, three findings, three figures and what to do; all else is folded behind them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Figure, Result, Scenario, Words
from fleetlab.core.durations import duration, plural
from fleetlab.core.job_classes import GPU_REQUEST
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import ScenarioLike
from fleetlab.describe import describe
from fleetlab.report import report
from fleetlab.sim import simulate
from fleetlab.studies.compare import FIVE, compare
from fleetlab.studies.diagnose import diagnose
from fleetlab.studies.diagnose.changes import DEFAULT
from fleetlab.studies.diagnose.effects import LOWER
from fleetlab.studies.diagnose.figures import OF_CHANGES
from fleetlab.studies.diagnose.ledger import SHARE_OF_WAITING
from fleetlab.studies.sentences import percent
from fleetlab.studies.workers import Arrays, Call, run_calls

MOST = 10_000  # jobs that are simulated
STEP = 1_000  # jobs between two candidate windows
WARM_UP = 1  # days before the window: with all jobs before it, each simulation would take several times as long
DAY = 86_400.0


FIGURES = ("waiting by reason", "changes", "mean wait by policy")
ACTIONS = 8
DENSE, SPREAD = "best_fit", "worst_fit"
# The two placements of the paper that the synthetic trace is made from, dense packing, and order.
ON_SYNTHETIC = (
    f"fifo/greedy/{SPREAD}", "fifo/greedy/reserve_and_pack", f"fifo/greedy/{DENSE}", f"sjf/greedy/{SPREAD}/group",
)  # fmt: skip
COLUMNS = (
    "action", "mean wait change", "mean wait change low", "mean wait change high", "verdict", "requires",
    "added GPU-hours",
)  # fmt: skip
SPREADING = "first come, first served; where the first does not fit, later jobs may start; jobs are spread over nodes"
SYNTHETIC = (
    "Synthetic: a trace made from published statistics of Alibaba's PAI cluster (July and August 2020, MLaaS in the "
    "Wild); no row of it is real."
)


@dataclass(frozen=True, slots=True)
class Story:
    """The page, what it is about, and its main findings."""

    page: Path
    about: str
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

    Of a large trace, the busiest 10,000 jobs in a row are simulated. A synthetic one is simulated with jobs spread over
    nodes, as the real cluster placed them, unless `words` say otherwise.
    """
    scenario = Scenario.of(source, cluster, **words).open(progress)
    policies: Sequence[str] = FIVE
    changes: Sequence[str] = DEFAULT
    if scenario.trace.workload.synthetic and "placement" not in words:
        scenario, policies = scenario.replace(placement=SPREAD), ON_SYNTHETIC
        changes = [name for name in DEFAULT if name != "backfill"]  # EASY would take half of the time, and helps nobody
    _ = scenario.cluster  # a trace without one is refused before the work begins
    part, window = busiest(scenario)
    # Changes and policies are simulated in processes of their own; a thread describes the trace meanwhile.
    stop = Event()
    with ThreadPoolExecutor(2) as thread:
        thread.submit(_compile)
        description = thread.submit(describe, scenario.trace, seed=scenario.seed, progress=_until(stop, progress))
        try:
            diagnosis = diagnose(part, changes=changes, progress=progress)
            comparison = compare(part, policies=policies, progress=progress)
            described = description.result()
        except BaseException:  # Ctrl-C too: the description is not needed any more
            stop.set()
            raise
    progress("writing the page", 0, 0.0)
    lead = _lead(scenario, part, window, diagnosis, comparison, policies)
    sections: dict[str, Result] = {"the trace": described, "why jobs wait": diagnosis, "policies": comparison}
    synthetic = "Synthetic trace: " if scenario.trace.workload.synthetic else ""
    title = f"{synthetic}why jobs wait, and what would help"
    page = report(sections, out, title=title[0].upper() + title[1:], lead=lead)
    progress("writing the page", 1, 1.0)
    return Story(page, about(scenario, window), lead.findings)


def _compile() -> None:
    """Compile what comes after the baseline while the baseline is compiled, where there are two cores."""
    calls = [Call(Scenario.of("builtin:100", placement=name), {}) for name in (SPREAD, DENSE)]
    run_calls(f"{__name__}:compiled", calls, workers=1, done=lambda _: None)


def compiled(scenario: Scenario) -> Arrays:
    """Simulate a few jobs, for the compiled code that stays in the cache."""
    _ = simulate(scenario).ledger
    return {}


def _lead(
    scenario: Scenario, part: Scenario, window: str, diagnosis: Result, comparison: Result, policies: Sequence[str]
) -> FieldsResult:  # fmt: skip
    """Choose what a reader sees first."""
    found = {**diagnosis.figures(), **comparison.figures()}
    charts = {name: _shortened(found[name]) for name in FIGURES if name in found}
    frames = {}
    if "actions" in (tables := diagnosis.tables()):
        both = pl.concat([tables["actions"], _placement(comparison, policies)], how="diagonal")
        actions = both.sort(pl.col("verdict") != LOWER, "mean wait change", maintain_order=True).head(ACTIONS)
        frames = {"what to do": actions.select(name for name in COLUMNS if name in actions.columns)}
    longest = [sentence for sentence in diagnosis.findings if "that waited longest account for" in sentence]
    first = " ".join([diagnosis.findings[0], *longest, *_who_waits(diagnosis)])
    sentences = (first, comparison.findings[0], *diagnosis.findings[1:2])
    notes = (_what_it_is(scenario), _what_was_simulated(part, window), *_about_actions(frames))
    return FieldsResult(diagnosis.provenance, sentences, frames=frames, charts=charts, notes=notes)


def _placement(comparison: Result, policies: Sequence[str]) -> pl.DataFrame:
    """Return the placement under which jobs wait least, as an action: it is a setting."""
    words = [policy.split("/") for policy in policies]
    alone = [w[2] if len(w) == 3 and w[:2] == ["fifo", "greedy"] else None for w in words]
    rows = comparison.tables()["policies"].with_columns(placement=pl.Series(alone, dtype=pl.String))
    better = rows.filter(pl.col("placement").is_not_null(), pl.col("mean wait change high") < 0)
    return better.sort("mean wait").head(1).select(
        *COLUMNS[1:4], action="set placement to " + pl.col("placement"), verdict=pl.lit(LOWER),
        requires=pl.lit("a setting"), **{"added GPU-hours": pl.lit(0.0)},
    )  # fmt: skip


def _about_actions(frames: dict[str, pl.DataFrame]) -> list[str]:
    """Say what the table of actions leaves out."""
    if not frames:
        return []
    notes = [
        "Each action is simulated by itself: effects overlap and do not add up. Added GPU-hours are those of added "
        "nodes; what memory, larger nodes or changes of jobs cost is not in them."
    ]
    if frames["what to do"]["requires"].str.contains("what jobs request").any():
        notes.append(
            "Reasons count only the GPU types that a job may use: one that waits for room on nodes of its type is "
            "`fragmentation`, even if other types have room."
        )
    return notes


def _who_waits(diagnosis: Result) -> list[str]:
    """Say which size of job waits most, and how many jobs do not wait."""
    sizes = diagnosis.tables().get(f"by {GPU_REQUEST}")
    if sizes is None or sizes.height < 2:
        return []
    row = sizes.sort(SHARE_OF_WAITING, descending=True).row(0, named=True)
    return [
        f"Jobs that request {row[GPU_REQUEST]} wait most: {row['jobs']:,} jobs with {percent(row[SHARE_OF_WAITING])} "
        f"of it, {duration(row['mean wait'])} each on average."
    ]


def _shortened(figure: Figure) -> Figure:
    """Return a figure whose bars have names of few letters; of changes, those that lower the mean wait."""
    frame = figure.frame
    if figure.title == OF_CHANGES:  # one that makes waits much longer would leave the others no room
        frame = frame.filter(pl.col("y") < 0)
    if frame["x"].dtype == pl.String:
        short = frame["x"].str.replace(r"^fifo/greedy, placement (\S+)$", "$1").str.replace(r", placement \w+", "")
        frame = frame.with_columns(x=short.str.replace(", estimate ", " by "))
    return replace(figure, frame=frame)


def about(scenario: Scenario, window: str) -> str:
    """Say what the data are, and of which part of them the findings speak, where it is not all."""
    return _what_it_is(scenario) + (f" What follows is about a simulation of {window}." if window else "")


def _what_it_is(scenario: Scenario) -> str:
    """Say what the data are."""
    jobs, cluster = scenario.trace.workload, scenario.cluster
    span = duration(float(jobs.frame["submit"].max() or 0.0))  # type: ignore[arg-type]
    size = (
        f"{plural(len(jobs), 'job')} submitted within {span}, {plural(len(cluster), 'node')}, "
        f"{plural(cluster.gpus, 'GPU')}"
    )
    return f"{SYNTHETIC} {size}." if jobs.synthetic else f"{jobs.source}: {size}."


def _what_was_simulated(part: Scenario, window: str) -> str:
    """Say of which jobs and under which policy the findings speak."""
    jobs = window or f"all {plural(len(part.workload), 'job')}"
    policy = f"{part.scheduler.title} as it is configured" if part.scheduler is not None else part.title
    spread = part.trace.workload.synthetic and part.policy.placement == SPREAD
    how = f"{policy} ({SPREADING})" if spread else policy
    synthetic = " Other days and other seeds give other waits, beyond these intervals." * part.trace.workload.synthetic
    return (
        f"This screen is about a simulation of {jobs} under {how}, or under what a line names instead; what is folded "
        f"below says its own jobs.{synthetic}"
    )


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
