"""Commands for many runs: every cell of a study, stored runs, and the search for a better policy."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands import screen
from fleetlab.commands.options import (
    DEFAULTS,
    Json,
    ScenarioOptions,
    TraceName,
    examples,
    of_verb,
    pairs,
    say_saved,
    scenario_of,
    split,
    talk,
)

app = App()


@app.command(
    help_epilogue=examples(
        "fleetlab sweep study.toml",
        "fleetlab sweep study.toml --store runs --workers 8 --json > swept.json",
        "fleetlab sweep study.toml --engine ray --address 10.0.0.1:6379",
    )
)
@of_verb("studies/sweep/sweep.py")
def sweep(
    study: Path,
    *,
    store: Path = Path("runs"),
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int | None = None,
    json: Json = False,
) -> None:
    """Simulate every combination (cell) of policies, loads, nodes and seeds in a study file, and compare them.

    Finished cells are kept; the same command resumes an interrupted sweep. The exit status is 1 if a cell failed.

    Parameters
    ----------
    study
        A TOML file of scenarios: one value or a list for each word, seeds, and [compare] (docs/sweep.md).
    engine
        local: the cores of this machine; ray: a Ray cluster.
    address
        Address of the Ray cluster: HOST:PORT, or ray://HOST:PORT (default: start one on this machine).
    """
    with screen.progress("cells") as bar:
        result = fleetlab.sweep(study, store=store, engine=engine, address=address, workers=workers, progress=bar)
    screen.show(result, json=json)
    talk(f"\nkept in {store}")
    if result.failed:
        sys.exit(1)


@app.command(
    help_epilogue=examples(
        "fleetlab runs runs",
        "fleetlab runs runs --where order=sjf --where load=1.2",
        "fleetlab runs runs --against order=fifo --metrics 'mean wait,P99 wait'",
        "fleetlab runs runs --out cells.parquet",
    )
)
def runs(
    store: Path,
    *,
    where: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    against: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    metrics: str = "mean wait,P90 wait",
    out: Path | None = None,
    json: Json = False,
) -> None:
    """List the finished simulations (cells) of sweeps, compare them, and export them.

    Parameters
    ----------
    store
        The folder that `fleetlab sweep` keeps finished cells in.
    where
        WORD=VALUE: only cells with this value; repeatable. Words: trace, load, nodes, order, backfill, placement,
        estimate, sharing, seed and others.
    against
        WORD=VALUE: compare with the scenario that has this value and is otherwise the same; repeatable.
    metrics
        Metrics separated by commas; --json lists all.
    out
        Write every cell to this file: .csv or .parquet.
    """
    screen.may_write(out)
    names = split(metrics)
    result = fleetlab.runs(store, where=_cells(where, "--where"), against=_cells(against, "--against"), metrics=names)
    if out is not None:
        result.export(out)
    screen.show(result, json=json, only=("differences", "scenarios"))
    if out is not None:
        talk(f"\nwritten to {out}")


def _cells(words: tuple[str, ...], option: str) -> dict[str, str]:
    hint = f"{option} order=fifo {option} load=1.2"
    return dict(pairs(words, f"{option} takes WORD=VALUE", str.strip, hint=hint))


@app.command(
    help_epilogue=examples(
        "fleetlab tune my-trace --out tuned",
        "fleetlab tune my-trace --cluster small.toml --trials 300 --train-weeks 4 --held-out 4 --goal jct",
        "fleetlab tune my-trace --conf-range bf_interval=10,30,60 --conf-range PriorityWeightFairshare=0,1000,10000",
        "fleetlab tune builtin:20000 --days 0.25 --warm 0.05 --against fifo,sjf,smallest --json > tuned.json",
    )
)
@of_verb("studies/tune/tune.py")
def tune(
    trace: TraceName,
    *,
    trials: int = 100,
    train_weeks: int | None = None,
    held_out: int | None = None,
    days: float = 7.0,
    warm: float = 1.0,
    goal: Literal["wait", "jct", "bounded_slowdown"] = "wait",
    against: str = "",
    conf_range: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    options: ScenarioOptions = DEFAULTS,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Search for a better policy on some weeks of a trace; judge it on later weeks against the built-in policies.

    With --conf-range, search among settings of the site's own Slurm instead: those that are best for the jobs of the
    first half are judged on the rest.

    Estimates are learned by default (--estimate group): with an oracle the search would know the future.

    Parameters
    ----------
    against
        Built-in orders to compare with, separated by commas (default: all).
    conf_range
        KEY=VALUE,VALUE,… of a setting of the site's Slurm; repeatable, and all combinations are tried. A KEY is one of
        slurm.conf or of SchedulerParameters; a line may begin with whom it is for: "PartitionName=long MaxTime=60,120",
        "QOS=normal MaxTRESPerUser=gres/gpu=4,gres/gpu=8". Values with commas of their own are separated by |.
    out
        A folder for the policy (tuned.py), the result (tuned.json) and the trials; an interrupted search resumes.
    """
    screen.may_create(out, folder=True)
    if conf_range:
        _settings(trace, conf_range, trials, goal, [train_weeks, held_out, against], options, out, json=json)
        return
    with screen.progress("runs") as bar:
        result = fleetlab.tune(
            scenario_of(trace, options, bar, estimate="group"),
            trials=trials,
            train_weeks=train_weeks,
            held_out=held_out,
            days=days,
            warm=warm,
            goal=goal,
            against=split(against),
            store=out,
            progress=bar,
        )
    if out is not None:
        result.save(out)
    screen.show(result, json=json, only=("policies", "weeks", "weights"))
    if out is not None:
        say_saved(out)


def _settings(
    trace: str, conf_range: tuple[str, ...], trials: int, goal: str, others: list[int | str | None],
    options: ScenarioOptions, out: Path | None, *, json: bool,
) -> None:  # fmt: skip

    if any(others):
        msg = "settings are judged on the second half of the jobs: leave --train-weeks, --held-out and --against out"
        raise fleetlab.WorkloadError(msg, hint="--conf-range with --trials, --goal and --out")
    with screen.progress("runs") as bar:
        scenario = scenario_of(trace, options, bar)
        result = fleetlab.tune_conf(scenario, conf_range=conf_range, trials=trials, goal=goal, progress=bar)
    if out is not None:
        result.save(out)
    screen.show(result, json=json)
    if out is not None:
        say_saved(out)
