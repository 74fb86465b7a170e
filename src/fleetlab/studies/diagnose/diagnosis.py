"""Diagnose waiting: one simulation as it is, and one per change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, Prices, Provenance, Scenario, Words, WorkloadError
from fleetlab.core.durations import duration
from fleetlab.core.job_classes import GPU_REQUEST, owners
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import ScenarioLike
from fleetlab.sim import SimResult, simulate
from fleetlab.stats import BETTER
from fleetlab.studies.diagnose import ledger
from fleetlab.studies.diagnose.changes import (
    DEFAULT,
    LARGEST,
    NODES,
    WhatIf,
    changed,
    chosen_changes,
    gpu_types,
    of_site,
    what_if,
)  # fmt: skip
from fleetlab.studies.diagnose.effects import Outcomes, actions, effects, records_of, simulate_changes, waterfall
from fleetlab.studies.diagnose.findings import figures_of, findings, population
from fleetlab.studies.diagnose.open_problems import cpu_by_gpu_type, open_problems
from fleetlab.studies.explain.job import names_of
from fleetlab.studies.model_error import by_chance, notes_of, with_model_error
from fleetlab.studies.replicas import Plan
from fleetlab.studies.runner import Workers
from fleetlab.studies.sentences import unmet_requests

NO_WAIT = "no job waits for it"
HARDLY = 0.1  # of the mean wait of all jobs: nodes for a partition whose jobs wait less are no advice


@dataclass(frozen=True, repr=False)
class Diagnosis(FieldsResult):
    """Why jobs wait, and which change would help, with intervals."""

    baseline: Scenario | None = None
    refused: pl.Series = field(default_factory=pl.Series)  # the jobs that cannot run there

    @property
    def best_change(self) -> str | None:
        """The change with the lowest mean wait, by name; None where no change is known to lower it."""
        helps = self.frames["changes"].filter(pl.col("verdict") == BETTER)
        return helps["change"][0] if helps.height else None

    def scenario(self, change: str) -> Scenario:
        """Return the scenario with a change, as it was simulated of the log as it is.

        Parameters
        ----------
        change
            Its name, as in the table `changes`.

        Returns
        -------
        Scenario
            With the words of its `setting`, or with its `edits`.

        Raises
        ------
        WorkloadError
            If the diagnosis has no such change.

        Examples
        --------
        >>> import fleetlab
        >>> result = fleetlab.diagnose("builtin:200", load=20, changes=["backfill"], replicas=1)
        >>> result.scenario("backfill")
        <Scenario builtin:200: fifo/easy, load 20>
        """
        name = lookup("change", change, self.frames["changes"]["change"].to_list(), error=WorkloadError)
        assert self.baseline is not None
        return changed(self.baseline, what_if(name, self.baseline), self.refused)

    def figures(self) -> dict[str, Figure]:
        """Return waiting by reason and by hour, and the effect of each change."""
        return figures_of(self.frames)


def diagnose(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    changes: Sequence[str] = DEFAULT,
    replicas: int | None = None,
    scope: str = "log",
    workers: Workers = None,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Diagnosis:
    """Why do jobs wait, and what would help? The wait ledger by class, and one change at a time.

    Parameters
    ----------
    source
        What builds the scenario, as `Scenario.of` takes it.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    changes
        What to change: types (any GPU type), cpu, memory (unlimited), fragmentation (each GPU type one large
        node), gangs (instances start one by one), backfill (easy), sjf (with estimates by group), sharing (off, or on),
        nodes (10 % more of each GPU type; nodes:T4 for one type, or of each partition that jobs name), partitions (jobs
        run in any), nothing; under a site's Slurm also limits (none), loops (that look every second), epilog and
        reservations (none); under its Kueue, of the ClusterQueue that waits most, nominal, borrowing, lending,
        preemption, flavors, fungibility, weight or fair sharing (default: all but nothing).
    replicas
        Pairs of runs that each number rests on (default: from 5 on as many as decide, at most 20; fewer of a large
        workload; 1: the log as it is, without intervals).
    scope
        What intervals speak of: `log`, this log with times nudged, or `like`, logs like it, with other jobs.
    workers
        Processes to run at once (default: one per core, at most 4, for a large workload; 0: none but this one); or
        `ray`, or the address of a Ray cluster.
    progress
        Called as changes are done.

    Returns
    -------
    Diagnosis
        Findings, the waiting time by reason, and the effect of each change with a paired interval and a verdict:
        better, worse, no difference or not decided.

    Raises
    ------
    WorkloadError
        If there is no job to simulate, or no change by that name.
    TraceError
        If the trace cannot be opened, or has no cluster.

    Examples
    --------
    >>> import fleetlab
    >>> result = fleetlab.diagnose("builtin:200", load=20, changes=["cpu"], workers=0)
    >>> "of all waiting time is `cpu`" in result.findings[0]
    True
    """
    scenario, plan = Scenario.of(source, cluster, **words), Plan.of(replicas, scope)
    prices = scenario.prices or Prices()
    for name in set(scenario.cluster.frame.filter(pl.col("gpus") > 0)["gpu_type"]):
        prices.gpu_hour(name)  # a missing price is refused before the work begins
    chosen = chosen_changes(changes, scenario)
    skipped = {c.title: why for c in chosen if (why := c.skip(scenario))}
    progress("simulating the scenario as it is", 0, 0.0)
    result = simulate(scenario)
    if result.completed.is_empty():
        raise _refusal(result, scenario)
    progress("simulating the scenario as it is", 1, 1.0)
    limits = (c for c in chosen if c.name in of_site(scenario) and c.removes == (c.name,))  # one limit alone
    skipped |= {c.title: NO_WAIT for c in limits if not result.ledger[c.name].sum()}
    skipped |= _of_idle_partitions([c for c in chosen if c.name not in changes], result)
    tried = [c for c in chosen if c.title not in skipped]
    outcomes = simulate_changes(result, scenario, tried, plan=plan, workers=workers, progress=progress)
    settings = scenario.words() | {"changes": [c.name for c in chosen]} | outcomes.replication.settings()
    provenance = scenario.provenance("diagnose", settings)
    return _diagnosis(scenario, result, outcomes, skipped, provenance)


def _of_idle_partitions(chosen: Sequence[WhatIf], result: SimResult) -> dict[str, str]:
    """Return the changes that add nodes to a partition whose jobs hardly wait, and why they are not simulated."""
    jobs, mean = result.completed, float(result.completed["wait"].mean())  # type: ignore[arg-type]
    skipped = {}
    for change in chosen:
        kind, _, name = change.name.partition(":")
        own = jobs.filter(pl.col("partitions").list.contains(name))["wait"]
        if kind == NODES and len(own) and float(own.mean()) < HARDLY * mean:  # type: ignore[arg-type]
            skipped[change.title] = f"its jobs wait {duration(float(own.mean()))} on average"  # type: ignore[arg-type]
    return skipped


def _refusal(result: SimResult, scenario: Scenario) -> WorkloadError:
    """Return the error for a workload of which no job can run, or none completes."""
    workload = scenario.workload
    parts = [f"{workload.source}: no job completes on this cluster, of {len(workload):,} jobs"]
    if unknown := workload.frame["runtime"].null_count():
        parts.append(f"the runtime of {unknown:,} is unknown")
    if unmet := unmet_requests(workload.frame, result.cluster.frame):
        parts.append(unmet)
    return WorkloadError("; ".join(parts), hint="`fleetlab simulate` lists the jobs that cannot run, and why")


def _diagnosis(
    scenario: Scenario, result: SimResult, outcomes: Outcomes, skipped: Mapping[str, str], provenance: Provenance
) -> Diagnosis:  # fmt: skip
    waits = ledger.waits(result, scenario.workload)
    any_waits = waits["wait"].sum() > 0
    changes = effects(outcomes, scenario, result.refused["job"])
    usage = None if scenario.trace.usage is None else scenario.by_job(scenario.trace.usage)
    frames = {
        "actions": actions(changes),
        "changes": changes,
        **(_waiting(scenario, result, waits, changes, outcomes) if any_waits else {}),
        "open problems": open_problems(result, waits, usage, result.blocks(waits)),
        "CPU by GPU type": cpu_by_gpu_type(result),
    }
    records = records_of(changes, outcomes, population(scenario, result))
    sentences = findings(scenario, result, frames, records, outcomes, ledger.longest_waits(waits)[1:])
    estimates = [Estimate.exact("jobs that complete", waits.height)]
    if any_waits:
        mean, p90 = outcomes.mean(), outcomes.p90()
        means = [Estimate("mean wait", *with_model_error(mean, scenario), "s"), Estimate("P90 wait", *p90, "s")]
        estimates = [*means, _main_reason(frames["waiting"]), *estimates]
        frames |= by_chance({"as it is": (mean, scenario)})
    of_model = notes_of([scenario] if any_waits and outcomes.replication.count > 1 else [])
    of_chance = (*outcomes.replication.notes(len(outcomes.changes)), *of_model)
    notes = (*of_chance, *_notes(scenario, result, outcomes, changes, skipped))
    return Diagnosis(
        provenance, tuple(sentences), estimates, frames, {}, notes, result.coverage, records, scenario,
        result.refused["job"],
    )  # fmt: skip


def _waiting(
    scenario: Scenario, result: SimResult, waits: pl.DataFrame, changes: pl.DataFrame, outcomes: Outcomes
) -> dict[str, pl.DataFrame]:
    """Return the tables of waiting; by the clock only where submissions have the times of the log."""
    workload, jobs = scenario.workload, waits["job"].to_numpy()
    same = [] if outcomes.replication.resampled else [wait[jobs] for wait in outcomes.waits()]
    total = outcomes.mean().value * waits.height  # of the means over replicas: the waits of one run are others
    classes = ("GPU type", GPU_REQUEST, "gang size", *owners(result.completed))
    frames = {
        "waterfall": waterfall(outcomes.mean().value, changes),
        "waiting": ledger.reasons(total, outcomes.shares()),
        "held by": ledger.holders(result, waits, total),
        "held by users": ledger.holding_users(result),
        **{f"by {name}": ledger.by(waits, name, same) for name in classes},
    }
    if scenario.load == 1:
        by_hour = ledger.by(waits, "hour", same).rename({"hour": f"hour ({ledger.clock_name(workload)})"})
        frames |= {"by hour of the day": by_hour, "worst hours": ledger.worst_hours(waits, workload, same)}
    frames["longest waits"] = _named(ledger.longest_waits(waits)[0], scenario)
    if waits["limit"].sum() > 0:
        frames["at limits"] = ledger.at_limits(waits, workload.frame[jobs])
    if scenario.policy.backfill == "none":
        frames["blocking jobs"] = _named(ledger.blocking_jobs(waits), scenario)
    return frames


def _named(jobs: pl.DataFrame, scenario: Scenario) -> pl.DataFrame:
    """Return jobs with the log's own ids, which `explain` takes, where the trace has them."""
    names = names_of(scenario)
    if names.is_empty():
        return jobs
    return jobs.join(names, on="job", how="left", maintain_order="left").select("job", "name", *jobs.columns[1:])


def _main_reason(reasons: pl.DataFrame) -> Estimate:
    first = reasons.row(0, named=True)
    value, low, high = (math.nan if first[c] is None else 100 * first[c] for c in ("share", "low", "high"))
    return Estimate(f"waiting time due to `{first['reason']}`", value, low, high, "%")


def _notes(
    scenario: Scenario, result: SimResult, outcomes: Outcomes, changes: pl.DataFrame, skipped: Mapping[str, str]
) -> tuple[str, ...]:
    names, cluster = set(outcomes.changes), result.cluster
    notes = [
        "of one run of the log as it is: who holds what is missing, shares of waiting of a class or hour, single jobs "
        "and open problems; mean waits are over the replicas",
        "changes are simulated one at a time: their effects overlap and do not add up",
        "waterfall: # is the mean wait that is left, - what a change removes, + what it adds",
        "open problems are those of the PAI trace (Weng et al., MLaaS in the Wild, NSDI 2022)",
    ]
    if any(name.startswith(NODES) for name in names):
        unit = "in the currency of the prices" if scenario.prices else "1 per GPU-hour, or by `prices`"
        notes.append(f"added GPU-hours: of the added nodes, while jobs arrive; added cost: {unit}")
    gpus = [cluster.frame.filter(pl.col("gpu_type") == t)["gpus"].cast(pl.Int64).sum() for t in gpu_types(cluster)]
    if "fragmentation" in names and max(gpus) > LARGEST:
        notes.append(f"large nodes: each GPU type on nodes of up to {LARGEST} GPUs, the most that the simulator takes")
    if "gangs" in names:
        notes.append("no gang scheduling: a job waits until its last instance starts")
    spelled = [f"{title} `{setting}`" for title, setting in changes.select("title", "setting").iter_rows() if setting]
    notes += [f"`simulate` with its options repeats a change: {'; '.join(spelled)}"] if spelled else []
    notes += [f"{title}: not simulated, {why}" for title, why in skipped.items()]
    if "backfill" in names:
        truth = " (true runtimes, which no scheduler knows)" * (scenario.policy.estimate == "oracle")
        which = scenario.policy.estimate if isinstance(scenario.policy.estimate, str) else "column"
        notes.append(f"EASY backfill: with the estimates of the scenario, `{which}`{truth}")
    notes += [
        f"{title}: {n:,} jobs do not complete; the difference is of the others"
        for title, n in changes.select("title", "not completed").iter_rows()
        if n
    ]
    if scenario.load != 1:
        notes.append("the load scales the times of submission: there are no hours of the day")
    elif scenario.workload.epoch is None:
        notes.append("the log has no time of day: hours count from the first submission, on day 1")
    if scenario.policy.preempts or scenario.events:
        notes.append("open problems: CPUs count as allocated from the start of a job to its end, with interruptions")
    return tuple(notes)
