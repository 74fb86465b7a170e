"""A demo on one page: its first fix as two timelines on one axis, cards of fixes, and how far to believe it."""

from __future__ import annotations

from pathlib import Path

from fleetlab.core.durations import beside_the_log, brief, plural
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import Result
from fleetlab.describe import describe
from fleetlab.report import Card, Lead, report
from fleetlab.sim import simulate
from fleetlab.studies.demo import Demo, Fix
from fleetlab.studies.diagnose.changes import what_if

BEFORE, AFTER = "Before", "After"


def story(demo: Demo, out: Path, *, progress: Progress = silent) -> Path:
    """Write the page of a demo; all that was computed is folded below its first screen."""
    assert demo.scenario is not None
    runs = {BEFORE: simulate(demo.scenario, progress=progress)}
    if demo.fixes:
        changed = what_if(demo.fixes[0].change, demo.scenario).apply(demo.scenario)
        runs[f"{AFTER}: {demo.fixes[0].title}"] = simulate(changed, progress=progress)
    progress("writing the page", 0, 0.0)
    lead = Lead(about=about(demo), runs=runs, cards=tuple(_card(fix, demo) for fix in demo.fixes), notes=_checks(demo))
    sections: dict[str, Result] = {"why jobs wait": demo, "the trace": describe(demo.scenario.trace, progress=progress)}
    return report(sections, out, title=_headline(demo), lead=lead)


def about(demo: Demo) -> str:
    """Say what the jobs and nodes are."""
    assert demo.scenario is not None
    log, nodes, scheduler = demo.scenario.trace.workload, demo.scenario.cluster, demo.scenario.scheduler
    what = "Synthetic, with the statistics of Alibaba's PAI" if log.synthetic else "A recorded log"
    under = f" under {scheduler.title}" if scheduler is not None else ""
    span = brief(float(log.frame["submit"].max() or 0.0))  # type: ignore[arg-type]
    part = f" Simulated: {demo.window}." if demo.window else ""
    size = f"{plural(len(log), 'job')} in {span} on {plural(len(nodes), 'node')} with {plural(nodes.gpus, 'GPU')}"
    return f"{what}{under}: {size}.{part}"


def _headline(demo: Demo) -> str:
    if demo.reasons.is_empty():
        return "No job waits"
    now = f"Jobs wait {brief(demo.mean_wait)} on average"
    if not demo.fixes:
        return now
    first = demo.fixes[0]
    what = "one line of configuration" if first.line else first.title
    return f"{now}. {what[0].upper()}{what[1:]} makes it {brief(first.mean_wait)}."


def _card(fix: Fix, demo: Demo) -> Card:
    less = f"−{100 * (1 - fix.mean_wait / demo.mean_wait):.0f} %"
    cost = "No hardware." if fix.line else f"Needs {fix.requires}."
    setting = f"fleetlab simulate TRACE {fix.setting}" if fix.setting else ""
    effect = f"{brief(demo.mean_wait)} → {brief(fix.mean_wait)}"
    return Card(f"{fix.title[0].upper()}{fix.title[1:]}", effect, f"{less}. {cost}", fix.line or setting)


def _checks(demo: Demo) -> tuple[str, ...]:
    """Say what a real cluster measured of the same."""
    checks = []
    if demo.measured is not None:
        first = brief(demo.fixes[0].mean_wait)
        checks.append(f"The real Slurm with this line measured {brief(demo.measured)}; the simulation says {first}.")
    if demo.recorded is not None:
        checks.append(beside_the_log(demo.recorded, demo.mean_wait))
    return tuple(checks)
