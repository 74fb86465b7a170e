"""What happened in a trace, and why its jobs waited."""

from dataclasses import asdict

from cyclopts import App

import fleetlab
from fleetlab.commands.rules import RULES, Rules
from fleetlab.commands.words import (
    ClusterFile,
    Json,
    Seed,
    TraceWords,
    cluster_of,
    examples,
    listed,
    trace_of,
    with_notes,
)

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab describe builtin:20000",
        "fleetlab describe my-trace --only arrivals,runtimes",
        "fleetlab describe builtin:100000 --against my-trace --json > described.json",
    )
)
def describe(
    trace: TraceWords,
    *,
    against: str | None = None,
    only: str = "",
    seed: Seed = 0,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Describe a trace as the papers do theirs: arrivals, run times, waits, requests, use, sharing, recurrence.

    Parameters
    ----------
    against
        Another trace, named in the same way, to hold it against, figure by figure.
    only
        Print all tables of these sections, comma-separated: arrivals, runtimes, requests, machines, sharing,
        recurrence, services.
    seed
        Of the draws behind intervals.
    """
    from fleetlab._screen import progress, show

    wanted = listed(only)
    with progress("sections") as bar:
        opened = trace_of(trace, cluster, bar)
        other = None if against is None else trace_of(against, None, bar)
        found = fleetlab.describe(opened, against=other, only=wanted, seed=seed, progress=bar)
    show(found, json=json, only=() if wanted else ("distances", "published", "missing"))


@desk.command(
    help_epilogue=examples(
        "fleetlab diagnose builtin:20000",
        "fleetlab diagnose my-trace --backfill none --changes cpu,backfill,nodes",
        "fleetlab diagnose my-trace --cluster smaller.toml --json",
    )
)
def diagnose(
    trace: TraceWords,
    *,
    changes: str = "types,cpu,memory,fragments,gangs,backfill,sjf,sharing,nodes",
    rules: Rules = RULES,
    seed: Seed = 0,
    workers: int | None = None,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Why do jobs wait, and what would help? The wait ledger added up, and one thing changed at a time.

    Parameters
    ----------
    changes
        What to change, one at a time, with commas between: types (no type constraints), cpu, memory (unlimited),
        fragments (each pool one node), gangs (split), backfill, sjf (with group estimates), sharing (on or off), nodes
        (a tenth more of each type; nodes:T4 for one), nothing.
    rules.order
        The rules as they are, as `fleetlab simulate` takes them; so are the next four.
    seed
        For the intervals, and for placement policies that draw lots.
    workers
        Processes at once; as many as there are cores for a large trace, 0: none but this one.
    """
    from fleetlab._screen import progress, show
    from fleetlab.studies.believed import believed

    with progress("runs") as bar:
        opened = trace_of(trace, cluster, bar)
        found = fleetlab.diagnose(
            opened.workload,
            cluster_of(opened, trace),
            usage=opened.usage,
            changes=listed(changes),
            **asdict(rules) | {"estimate": believed(opened, rules.estimate)},
            seed=seed,
            workers=workers,
            progress=bar,
        )
    read_first = ("what to do", "waterfall", "waiting", "by pool", "by request", "by gang size", "by hour")
    show(with_notes(found, opened), json=json, only=(*read_first, "worst hours", "tail", "heads", "checks"))
