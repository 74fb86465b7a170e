"""The command that asks when a job will start."""

from typing import Annotated

from cyclopts import App, Parameter, validators

import fleetlab
from fleetlab.commands.options import DEFAULTS, Json, ScenarioOptions, TraceName, scenario_of
from fleetlab.commands.words import examples

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
    job
        The log's own id of a job, or its number in the trace; without one, all jobs that wait are answered.
    request
        Instead of a job of the log, one that is submitted now: "8 A100, 4 h", "2x8 H100", "0.5 T4, user=ada".
    at
        The instant: seconds from the first submission, such as 12h or 7d, or a date and time (default: the last
        submission; if nothing waits then, the last moment at which something does; of a job that has started by then,
        its submission).
    replays
        How often the queue is played, at most: fewer where it is long.
    calibrate
        Ask about so many earlier jobs that had to wait, with few replays each, and move quantiles as those turned out
        to need. The asks are kept in the user's cache for the next question about this log. 0: quantiles as the
        replays have them.
    judge
        Instead of an answer: ask about so many jobs of the log as they came, knowing nothing of later, and compare with
        when they started, beside simple answers. 0: do not.
    starts
        Whose starts are what happened before: those of the log, simulated ones, or auto: the log's where it has them
        and load and nodes are as they were.
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
