"""The command that asks when a job will start."""

from typing import Annotated

from cyclopts import App, Parameter, validators

import fleetlab
from fleetlab.commands.options import DEFAULTS, Json, ScenarioOptions, TraceName, scenario_of
from fleetlab.commands.words import examples, of_verb

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab eta my-trace",
        "fleetlab eta my-trace --job 48213",
        'fleetlab eta my-trace --request "8 A100, 4 h" --at 3d',
        "fleetlab eta my-trace --job 48213 --calibrate 0",
        "fleetlab eta my-trace --judge 300",
        'fleetlab eta my-trace --request "2x8 H100, 30 min, user=ada" --at 2024-05-01T12:00 --json',
    )
)
@of_verb("studies/eta/eta.py")
def eta(
    trace: TraceName,
    *,
    job: str | None = None,
    request: str | None = None,
    at: str | None = None,
    replays: Annotated[int, Parameter(validator=validators.Number(gte=8, lte=10_000))] = 200,
    calibrate: Annotated[int, Parameter(validator=validators.Number(gte=0, lte=10_000))] = 60,
    judge: Annotated[int, Parameter(validator=validators.Number(gte=0, lte=100_000))] = 0,
    starts: str = "auto",
    options: ScenarioOptions = DEFAULTS,
    json: Json = False,
) -> None:
    """When will a job start? The present queue is played many times with what is known at that instant.

    Parameters
    ----------
    judge
        Instead of an answer: ask about so many jobs of the log as they came, knowing nothing of later, and compare with
        when they started, beside simple answers. 0: do not.
    """
    from fleetlab._screen import progress, show
    from fleetlab.studies.eta import judge as judge_eta

    if judge and (job or request or at):
        msg = "--judge asks about jobs of the log as they came: it takes no job, request or time"
        raise fleetlab.WorkloadError(msg, hint="leave --judge out, or the others")
    with progress("asks" if judge else "replays") as bar:
        scenario = scenario_of(trace, options, bar)
        if judge:
            result: fleetlab.Result = judge_eta(scenario, asks=judge, starts=starts, progress=bar)
        else:
            result = fleetlab.eta(
                scenario, job=job, request=request, at=at, replays=replays, calibrate=calibrate, starts=starts,
                progress=bar,
            )  # fmt: skip
    show(result, json=json)
