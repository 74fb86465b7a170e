"""Commands that plan ahead: forecast demand, size a cluster, scale it automatically."""

from typing import Literal

from cyclopts import App

import fleetlab
from fleetlab.commands.options import (
    DEFAULTS,
    Json,
    ScenarioOptions,
    Seed,
    TraceName,
    Workers,
    scenario_of,
    split,
    trace_of,
    with_trace_notes,
)
from fleetlab.commands.words import examples

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab forecast my-trace --target requests --every 5m --horizon 12",
        "fleetlab forecast my-trace --target level --by role --models simple,classic",
        "fleetlab forecast my-trace --target level --every 1h --horizon 24 --json",
    )
)
def forecast(
    trace: TraceName,
    *,
    target: Literal["requests", "level"] = "requests",
    every: str = "5m",
    horizon: int = 12,
    by: Literal["role", "app", "gpu_type"] | None = None,
    models: str = "simple,classic,boosted,ensemble",
    gap: int | None = None,
    folds: int = 4,
    trials: int = 8,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Forecast demand with intervals, and rank models by how well they predicted the end of the trace.

    Parameters
    ----------
    target
        requests: resources requested by instances created in each step; level: resources allocated at its end.
    every
        Length of a step: seconds, or a number followed by s, m, h or d.
    horizon
        Steps ahead.
    by
        Forecast each role, app or GPU type by itself: the six largest, and the others together.
    models
        Families and names separated by commas: all, simple (last, mean, drift, average, seasonal), classic (ses, holt,
        damped, holt_winters, theta, ar, ridge, croston, tsb), boosted, neural (lstm, stacked_lstm, gru, transformer,
        tcn), ensemble. The simple models are always included.
    gap
        Steps between the training data and the first forecast (default: the horizon).
    folds
        Walk-forward folds before the held-out end.
    trials
        Settings to try for each network before the first fold; 0 to use the default settings.
    """
    from fleetlab._screen import progress, show

    with progress("models") as bar:
        opened = trace_of(trace, None, bar)
        result = fleetlab.forecast(
            opened,
            target=target,
            every=every,
            horizon=horizon,
            by=by,
            models=split(models),
            gap=gap,
            folds=folds,
            trials=trials,
            seed=seed,
            progress=bar,
        )
    show(result, json=json, only=("next", *(name for name in result.frames if name.startswith("NRMSE")), "unannounced"))


@desk.command(
    help_epilogue=examples(
        'fleetlab capacity builtin:20000 --slo "p90 wait < 600"',
        'fleetlab capacity my-trace --slo "mean wait < 5m" --pool V100M32 --growth 1.3 --seed 7',
    )
)
def capacity(
    trace: TraceName,
    *,
    slo: str,
    pool: str | None = None,
    growth: float = 1.0,
    resamples: int = 3,
    options: ScenarioOptions = DEFAULTS,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Find the smallest cluster that meets a goal such as `p90 wait < 600`, and the curve around it.

    Parameters
    ----------
    slo
        The goal: mean or a percentile (p50, p90, p95, p99, …) of wait, JCT, slowdown or bounded slowdown, `<`, and a
        limit: seconds, 10m or 2h; a number for a slowdown.
    pool
        Scale this pool or GPU type, for the jobs that may run on it (default: all pools in proportion, for all jobs).
    growth
        Scale the number of jobs: user-days are resampled and added to the trace.
    resamples
        How many times to resample.
    """
    from fleetlab._screen import progress, show

    with progress("runs") as bar:
        scenario = scenario_of(trace, options, bar)
        result = fleetlab.capacity(
            scenario, slo=slo, pool=pool, growth=growth, resamples=resamples, workers=workers, progress=bar
        )
    show(with_trace_notes(result, scenario.trace.notes), json=json)


@desk.command(
    help_epilogue=examples(
        "fleetlab autoscale my-trace --cluster pool.toml",
        "fleetlab autoscale my-trace --cluster pool.toml --wait 10 --boot 15m --models simple,ridge",
        "fleetlab autoscale my-trace --cluster cpu-and-gpu.toml --wait 1m",
    )
)
def autoscale(
    trace: TraceName,
    *,
    wait: str | None = None,
    risk: float | None = None,
    every: str = "5m",
    boot: str = "5m",
    learn: str | None = None,
    models: str = "last,seasonal,holt_winters,ridge",
    options: ScenarioOptions = DEFAULTS,
    json: Json = False,
) -> None:
    """Compare autoscaling by forecasts with reactive scaling, a fixed number of nodes, and demand known in advance.

    Each kind of node in the cluster is scaled by itself, for the jobs that only it can hold, and those that prefer it:
    the kind of the lowest `weight`, then the first. Nodes with GPUs are for jobs that request some.

    Parameters
    ----------
    wait
        The goal: the P95 wait that every way to scale must meet (default: 1m). Here and below: seconds, or a number
        followed by s, m, h or d.
    risk
        Instead of a goal: the probability that a step needs more nodes than a forecast has ready, such as 0.05. The
        other ways must then meet the P95 wait that results.
    every
        Time between two decisions.
    boot
        Time that a node takes to start.
    learn
        How much of the beginning to learn from (default: a third of the log, at least 4d). The days after it count.
    models
        Forecasters and families separated by commas, as in `fleetlab forecast`; the best so far is used.
    """
    from fleetlab._screen import progress, show

    with progress("replays") as bar:
        scenario = scenario_of(trace, options, bar)
        result = fleetlab.autoscale(
            scenario,
            wait=wait,
            risk=risk,
            every=every,
            boot=boot,
            learn=learn,
            models=split(models),
            progress=bar,
        )
    show(result, json=json, only=("all kinds", "policies", "differences"))
