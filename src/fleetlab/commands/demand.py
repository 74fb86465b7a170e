"""What will be asked for, and how many nodes that needs."""

from dataclasses import asdict
from pathlib import Path
from typing import Literal

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
        "fleetlab forecast my-trace --target requests --every 5m --horizon 12",
        "fleetlab forecast my-trace --target level --by role --models simple,classic",
        "fleetlab forecast my-trace --target level --every 1h --horizon 24 --json",
    )
)
def forecast(
    trace: TraceWords,
    *,
    target: Literal["requests", "level"] = "requests",
    every: str = "5m",
    horizon: int = 12,
    by: Literal["role", "app", "gpu_type"] | None = None,
    models: str = "all",
    gap: int | None = None,
    folds: int = 4,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """What demand comes next, with intervals, and which model may be trusted with which resource how far ahead?

    Parameters
    ----------
    target
        requests: what instances created in each step ask for; level: what is held at its end.
    every
        The length of a step: seconds, or a number with s, m, h or d after it.
    horizon
        How many steps ahead.
    by
        Forecast each role, app or GPU type by itself; the six largest, and the others together.
    models
        Families and names, with commas between: all; simple (last, mean, drift, average, seasonal), classic (ses, holt,
        damped, holt_winters, theta, ar, ridge, croston, tsb), boosted, neural (lstm, gru, tcn), ensemble. Simple ones
        are always among them.
    gap
        Steps between what a model learns from and what it forecasts; a horizon unless told.
    folds
        How often models are tried before the held-out end.
    seed
        For networks, trees and intervals.
    """
    from fleetlab._screen import progress, show

    with progress("models") as bar:
        opened = trace_of(trace, None, bar)
        found = fleetlab.forecast(
            opened,
            target=target,
            every=every,
            horizon=horizon,
            by=by,
            models=listed(models),
            gap=gap,
            folds=folds,
            seed=seed,
            progress=bar,
        )
    show(found, json=json, only=("next", *(name for name in found.frames if name.startswith("NRMSE")), "unannounced"))


@desk.command(
    help_epilogue=examples(
        'fleetlab capacity builtin:20000 --slo "p90 wait < 600"',
        'fleetlab capacity my-trace --slo "mean wait < 5m" --pool V100M32 --growth 1.3 --seed 7',
    )
)
def capacity(
    trace: TraceWords,
    *,
    slo: str,
    pool: str | None = None,
    growth: float = 1.0,
    resamples: int = 3,
    rules: Rules = RULES,
    seed: Seed = 0,
    workers: int | None = None,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """How many nodes for a goal such as `p90 wait < 600`? The smallest cluster that meets it, and the curve around.

    Parameters
    ----------
    slo
        The goal: mean or a percentile (p50, p90, p99) of wait, response or slowdown, `<`, and seconds; 10m and 2h too.
    pool
        Scale this pool or GPU type, for the jobs that may run on it; else all pools in proportion, for all jobs.
    growth
        So many times the jobs: users' days are drawn again and laid over those that are there.
    resamples
        How often that is drawn.
    rules.order
        The rules, as `fleetlab simulate` takes them; so are the next four.
    seed
        For what is drawn.
    workers
        Processes at once; as many as there are cores for a large trace, 0: none but this one.
    """
    from fleetlab._screen import progress, show
    from fleetlab.studies.believed import believed

    with progress("runs") as bar:
        opened = trace_of(trace, cluster, bar)
        found = fleetlab.capacity(
            opened.workload,
            cluster_of(opened, trace),
            slo=slo,
            pool=pool,
            growth=growth,
            resamples=resamples,
            **asdict(rules) | {"estimate": believed(opened, rules.estimate)},
            seed=seed,
            workers=workers,
            progress=bar,
        )
    show(with_notes(found, opened), json=json)


@desk.command(
    help_epilogue=examples(
        "fleetlab autoscale my-trace --nodes pool.toml",
        "fleetlab autoscale my-trace --nodes pool.toml --wait 10 --boot 15m --models simple,ridge",
    )
)
def autoscale(
    trace: TraceWords,
    *,
    nodes: Path | None = None,
    wait: str | None = None,
    risk: float | None = None,
    every: str = "5m",
    boot: str = "5m",
    learn: str | None = None,
    models: str = "last,seasonal,holt_winters,ridge",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """How many nodes to have ready, by forecasts? Beside reactive scaling, a fixed number and an oracle.

    Parameters
    ----------
    nodes
        A TOML file with one [[node]] entry, its count the most that there may be; the trace's nodes unless told.
    wait
        The goal: the P95 wait, which every way to scale must meet; a minute unless told. Here and below: seconds, or a
        number with s, m, h or d after it.
    risk
        Instead of a goal: how often a step may ask for more nodes than a forecast has ready, such as 0.05. The others
        are then held to the P95 wait that comes of it.
    every
        The time between two decisions.
    boot
        The time that a node takes to start.
    learn
        How much of the beginning to learn from; a third of the log unless told, and 4d at least. The days after it
        count.
    models
        Forecasters and families, with commas between, as `fleetlab forecast` names them; the best of them so far is
        taken.
    seed
        Of the draws behind intervals.
    """
    from fleetlab._screen import progress, show

    with progress("replays") as bar:
        opened = trace_of(trace, nodes, bar)
        found = fleetlab.autoscale(
            opened.workload,
            cluster_of(opened, trace, "--nodes"),
            wait=wait,
            risk=risk,
            every=every,
            boot=boot,
            learn=learn,
            models=listed(models),
            seed=seed,
            progress=bar,
        )
    show(found, json=json, only=("at the goal", "forecast against"))
