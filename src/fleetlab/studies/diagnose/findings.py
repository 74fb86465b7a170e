"""The findings of a diagnosis as sentences: why jobs wait, which change helps most, and whether the two agree."""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl

from fleetlab.core import Estimate, Scenario
from fleetlab.core.catalog import REASONS
from fleetlab.core.durations import duration, plural
from fleetlab.core.job_classes import GPU_REQUEST
from fleetlab.core.result import amount
from fleetlab.sim import SimResult
from fleetlab.stats import POSITIVE, batch_means
from fleetlab.studies.diagnose.changes import NODES, WhatIf
from fleetlab.studies.diagnose.effects import HIGHER, LOWER, MEAN, NOT_SIGNIFICANT
from fleetlab.studies.diagnose.ledger import BLOCKED, SHARE_OF_WAITING
from fleetlab.studies.diagnose.runs import Outcome
from fleetlab.studies.requests import CANNOT_RUN, left_out
from fleetlab.studies.sentences import change_of_mean, mean_of, percent

POLICY_CHANGES = ("backfill", "sjf")  # they add no resource: other jobs start first


def findings(
    scenario: Scenario, result: SimResult, frames: Mapping[str, pl.DataFrame], mean: tuple[float, float, float],
    outcomes: Mapping[str, Outcome], longest: tuple[float, int],
) -> list[str]:  # fmt: skip
    """Return the sentences, the most important first."""
    if "waiting" not in frames:
        return [_no_waits(scenario.workload.frame, result)]
    reasons, changes = frames["waiting"], frames["changes"].with_columns(pl.col(*MEAN).fill_null(math.nan))
    first = reasons.row(0, named=True)
    sentences = [
        f"{mean_of('wait', mean)} under {scenario.title}, of {population(scenario, result)}. "
        f"{percent(first['share'])} of all waiting time is `{first['reason']}`: {REASONS[first['reason']].meaning}.",
        _best(changes),
        agreement(reasons, changes, outcomes),
        *_for_ever(result),
        *(_of_site(frames) if scenario.slurm is not None else ()),
        *_who_holds(frames["held by"], frames["held by users"], result.jobs.height),
        f"The {longest[1]:,} jobs that waited longest account for {percent(longest[0])} of all waiting time.",
    ]
    if first["reason"] == BLOCKED and "blocking jobs" in frames and frames["blocking jobs"].height:
        job = frames["blocking jobs"].row(0, named=True)
        size = f"{plural(job['instances'], 'instance')}, {plural(job['instances'] * job[GPU_REQUEST], 'GPU')}"
        sentences.append(
            f"Job {job['job']} ({size}) blocked the queue most: for {duration(job['blocked'])}, while the jobs behind "
            f"it waited {duration(job['behind'])} in total."
        )
    return sentences


def _for_ever(result: SimResult) -> list[str]:
    """Return why jobs still wait when nothing more happens: their time is in no mean."""
    waiting = result.jobs.filter((pl.col("status") == "waiting") & (pl.col("submit") <= result.played.stopped))
    if waiting.is_empty() or (result.scenario is not None and result.scenario.until is not None):
        return []
    mine = result.ledger.join(waiting.select("job"), on="job").drop("job")
    main = pl.Series([mine.columns[k] for k in mine.to_numpy().argmax(axis=1)]).value_counts(sort=True)
    why = ", ".join(f"`{reason}` {count:,}" for reason, count in main.rows())
    return [f"{plural(waiting.height, 'job')} would wait for ever, by their main reasons: {why}; no mean has them."]


def _of_site(frames: Mapping[str, pl.DataFrame]) -> list[str]:
    """Return in which partition jobs wait longest, and at whose limits they wait."""
    sentences = []
    if "by partitions" in frames and frames["by partitions"].height > 1:
        rows = frames["by partitions"].sort("mean wait", descending=True)
        first, last = rows.row(0, named=True), rows.row(-1, named=True)
        why = f" ({first['main reasons']})" if first["main reasons"] else ""
        sentences.append(
            f"By partition, jobs of `{first['partitions']}` wait longest, {duration(first['mean wait'])} on "
            f"average{why}; those of `{last['partitions']}` {duration(last['mean wait'])}."
        )
    if "at limits" in frames:
        row = frames["at limits"].row(0, named=True)
        array = ", in arrays with a limit of their own" if row["array with a limit"] == "yes" else ""
        sentences.append(
            f"At limits, jobs of QOS `{row['QOS']}` and account `{row['queue']}`{array} wait most: "
            f"{percent(row[SHARE_OF_WAITING])} of all waiting time."
        )
    return sentences


def population(scenario: Scenario, result: SimResult) -> str:
    """Return which jobs a diagnosis speaks of, and what happened to the others."""
    done = result.completed.height
    others = left_out(dict(result.refused.group_by("reason").len().iter_rows()))
    if result.unfinished:
        others.append(f"{result.unfinished} when the simulation stops")
    of = f" (of {len(scenario.workload):,}: {', '.join(others)})" if others else ""
    return f"the {done:,} jobs that complete in the simulation{of}"


def _no_waits(jobs: pl.DataFrame, result: SimResult) -> str:
    """Return that no job waits, what the log recorded, and how many jobs could not be simulated."""
    parts, waits = [], jobs.select(wait=pl.col("start") - pl.col("submit"))["wait"].drop_nulls()
    mean = batch_means(waits.filter(waits >= 0).to_numpy(), POSITIVE).interval()
    if mean.value > 0:
        parts.append(f"in the log, {mean_of('wait', mean, start='the')} (see `fleetlab audit`)")
    if never := result.refused.filter(pl.col("reason").is_in(CANNOT_RUN)).height:
        parts.append(f"{plural(never, 'job')} cannot run on this cluster")
    return "; ".join(["No job waits in the simulation: try a higher --load", *parts]) + "."


def _who_holds(holders: pl.DataFrame, users: pl.DataFrame, jobs: int) -> list[str]:
    """Return who holds what jobs wait for: which kind of job, and which user most."""
    parts = [f"{row['meaning']} {percent(row['share'])}" for row in holders.iter_rows(named=True)]
    sentences = [f"What waiting jobs lack is held by: {', '.join(parts)} (weighted by waiting time)."]
    if users.height > 1:
        name, count, held, time, _ = users.row(0)
        sentences.append(
            f"Jobs of user `{name}` hold the most: {percent(held)} of what all jobs wait for, with "
            f"{percent(time)} of all GPU time and {percent(count / jobs)} of the jobs."
        )
    return sentences


def _best(changes: pl.DataFrame) -> str:
    helps = changes.filter(pl.col("verdict") == LOWER)
    if helps.is_empty():
        return "No change lowers the mean wait significantly."
    best = helps.row(0, named=True)
    change = change_of_mean("wait", best["mean wait"] - best[MEAN[0]], [best[c] for c in MEAN])
    return f"{change} with {best['title']}, which helps most; it requires {best['requires']}."


def agreement(reasons: pl.DataFrame, changes: pl.DataFrame, outcomes: Mapping[str, Outcome]) -> str:
    """Return what jobs lack most, and whether the change that helps most provides it; if not, why."""
    main, before = reasons.row(0)[:2]
    helps = changes.filter(pl.col("verdict") == LOWER)
    if helps.is_empty():
        return f"No simulated change reduces waiting for `{main}` significantly."
    best = outcomes[helps["change"][0]]
    if main in best.change.removes:
        return f"The change that helps most, {best.change.title}, is aimed at the main reason, `{main}`."
    off = 1 - best.reasons[main] / before
    part = f"reduces waiting for it by {percent(off)}{best.change.why}" if off >= 0.005 else "does not reduce it"
    text = f"The change that helps most, {best.change.title}, is not aimed at the main reason, `{main}`. It {part}. "
    if best.change.name in POLICY_CHANGES:
        text += "It adds no resources: other jobs start first. "
    return text + _explanation(main, changes, {name: o.change for name, o in outcomes.items()})


def _explanation(reason: str, changes: pl.DataFrame, by_name: Mapping[str, WhatIf]) -> str:
    """Return what happens to waiting when the change that removes a reason is made."""
    own = changes.filter(pl.col("change").is_in([n for n, c in by_name.items() if reason in c.removes]))
    if own.is_empty():
        return f"No simulated change is aimed at `{reason}`."
    row = own.row(0, named=True)
    value, low, high = (row[c] for c in MEAN)
    effect = f"{'+' if value > 0 else ''}{amount(Estimate('', value, low, high, 's'))}"
    if row["verdict"] == NOT_SIGNIFICANT:
        return f"The change for `{reason}`, {row['title']}, does not change the mean wait significantly: {effect}."
    effect = f"{row['title']}, mean wait {effect}"
    if row["change"].startswith(NODES):
        return f"The change for `{reason}` adds only some of the GPUs that are short: {effect}."
    if row["verdict"] == HIGHER:
        return f"Without `{reason}` ({effect}) waits grow: the jobs that it delayed start before others."
    then = f"`{row['main reason then']}`" if row["main reason then"] else "nothing"
    return f"With the change for `{reason}` ({effect}) jobs wait for what is short next, mainly {then}."
