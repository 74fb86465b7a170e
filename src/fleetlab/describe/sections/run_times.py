"""Runtimes, waits, and wait over JCT."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.core.durations import duration, number
from fleetlab.describe.curves import Bools, Survival, kaplan_meier, share
from fleetlab.describe.section import Section
from fleetlab.describe.trace_view import OPEN, TraceView
from fleetlab.stats import Floats

HALF = 50.0  # percent of completion
ENDED, STILL = "ended jobs only", "including running jobs"


def run_times(view: TraceView, section: Section) -> None:
    """Put together what is known of runtimes and waits."""
    _run_times(view, section)
    _still_running(view, section)
    _waits(view, section)
    _part(view, section)


# -- runtimes ---------------------------------------------------------------------------------------------------------


def _run_times(view: TraceView, section: Section) -> None:
    unknown = int((~np.isfinite(view.runtime)).sum())
    if unknown:
        section.absent(f"runtimes of {unknown:,} jobs", "they had not ended, or the log has no end")
    if unknown == len(view.runtime):
        return
    runtime, many = view.runtime, view.instances
    every = view.ecdf("jobs", runtime) + (view.ecdf("instances", runtime, weights=many) if view.gangs else [])
    section.distributions("runtime", every, title="Runtime of jobs, and of instances", unit="s", y="share, %")
    done = view.is_("status", "completed")
    _by(view, section, "runtime", "request", runtime, title="Runtime by GPUs per instance")
    _by(view, section, "runtime", "type", runtime, where=done, title="Runtime of completed jobs by GPU type")
    _by(view, section, "runtime", "user", runtime, title="Runtime by user class (instances submitted)")
    jobs = every[0]
    section.say("P50 runtime", jobs.quantiles[50], "s")
    section.say("mean runtime", jobs.mean, "s")
    middle, nine, mean = (duration(x) for x in (jobs.quantiles[50][0], jobs.quantiles[90][0], jobs.mean[0]))
    section.findings.append(f"Runtime: P50 {middle}, P90 {nine}, mean {mean}.")


NAMES = {"request": "GPUs per instance", "type": "GPU type", "user": "user class", "length": "length"}


def _by(
    view: TraceView,
    section: Section,
    what: str,
    by: str,
    values: Floats,
    *,
    title: str,
    where: Bools | None = None,
    weights: Floats | None = None,
) -> None:
    """One curve a class; a class of all jobs repeats the curve of all."""
    if by in ("request", "type") and not view.gpu.any():
        if what == "runtime":
            section.absent(f"runtimes and waits by {NAMES[by]}", "no job requests a GPU")
        return
    if by == "user" and view.frame["user"].null_count() == view.frame.height:
        if what == "runtime":
            section.absent("runtimes and waits by user class", "the log has no users")
        return
    classes = {name: of if where is None else of & where for name, of in view.by(by).items()}
    curves = view.curves(values, classes, weights=weights)
    if len(curves) < 2:
        return
    name = f"{what} by {NAMES[by]}" + (", instances" if weights is not None else "")
    y = "share of instances, %" if weights is not None else "share of jobs, %"
    section.distributions(name, curves, title=title, unit="s", of=NAMES[by], y=y)


# -- those that still run ----------------------------------------------------------------------------------------------


def _still_running(view: TraceView, section: Section) -> None:
    """Kaplan and Meier: a job that still ran counts for as long as it was seen."""
    start = view.floats("start")
    running = view.is_("status", "running") & ~np.isfinite(view.runtime)
    if not running.any():
        return
    if unseen := int((running & ~np.isfinite(start)).sum()):
        section.absent(f"ages of {unseen:,} running jobs", "their start is not in the log: left out of Kaplan–Meier")
    running &= np.isfinite(start)
    measured = np.isfinite(view.runtime) & np.isfinite(start)
    if not running.any() or not measured.any():
        return
    if view.open_logs > OPEN:
        section.absent(
            "end of running jobs",
            f"{100 * view.open_logs:.0f} % of them would have run longer than any ended job: their end was likely not "
            "logged, and the curve that includes them is a bound",
        )
    estimates = survival(view, running, measured)
    alone, last = estimates
    middle = last.quantile(0.5)
    alt = f"including {last.censored:,} running jobs, the median runtime is {or_later(middle[0])}"
    title = "Runtime, including running jobs (Kaplan–Meier)"
    draw_survival(section, "runtime, Kaplan–Meier", title, estimates, "of", alt)
    section.say("P50 runtime, including running jobs", middle, "s")
    section.findings.append(
        f"{last.censored:,} of {last.count:,} jobs that started have not ended, "
        + (
            "most for longer than any ended job ran: their ends were likely not logged."
            if view.open_logs > OPEN
            else f"with them the median runtime is {or_later(middle[0])} instead of {or_later(alone.quantile(0.5)[0])}."
        )
    )


def survival(view: TraceView, running: Bools, measured: Bools, where: Bools | None = None) -> list[Survival]:
    """The estimate without and with those that still run."""
    start, chosen = view.floats("start"), np.ones(len(running), dtype=bool) if where is None else where
    time = np.where(measured, view.runtime, np.maximum(view.end - start, 0.0))
    alone, both = measured & chosen, (measured | running) & chosen
    return [kaplan_meier(ENDED, time[alone], measured[alone]), kaplan_meier(STILL, time[both], measured[both])]


def draw_survival(section: Section, name: str, title: str, estimates: list[Survival], of: str, alt: str) -> None:
    """Put the estimates into a table, and draw them."""
    section.tables[name] = survival_table(estimates, of)
    frame = pl.concat([s.points().filter(pl.col("x") > 0) for s in estimates])
    section.figures[name] = Figure(title, "line", frame, "runtime, s", "share that has ended, %", alt, log_x=True)


def or_later(seconds: float) -> str:
    """A runtime in words, where the log may be too short to tell it."""
    return duration(seconds) if np.isfinite(seconds) else "longer than the log"


def survival_table(estimates: list[Survival], of: str) -> pl.DataFrame:
    """Counts, quantiles and the mean up to the longest time seen, with Greenwood's intervals."""
    rows = []
    for s in estimates:
        row: dict[str, object] = {of: s.series, "count": s.count, "ended": s.ended, "still running": s.censored}
        for name, interval in (
            *((f"P{p}", s.quantile(p / 100)) for p in (25, 50, 75, 90)),
            ("restricted mean", s.mean()),
        ):
            row |= dict(zip((name, f"{name} low", f"{name} high"), map(_finite, interval), strict=True))
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


# -- waits -------------------------------------------------------------------------------------------------------------


def _waits(view: TraceView, section: Section) -> None:
    wait, many = view.wait, view.instances
    if not np.isfinite(wait).any():
        section.absent("waits", "starts are not in the log")
        return
    if not np.nan_to_num(wait).any():
        section.absent("waits", "every start equals the submission: the log likely has only one of both times")
        return
    every = view.ecdf("jobs", wait) + (view.ecdf("instances", wait, weights=many) if view.gangs else [])
    section.distributions("wait", every, title="Wait of jobs, and of instances", unit="s", y="share, %")
    for by, title in (("request", "GPUs per instance"), ("type", "GPU type")):
        _by(view, section, "wait", by, wait, title=f"Wait by {title}")
        if view.gangs:
            _by(view, section, "wait", by, wait, weights=many, title=f"Wait of instances by {title}")
    _by(view, section, "wait", "length", wait, title="Wait of jobs below and above the median runtime")
    _by(view, section, "wait", "user", wait, title="Wait by user class (instances submitted)")
    jobs = every[0]
    section.say("P50 wait", jobs.quantiles[50], "s")
    section.say("mean wait", jobs.mean, "s")
    section.say("P90 wait", jobs.quantiles[90], "s")
    middle, nine, mean = (duration(x) for x in (jobs.quantiles[50][0], jobs.quantiles[90][0], jobs.mean[0]))
    none = f"; {100 * jobs.zero:.3g} % of the jobs do not wait" if jobs.zero >= 0.5 else ""
    section.findings.append(f"Wait: P50 {middle}, P90 {nine}, mean {mean}{none}.")


def _part(view: TraceView, section: Section) -> None:
    """Wait as a share of JCT."""
    whole = view.wait + view.runtime
    part = np.divide(100 * view.wait, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    if not np.nan_to_num(part).any():
        section.absent("wait over JCT", "no job has both a wait and a runtime")
        return
    for weights, suffix in ((None, ""), (view.instances, ", instances")):
        if suffix and not view.gangs:
            continue
        curves = view.curves(part, {"all": None, **view.lengths(weights)}, weights=weights)
        section.distributions(
            f"wait over JCT{suffix}", curves, title="Wait over JCT",
            unit="%", of="jobs", x="wait over JCT, %", y=f"share of {suffix[2:] or 'jobs'}, %", log_x=False,
        )  # fmt: skip
    there, interval = np.isfinite(part), {}
    for name, which in view.by("length").items():
        of = there & which
        if of.any():
            interval[name] = share(part[of] > HALF, None, view.blocks.part(of))
            section.say(f"{name} jobs with wait above runtime", interval[name], "%")
    if len(interval) > 1:
        short, long = (f"{number(interval[name][0])} %" for name in ("short", "long"))
        section.findings.append(f"{short} of the short jobs and {long} of the long ones wait longer than they run.")
