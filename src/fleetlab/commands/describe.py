"""Commands that explain a trace: what happened, and why its jobs waited."""

from pathlib import Path

from cyclopts import App

import fleetlab
from fleetlab.commands import screen
from fleetlab.commands.options import (
    DEFAULTS,
    ClusterFile,
    Json,
    Replicas,
    ScenarioOptions,
    Scope,
    Seed,
    TraceName,
    Workers,
    examples,
    of_verb,
    say_saved,
    scenario_of,
    split,
    talk,
    trace_of,
    with_trace_notes,
)

app = App()
CALIBRATED = (
    "waits", "candidates", "policies", "start-up latency", "nodes", "limits of users", "what this log can tell",
)  # fmt: skip


@app.command(
    help_epilogue=examples(
        "fleetlab describe builtin:20000",
        "fleetlab describe my-trace --only arrivals,runtimes",
        "fleetlab describe builtin:100000 --against my-trace --json > described.json",
    )
)
@of_verb("describe/describe.py")
def describe(
    trace: TraceName,
    *,
    against: str | None = None,
    only: str = "",
    seed: Seed = 0,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Describe a trace: arrivals, runtimes, waits, requests, utilization, recurrence.

    Parameters
    ----------
    only
        Sections to print in full, separated by commas: arrivals, runtimes, requests, machines, sharing, recurrence,
        parents, tags, services (default: the findings of all sections).
    """
    sections = split(only)
    with screen.progress("sections") as bar:
        opened = trace_of(trace, cluster, bar)
        other = None if against is None else trace_of(against, None, bar)
        result = fleetlab.describe(opened, against=other, only=sections, seed=seed, progress=bar)
    screen.show(result, json=json, only=() if sections else ("distances", "published", "missing"), short=not sections)


@app.command(
    help_epilogue=examples(
        "fleetlab diagnose builtin:20000",
        "fleetlab diagnose my-trace --backfill none --changes cpu,backfill,nodes",
        "fleetlab diagnose my-trace --cluster smaller.toml --json",
    )
)
def diagnose(
    trace: TraceName,
    *,
    changes: str = "",
    options: ScenarioOptions = DEFAULTS,
    replicas: Replicas = None,
    scope: Scope = "log",
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Explain why jobs wait and what would reduce it: wait by reason, then one thing changed at a time.

    Parameters
    ----------
    changes
        What to change, one at a time, separated by commas: types (any GPU type), cpu, memory (unlimited),
        fragmentation (each GPU type one large node), gangs (instances start one by one), backfill (easy), sjf (with
        group estimates), sharing (on or off), nodes (10 % more of each GPU type; nodes:T4 for one), partitions (jobs
        run in any), nothing; under a site's Slurm also limits (none), loops (that look every second), epilog and
        reservations (none). Default: all but nothing.
    """
    from fleetlab.studies.diagnose.changes import DEFAULT

    with screen.progress("runs") as bar:
        scenario = scenario_of(trace, options, bar)
        chosen = split(changes) if changes else DEFAULT
        result = fleetlab.diagnose(
            scenario, changes=chosen, replicas=replicas, scope=scope, workers=workers, progress=bar
        )
    first = ("actions", "waterfall", "waiting", "by GPU type", "by GPUs per instance", "by gang size")
    result = with_trace_notes(result, scenario.trace.notes)
    more = ("by hour of the day", "worst hours", "longest waits", "blocking jobs", "open problems")
    screen.show(result, json=json, only=(*first, "by partitions", "at limits", *more), short=True)


@app.command(
    help_epilogue=examples(
        "fleetlab calibrate my-trace",
        "fleetlab calibrate my-trace --fit 0.5 --out calibrated.toml",
        "fleetlab compare calibrated.toml --policies fifo,sjf/estimate=group",
    )
)
@of_verb("studies/calibrate/calibration.py")
def calibrate(
    trace: TraceName,
    *,
    fit: float = 0.6,
    options: ScenarioOptions = DEFAULTS,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Compare simulated starts with the recorded ones, and fit what closes the gap: latency, policy, nodes, quota.

    Parameters
    ----------
    out
        Write the calibrated scenario to this TOML file, which every command takes in place of a trace.
    """
    screen.may_write(out)
    with screen.progress("simulations") as bar:
        scenario = scenario_of(trace, options, bar)
        result = fleetlab.calibrate(scenario, fit=fit, progress=bar)
    result = with_trace_notes(result, scenario.trace.notes)
    screen.show(result, json=json, only=CALIBRATED, short=True)
    if out is not None and result.scenario is None:
        talk("\nnothing is saved: there is no calibrated scenario")
    elif out is not None:
        result.save(out)
        say_saved(out)
