"""The timeline of a job in sentences, the most important first, and as a strip: in characters and as a figure."""

from __future__ import annotations

from textwrap import wrap

import numpy as np
import polars as pl

from fleetlab.core import Figure, Scenario
from fleetlab.core.catalog import HOLDERS, REASONS
from fleetlab.core.durations import duration, plural, readable_unit
from fleetlab.studies.explain.job import AHEAD, BACKFILLED, JobTimeline, clock_time, request_text
from fleetlab.studies.sentences import percent

# -- sentences ---------------------------------------------------------------------------------------------------------

SHARE = 0.005  # of the wait: less is not worth a sentence
NAMED = 3  # holders by name


def findings(timeline: JobTimeline, others: pl.DataFrame | None, scenario: Scenario) -> tuple[str, ...]:
    """Return what happened to a job and why, what the log recorded, and what would have helped."""
    sentences = [
        _identity(timeline, scenario), _wait_and_reasons(timeline), _recorded_wait(timeline, scenario),
        _holders_text(timeline), _heads_text(timeline), _overtakers_text(timeline), _priority_text(timeline, scenario),
        _ran(timeline, scenario),
        _neighbors_text(timeline), _sooner(others, timeline),
    ]  # fmt: skip
    return tuple(sentence for sentence in sentences if sentence)


def job_name(job: int | None, name: str | None, user: str | None = None) -> str:
    """Return how a job is called: by the log's own id, or by its number."""
    own = name if name is not None else "a job from before" if job is None else f"#{job}"
    return f"{own} ({user})" if user else own


def _identity(timeline: JobTimeline, scenario: Scenario) -> str:
    synthetic = "In a synthetic log, " if scenario.trace.workload.synthetic else ""
    number = f" (#{timeline.job})" if timeline.name is not None else ""
    user = f" of {timeline.row['user']}" if timeline.row["user"] else ""
    at = clock_time(timeline.simulated["submit"], scenario.workload)
    what = (
        f"job {job_name(timeline.job, timeline.name)}{number}{user} was submitted {at}: {request_text(timeline.row)}."
    )
    return synthetic + what if synthetic else what[0].upper() + what[1:]


def _wait_and_reasons(timeline: JobTimeline) -> str:
    if timeline.wait == 0:
        return "It did not wait: it started at once."
    sums = timeline.segments.group_by("reason").agg(pl.col("wait").sum())
    reason, seconds = sums.sort("wait", "reason", descending=[True, False]).row(0)
    when = "when the simulation stops" if timeline.start is None else "in the simulation"
    share = "all" if (shown := percent(seconds / timeline.wait)) == "100 %" else shown
    return f"It waits {duration(timeline.wait)} {when}, {share} of that for `{reason}`: {REASONS[reason].meaning}."


def _recorded_wait(timeline: JobTimeline, scenario: Scenario) -> str:
    wait = timeline.recorded_wait
    if wait is None or scenario.trace.workload.synthetic:  # nobody waited for the jobs of a synthetic log
        return ""
    return f"The log recorded a wait of {duration(wait)}."


def _holders_text(timeline: JobTimeline) -> str:
    name = max(HOLDERS.names[:3], key=lambda name: timeline.counts[name])
    seconds = timeline.counts[name]
    if seconds < SHARE * timeline.wait or seconds <= 0:
        return ""
    most = timeline.holders.row(0, named=True)
    whose, longest = job_name(most["job"], most["name"], most["user"]), duration(most["wait"])
    behind = f"{percent(seconds / timeline.wait)} of the wait is behind {HOLDERS[name].meaning}."
    return f"{behind} Longest: {whose}, {longest}."


def _heads_text(timeline: JobTimeline) -> str:
    """Say who was first in the queue while it fitted, and did not start."""
    if not timeline.heads.height:
        return ""
    first = timeline.heads.row(0, named=True)
    whose = f"{job_name(first['job'], first['name'], first['user'])}, {plural(first['GPUs'], 'GPU')}"
    fits = duration(timeline.counts["behind heads"])
    return f"It fits for {fits} of that, but stays behind the head of the queue. Longest behind {whose}."


def _overtakers_text(timeline: JobTimeline) -> str:
    count, behind = int(timeline.counts["overtakers"]), int(timeline.counts["backfilled"])
    if not count:
        return "" if timeline.wait == 0 else "No job that came later started before it on nodes that it could use."
    ranked = f", all of them {AHEAD}" if timeline.overtakers["how"][0] == AHEAD else ""
    how = f", {'all' if behind == count else f'{behind:,}'} of them {BACKFILLED} (backfilled)" if behind else ranked
    return f"{plural(count, 'job')} that came later started before it on nodes that it could use{how}."


def _priority_text(timeline: JobTimeline, scenario: Scenario) -> str:
    """Say what ranks jobs, and, where the log has priorities, of how many that passed it they were higher."""
    by = "" if scenario.scheduler is None else scenario.scheduler.ranks_by()
    if not by or timeline.wait == 0:
        return ""
    text, own, passed = f"Jobs are ranked by {by}.", timeline.row["priority"], timeline.overtakers
    if not own or not passed.height:
        return text
    theirs = passed.select("job").join(scenario.workload.frame.select("job", "priority"), on="job")["priority"]
    return f"{text} {int((theirs > own).sum()):,} of the {passed.height:,} listed that passed it had a higher priority."


def _ran(timeline: JobTimeline, scenario: Scenario) -> str:
    if timeline.start is None:
        return ""
    last = timeline.runs.filter(pl.col("from") == timeline.runs["from"].max())
    nodes, simulated = last["node"].to_list(), timeline.simulated
    where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes, {_first(nodes)}"
    gpus = f" (GPU {last['GPUs'][0]})" if len(nodes) == 1 and last["GPUs"][0] else ""
    often = simulated["preemptions"] + simulated["failures"]
    again = f"; it was stopped {plural(often, 'time')}, {simulated['preemptions']} by preemption" if often else ""
    ended = "still ran when the simulation stopped" if simulated["end"] is None else f"ended after {_ran_for(timeline)}"
    return f"It started {clock_time(timeline.start, scenario.workload)} on {where}{gpus}{again}. It {ended}."


def _ran_for(timeline: JobTimeline) -> str:
    return duration(float(timeline.simulated["end"]) - float(timeline.start or 0.0))


def _first(nodes: list[str]) -> str:
    return ", ".join(nodes[:NAMED]) + (" and others" if len(nodes) > NAMED else "")


def _neighbors_text(timeline: JobTimeline) -> str:
    if not timeline.neighbors.height or timeline.simulated["end"] is None:
        return ""
    ran = timeline.runs.select("from", "until").unique().select(pl.col("until") - pl.col("from")).sum().item()
    alone, first = timeline.simulated["runtime"], timeline.neighbors.row(0, named=True)
    beside = f"{job_name(first['job'], first['name'], first['user'])} for {duration(first['together, s'])}"
    speed = f"at {100 * alone / ran:.0f} % of the speed it has alone" if ran > alone * 1.001 else "at full speed"
    return (
        f"It shared GPUs with {plural(timeline.neighbors.height, 'job')}, the longest with {beside}, and ran {speed}."
    )


def _sooner(others: pl.DataFrame | None, timeline: JobTimeline) -> str:
    if others is None:
        return ""
    comparable = others.drop_nulls("wait change")
    helps = comparable.filter(pl.col("verdict") == "sooner")
    if not others.height:
        return "No other request could have changed that: its type, size, partition and limit leave no choice."
    if not helps.height:
        return f"None of {plural(others.height, 'other request')} starts it sooner."
    best = helps.row(0, named=True)
    return f"It starts {duration(-best['wait change'])} sooner with {best['change']}."


# -- the strip of a job's life -----------------------------------------------------------------------------------------

WIDTH = 78  # characters of a strip
RUNS, IDLE = "=", " "
RUNNING = "runs"  # the name of this part of a strip
START_UP = next(name for name in REASONS.names if name.startswith("start"))


def letters() -> dict[str, str]:
    """Return the letter of each wait reason: of its name, the first that no reason before it has.

    Rules come first; limits of one scheduler's loop last.

    >>> letters()["gpu"], letters()["reservation"], letters()["head_of_line"]
    ('g', 'r', 'h')
    """
    letter_of = dict[str, str]()
    rank = {name: (REASONS[name].kind == "resource") + 2 * name.startswith("bf_") for name in REASONS.names}
    for name in sorted(REASONS.names, key=lambda name: rank[name]):
        free = (c for c in (*name, *name.upper()) if c.isalpha() and c not in letter_of.values())
        letter_of[name] = next(free)
    return letter_of


def strip_parts(timeline: JobTimeline) -> pl.DataFrame:
    """Return the strip: from, until and what it did then, which is a wait reason or that it ran."""
    waits = timeline.segments.select("from", "until", "reason")
    runs = timeline.runs.select("from", "until").unique(maintain_order=True)
    # What it took to start up belongs to its wait, though its GPUs were allocated.
    begins = waits.filter(pl.col("reason") == START_UP).select("from", pl.col("until").alias("later"))
    ran = runs.join(begins, on="from", how="left", maintain_order="left").select(
        pl.coalesce("later", "from").alias("from"), "until", reason=pl.lit(RUNNING)
    )
    return pl.concat([waits, ran.drop_nulls("until")]).sort("from", maintain_order=True)


def strip_text(timeline: JobTimeline, *, width: int = WIDTH) -> list[str]:
    """Return the strip as lines: what most of the time that a character stands for was spent on, and a legend."""
    rows = strip_parts(timeline)
    if not rows.height:
        return []
    begin, end = float(rows["from"][0]), float(rows["until"].max())  # type: ignore[arg-type]
    if end <= begin:
        return []
    edges = np.linspace(begin, end, width + 1)
    signs = letters() | {RUNNING: RUNS}
    best, strip = np.zeros(width), np.full(width, IDLE, dtype="<U1")
    for reason in rows["reason"].unique(maintain_order=True):
        mine = rows.filter(pl.col("reason") == reason)
        spent = np.zeros(width)
        for a, b in mine.select("from", "until").iter_rows():
            spent += np.clip(np.minimum(b, edges[1:]) - np.maximum(a, edges[:-1]), 0.0, None)
        more = spent > best
        strip[more], best[more] = signs[reason], spent[more]
    sums = rows.group_by("reason", maintain_order=True).agg((pl.col("until") - pl.col("from")).sum().alias("s"))
    legend = [f"{signs[name]} {name} {duration(seconds)}" for name, seconds in sums.iter_rows()]
    total = duration(end - begin)
    axis = "0" + total.rjust(width - 1)
    return ["".join(strip), axis, *wrap("   ".join(x.replace(" ", "\u00a0") for x in legend), width)]


def strip_figure(timeline: JobTimeline) -> Figure | None:
    """Return the strip as a figure, one row a reason and one for its runs; None where nothing took time."""
    rows = strip_parts(timeline).filter(pl.col("until") > pl.col("from"))
    if not rows.height:
        return None
    begin, end = float(rows["from"][0]), float(rows["until"].max())  # type: ignore[arg-type]
    unit, length = readable_unit(end - begin)
    sums = rows.group_by("reason", maintain_order=True).agg((pl.col("until") - pl.col("from")).sum().alias("s"))
    frame = rows.join(sums, on="reason", how="left", maintain_order="left").select(
        x="reason", y=pl.col("s") / length, low=(pl.col("from") - begin) / length,
        high=(pl.col("until") - begin) / length,
        series=pl.when(pl.col("reason") == RUNNING).then(pl.lit(RUNNING)).otherwise(pl.lit("waits")),
    )  # fmt: skip
    alt = "; ".join(f"{name} {duration(seconds)}" for name, seconds in sums.iter_rows())
    return Figure("Its life", "span", frame, "", f"time since it was submitted, {unit}", alt)
