"""The search for a better policy."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.options import DEFAULTS, Json, ScenarioOptions, TraceName, scenario_of, split
from fleetlab.commands.words import examples, of_verb, say_saved

desk = App()


@desk.command(
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
    from fleetlab._screen import progress, show
    from fleetlab.core.files import may_create

    may_create(out, folder=True)
    if conf_range:
        _settings(trace, conf_range, trials, goal, [train_weeks, held_out, against], options, out, json=json)
        return
    with progress("runs") as bar:
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
    show(result, json=json, only=("policies", "weeks", "weights"))
    if out is not None:
        say_saved(out)


def _settings(
    trace: str, conf_range: tuple[str, ...], trials: int, goal: str, others: list[int | str | None],
    options: ScenarioOptions, out: Path | None, *, json: bool,
) -> None:  # fmt: skip
    from fleetlab._screen import progress, show

    if any(others):
        msg = "settings are judged on the second half of the jobs: leave --train-weeks, --held-out and --against out"
        raise fleetlab.WorkloadError(msg, hint="--conf-range with --trials, --goal and --out")
    with progress("runs") as bar:
        scenario = scenario_of(trace, options, bar)
        result = fleetlab.tune_conf(scenario, conf_range=conf_range, trials=trials, goal=goal, progress=bar)
    if out is not None:
        result.save(out)
    show(result, json=json)
    if out is not None:
        say_saved(out)
