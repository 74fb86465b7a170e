"""Commands about one job: its story, and when it will start."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter, validators

import fleetlab
from fleetlab.commands import screen
from fleetlab.commands.options import (
    DEFAULTS,
    Json,
    ScenarioOptions,
    TraceName,
    examples,
    of_verb,
    say_saved,
    scenario_of,
)

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.studies.explain import Candidates, Explanation


app = App()
TABLES = {
    "jobs": ("jobs", ("job", "user", "group", "submit", "GPUs", "wait", "recorded wait", "main reason")),
    "holders": ("held what it lacked", ("job", "user", "GPUs", "held by", "wait", "GPU-hours")),
    "heads": ("at the head of the queue while it fitted", ("job", "user", "GPUs", "wait", "from", "until")),
    "overtakers": ("came later, started earlier", ("job", "user", "GPUs", "how", "GPU-hours")),
    "neighbors": ("shared its GPUs", ("job", "user", "GPUs shared", "together, s", "share of run")),
    "what would have started it sooner": ("what would have started it sooner", ("change", "wait", "wait change",
                                                                                "verdict")),
}  # fmt: skip


@app.command(
    help_epilogue=examples(
        "fleetlab explain my-trace",
        "fleetlab explain my-trace 4711",
        "fleetlab explain my-trace user=ann",
        "fleetlab explain my-trace --longest 10",
        "fleetlab explain builtin:2000 job-196 --load 3 --backfill easy --out job-196.html",
        "fleetlab explain my-trace 4711 --json > job.json",
    )
)
@of_verb("studies/explain/explanation.py")
def explain(
    trace: TraceName,
    job: str = "",
    *,
    longest: Annotated[int, Parameter(show_default=False)] = 0,
    what_if: bool = True,
    options: ScenarioOptions = DEFAULTS,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Explain one job: why it waited when, who held what it needed, what would have started it sooner.

    Parameters
    ----------
    job
        The log's own id of the job, or its number (#12); user=NAME, group=NAME, app=NAME or queue=NAME lists the jobs
        that are meant, with their waits. Without a job: the longest waits.
    out
        Write a page (HTML) with the strip of its life as a figure.
    """
    from fleetlab.studies.explain import Explanation
    from fleetlab.studies.explain.wording import strip_text

    screen.may_write(out)
    with screen.progress("runs") as bar:
        scenario = scenario_of(trace, options, bar)
        result = fleetlab.explain(scenario, job=job, longest=longest, what_if=what_if, progress=bar)
    if out is not None:
        settings = result.provenance.settings
        title = f"Why {settings['job']} waited" if "job" in settings else "The longest waits"
        fleetlab.report(result, out, title=title)
    strip = strip_text(result.timeline) if isinstance(result, Explanation) and result.timeline is not None else ()
    screen.show(result if json else _shown(result), json=json, short=True, beside=strip)
    if out is not None:
        say_saved(out)


def _shown(result: "Explanation | Candidates") -> "Explanation | Candidates":
    """Return what is printed of it: the columns that a reader needs, jobs by the log's own id, no number alone."""
    frames = {
        title: _named(
            result.frames[name].select(c for c in columns if c in result.frames[name].columns), result.frames[name]
        )
        for name, (title, columns) in TABLES.items()
        if name in result.frames
    }
    return replace(result, frames=frames, estimates=())


def _named(frame: "pl.DataFrame", whole: "pl.DataFrame") -> "pl.DataFrame":
    """Return a table whose jobs are called by the log's own id, where it has one."""
    import polars as pl

    if "job" not in frame.columns:
        return frame
    number = pl.when(pl.col("job").is_null()).then(pl.lit("from before")).otherwise(pl.format("#{}", "job"))
    names = whole["name"] if "name" in whole.columns else pl.Series([None] * whole.height, dtype=pl.String)
    return frame.with_columns(job=pl.coalesce(names, number))


@app.command(
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
        Instead of an answer: predict starts of so many jobs of the log as they came, knowing nothing of later, and
        compare with when they started, beside simple answers. 0: do not.
    """
    from fleetlab.studies.eta import judge as judge_eta

    if judge and (job or request or at):
        msg = "--judge predicts starts of jobs of the log as they came: it takes no job, request or time"
        raise fleetlab.WorkloadError(msg, hint="leave --judge out, or the others")
    with screen.progress("forecasts" if judge else "replays") as bar:
        scenario = scenario_of(trace, options, bar)
        if judge:
            result: fleetlab.Result = judge_eta(scenario, forecasts=judge, starts=starts, progress=bar)
        else:
            result = fleetlab.eta(
                scenario, job=job, request=request, at=at, replays=replays, calibrate=calibrate, starts=starts,
                progress=bar,
            )  # fmt: skip
    screen.show(result, json=json, short=True)
