"""The search for a better policy."""

from pathlib import Path
from typing import Literal

from cyclopts import App

import fleetlab
from fleetlab.commands.words import ClusterFile, Json, Seed, TraceWords, examples, listed, say_saved, trace_of

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab tune my-trace --out tuned",
        "fleetlab tune my-trace --cluster small.toml --trials 300 --train-weeks 4 --held-out 4 --goal bsld",
        "fleetlab tune builtin:20000 --days 0.25 --warm 0.05 --against fifo,sjf,smallest --json > tuned.json",
    )
)
def tune(
    trace: TraceWords,
    *,
    trials: int = 100,
    train_weeks: int | None = None,
    held_out: int | None = None,
    days: float = 7.0,
    warm: float = 1.0,
    goal: Literal["wait", "jct", "bsld"] = "wait",
    backfill: str = "greedy",
    estimate: str = "group",
    against: str = "",
    seed: Seed = 0,
    out: Path | None = None,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Search for a better policy on some weeks of a trace; judge it on later ones against every built-in policy.

    Parameters
    ----------
    trials
        How many policies are tried; the first are built-in ones.
    train_weeks
        How many weeks to learn on, just before those held out; half of all unless told.
    held_out
        How many weeks, the last of the trace, are played once, at the end; the rest unless told.
    days
        In a week: less for a trace of a few days.
    warm
        Days before the weeks that fill the cluster and do not count.
    goal
        What to make small on the mean: wait, completion (from submission to end), bsld (bounded slowdown).
    backfill
        If the first does not fit: strict, skip, easy, conservative; the same for all policies.
    estimate
        Of run time: oracle, user, user+gpu, group, group+gpu, or a series of the trace; the same for all policies.
    against
        Built-in orders to be held against, with commas between; all unless told.
    out
        A folder for the policy (tuned.py), the result (tuned.json) and the trials: a search that was killed goes on.
    """
    from fleetlab._screen import progress, show

    with progress("played") as bar:
        found = fleetlab.tune(
            trace_of(trace, cluster, bar),
            trials=trials,
            train_weeks=train_weeks,
            held_out=held_out,
            days=days,
            warm=warm,
            goal=goal,
            backfill=backfill,
            estimate=estimate,
            against=listed(against),
            seed=seed,
            store=out,
            progress=bar,
        )
    if out is not None:
        found.save(out)
    show(found, json=json, only=("policies", "weeks", "weights"))
    if out is not None:
        say_saved(out)
