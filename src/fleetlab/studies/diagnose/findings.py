"""The findings of a diagnosis as sentences: why jobs wait, which change helps most, and whether the two agree."""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import REASONS
from fleetlab.core.durations import duration
from fleetlab.sim import SimResult
from fleetlab.stats import POSITIVE, batch_means
from fleetlab.studies.diagnose.changes import NODES, WhatIf
from fleetlab.studies.diagnose.effects import LOWER, MEAN
from fleetlab.studies.diagnose.ledger import BLOCKED
from fleetlab.studies.diagnose.runs import Outcome
from fleetlab.studies.requests import CANNOT_RUN, left_out
from fleetlab.studies.sentences import change_of_mean, mean_of, percent

POLICY_CHANGES = ("backfill", "sjf")  # they add no resource: other jobs start first


def findings(
    scenario: Scenario, result: SimResult, frames: Mapping[str, pl.DataFrame], mean: tuple[float, float, float],
    outcomes: Mapping[str, Outcome], longest: tuple[float, int],
) -> list[str]:  # fmt: skip
    """Return the sentences, the most important first."""
    if not mean[0]:
        return [_no_waits(scenario.workload.frame, result)]
    reasons, changes = frames["waiting"], frames["changes"]
    first = reasons.row(0, named=True)
    sentences = [
        f"{mean_of('wait', mean)} under {scenario.title}, of {population(scenario, result)}. "
        f"{percent(first['share'])} of all waiting time is `{first['reason']}`: {REASONS[first['reason']].meaning}.",
        *_who_holds(frames["held by"], frames["held by users"]),
        _best(changes),
        agreement(reasons, changes, outcomes),
        f"The {longest[1]:,} jobs that waited longest account for {percent(longest[0])} of all waiting time.",
    ]
    if first["reason"] == BLOCKED and "blocking jobs" in frames and frames["blocking jobs"].height:
        job = frames["blocking jobs"].row(0, named=True)
        gpus = job["instances"] * job["gpu_milli"] / 1000
        sentences.append(
            f"Job {job['job']} ({job['instances']:,} instances, {gpus:,.4g} GPUs) blocked the queue most: for "
            f"{duration(job['blocked'])}, while the jobs behind it waited {duration(job['behind'])} in total."
        )
    return sentences


def population(scenario: Scenario, result: SimResult) -> str:
    """Return which jobs a diagnosis speaks of, and what happened to the others."""
    done = int((result.jobs["status"] == "done").sum())
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
        parts.append(f"{never:,} jobs cannot run on this cluster")
    return "; ".join(["No job waits in the simulation", *parts]) + "."


def _who_holds(holders: pl.DataFrame, users: pl.DataFrame) -> list[str]:
    """Return who holds what jobs wait for: which kind of job, and which user most."""
    parts = [f"{percent(row['share'])} by {row['meaning']}" for row in holders.iter_rows(named=True) if row["share"]]
    sentences = [f"Who holds what waiting jobs lack: {'; '.join(parts)}."]
    if users.height > 1:
        name, _, held, time, _ = users.row(0)
        sentences.append(
            f"Jobs of user `{name}` hold the most: {percent(held)} of what all jobs wait for, with "
            f"{percent(time)} of all GPU time."
        )
    return sentences


def _best(changes: pl.DataFrame) -> str:
    helps = changes.filter(pl.col("verdict") == LOWER)
    if helps.is_empty():
        return "No change lowers the mean wait significantly."
    best = helps.row(0, named=True)
    value, low, high = (best[c] if best[c] is not None else math.nan for c in MEAN)
    before = best["mean wait"] - value
    return (
        f"{change_of_mean('wait', before, (value, low, high))} with {best['title']}, which helps most; "
        f"it requires {best['requires']}."
    )


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
    part = f"but reduces it by {percent(off)}{best.change.why}" if off >= 0.005 else "and does not reduce it"
    text = f"The change that helps most, {best.change.title}, is not aimed at the main reason, `{main}`, {part}. "
    if best.change.name in POLICY_CHANGES:
        text += "It adds no resources, other jobs start first. "
    return text + _explanation(main, changes, {name: o.change for name, o in outcomes.items()})


def _explanation(reason: str, changes: pl.DataFrame, by_name: Mapping[str, WhatIf]) -> str:
    """Return what happens to waiting when the change that removes a reason is made."""
    own = changes.filter(pl.col("change").is_in([n for n, c in by_name.items() if reason in c.removes]))
    if own.is_empty():
        return f"No simulated change is aimed at `{reason}`."
    row = own.row(0, named=True)
    change = row[MEAN[0]]
    effect = f"{row['title']}, mean wait {'+' if change > 0 else ''}{duration(change)}"
    if row["change"].startswith(NODES):
        return f"The change for `{reason}` adds only some of the GPUs that are short: {effect}."
    if change > 0:
        return f"Without `{reason}` ({effect}) waits grow: the jobs that it delayed start before others."
    then = f"`{row['main reason then']}`" if row["main reason then"] else "nothing"
    return f"With the change for `{reason}` ({effect}) jobs wait for what is short next, mainly {then}."
