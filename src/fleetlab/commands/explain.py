"""The command that tells the story of one job."""

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.options import DEFAULTS, Json, ScenarioOptions, TraceName, scenario_of
from fleetlab.commands.words import examples, of_verb, say_saved

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from fleetlab.studies.explain import Candidates, Explanation
    from fleetlab.studies.explain.story import Story

desk = App()
WIDTH = 80  # columns of the text
ROWS = 6  # of a table on a terminal; --json has 20
LISTED = 40  # jobs of a search
TABLES = {
    "jobs": ("jobs", ("job", "user", "group", "submit", "GPUs", "wait", "recorded wait", "main reason")),
    "holders": ("held what it lacked", ("job", "user", "GPUs", "held by", "wait", "GPU-hours")),
    "heads": ("at the head of the queue while it fitted", ("job", "user", "GPUs", "wait", "from", "until")),
    "overtakers": ("came later, started earlier", ("job", "user", "GPUs", "how", "GPU-hours")),
    "neighbors": ("shared its GPUs", ("job", "user", "GPUs shared", "together, s", "share of run")),
    "what would have started it sooner": ("what would have started it sooner", ("change", "wait", "wait change",
                                                                                "verdict")),
}  # fmt: skip


@desk.command(
    help_epilogue=examples(
        "fleetlab explain my-trace 4711",
        "fleetlab explain my-trace user=ann",
        "fleetlab explain my-trace --longest 10",
        "fleetlab explain builtin:2000 job-196 --load 3 --backfill easy --out job-196.html",
        "fleetlab explain my-trace 4711 --json > story.json",
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
    """Tell the story of one job: why it waited when, who held what it needed, what would have started it sooner.

    Parameters
    ----------
    job
        The log's own id of the job, or its number (#12); user=NAME, group=NAME, app=NAME or queue=NAME lists the jobs
        that are meant, with their waits.
    out
        Write a page (HTML) with the strip of its life as a figure.
    """
    from fleetlab._screen import progress, show
    from fleetlab.core.files import may_write
    from fleetlab.studies.explain import Explanation

    may_write(out)
    with progress("runs") as bar:
        scenario = scenario_of(trace, options, bar)
        result = fleetlab.explain(scenario, job=job, longest=longest, what_if=what_if, progress=bar)
    if out is not None:
        fleetlab.report(result, out, title=_title(result.provenance.settings))
    if json:
        show(result, json=True)
    else:
        _print(result, result.story if isinstance(result, Explanation) else None)
    if out is not None:
        say_saved(out)


def _title(settings: "Mapping[str, object]") -> str:
    return f"Why {settings['job']} waited" if "job" in settings else "The longest waits"


def _print(result: "Explanation | Candidates", story: "Story | None") -> None:
    """Print a story, or a list of jobs, in 80 columns."""
    from fleetlab._screen import cell, table
    from fleetlab.core.words import WORDS, as_options
    from fleetlab.studies.explain.strip import strip_text

    covered = (result.coverage.line,) if result.coverage is not None else ()
    for sentence in (*covered, *result.findings):
        print("\n".join(wrap(cell(sentence, widest=10_000), WIDTH, subsequent_indent="  ")))
    if story is not None and (strip := strip_text(story)):
        print("\n" + "\n".join(strip))
    frames = result.tables()
    for name, (title, columns) in TABLES.items():
        if name in frames:
            print(f"\n{title}")
            frame = frames[name].select(c for c in columns if c in frames[name].columns)
            print(table(_named(frame, frames[name]), ROWS if story is not None else LISTED))
    if result.notes:
        print("\nnotes")
        for note in result.notes:
            text = cell(as_options(note, WORDS), widest=1000)
            print("\n".join(wrap(f"- {text}", WIDTH, subsequent_indent="  ")))


def _named(frame: "pl.DataFrame", whole: "pl.DataFrame") -> "pl.DataFrame":
    """Return a table whose jobs are called by the log's own id, where it has one."""
    import polars as pl

    if "job" not in frame.columns:
        return frame
    number = pl.when(pl.col("job").is_null()).then(pl.lit("from before")).otherwise(pl.format("#{}", "job"))
    names = whole["name"] if "name" in whole.columns else pl.Series([None] * whole.height, dtype=pl.String)
    return frame.with_columns(job=pl.coalesce(names, number))
