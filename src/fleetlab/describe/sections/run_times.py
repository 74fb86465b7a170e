"""How long do jobs run, how long do they wait, and which part of their time is waiting?"""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.describe.ecdf import Bools, share
from fleetlab.describe.section import Section, rough, spoken
from fleetlab.describe.survival import Survival, kaplan_meier
from fleetlab.describe.trace_view import OPEN, Seen
from fleetlab.stats import Floats

HALF = 50.0  # percent of completion
ENDED, STILL = "known run times alone", "still running counted in"


def run(seen: Seen, section: Section) -> None:
    """Put together what is known of run times and waits."""
    _run_times(seen, section)
    _still_running(seen, section)
    _waits(seen, section)
    _part(seen, section)


# -- run times ---------------------------------------------------------------------------------------------------------


def _run_times(seen: Seen, section: Section) -> None:
    unknown = int((~np.isfinite(seen.runtime)).sum())
    if unknown:
        section.lacks(f"the run time of {unknown:,} jobs", "they had not ended, or the log does not say")
    if unknown == len(seen.runtime):
        return
    runtime, many = seen.runtime, seen.instances
    every = seen.curve("jobs", runtime) + (seen.curve("instances", runtime, weights=many) if seen.gangs else [])
    section.distributions("run time", every, title="Run time of jobs, and of instances", unit="s", y="share, %")
    done = seen.is_("status", "completed")
    _by(seen, section, "run time", "request", runtime, title="Run time by GPU request")
    _by(seen, section, "run time", "type", runtime, where=done, title="Run time of completed jobs by GPU type")
    _by(seen, section, "run time", "user", runtime, title="Run time by how much their users submit")
    jobs = every[0]
    section.say("median run time", jobs.quantiles[50], "s")
    section.say("mean run time", jobs.mean, "s")
    middle, nine, mean = (spoken(x) for x in (jobs.quantiles[50][0], jobs.quantiles[90][0], jobs.mean[0]))
    section.sentences.append(
        f"Half of the jobs run for {middle} or less, one in ten for {nine} or more; the mean is {mean}."
    )


NAMES = {"request": "GPU request", "type": "GPU type", "user": "user class", "length": "length"}


def _by(
    seen: Seen,
    section: Section,
    what: str,
    by: str,
    values: Floats,
    *,
    title: str,
    where: Bools | None = None,
    weights: Floats | None = None,
) -> None:
    """One curve a class; a class of one alone tells nothing that is not told already."""
    if by in ("request", "type") and not seen.gpu.any():
        if what == "run time":
            section.lacks(f"run times and waits by {NAMES[by]}", "no job asks for a GPU")
        return
    if by == "user" and seen.frame["user"].null_count() == seen.frame.height:
        if what == "run time":
            section.lacks("run times and waits by user class", "the log names no users")
        return
    classes = {name: of if where is None else of & where for name, of in seen.by(by).items()}
    curves = seen.curves(values, classes, weights=weights)
    if len(curves) < 2:
        return
    name = f"{what} by {NAMES[by]}" + (", instances" if weights is not None else "")
    y = "share of instances, %" if weights is not None else "share of jobs, %"
    section.distributions(name, curves, title=title, unit="s", of=NAMES[by], y=y)


# -- those that still run ----------------------------------------------------------------------------------------------


def _still_running(seen: Seen, section: Section) -> None:
    """Kaplan and Meier: a job that still ran counts for as long as it was seen."""
    start = seen.floats("start")
    running = seen.is_("status", "running") & ~np.isfinite(seen.runtime)
    if not running.any():
        return
    if unseen := int((running & ~np.isfinite(start)).sum()):
        section.lacks(f"the age of {unseen:,} running jobs", "their start was not seen: left out of Kaplan–Meier")
    running &= np.isfinite(start)
    known = np.isfinite(seen.runtime) & np.isfinite(start)
    if not running.any() or not known.any():
        return
    if seen.open_logs > OPEN:
        section.lacks(
            "whether running jobs still run",
            f"{100 * seen.open_logs:.0f} % of them would be older than any job that ended: their log was likely never "
            "closed, and the curve that counts them in is a bound",
        )
    found = survival(seen, running, known)
    _draw_survival(section, found)
    last, alone = found[1], found[0]
    section.sentences.append(
        f"{last.censored:,} of {last.count:,} jobs that started have not ended, "
        + (
            "most for longer than any that did: their logs were likely never closed."
            if seen.open_logs > OPEN
            else f"and with them the median run time is {_or_later(last.quantile(0.5)[0])} instead of "
            f"{_or_later(alone.quantile(0.5)[0])}."
        )
    )


def survival(seen: Seen, running: Bools, known: Bools, where: Bools | None = None) -> list[Survival]:
    """The estimate without and with those that still run."""
    start, asked = seen.floats("start"), np.ones(len(running), dtype=bool) if where is None else where
    time = np.where(known, seen.runtime, np.maximum(seen.end - start, 0.0))
    alone, both = known & asked, (known | running) & asked
    return [kaplan_meier(ENDED, time[alone], known[alone]), kaplan_meier(STILL, time[both], known[both])]


def _draw_survival(section: Section, found: list[Survival]) -> None:
    section.tables["run time, Kaplan–Meier"] = survival_table(found, "of")
    frame = pl.concat([s.points().filter(pl.col("x") > 0) for s in found])
    last = found[-1]
    middle = last.quantile(0.5)
    alt = f"with {last.censored:,} still running counted in, half have ended after {_or_later(middle[0])}"
    section.figures["run time, Kaplan–Meier"] = Figure(
        "Run time, with jobs that still run", "line", frame, "run time, s", "share that has ended, %", alt, log_x=True
    )
    section.say("median run time, still running counted in", middle, "s")


def _or_later(seconds: float) -> str:
    return spoken(seconds) if np.isfinite(seconds) else "a time beyond the log's"


def survival_table(found: list[Survival], of: str) -> pl.DataFrame:
    """Counts, quantiles and the mean up to the longest time seen, with Greenwood's intervals."""
    rows = []
    for s in found:
        row: dict[str, object] = {of: s.series, "count": s.count, "ended": s.ended, "still running": s.censored}
        for name, told in (*((f"P{p}", s.quantile(p / 100)) for p in (25, 50, 75, 90)), ("mean so far", s.mean())):
            row |= dict(zip((name, f"{name} low", f"{name} high"), map(_finite, told), strict=True))
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


# -- waits -------------------------------------------------------------------------------------------------------------


def _waits(seen: Seen, section: Section) -> None:
    wait, many = seen.wait, seen.instances
    if not np.isfinite(wait).any():
        section.lacks("waits", "the log does not tell when jobs started")
        return
    if not np.nan_to_num(wait).any():
        section.lacks("waits", "every job starts as it is submitted: likely the log tells only one of both times")
        return
    every = seen.curve("jobs", wait) + (seen.curve("instances", wait, weights=many) if seen.gangs else [])
    section.distributions("wait", every, title="Wait of jobs, and of instances", unit="s", y="share, %")
    for by, title in (("request", "GPU request"), ("type", "GPU type")):
        _by(seen, section, "wait", by, wait, title=f"Wait by {title}")
        if seen.gangs:
            _by(seen, section, "wait", by, wait, weights=many, title=f"Wait of instances by {title}")
    _by(
        seen,
        section,
        "wait",
        "length",
        wait,
        title="Wait of short and long jobs (below and above the median run time)",
    )
    _by(seen, section, "wait", "user", wait, title="Wait by how much their users submit")
    jobs = every[0]
    section.say("median wait", jobs.quantiles[50], "s")
    section.say("mean wait", jobs.mean, "s")
    section.say("P90 wait", jobs.quantiles[90], "s")
    middle, nine, mean = (spoken(x) for x in (jobs.quantiles[50][0], jobs.quantiles[90][0], jobs.mean[0]))
    half = f"Half of the jobs wait {middle} or less"
    none = f"{100 * jobs.zero:.3g} % of the jobs do not wait at all"
    tail = f", one in ten {nine} or more" if jobs.quantiles[90][0] > 0 else ""
    section.sentences.append(f"{none if jobs.zero >= 0.5 else half}{tail}; the mean is {mean}.")


def _part(seen: Seen, section: Section) -> None:
    """Which part of the time from submission to end is waiting?"""
    whole = seen.wait + seen.runtime
    part = np.divide(100 * seen.wait, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    if not np.nan_to_num(part).any():
        section.lacks("the part of completion that is waiting", "no job has both a wait and a run time")
        return
    for weights, suffix in ((None, ""), (seen.instances, ", instances")):
        if suffix and not seen.gangs:
            continue
        curves = seen.curves(part, {"all": None, **seen.lengths(weights)}, weights=weights)
        section.distributions(
            f"waiting part of completion{suffix}", curves, title="Part of the time to completion that is waiting",
            unit="%", of="jobs", x="waiting of all, %", y=f"share of {suffix[2:] or 'jobs'}, %", log_x=False,
        )  # fmt: skip
    there, told = np.isfinite(part), {}
    for name, which in seen.by("length").items():
        of = there & which
        if of.any():
            told[name] = share(part[of] > HALF, None, seen.blocks.part(of))
            section.say(f"{name} jobs that wait longer than they run", told[name], "%")
    if len(told) > 1:
        short, long = (f"{rough(told[name][0])} %" for name in ("short", "long"))
        section.sentences.append(f"{short} of the short jobs and {long} of the long ones wait longer than they run.")
