"""Traces: read, made, fetched, listed and shown."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.words import ClusterFile, Json, Seed, TraceWords, examples, pairs, say_saved, trace_of

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab read pai2020 downloads/pai --out pai",
        "fleetlab read csv jobs.csv --map submit=created --map gpu_milli=gpus*1000 --out mine",
    )
)
def read(
    format: str,
    path: Path,
    *,
    out: Path,
    map: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    zone: str | None = None,
    since: str | None = None,
    json: Json = False,
) -> None:
    """Read a foreign log and save it as a trace; every row is kept or listed in its rejects.

    Parameters
    ----------
    format
        One of those that `fleetlab traces` lists.
    path
        A file, or a folder with the format's files.
    out
        The folder to save the trace in; a trace that is there is replaced.
    map
        For csv: COLUMN=EXPRESSION over the file's own columns; may be given many times.
    zone
        The clock by which a log without time zones was written, such as Europe/Berlin.
    since
        When the log begins, as `sacct -S` was told, such as 2024-05-01: what is older is submitted then.
    """
    from fleetlab._screen import progress, show
    from fleetlab.core.trace import may_hold

    may_hold(out)
    with progress() as bar:
        trace = fleetlab.read(path, format, map=_columns(map), zone=zone, since=since, progress=bar)
        trace.save(out)
    show(trace, json=json)
    say_saved(out)


@desk.command(
    help_epilogue=examples(
        "fleetlab synthesize pai2020 --jobs 100000 --seed 1 --out my-trace",
        "fleetlab synthesize pai2020 --jobs 100000 --check",
    )
)
def synthesize(
    name: str = "pai2020",
    *,
    jobs: int | None = None,
    days: float | None = None,
    seed: Seed = 0,
    out: Path | None = None,
    check: Annotated[bool, Parameter(negative=())] = False,
    brief: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """Make a synthetic trace from published statistics, save it, or check it against them.

    Parameters
    ----------
    name
        What to imitate: pai2020.
    jobs
        How many jobs; 100,000 unless told.
    days
        Over how many days; as many as the real cluster would have taken unless told.
    seed
        The same seed gives the same trace, bit for bit.
    out
        The folder to save it in.
    check
        Print every published target beside what was achieved; the exit status is 1 if one is missed.
    brief
        Of a trace only one line, of a check only the best-known targets and those that are not met.
    """
    from fleetlab._screen import progress, show, show_check
    from fleetlab.core.trace import may_hold
    from fleetlab.traces.synthesize import check as checked

    if out is not None:
        may_hold(out)
    with progress("jobs") as bar:
        wanted = {} if jobs is None else {"jobs": jobs}
        trace = fleetlab.synthesize(name, **wanted, days=days, seed=seed, progress=bar)
        if out is not None:
            trace.save(out)
    if check:
        found = checked(trace)
        show_check(found, json=json, brief=brief)
        sys.exit(0 if found.passed else 1)
    if brief and not json:
        print(trace)
    else:
        show(trace, json=json)
    if out is not None:
        say_saved(out)


@desk.command(help_epilogue=examples("fleetlab fetch pai2020 --into downloads/pai"))
def fetch(name: str, *, into: Path, base: str | None = None, json: Json = False) -> None:
    """Download a public trace, resuming what was begun and verifying published checksums.

    Parameters
    ----------
    name
        One of those that `fleetlab traces` says can be fetched.
    into
        The folder for the files.
    base
        A mirror that has the same files: https://mirror.example/pai.
    """
    from fleetlab._screen import progress, show

    with progress("bytes") as bar:
        got = fleetlab.fetch(name, into=into, base=base, progress=bar)
    show(got, json=json)


@desk.command(help_epilogue=examples("fleetlab traces"))
def traces(*, json: Json = False) -> None:
    """List the formats that can be read: what each expects, its licence, and where it comes from."""
    from fleetlab._screen import show
    from fleetlab.traces import formats

    listed = formats()
    if json:
        show(listed, json=True)
        return
    for row in listed.tables()["formats"].iter_rows(named=True):
        print(f"{row['format']:12}{row['title']}")
        for word in ("expects", "options", "licence", "origin", "fetch"):
            if row[word]:
                print(f"{'':12}{word}: {row[word]}")


@desk.command(name="show", help_epilogue=examples("fleetlab show my-trace", "fleetlab show builtin:20000"))
def show_trace(
    trace: TraceWords,
    *,
    cluster: ClusterFile = None,
    rejects: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """Say what is in a trace: jobs, nodes, rows kept and rejected.

    Parameters
    ----------
    rejects
        List the rows that were turned away, with file, line and reason; with --json all of them.
    """
    from fleetlab._screen import Rows, progress, show

    with progress("jobs") as bar:
        opened = trace_of(trace, cluster, bar)
    show(Rows("rejects", opened.rejects, opened.provenance) if rejects else opened, json=json)


def _columns(words: Sequence[str]) -> dict[str, str] | None:
    hint = "--map submit=created_at --map 'gpu_milli=gpus*1000'"
    columns: dict[str, str] = {}
    for name, expression in pairs(words, "--map takes COLUMN=EXPRESSION", _expression, hint=hint):
        if name in columns:
            msg = f"--map names a column twice: `{name}`"
            raise fleetlab.TraceError(msg, hint="say once how each column is made")
        columns[name] = expression
    return columns or None


def _expression(word: str) -> str:
    if not word.strip():
        raise ValueError
    return word
