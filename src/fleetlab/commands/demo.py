"""The first screen: what a cluster is, why its jobs wait, what would fix it, and what to type next."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from fleetlab.commands import screen
from fleetlab.commands.options import ClusterFile, Seed, TraceName, examples, trace_of

if TYPE_CHECKING:
    from fleetlab.studies.demo import Demo, Fix

app = App()
WIDTH = 100  # characters of a line
BAR = 16  # characters of the longest bar
REASONS = 5  # that are shown
COMMAND = 38  # characters of a command that its purpose stands beside
INDENT = " " * 5


@app.command(help_epilogue=examples("fleetlab demo", "fleetlab demo my-trace --out story.html --open"))
def demo(
    trace: TraceName = "sample",
    *,
    out: Path = Path("demo.html"),
    cluster: ClusterFile = None,
    seed: Seed = 0,
    open: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Show on one screen why jobs wait, what would fix it, and how far to believe it; write a page of it.

    Of a trace of more than 10,000 jobs, the busiest 10,000 in a row are simulated.

    Parameters
    ----------
    out
        The page.
    open
        Open the page in a browser.
    """
    from fleetlab.studies.demo import demo as study
    from fleetlab.studies.story import story

    screen.may_create(out)
    with screen.progress("steps") as bar:
        opened = trace_of(trace, cluster, bar)
        result = study(opened, seed=seed, progress=bar)
    print("\n".join((*lines(result, trace), *_next(trace))), flush=True)
    with screen.progress("steps") as bar:
        page = story(result, out, progress=bar)
    print(f"\n{page}")
    if open:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def lines(result: Demo, trace: str = "sample") -> Iterator[str]:
    """Yield the lines of the screen of a trace, by the name that commands take."""
    from fleetlab.core.durations import beside_the_log, brief

    yield from _wrapped(_cluster(result))
    yield ""
    if result.reasons.is_empty():
        yield "No job waits in the simulation. With twice as many an hour:"
        yield f"{INDENT}fleetlab simulate {quote(trace)} --load 2"
        return
    mean = f"Jobs wait {brief(result.mean_wait)} on average."
    yield from _wrapped(mean if result.recorded is None else beside_the_log(result.recorded, result.mean_wait))
    yield ""
    yield "WHY THEY WAIT"
    yield from _bars(result)
    yield ""
    yield "WHAT WOULD FIX IT"
    if not result.fixes:
        yield "  No simulated change is known to lower the wait. `fleetlab diagnose` lists what was tried."
    for k, fix in enumerate(result.fixes, 1):
        yield from _fix(k, fix, result, trace)
    count = result.provenance.settings["replicas"]
    yield f"  Means of {count} paired runs; `fleetlab diagnose` has the intervals."
    if result.measured is not None:
        yield ""
        yield "IS THAT TRUE?"
        yield from _wrapped(
            f"The real Slurm with line 1 measured {brief(result.measured)}, for the same jobs; the simulation says "
            f"{brief(result.fixes[0].mean_wait)}.", "  ",
        )  # fmt: skip


def _cluster(result: Demo) -> str:
    from fleetlab.core.durations import brief, plural

    assert result.scenario is not None
    log, nodes = result.scenario.trace.workload, result.scenario.cluster
    users = log.frame["user"].n_unique()
    who = f" of {plural(users, 'user')}" if users > 1 else ""
    scheduler = f" under {result.scenario.scheduler.title}" if result.scenario.scheduler is not None else ""
    what = "a synthetic trace with the statistics of Alibaba's PAI" if log.synthetic else "a recorded log"
    span = brief(float(log.frame["submit"].max() or 0.0))  # type: ignore[arg-type]
    compressed = "; times are compressed" if log.source.startswith("sample") else ""
    part = f" Simulated: {result.window}." if result.window else ""
    return (
        f"{log.source}: {what}{scheduler}, {plural(len(nodes), 'node')} with {plural(nodes.gpus, 'GPU')}. "
        f"{plural(len(log), 'job')}{who} in {span}{compressed}.{part}"
    )


def _bars(result: Demo) -> Iterator[str]:
    from fleetlab.core.catalog import REASONS as MEANINGS

    mark = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    rows = [(reason, share) for reason, share in result.reasons.select("reason", "share").iter_rows() if share >= 0.005]
    wide = max(len(reason) for reason, _ in rows)
    for reason, share in rows[:REASONS]:
        bar = mark * max(1, round(BAR * share / rows[0][1]))
        head = f"  {reason:{wide}}  {bar:{BAR}}  {100 * share:3.0f} %  "
        yield from wrap(MEANINGS[reason].meaning, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))


def _fix(number: int, fix: Fix, result: Demo, trace: str) -> Iterator[str]:
    from fleetlab.core.durations import brief

    title, before = fix.title, result.mean_wait
    earlier = {other.change: k for k, other in enumerate(result.fixes[: number - 1], 1)}
    if len(fix.parts) > 1 and earlier.keys() >= set(fix.parts):
        title = f"{' and '.join(str(earlier[name]) for name in fix.parts)} together"
    effect = f"{brief(before)} → {brief(fix.mean_wait)} (−{100 * (1 - fix.mean_wait / before):.0f} %)"
    cost = "no hardware: a line of configuration" if fix.line else f"needs {fix.requires}"
    head = f"  {number}. {title[0].upper()}{title[1:]}: {effect}, {cost}"
    yield from wrap(head, WIDTH, subsequent_indent=INDENT, break_on_hyphens=False)
    if fix.line or fix.setting:
        yield f"{INDENT}{fix.line or f'fleetlab simulate {quote(trace)} {fix.setting}'}"


def _next(trace: str) -> Iterator[str]:
    given = quote(trace)
    yield ""
    yield "NEXT"
    for command, what in (
        (
            "fleetlab web --open",
            f"{'a timeline of it' if trace == 'sample' else 'drop the log there: a timeline'}, with what-ifs",
        ),
        (f"fleetlab diagnose {given}", "who waits, on whom, and every change that was tried"),
        (f"fleetlab explain {given}", "the longest waits; with the id of a job, why it waits"),
        ("fleetlab collect slurm --out logs", "your own cluster (or kubernetes), then: fleetlab demo logs"),
    ):
        beside = len(command) <= COMMAND
        yield from [f"  {command:{COMMAND}} {what}"] if beside else [f"  {command}", f"{INDENT}{what}"]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
