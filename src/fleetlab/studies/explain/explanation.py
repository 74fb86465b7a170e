"""Explain one job of a scenario: simulate it, read its timeline, and simulate it again with other requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Unpack

import polars as pl

from fleetlab.core import Cluster, Estimate, FleetlabError, Provenance, Scenario, Words, WorkloadError
from fleetlab.core.catalog import REASONS
from fleetlab.core.durations import duration, plural
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import ScenarioLike
from fleetlab.sim import SimResult, simulate
from fleetlab.studies.explain.alternatives import Alternative, alternatives, scenario_with
from fleetlab.studies.explain.job import (
    JobSimulation,
    JobTimeline,
    counted_from,
    find_jobs,
    names_of,
    request_text,
    simulation_of,
    timeline_of,
)
from fleetlab.studies.explain.wording import findings, strip_figure

LISTED = 20  # candidates by default
HOUR = 3600.0
SOONER, LATER, SAME, NEVER = "sooner", "later", "the same", "cannot run"
NOT_BY_THEN = "later than simulated"
NOTICED = 0.5  # s: a smaller difference is none


class Candidates(FieldsResult):
    """Several jobs that were meant, with their waits, the longest first."""


@dataclass(frozen=True, repr=False)
class Explanation(FieldsResult):
    """The timeline of one job, and what would have started it sooner."""

    timeline: JobTimeline | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with the job itself under `job`."""
        return super().to_json() | {"job": job_values(self.timeline) if self.timeline else None}


def explain(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    job: str | int = "",
    longest: int = 0,
    what_if: bool = True,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Explanation | Candidates:
    """Why did one job wait when, who held what it needed, and what would have started it sooner?

    Parameters
    ----------
    source
        What builds the scenario, as `Scenario.of` takes it.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    job
        The log's own id of the job, its number, or `user=…`, `group=…`, which lists the jobs that are meant.
    longest
        List so many of the jobs (all, or those that `job` means), the longest waits first.
    what_if
        Simulate the job again with other requests: GPU type, size, partition, queue, time limit (default: yes).
    progress
        Called as simulations end.

    Returns
    -------
    Explanation or Candidates
        The timeline of one job, second by second; or the jobs that are meant.

    Raises
    ------
    WorkloadError
        If there is no such job.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.explain("builtin:200", load=20, longest=2)
    <Candidates: 200 jobs; the 2 longest waits of them.>
    """
    scenario = Scenario.of(source, cluster, **words).open(progress)
    if longest < 0:
        raise WorkloadError(f"the longest waits are 1 or more: {longest}", hint="longest=10")
    names = names_of(scenario)
    jobs = find_jobs(scenario, str(job), names) if str(job).strip() else None
    progress("simulating the scenario", 0, 0.0)
    if longest or jobs is None or len(jobs) > 1:
        return _candidates(simulate(scenario, progress=progress), scenario, names, jobs, longest or LISTED)
    simulation = simulation_of(scenario, jobs[0], progress)
    return _explanation(simulation, what_if=what_if, progress=progress)


def _candidates(
    result: SimResult, scenario: Scenario, names: pl.DataFrame, chosen: Sequence[int] | None, most: int
) -> Candidates:
    """List jobs, the longest waits first."""
    jobs = result.jobs if chosen is None else result.jobs.filter(pl.col("job").is_in(list(chosen)))
    first = jobs.sort("wait", "job", descending=[True, False]).head(most)
    ledger = result.ledger.join(first.select("job"), on="job", how="semi")
    reasons = dict(zip(ledger["job"], map(_main_reason, ledger.iter_rows(named=True)), strict=True))
    recorded = scenario.workload.frame.filter(~pl.col("initial") & (pl.col("start") >= pl.col("submit")))
    waits = recorded.select("job", (pl.col("start") - pl.col("submit")).alias("recorded wait"))
    named = first.join(names, on="job", how="left", maintain_order="left")
    table = named.join(waits, on="job", how="left", maintain_order="left").select(
        "job", "name", pl.col("user").cast(pl.String), pl.col("group").cast(pl.String), "submit",
        (pl.col("gpu_milli").cast(pl.Int64) * pl.col("instances") / 1000).alias("GPUs"), "wait", "recorded wait",
        "runtime",
        pl.Series("main reason", [reasons[j] for j in first["job"]], dtype=pl.String),
    )  # fmt: skip
    empty = [name for name in ("name", "user", "group", "recorded wait") if table[name].null_count() == table.height]
    count = jobs.height if chosen is None else len(chosen)
    left_out = (
        "" if chosen is None or len(chosen) == jobs.height else f", {len(chosen) - jobs.height:,} of which are left out"
    )
    which = "the longest waits first" if table.height >= jobs.height else f"the {table.height} longest waits of them"
    sentence = f"{plural(count, 'job')}{left_out}; {which}."
    return Candidates(
        _provenance(scenario, {"longest": most}), (sentence,), frames={"jobs": table.drop(empty)},
        notes=_notes(scenario, result), coverage=result.coverage,
    )  # fmt: skip


def _main_reason(row: dict[str, float]) -> str:
    reasons = {name: row[name] for name in REASONS.names}
    first = max(reasons, key=lambda name: reasons[name])
    return first if reasons[first] > 0 else ""


def _explanation(simulation: JobSimulation, *, what_if: bool, progress: Progress) -> Explanation:
    scenario, result, job, names = simulation.scenario, simulation.result, simulation.job, names_of(simulation.scenario)
    own = names.filter(pl.col("job") == job)["name"]
    called = own[0] if len(own) else str(job)
    refused = result.refused.filter(pl.col("job") == job)
    if refused.height:
        msg = f"job {called} is left out of the simulation: {refused['reason'][0]}"
        raise WorkloadError(msg, hint=f"`fleetlab explain {quote(scenario.data.name or 'TRACE')}` lists jobs that wait")
    timeline = timeline_of(result, job, scenario.workload, names)
    others = _starts_under_others(scenario, timeline, progress) if what_if and timeline.wait > 0 else None
    timeline = timeline.counted_from(simulation.jobs_before, simulation.begin)
    others = None if others is None else counted_from(others, 0, simulation.begin)
    sums = timeline.segments.group_by("reason", maintain_order=True).agg(pl.col("wait").sum())
    frames = {"segments": timeline.segments, "by reason": sums, "holders": timeline.holders, "heads": timeline.heads,
              "overtakers": timeline.overtakers,
              "placement": timeline.runs, "neighbors": timeline.neighbors}  # fmt: skip
    if others is not None:
        frames["what would have started it sooner"] = others
    strip = strip_figure(timeline)
    log = () if scenario.scheduler is None else scenario.scheduler.explain_job(scenario, result.world, job)
    return Explanation(
        _provenance(scenario, {"job": called}), (*findings(timeline, others, simulation.whole), *log),
        (Estimate.exact("wait", timeline.wait, "s"),), {name: f for name, f in frames.items() if f.height},
        {"strip": strip} if strip is not None else {},
        notes=(*simulation.notes, *_notes(scenario, result)), coverage=result.coverage, timeline=timeline,
    )  # fmt: skip


def _notes(scenario: Scenario, result: SimResult) -> tuple[str, ...]:
    """Return what to know: not of energy and cost, which no job has."""
    notes = tuple(note for note in result.notes if not note.startswith("energy"))
    draws = "" if scenario.scheduler is None else scenario.scheduler.draws
    return (draws, *notes) if draws else notes


def _provenance(scenario: Scenario, more: dict[str, Any]) -> Provenance:
    return scenario.provenance("explain", scenario.settings() | more)


# -- what would have started it sooner -------------------------------------------------------------------------------


def _starts_under_others(scenario: Scenario, timeline: JobTimeline, progress: Progress) -> pl.DataFrame:
    """Simulate every alternative until some time after the job started, and rank them by their starts."""
    start = math.inf if timeline.start is None else timeline.start
    horizon = start + max(HOUR, timeline.wait)
    stop = min(horizon, math.inf if scenario.until is None else scenario.until)
    rows, options = [], alternatives(scenario, timeline.job)
    for k, other in enumerate(options, 1):
        rows.append(_start_under(scenario, timeline, other, None if math.isinf(stop) else stop))
        progress("simulating other requests of this job", k, k / len(options))
    schema = {"change": pl.String, "kind": pl.String, "start": pl.Float64, "wait": pl.Float64,
              "wait change": pl.Float64, "verdict": pl.String}  # fmt: skip
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return table.sort("wait change", nulls_last=True, maintain_order=True)


def _start_under(scenario: Scenario, timeline: JobTimeline, other: Alternative, stop: float | None) -> tuple[Any, ...]:
    """Return when the job starts under another request."""
    try:
        changed = scenario_with(scenario, timeline.job, other)
        row = changed.workload.frame.row(timeline.job, named=True)
        if changed.scheduler is not None and (rule := changed.scheduler.refuses(row)):
            return other.title, other.kind, None, None, None, f"{NEVER}: {rule}"
        result = simulate(changed.replace(until=stop))
    except FleetlabError as e:
        return other.title, other.kind, None, None, None, f"{NEVER}: {e}"
    why = result.refused.filter(pl.col("job") == timeline.job)
    if why.height:
        return other.title, other.kind, None, None, None, f"{NEVER}: {why['reason'][0]}"
    simulated = result.jobs.filter(pl.col("job") == timeline.job).row(0, named=True)
    if simulated["start"] is None:
        return other.title, other.kind, None, None, None, f"{NOT_BY_THEN}: not within {duration(simulated['wait'])}"
    was = timeline.simulated["wait"] if timeline.start is None else timeline.start - timeline.simulated["submit"]
    wait = simulated["start"] - simulated["submit"]
    by = wait - was
    verdict = SAME if abs(by) < NOTICED else SOONER if by < 0 else LATER
    return other.title, other.kind, simulated["start"], wait, by, verdict


def job_values(timeline: JobTimeline) -> dict[str, Any]:
    """Return the job itself as plain values: what it requested, and when what happened to it."""
    row, simulated = timeline.row, timeline.simulated
    columns = ("user", "group", "app", "queue", "qos", "instances", "gpu_milli", "cpu_milli", "memory_mib", "gpu_types",
               "partitions", "limit")  # fmt: skip
    return {
        "job": timeline.job, "name": timeline.name, "request": request_text(row),
        **{name: row[name] for name in columns}, "submit": simulated["submit"], "eligible": timeline.eligible,
        "start": timeline.start, "end": simulated["end"], "wait": timeline.wait,
        "runtime": simulated["runtime"], "status": str(simulated["status"]), "preemptions": simulated["preemptions"],
        "failures": simulated["failures"],
        "recorded": {"start": row["start"], "end": row["end"], "wait": timeline.recorded_wait},
        "counts": timeline.counts,
    }  # fmt: skip
