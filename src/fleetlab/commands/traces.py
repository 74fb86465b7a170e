"""Commands for traces: collect, read, synthesize, fetch, list and show; and a running cluster."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands import screen
from fleetlab.commands.options import (
    FLAT,
    ClusterFile,
    Json,
    Seed,
    TraceName,
    examples,
    of_verb,
    pairs,
    say_saved,
    talk,
    trace_of,
)
from fleetlab.core.sources import CollectOptions, source_kind
from fleetlab.live.options import WatchOptions

app = App()


@app.command(
    help_epilogue=examples(
        "fleetlab read pai2020 downloads/pai --out pai",
        "fleetlab read csv jobs.csv --out mine",
        "fleetlab read csv jobs.csv --map submit=created --map gpu_milli=cards*1000 --map gpus_per_node=8 --out mine",
    )
)
@of_verb("traces/__init__.py")
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
    """Read a log and save it as a trace; every row is kept, or listed as rejected with the reason.

    Parameters
    ----------
    format
        A format that `fleetlab traces` lists.
    out
        Folder to save the trace in; an existing trace is replaced.
    map
        For csv: COLUMN=EXPRESSION over the columns of the file; repeatable. Other columns are guessed from their names,
        and the notes say how. gpus_per_node=8 splits jobs of more GPUs into equal instances.
    """
    screen.may_hold(out)
    with screen.progress() as bar:
        trace = fleetlab.read(path, format, map=_columns(map), zone=zone, since=since, progress=bar)
        trace.save(out)
    screen.show(trace, json=json)
    say_saved(out)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


@app.command(
    help_epilogue=examples(
        "fleetlab collect slurm --since 2024-05-01 --out site",
        "fleetlab collect slurm --print > collect.sh",
        "fleetlab collect kubernetes --scheduler-config kube-system/scheduler-config --out site",
    )
)
def collect(
    system: str,
    *,
    out: Path | None = None,
    since: str | None = None,
    until: str | None = None,
    sacct_json: Annotated[bool, Parameter(negative=())] = False,
    print: Annotated[bool, Parameter(negative=())] = False,
    context: str | None = None,
    scheduler_config: str | None = None,
) -> None:
    """Gather a site's log and rules for `fleetlab read`, reading alone; what may not be read is said and left out.

    Parameters
    ----------
    system
        What runs the cluster: slurm (on a login node), or kubernetes (where kubectl reaches it).
    out
        Folder for the files; those of an earlier time are replaced.
    since
        As for `sacct -S`: 2024-05-01, now-30days (default: 30 days ago).
    until
        As for `sacct -E` (default: now).
    sacct_json
        The jobs as `sacct --json` too; large.
    print
        Print the script instead, to copy to a machine without fleetlab: sh collect.sh --out DIR.
    context
        Kubernetes: the context of the kubeconfig (default: the current one).
    scheduler_config
        Kubernetes: the ConfigMap with kube-scheduler's configuration, as NAMESPACE/NAME (default: none).
    """
    source = source_kind(system)
    if print:
        sys.stdout.write(source.script())
        return
    if out is None:
        msg = "nowhere to gather to"
        raise fleetlab.TraceError(msg, hint="--out DIR names a folder, --print gives the script")
    source.collect(out, CollectOptions(since, until, sacct_json, context, scheduler_config), _say)


@app.command(help_epilogue=examples("fleetlab synthesize pai2020 --jobs 100000 --seed 1 --out my-trace"))
@of_verb("traces/synthesize/synthesize.py")
def synthesize(
    name: str = "pai2020",
    *,
    jobs: int | None = None,
    days: float | None = None,
    constrained: float | None = None,
    seed: Seed = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Make a synthetic trace from published statistics; `fleetlab describe` compares it with them.

    Parameters
    ----------
    name
        What to imitate: pai2020.
    out
        Folder to save it in.
    """
    if out is not None:
        screen.may_hold(out)
    with screen.progress("jobs") as bar:
        sizes = {"jobs": jobs, "constrained": constrained}
        options = {word: value for word, value in sizes.items() if value is not None}
        trace = fleetlab.synthesize(name, **options, days=days, seed=seed, progress=bar)  # type: ignore[arg-type]
        if out is not None:
            trace.save(out)
    screen.show(trace, json=json)
    if out is not None:
        say_saved(out)


@app.command(help_epilogue=examples("fleetlab fetch pai2020 --into downloads/pai"))
@of_verb("traces/public/fetch.py")
def fetch(name: str, *, into: Path, base: str | None = None, json: Json = False) -> None:
    """Download a public trace: resume partial downloads and verify published checksums.

    Parameters
    ----------
    name
        A trace that `fleetlab traces` marks with fetch.
    """
    with screen.progress("bytes") as bar:
        result = fleetlab.fetch(name, into=into, base=base, progress=bar)
    screen.show(result, json=json)


@app.command(help_epilogue=examples("fleetlab anonymize my-trace --out shared-trace"))
def anonymize(trace: TraceName, *, out: Path, json: Json = False) -> None:
    """Replace the names of users, accounts and jobs in a trace, so that it can be shown or live in a repository.

    Nodes, partitions and QOS keep their names, as a new configuration names them too.

    Parameters
    ----------
    out
        Folder to save the trace in; an existing trace is replaced.
    """
    screen.may_hold(out)
    with screen.progress("jobs") as bar:
        result = fleetlab.anonymize(trace_of(trace, None, bar))
    result.save(out)
    screen.show(result, json=json)
    say_saved(out)


@app.command(help_epilogue=examples("fleetlab traces"))
def traces(*, json: Json = False) -> None:
    """List the formats that can be read: what each expects, its license and its origin."""
    from fleetlab.traces import formats

    result = formats()
    if json:
        screen.show(result, json=True)
        return
    for row in result.tables()["formats"].iter_rows(named=True):
        print(screen.prose(row["title"], " " * 12, f"{row['format']:12}"))
        for word in ("expects", "options", "licence", "origin", "fetch"):
            if row[word]:
                print(screen.prose(f"{word}: {row[word]}", " " * 14, " " * 12))


@app.command(name="show", help_epilogue=examples("fleetlab show my-trace", "fleetlab show builtin:20000"))
def show_trace(
    trace: TraceName,
    *,
    cluster: ClusterFile = None,
    rejects: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """Show what is in a trace: jobs, nodes, rows kept and rejected.

    Parameters
    ----------
    rejects
        List rejected rows with file, line and reason; with --json all of them.
    """
    with screen.progress("jobs") as bar:
        opened = trace_of(trace, cluster, bar)
    screen.show(screen.Rows("rejects", opened.rejects, opened.provenance) if rejects else opened, json=json)


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


DEFAULTS = WatchOptions()


@app.command(
    help_epilogue=examples(
        "fleetlab watch slurm --once",
        "fleetlab watch slurm --out watched",
        'fleetlab watch slurm --out watched --request "8 A100, 4 h" --predict 300',
        "fleetlab watch kubernetes --context prod --out watched --listen 127.0.0.1:9836",
        "fleetlab eta watched/trace",
    )
)
def watch(system: str, *, options: Annotated[WatchOptions, FLAT] = DEFAULTS, json: Json = False) -> None:
    """Read a running cluster every minute: keep every job, and serve waits and GPUs to Prometheus. Stop with Ctrl-C.

    Parameters
    ----------
    system
        What runs the cluster: slurm (by squeue, sacct, scontrol) or kubernetes (by its API).
    """
    from fleetlab.live.watch import watch as look

    screen.show(look(system, options, say=talk), json=json)
