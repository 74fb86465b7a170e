"""What the story of a job says, in sentences: the most important first."""

from __future__ import annotations

from typing import Any

import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import HOLDERS, REASONS
from fleetlab.core.durations import duration, plural
from fleetlab.studies.explain.story import AHEAD, BACKFILLED, Story, clock_time, request_text

SHARE = 0.005  # of the wait: less is not worth a sentence
NAMED = 3  # holders by name


def findings(story: Story, tried: pl.DataFrame | None, scenario: Scenario) -> tuple[str, ...]:
    """Return what happened to a job and why, what the log recorded, and what would have helped."""
    said = [
        _who(story, scenario), _wait(story), _recorded(story, scenario), _held(story), _headed(story),
        _overtaken(story),
        _ran(story, scenario), _slowed(story), _sooner(tried, story),
    ]  # fmt: skip
    return tuple(sentence for sentence in said if sentence)


def called(job: int | None, name: str | None, user: str | None = None) -> str:
    """Return how a job is called: by the log's own id, or by its number."""
    own = name if name is not None else "a job from before" if job is None else f"#{job}"
    return f"{own} ({user})" if user else own


def _who(story: Story, scenario: Scenario) -> str:
    synthetic = "In a synthetic log, " if scenario.trace.workload.synthetic else ""
    number = f" (#{story.job})" if story.name is not None else ""
    user = f" of {story.row['user']}" if story.row["user"] else ""
    at = clock_time(story.fate["submit"], scenario.workload)
    what = f"job {called(story.job, story.name)}{number}{user} was submitted {at}: {request_text(story.row)}."
    return synthetic + what if synthetic else what[0].upper() + what[1:]


def _wait(story: Story) -> str:
    if story.wait == 0:
        return "It did not wait: it started at once."
    end = "and has not started when the simulation stops" if story.start is None else "in the simulation"
    sums = story.segments.group_by("reason").agg(pl.col("wait").sum()).sort("wait", "reason", descending=[True, False])
    why = [
        f"{duration(seconds)} ({100 * seconds / story.wait:.0f} %) {reason}: {REASONS[reason].meaning}"
        for reason, seconds in sums.iter_rows() if seconds >= SHARE * story.wait
    ]  # fmt: skip
    return f"It waited {duration(story.wait)} {end}: {'; '.join(why)}."


def _recorded(story: Story, scenario: Scenario) -> str:
    wait = story.recorded_wait
    if wait is None:
        return ""
    log = "The synthetic log has" if scenario.trace.workload.synthetic else "The log recorded"
    return f"{log} a wait of {duration(wait)} for it, started {clock_time(story.row['start'], scenario.workload)}."


def _held(story: Story) -> str:
    shares = {name: story.counts[name] for name in HOLDERS.names[:3]}
    total = sum(shares.values())
    if total <= 0:
        return ""
    parts = [
        f"{100 * seconds / story.wait:.0f} % by {HOLDERS[name].meaning}"
        for name, seconds in shares.items() if seconds >= SHARE * story.wait
    ]  # fmt: skip
    most = [
        f"{called(row['job'], row['name'], row['user'])} {duration(row['wait'])}"
        for row in story.holders.head(NAMED).iter_rows(named=True)
    ]
    return f"What it lacked was held, of its wait, {', '.join(parts)}; the most by {', '.join(most)}."


def _headed(story: Story) -> str:
    """Say who was first in the queue while it fitted, and did not start."""
    if not story.heads.height:
        return ""
    count, total = int(story.counts["heads"]), story.counts["behind heads"]
    most = [
        f"{called(row['job'], row['name'], row['user'])}, {plural(row['GPUs'], 'GPU')}, for {duration(row['wait'])}"
        for row in story.heads.head(NAMED).iter_rows(named=True)
    ]
    others = f" and {count - NAMED:,} others" if count > NAMED else ""
    first = f"at the head of the queue {'was' if count == 1 else 'were'} {'; '.join(most)}{others}"
    return f"While it fitted but had to wait ({duration(total)} in all), {first}."


def _overtaken(story: Story) -> str:
    count, behind = int(story.counts["overtakers"]), int(story.counts["backfilled"])
    if not count:
        return "" if story.wait == 0 else "No job that came later started before it on nodes that it could use."
    first = story.overtakers.row(0, named=True)
    ranked = ", all of them ahead of it by the order" if first["how"] == AHEAD else ""
    backfilled = f", {behind:,} of them {BACKFILLED} (backfilled)" if behind else ranked
    largest = f"the largest is {called(first['job'], first['name'], first['user'])}, {plural(first['GPUs'], 'GPU')}"
    return (
        f"{plural(count, 'job')} that came later started before it on nodes that it could use{backfilled}; {largest}."
    )


def _ran(story: Story, scenario: Scenario) -> str:
    if story.start is None:
        return ""
    last = story.runs.filter(pl.col("from") == story.runs["from"].max())
    nodes, fate = last["node"].to_list(), story.fate
    where = f"{plural(len(nodes), 'node')}, {_first(nodes)}"
    gpus = f" (GPU {last['GPUs'][0]})" if len(nodes) == 1 and last["GPUs"][0] else ""
    often = fate["preemptions"] + fate["failures"]
    again = f"; it was stopped {plural(often, 'time')}, {fate['preemptions']} by preemption" if often else ""
    ended = "still ran when the simulation stopped" if fate["end"] is None else f"ended after {_ran_for(story)}"
    return f"It started {clock_time(story.start, scenario.workload)} on {where}{gpus}{again} and {ended}."


def _ran_for(story: Story) -> str:
    return duration(float(story.fate["end"]) - float(story.start or 0.0))


def _first(nodes: list[str]) -> str:
    return ", ".join(nodes[:NAMED]) + (" and others" if len(nodes) > NAMED else "")


def _slowed(story: Story) -> str:
    if not story.neighbors.height or story.fate["end"] is None:
        return ""
    ran = story.runs.select("from", "until").unique().select(pl.col("until") - pl.col("from")).sum().item()
    alone, first = story.fate["runtime"], story.neighbors.row(0, named=True)
    beside = f"{called(first['job'], first['name'], first['user'])} for {duration(first['together, s'])}"
    speed = f"at {100 * alone / ran:.0f} % of the speed it has alone" if ran > alone * 1.001 else "at full speed"
    return f"It shared GPUs with {plural(story.neighbors.height, 'job')}, the longest with {beside}, and ran {speed}."


def _sooner(tried: pl.DataFrame | None, story: Story) -> str:
    if tried is None:
        return ""
    known = tried.drop_nulls("wait change")
    helps = known.filter(pl.col("verdict") == "sooner")
    if not tried.height:
        return "No other request could have changed that: its type, size, partition and limit leave no choice."
    if not helps.height:
        return f"None of {plural(tried.height, 'other request')} would have started it sooner."
    best: list[dict[str, Any]] = helps.head(NAMED).to_dicts()
    said = [f"{row['change']}: {duration(-row['wait change'])} sooner" for row in best]
    return f"It would have started sooner with {'; '.join(said)}."
