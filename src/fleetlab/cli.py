"""The reception: words to nouns, one verb, print.

Rooms are imported inside the commands, so that `fleetlab --help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Parameter

import fleetlab
from fleetlab._bench_commands import bench
from fleetlab._share_commands import share
from fleetlab._words import Json, examples

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.traces import Tell


app = App(
    name="fleetlab",
    help="A laboratory for GPU clusters: read a cluster's log, see what happened, ask what would have.",
    help_epilogue=examples(
        "fleetlab synthesize pai2020 --tasks 100000 --out my-trace",
        "fleetlab read slurm sacct.txt --zone Europe/Berlin --out my-trace",
        "fleetlab show my-trace",
    ),
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    version=lambda: __import__("importlib.metadata").metadata.version("fleetlab"),
)

app.command(bench)
app.command(share)

TraceWords = Annotated[
    str, Parameter(help="The folder of a saved trace, or `builtin`, `builtin:TASKS`, `builtin:TASKS:SEED`.")
]
ClusterFile = Annotated[
    Path | None, Parameter(help="A TOML file of [[node]] entries to use in place of the trace's cluster.")
]


@app.command(
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
    """
    from fleetlab._screen import progress, show
    from fleetlab.workload.trace import may_hold

    may_hold(out)
    with progress() as tell:
        trace = fleetlab.read(path, format, map=_pairs(map), zone=zone, tell=tell)
        trace.save(out)
    show(trace, json=json)
    _say_saved(out)


@app.command(
    help_epilogue=examples(
        "fleetlab synthesize pai2020 --tasks 100000 --seed 1 --out my-trace",
        "fleetlab synthesize pai2020 --tasks 100000 --check",
    )
)
def synthesize(
    name: str = "pai2020",
    *,
    tasks: int | None = None,
    days: float | None = None,
    seed: int = 0,
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
    tasks
        How many tasks; 100,000 unless told.
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
    from fleetlab.traces.synthesize import check as checked
    from fleetlab.workload.trace import may_hold

    if out is not None:
        may_hold(out)
    with progress("tasks") as tell:
        wanted = {} if tasks is None else {"tasks": tasks}
        trace = fleetlab.synthesize(name, **wanted, days=days, seed=seed, tell=tell)
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
        _say_saved(out)


@app.command(help_epilogue=examples("fleetlab fetch pai2020 --into downloads/pai"))
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

    with progress("bytes") as tell:
        got = fleetlab.fetch(name, into=into, base=base, tell=tell)
    show(got, json=json)


@app.command(help_epilogue=examples("fleetlab traces"))
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


@app.command(name="show", help_epilogue=examples("fleetlab show my-trace", "fleetlab show builtin:20000"))
def show_trace(
    trace: TraceWords,
    *,
    cluster: ClusterFile = None,
    rejects: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """Say what is in a trace: tasks, nodes, rows kept and rejected.

    Parameters
    ----------
    rejects
        List the rows that were turned away, with file, line and reason; with --json all of them.
    """
    from fleetlab._screen import Rows, progress, show

    with progress("tasks") as tell:
        opened = _opened(trace, cluster, tell)
    show(Rows("rejects", opened.rejects, opened.provenance) if rejects else opened, json=json)


@app.command(
    help_epilogue=examples(
        "fleetlab pack my-trace --place fgd,best_fit,random --seeds 42-51",
        "fleetlab pack builtin:20000 --json",
    )
)
def pack(
    trace: TraceWords,
    *,
    place: str = "fgd,best_fit",
    seeds: str = "42-51",
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Fill a cluster with tasks drawn from a trace until they no longer fit: how much of it can each policy give away?

    Parameters
    ----------
    place
        Place policies, with commas between: fgd, best_fit, dot_product, gpu_packing, gpu_clustering, random,
        first_fit, worst_fit.
    seeds
        Runs of each, as FIRST-LAST or a list with commas.
    """
    from fleetlab._screen import progress, show

    wanted = [word.strip() for word in place.split(",") if word.strip()]
    with progress("runs") as tell:
        opened = _opened(trace, cluster, tell)
        on = _cluster_of(opened, trace)
        found = fleetlab.pack(opened.workload, on, place=wanted, seeds=_seeds(seeds), tell=tell)
    show(found, json=json, only=("summary",))


@app.command(
    help_epilogue=examples(
        "fleetlab simulate builtin:20000 --order sjf",
        "fleetlab simulate my-trace --discipline easy --place worst_fit --cluster bigger.toml",
        "fleetlab simulate my-trace --order my_module:mine --estimate group",
        "fleetlab simulate my-trace --events faults.toml --sharing time-slicing --seed 3",
    )
)
def simulate(
    trace: TraceWords,
    *,
    order: str = "fifo",
    discipline: str = "skip",
    place: str = "best_fit",
    estimate: str = "oracle",
    sharing: str = "shares",
    slowdown: Path | None = None,
    preempt: Annotated[bool, Parameter(negative=())] = False,
    events: Path | None = None,
    quota: float | None = None,
    until: float | None = None,
    seed: int = 0,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Replay a workload on a cluster: when and where does each task run, and why did it wait?

    Parameters
    ----------
    order
        Who is next: fifo, sjf (shortest by estimate), smallest, largest (by GPUs), priority, aging, las, fair, and, by
        putting others off, srpt, server_filling, server_filling_srpt; or MODULE:NAME for one of your own.
    discipline
        If the first does not fit: strict (all wait behind it), skip (it is passed over), easy (others may go before it
        if that does not delay it), conservative (if that delays nobody before them).
    place
        Where: best_fit, first_fit, worst_fit, dot_product, gpu_packing, gpu_clustering, fgd, reserve_and_pack, spread,
        random; or MODULE:NAME for one of your own.
    estimate
        Of run time: oracle; the mean of finished tasks of the same user, user+gpu, group, group+gpu; or, where the
        trace has a series of seconds by task, its name, such as requested.
    sharing
        Of a GPU: shares (as fast as a whole one), exclusive (shares take whole GPUs), or a mode of a slowdown profile:
        time-slicing, mps, mig.
    slowdown
        A profile, as JSON, in place of the one made from published figures.
    preempt
        A task may put off others that rank after it.
    events
        A TOML file of what happens to nodes: [[faults]], [[outage]], [[drain]], [[spot]], [[elastic]], [recovery].
    quota
        GPUs that a user may hold at once.
    until
        Stop the clock at that second.
    """
    from fleetlab._screen import progress, show
    from fleetlab.sim.eventfile import from_toml
    from fleetlab.workload import Slowdown

    with progress("tasks") as tell:
        opened = _opened(trace, cluster, tell)
        on = _cluster_of(opened, trace)
        happens, recovery = from_toml(events) if events else ((), None)
        found = fleetlab.simulate(
            opened.workload,
            on,
            order=order,
            discipline=discipline,
            place=place,
            estimate=_column(opened, estimate),
            sharing=sharing,
            slowdown=Slowdown.load(slowdown) if slowdown else None,
            preempt=preempt,
            recovery=recovery,
            events=happens,
            quota=quota,
            seed=seed,
            until=until,
        )
    show(found, json=json, only=("by request", "waiting", "refused"))


@app.command(
    help_epilogue=examples(
        "fleetlab diagnose builtin:20000",
        "fleetlab diagnose my-trace --discipline strict --changes cpu,backfill,nodes",
        "fleetlab diagnose my-trace --cluster smaller.toml --json",
    )
)
def diagnose(
    trace: TraceWords,
    *,
    changes: str = "types,cpu,memory,fragments,gangs,backfill,sjf,sharing,nodes",
    order: str = "fifo",
    discipline: str = "skip",
    place: str = "best_fit",
    estimate: str = "oracle",
    sharing: str = "shares",
    seed: int = 0,
    workers: int | None = None,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Why do tasks wait, and what would help? The wait ledger added up, and one thing changed at a time.

    Parameters
    ----------
    changes
        What to change, one at a time, with commas between: types (no type constraints), cpu, memory (unlimited),
        fragments (each pool one node), gangs (split), backfill, sjf (with group estimates), sharing (on or off), nodes
        (a tenth more of each type; nodes:T4 for one), nothing.
    order
        The rules as they are, as `fleetlab simulate` takes them; so are the next four.
    seed
        For the intervals, and for place policies that draw lots.
    workers
        Processes at once; as many as there are cores for a large trace, 0: none but this one.
    """
    from fleetlab._screen import progress, show

    with progress("runs") as tell:
        opened = _opened(trace, cluster, tell)
        found = fleetlab.diagnose(
            opened.workload,
            _cluster_of(opened, trace),
            usage=opened.usage,
            changes=[word.strip() for word in changes.split(",") if word.strip()],
            order=order,
            discipline=discipline,
            place=place,
            estimate=estimate,
            sharing=sharing,
            seed=seed,
            workers=workers,
            tell=tell,
        )
    if not json:
        print("\n".join(found.findings), end="\n\n")
    read_first = ("what to do", "waterfall", "waiting", "by pool", "by request", "by gang size", "by hour")
    show(found, json=json, only=(*read_first, "worst hours", "tail", "heads", "checks"))


@app.command(
    help_epilogue=examples(
        'fleetlab capacity builtin:20000 --slo "p90 wait < 600"',
        'fleetlab capacity my-trace --slo "mean wait < 5m" --pool V100M32 --growth 1.3 --seed 7',
    )
)
def capacity(
    trace: TraceWords,
    *,
    slo: str,
    pool: str | None = None,
    growth: float = 1.0,
    resamples: int = 3,
    order: str = "fifo",
    discipline: str = "skip",
    place: str = "best_fit",
    estimate: str = "oracle",
    sharing: str = "shares",
    seed: int = 0,
    workers: int | None = None,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """How many nodes for a goal such as `p90 wait < 600`? The smallest cluster that meets it, and the curve around.

    Parameters
    ----------
    slo
        The goal: mean or a percentile (p50, p90, p99) of wait, response or slowdown, `<`, and seconds; 10m and 2h too.
    pool
        Scale this pool or GPU type, for the tasks that may run on it; else all pools in proportion, for all tasks.
    growth
        So many times the tasks: users' days are drawn again and laid over those that are there.
    resamples
        How often that is drawn.
    order
        The rules, as `fleetlab simulate` takes them; so are the next four.
    seed
        For what is drawn.
    workers
        Processes at once; as many as there are cores for a large trace, 0: none but this one.
    """
    from fleetlab._screen import progress, show

    with progress("runs") as tell:
        opened = _opened(trace, cluster, tell)
        found = fleetlab.capacity(
            opened.workload,
            _cluster_of(opened, trace),
            slo=slo,
            pool=pool,
            growth=growth,
            resamples=resamples,
            order=order,
            discipline=discipline,
            place=place,
            estimate=estimate,
            sharing=sharing,
            seed=seed,
            workers=workers,
            tell=tell,
        )
    show(found, json=json)


@app.command(
    help_epilogue=examples(
        "fleetlab solve",
        "fleetlab solve M/M/c --lam 7.2 --mu 1 --c 8",
        "fleetlab solve 'M/G/1 SRPT' --lam 0.9 --service lognormal:1:10",
        "fleetlab solve 'MSJ RESET' --lam 2 --c 8 --n 1,2,4,8 --p 0.6,0.2,0.1,0.1 --mu 1,1,1,1",
    )
)
def solve(
    model: str | None = None,
    *,
    json: Json = False,
    **parameters: Annotated[str, Parameter(help="As the theory names them: --lam, --mu, --c, --service and others.")],
) -> None:
    """What does queueing theory say? Without a model, lists them: what each takes, and where it holds.

    Parameters
    ----------
    model
        A name from the list, such as M/M/c.
    """
    from fleetlab._screen import show
    from fleetlab.queueing import models

    show(models() if model is None else fleetlab.solve(model, **parameters), json=json)


@app.command(
    help_epilogue=examples(
        "fleetlab model builtin:20000",
        "fleetlab model my-trace --cluster bigger.toml --json",
    )
)
def model(trace: TraceWords, *, seed: int = 0, cluster: ClusterFile = None, json: Json = False) -> None:
    """What does queueing theory say of a cluster? Loads, predicted waits, and which assumptions do not hold.

    Parameters
    ----------
    seed
        Of the lot by which tasks that may run on several GPU types are split, and of the draws behind intervals.
    """
    from fleetlab._screen import progress, show

    with progress("pools") as tell:
        opened = _opened(trace, cluster, tell)
        found = fleetlab.model(opened.workload, _cluster_of(opened, trace), seed=seed, tell=tell)
    show(found, json=json, only=("model", "pools", "violated"))


@app.command(
    help_epilogue=examples(
        "fleetlab validate",
        "fleetlab validate --data traces --seed 1",
        "fleetlab validate --only schedules,means --json",
    )
)
def validate(*, data: Path | None = None, only: str = "", seed: int = 0, json: Json = False) -> None:
    """Can the simulator be trusted? Beside exact theory, published results and real logs, with intervals and verdicts.

    The exit status is 1 where something that counts speaks against it.

    Parameters
    ----------
    data
        A folder of real traces, as docs/validate.md lists them; without it, what needs them is left out, and said.
    only
        Parts, with commas between: schedules, means, approximations, published, real, audit.
    seed
        Another seed draws other tasks everywhere.
    """
    from fleetlab._screen import progress, show

    with progress("done") as tell:
        parts = [word.strip() for word in only.split(",") if word.strip()]
        found = fleetlab.validate(data=data, only=parts, seed=seed, tell=tell)
    show(found, json=json, most=1000)
    sys.exit(0 if found.passed else 1)


@app.command(
    help_epilogue=examples(
        "fleetlab audit my-trace",
        "fleetlab audit my-trace --cluster nodes.toml --discipline strict --json",
    )
)
def audit(
    trace: TraceWords,
    *,
    order: str = "fifo",
    discipline: str = "skip",
    place: str = "best_fit",
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Is the schedule of a log feasible on its cluster, and how far are simulated waits from recorded ones?

    Parameters
    ----------
    order
        The rules by which waits are simulated, as `fleetlab simulate` takes them; so are the next two.
    """
    from fleetlab._screen import progress, show

    with progress("checks") as tell:
        opened = _opened(trace, cluster, tell)
        found = fleetlab.audit(opened, order=order, discipline=discipline, place=place, tell=tell)
    show(found, json=json, most=20)


def _column(opened: fleetlab.Trace, estimate: str) -> str | pl.Series:
    """An estimate by name, or the series of the trace that has it: seconds by task."""
    series = opened.series.get(estimate)
    if series is None:
        return estimate
    from polars import Float64

    told = series.collect()
    if not {"task", "seconds"} <= set(told.columns):
        msg = f"the series `{estimate}` does not have seconds by task: {told.columns}"
        raise fleetlab.TraceError(msg, hint="an estimate is a series with the columns task and seconds")
    tasks = opened.workload.frame.select("task")
    return tasks.join(told, on="task", how="left", maintain_order="left")["seconds"].cast(Float64)


def _cluster_of(opened: fleetlab.Trace, trace: str) -> fleetlab.Cluster:
    if opened.cluster is None:
        msg = f"the trace has no cluster: {trace}"
        raise fleetlab.TraceError(msg, hint="--cluster FILE.toml gives it one")
    return opened.cluster


def _opened(trace: str, cluster: Path | None, tell: Tell) -> fleetlab.Trace:
    from dataclasses import replace

    from fleetlab.traces.builtin import open_trace

    opened = open_trace(trace, tell=tell)
    return opened if cluster is None else replace(opened, cluster=fleetlab.Cluster.from_toml(cluster))


def _seeds(words: str) -> list[int]:
    first, dash, last = words.partition("-")
    try:
        seeds = list(range(int(first), int(last) + 1)) if dash else [int(word) for word in words.split(",")]
    except ValueError:
        seeds = []
    if not 1 <= len(seeds) <= 10_000 or min(seeds) < 0:
        msg = f"--seeds takes FIRST-LAST or a list with commas, not: `{words}`"
        raise fleetlab.WorkloadError(msg, hint="--seeds 42-51, or --seeds 1,2,3")
    return seeds


def _pairs(words: Sequence[str]) -> dict[str, str] | None:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, expression = word.partition("=")
        if not equals or not name.strip() or not expression.strip():
            msg = f"--map takes COLUMN=EXPRESSION, not: `{word}`"
            raise fleetlab.TraceError(msg, hint="--map submit=created_at --map 'gpu_milli=gpus*1000'")
        if name.strip() in pairs:
            msg = f"--map names a column twice: `{name.strip()}`"
            raise fleetlab.TraceError(msg, hint="say once how each column is made")
        pairs[name.strip()] = expression
    return pairs or None


def _say_saved(out: Path) -> None:
    # On stderr: stdout is for what was asked for, and may be one JSON object.
    print(f"\nsaved in {out}", file=sys.stderr)


def main(words: Sequence[str] | None = None) -> None:
    """Run a command; what the user can mend ends in `error: …`, `hint: …` and status 2."""
    _prepare()
    try:
        app(words, exit_on_error=False, print_error=False)
    except CycloptsError as e:
        _leave(" ".join(str(e).split()), "`fleetlab --help`, or --help after a command, shows what it takes")
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not stumble over it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as e:
        _leave(f"{e.filename or 'the system'}: {e.strerror or e}", "look at the path, its permissions and free space")
    except MemoryError:
        _leave("not enough memory for this", "a smaller trace, or a machine with more")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except Exception as e:
        # Known by name: importing the class beforehand would make `--help` wait for the frame library.
        from fleetlab.workload import FleetlabError

        if not isinstance(e, FleetlabError):
            raise
        _leave(str(e), e.hint)


def _prepare() -> None:
    # A name in a log, or a terminal, that is not UTF-8 must not end in a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Ended from outside, leave as from inside, so that folders for large tables are cleaned up.
    for name in ("SIGTERM", "SIGHUP"):
        if number := getattr(signal, name, None):
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    # One Ctrl-C reaches us twice, from the frame library and from Python: the second may fall into a clean-up.
    sys.unraisablehook = _quiet


def _quiet(unraisable: sys.UnraisableHookArgs) -> None:
    if not isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(unraisable)


def _leave(message: str, hint: str | None) -> None:
    from fleetlab._screen import complain

    complain(message, hint)
    sys.exit(2)


if __name__ == "__main__":
    main()
