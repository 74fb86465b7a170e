"""Commands that plan ahead: forecast demand, size a cluster, scale it automatically."""

from typing import Literal

from cyclopts import App

import fleetlab
from fleetlab.commands import screen
from fleetlab.commands.options import (
    DEFAULTS,
    Json,
    ScenarioOptions,
    Seed,
    TraceName,
    Workers,
    examples,
    of_verb,
    scenario_of,
    split,
    trace_of,
    with_trace_notes,
)

app = App()


@app.command(
    help_epilogue=examples(
        "fleetlab forecast my-trace --target requests --every 5m --horizon 12",
        "fleetlab forecast my-trace --target level --by role --models simple,classic",
        "fleetlab forecast my-trace --target level --every 1h --horizon 24 --json",
    )
)
@of_verb("forecast/forecast.py")
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
    models
        Families and names separated by commas: all, simple (last, mean, drift, average, seasonal), classic (ses, holt,
        damped, holt_winters, theta, ar, ridge, croston, tsb), boosted, neural (lstm, stacked_lstm, gru, transformer,
        tcn), ensemble. The simple models are always included.
    """
    with screen.progress("models") as bar:
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
    screen.show(
        result, json=json, only=("next", *(name for name in result.frames if name.startswith("NRMSE")), "unannounced")
    )


@app.command(
    help_epilogue=examples(
        'fleetlab capacity builtin:20000 --slo "p90 wait < 600"',
        'fleetlab capacity my-trace --slo "mean wait < 5m" --pool V100M32 --growth 1.3 --seed 7',
    )
)
@of_verb("studies/capacity/capacity.py")
def capacity(
    trace: TraceName,
    *,
    slo: str,
    pool: str | None = None,
    growth: float = 1.0,
    probability: float = 0.9,
    replicas: int | None = None,
    scope: str | None = None,
    options: ScenarioOptions = DEFAULTS,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Find the smallest cluster that meets a goal such as `p90 wait < 600`, and the curve around it."""
    with screen.progress("runs") as bar:
        scenario = scenario_of(trace, options, bar)
        result = fleetlab.capacity(
            scenario, slo=slo, pool=pool, growth=growth, probability=probability, replicas=replicas, scope=scope,
            workers=workers, progress=bar,
        )  # fmt: skip
    screen.show(with_trace_notes(result, scenario.trace.notes), json=json, short=True)


@app.command(
    help_epilogue=examples(
        "fleetlab autoscale my-trace --cluster pool.toml",
        "fleetlab autoscale my-trace --cluster pool.toml --wait 10 --boot 15m --models simple,ridge",
        "fleetlab autoscale my-trace --cluster cpu-and-gpu.toml --wait 1m",
    )
)
@of_verb("studies/autoscale/autoscale.py")
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
    models
        Forecasters and families separated by commas, as in `fleetlab forecast`; the best so far is used.
    """
    with screen.progress("replays") as bar:
        scenario = scenario_of(trace, options, bar)
        result = fleetlab.autoscale(
            scenario, wait=wait, risk=risk, every=every, boot=boot, learn=learn, models=split(models), progress=bar
        )
    screen.show(result, json=json, only=("all kinds", "policies", "differences"))
