"""The findings of a diagnosis in sentences and figures: why jobs wait, which change helps most, whether they agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import polars as pl

from fleetlab.core import Figure, Scenario
from fleetlab.core.catalog import REASONS
from fleetlab.core.durations import beside_the_log, brief, duration, if_apart, plural
from fleetlab.core.job_classes import GPU_REQUEST
from fleetlab.core.result import Finding
from fleetlab.core.schedulers import Feature
from fleetlab.sim import SimResult
from fleetlab.stats import BETTER, NOT_DECIDED
from fleetlab.studies.diagnose.effects import MEAN, Outcomes
from fleetlab.studies.diagnose.ledger import BLOCKED, SHARE_OF_WAITING
from fleetlab.studies.sentences import CANNOT_RUN, SURE, left_out, percent, sentence, who_is_first

POLICY_CHANGES = ("backfill", "sjf")  # they add no resource: other jobs start first


def findings(
    scenario: Scenario, result: SimResult, frames: Mapping[str, pl.DataFrame], records: Sequence[Finding],
    outcomes: Outcomes, longest: tuple[float, int],
) -> list[str]:  # fmt: skip
    """Return the sentences, the most important first."""
    if "waiting" not in frames:
        return [_no_waits(scenario.workload.frame, result)]
    reasons, changes = frames["waiting"], frames["changes"].with_columns(pl.col(*MEAN).fill_null(math.nan))
    first = reasons.row(0, named=True)
    sentences = [
        f"{_mean_wait(scenario, result, outcomes)} "
        f"{percent(first['share'])} of all waiting time is `{first['reason']}`: {REASONS[first['reason']].meaning}."
        f"{f' That is of {whose}.' if ' (of ' in (whose := population(scenario, result)) else ''}",
        *_best(changes, records),
        agreement(reasons, changes, outcomes),
        *_for_ever(result),
        *(_of_site(frames) if scenario.honors(Feature.LIMITS) else ()),
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


def _mean_wait(scenario: Scenario, result: SimResult, outcomes: Outcomes) -> str:
    """Return the mean wait that all changes begin with, beside what the log recorded."""
    mean, both = outcomes.mean().value, result.recorded
    if scenario.trace.workload.synthetic or not both["recorded"].sum():
        return f"Jobs wait {brief(mean)} on average."
    recorded = float(both["recorded"].to_numpy().mean())
    if outcomes.replication.resampled:
        return f"Jobs of logs like it wait {brief(mean)} on average; the log recorded {brief(recorded)}."
    if both.height == result.completed.height:
        return beside_the_log(recorded, mean)
    of_some = f"the log recorded {brief(recorded)} of the {both.height:,} that start in it"
    apart = if_apart(recorded, outcomes.mean_of(both["job"].to_numpy()))
    return f"Jobs wait {brief(mean)} on average; {of_some}.{apart}"


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
    if (mean := waits.filter(waits >= 0).mean()) is not None and float(mean) > 0:  # type: ignore[arg-type]
        parts.append(f"in the log, the mean wait is {duration(float(mean))} (see `fleetlab audit`)")  # type: ignore[arg-type]
    if never := result.refused.filter(pl.col("reason").is_in(CANNOT_RUN)).height:
        parts.append(f"{plural(never, 'job')} cannot run on this cluster")
    return "; ".join(["No job waits in the simulation: try a higher --load", *parts]) + "."


def _who_holds(holders: pl.DataFrame, users: pl.DataFrame, jobs: int) -> list[str]:
    """Return who holds what jobs wait for: which kind of job, and which user most."""
    shown = [row for row in holders.iter_rows(named=True) if row["share"] >= 0.005]
    parts = [f"{row['meaning']} ({percent(row['share'])})" for row in shown]
    sentences = [f"Who holds what they need: {', '.join(parts)}."]
    if users.height > 1:
        name, count, waiting_share, time, _ = users.row(0)
        sentences.append(
            f"Jobs of user `{name}` block others most: {percent(waiting_share)} of all waiting is for what they hold. "
            f"They have {percent(time)} of the GPU time and are {percent(count / jobs)} of the jobs."
        )
    return sentences


def _best(changes: pl.DataFrame, records: Sequence[Finding]) -> list[str]:
    """Return which change helps most, and how sure it is that no other does."""
    helps = changes.filter(pl.col("verdict") == BETTER)
    if helps.is_empty():
        undecided = [f.subject for f in records if f.verdict == NOT_DECIDED]
        others = f" Not decided: {', '.join(undecided)}." if undecided else ""
        return [f"No change is known to lower the mean wait.{others}"]
    best = helps.row(0, named=True)
    first = next(f for f in records if f.subject == best["title"])
    other = f" {best['not completed']:,} jobs do not complete with it." if best["not completed"] else ""
    sentences = [f"{sentence(first)} It requires {best['requires']}.{other}"]
    if changes.height > 1:
        sentences.append(who_is_first(dict(changes.select("title", "P(first)").iter_rows())))
    return sentences


def agreement(reasons: pl.DataFrame, changes: pl.DataFrame, outcomes: Outcomes) -> str:
    """Return what jobs lack most, and whether the change that helps most provides it; if not, why."""
    main, before = reasons["reason"][0], outcomes.reasons()
    helps = changes.filter(pl.col("verdict") == BETTER)
    if helps.is_empty():
        return f"No simulated change is known to reduce waiting for `{main}`."
    best = outcomes.changes[helps["change"][0]]
    which = "The best change" if helps["P(first)"][0] >= SURE else "A change that helps"
    if main in best.removes:
        return f"{which}, {best.title}, is aimed at the main reason, `{main}`."
    off = 1 - outcomes.reasons(best.name).get(main, 0.0) / (before[main] or 1.0)
    part = f"takes {percent(off)} of that waiting away{best.why}" if off >= 0.005 else "leaves that waiting as it is"
    unaided = not any(main in c.removes for c in outcomes.changes.values())
    none = f" No simulated change is aimed at `{main}`." * unaided
    others = " It adds no resources: other jobs start first." * (best.name in POLICY_CHANGES)
    return f"{which}, {best.title}, is not aimed at the main reason, `{main}`. It {part}.{others}{none}"


# -- figures -----------------------------------------------------------------------------------------------------------

OF_CHANGES = "Change of the mean wait"


def figures_of(frames: Mapping[str, pl.DataFrame]) -> dict[str, Figure]:
    """Return a figure of each table that is not empty."""
    charts = {}
    if "waiting" in frames:
        charts["waiting by reason"] = _reasons_figure(frames["waiting"])
    if "by hour of the day" in frames:
        charts["mean wait by hour"] = _hours_figure(frames["by hour of the day"])
    of_all_jobs = frames["changes"].filter(pl.col("not completed") == 0)
    if (changes := of_all_jobs.drop_nulls("mean wait change")).height:
        charts["changes"] = _changes_figure(changes)
    return charts


def _reasons_figure(waiting: pl.DataFrame) -> Figure:
    percent = {name: 100 * pl.col(column) for name, column in (("y", "share"), ("low", "low"), ("high", "high"))}
    frame = waiting.select(x="reason", **percent)
    alt = "; ".join(f"{reason} {share:.0f} %" for reason, share in frame.select("x", "y").iter_rows())
    return Figure("Waiting by reason", "bar", frame, "reason", "share of all waiting time, %", alt)


def _hours_figure(hours: pl.DataFrame) -> Figure:
    frame = hours.select(x=pl.nth(0).cast(pl.Float64), y="mean wait", low="low", high="high")
    worst = frame.sort("y", descending=True, nulls_last=True).row(0, named=True)
    alt = f"longest for jobs submitted from {worst['x']:.0f} to {worst['x'] + 1:.0f} h: {worst['y']:,.0f} s"
    return Figure("Mean wait by hour", "line", frame, f"{hours.columns[0]}, of submission", "mean wait, s", alt)


def _changes_figure(changes: pl.DataFrame) -> Figure:
    frame = changes.select(x="title", y="mean wait change", low="mean wait change low", high="mean wait change high")
    alt = "; ".join(f"{title}: {by:+,.0f} s" for title, by in frame.select("x", "y").iter_rows())
    return Figure(OF_CHANGES, "bar", frame, "change", "change of mean wait, s", alt)
