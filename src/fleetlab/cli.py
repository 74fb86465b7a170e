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
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

import fleetlab
from fleetlab._bench_commands import bench
from fleetlab._share_commands import share
from fleetlab._sweep_commands import RUNS, SWEEP, runs, sweep
from fleetlab._words import Json, Seed, examples

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
app.command(sweep, help_epilogue=SWEEP)
app.command(runs, help_epilogue=RUNS)

TraceWords = Annotated[
    str, Parameter(help="The folder of a saved trace, or `builtin`, `builtin:TASKS`, `builtin:TASKS:SEED`.")
]
DemandWords = Annotated[
    str,
    Parameter(help="A TOML or CSV file of kinds and counts, or a trace: the folder of one, or `builtin`."),
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
        "fleetlab describe builtin:20000",
        "fleetlab describe my-trace --only time,run",
        "fleetlab describe builtin:100000 --against my-trace --json > described.json",
    )
)
def describe(
    trace: TraceWords,
    *,
    against: str | None = None,
    only: str = "",
    seed: Seed = 0,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Describe a trace as the papers do theirs: arrivals, run times, waits, requests, use, sharing, recurrence.

    Parameters
    ----------
    against
        Another trace, named in the same way, to hold it against, figure by figure.
    only
        Sections, with commas between, of which all tables are printed: time, run, space, machines, sharing, recurrence,
        service.
    seed
        Of the draws behind intervals.
    """
    from fleetlab._screen import progress, show

    wanted = [word.strip() for word in only.split(",") if word.strip()]
    with progress("sections") as tell:
        opened = _opened(trace, cluster, tell)
        other = None if against is None else _opened(against, None, tell)
        found = fleetlab.describe(opened, against=other, only=wanted, seed=seed, tell=tell)
    if not json:
        print("\n".join(found.sentences), end="\n\n")
    most = tuple(name for name in found.tables() if name != "sentences")
    show(found, json=json, only=most if wanted else ("distances", "published", "missing"))


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
    seed: Seed = 0,
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
            tell=tell,
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
    seed: Seed = 0,
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
    seed: Seed = 0,
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
        "fleetlab forecast my-trace --target requests --every 5m --horizon 12",
        "fleetlab forecast my-trace --target level --by role --models simple,classic",
        "fleetlab forecast my-trace --target level --every 1h --horizon 24 --json",
    )
)
def forecast(
    trace: TraceWords,
    *,
    target: Literal["requests", "level"] = "requests",
    every: str = "5m",
    horizon: int = 12,
    by: Literal["role", "app", "gpu_type"] | None = None,
    models: str = "all",
    gap: int | None = None,
    folds: int = 4,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """What demand comes next, with intervals, and which model may be trusted with which resource how far ahead?

    Parameters
    ----------
    target
        requests: what instances created in each step ask for; level: what is held at its end.
    every
        The length of a step: seconds, or a number with s, m, h or d after it.
    horizon
        How many steps ahead.
    by
        Forecast each role, app or GPU type by itself; the six largest, and the others together.
    models
        Families and names, with commas between: all; simple (last, mean, drift, average, seasonal), classic (ses, holt,
        damped, holt_winters, theta, ar, ridge, croston, tsb), boosted, neural (lstm, gru, tcn), ensemble. Simple ones
        are always among them.
    gap
        Steps between what a model learns from and what it forecasts; a horizon unless told.
    folds
        How often models are tried before the held-out end.
    seed
        For networks, trees and intervals.
    """
    from fleetlab._screen import progress, show

    with progress("models") as tell:
        opened = _opened(trace, None, tell)
        found = fleetlab.forecast(
            opened,
            target=target,
            every=every,
            horizon=horizon,
            by=by,
            models=[word.strip() for word in models.split(",") if word.strip()],
            gap=gap,
            folds=folds,
            seed=seed,
            tell=tell,
        )
    if not json:
        print("\n".join(found.sentences), end="\n\n")
    show(found, json=json, only=("next", *(name for name in found.frames if name.startswith("NRMSE")), "unannounced"))


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
def model(trace: TraceWords, *, seed: Seed = 0, cluster: ClusterFile = None, json: Json = False) -> None:
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
def validate(*, data: Path | None = None, only: str = "", seed: Seed = 0, json: Json = False) -> None:
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


@app.command(
    help_epilogue=examples(
        "fleetlab simulate builtin:20000 --json > fifo.json",
        "fleetlab report fifo.json",
        "fleetlab report fifo.json sjf.json --title 'fifo or sjf?' --out compared.html --svg figures",
    )
)
def report(
    results: list[Path],
    *,
    out: Path = Path("report.html"),
    title: str | None = None,
    png: Path | None = None,
    svg: Path | None = None,
    json: Json = False,
) -> None:
    """Draw any results as one page that opens anywhere: words, figures, tables, and how each came to be.

    Parameters
    ----------
    results
        What commands printed with `--json`; several stand beside each other, under the names of their files.
    out
        The page: one HTML file with all that it needs, to be opened without a network.
    title
        Of the page.
    png
        A folder for the figures as PNG; needs the extra `plots`.
    svg
        A folder for the figures as SVG.
    """
    from fleetlab._screen import Rows, progress, show

    if out.resolve() in {path.resolve() for path in results}:
        msg = f"--out is one of the results: {out}"
        raise fleetlab.WorkloadError(msg, hint="give the page a name of its own, such as report.html")
    loaded = {path: fleetlab.Saved.load(path) for path in results}
    stems = [path.stem for path in results]
    named = {path.stem: saved for path, saved in loaded.items()} if len(set(stems)) == len(stems) else loaded.values()
    with progress("figures") as tell:
        written = fleetlab.report(named, out, title=title, png=png, svg=svg, tell=tell)
    if json:
        from polars import DataFrame

        about = fleetlab.Provenance("report", ", ".join(map(str, results)), {"title": title})
        row = DataFrame({"file": [str(written)], "bytes": [written.stat().st_size]})
        show(Rows("pages", row, about), json=True)
    else:
        print(written)


@app.command(
    help_epilogue=examples(
        "fleetlab plan demand.toml --nodes nodes.toml",
        "fleetlab plan my-trace --nodes nodes.toml --at busiest --seconds 60",
        "fleetlab plan demand.csv --nodes nodes.toml --objective cost --price cpu=4 --price gpu=16 --out placement.csv",
        "fleetlab plan demand.toml --nodes fewer.toml --objective moves --current placement.csv",
    )
)
def plan(
    demand: DemandWords,
    *,
    nodes: Path | None = None,
    objective: str = "nodes",
    prices: Annotated[tuple[str, ...], Parameter(name="--price", negative=())] = (),
    current: Path | None = None,
    at: str = "busiest",
    seconds: float = 60.0,
    seed: Seed = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Where to put it? Every instance on a node, and a bound on how much better it could be.

    The exit status is 1 where not everybody has a place.

    Parameters
    ----------
    nodes
        A TOML file of [[node]] entries; of a trace, its own nodes unless told.
    objective
        What to have least of: nodes (in use), stranded (GPUs on nodes in use), cost (of nodes in use), balance (the
        highest load of a node), moves (from where instances are).
    prices
        For `cost`: POOL=NUMBER, what a node of that pool costs; once for each pool.
    current
        For `moves`: a CSV file of who is where now, as --out writes it: task and node, instance and gpus if known.
    at
        Of a trace, whom to place: those alive at that time, in seconds or such as 90m, 3h, 2d; or when it is busiest.
    seconds
        To search for at most.
    seed
        Of orders that are drawn, and of the solver.
    out
        A CSV file to write who goes where into.
    """
    from fleetlab._screen import progress, show

    with progress("done") as tell:
        asked, there = _asked(demand, nodes, at, tell)
        found = fleetlab.plan(
            asked,
            there,
            objective=objective,
            prices=_prices(prices),
            current=_placement(current),
            seconds=seconds,
            seed=seed,
            tell=tell,
        )
    if out is not None:
        _write_csv(found.placements, out)
    if not json:
        print("\n".join(found.sentences), end="\n\n")
    show(found, json=json, only=("does not fit", "nodes"))
    sys.exit(0 if found.feasible else 1)


@app.command(
    help_epilogue=examples(
        "fleetlab defragment demand.toml --nodes nodes.toml --current placement.csv",
        "fleetlab defragment demand.toml --nodes nodes.toml --current placement.csv --free gpu --most 3",
    )
)
def defragment(
    demand: DemandWords,
    *,
    current: Path,
    nodes: Path | None = None,
    free: str = "node",
    most: int | None = None,
    mib_per_second: float = 1000.0,
    restart: float = 60.0,
    at: str = "busiest",
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Which moves free a whole node or GPU, in which order, and what do they cost?

    Parameters
    ----------
    current
        A CSV file of who is where now, as `fleetlab plan --out` writes it.
    nodes
        A TOML file of [[node]] entries; of a trace, its own nodes unless told.
    free
        What should become free: node or gpu.
    most
        How many at most; as many as can be unless told.
    mib_per_second
        How fast the memory of an instance is copied.
    restart
        Seconds that a move takes besides.
    at
        Of a trace, who is there: those alive at that time, or when it is busiest.
    out
        A CSV file to write who is where afterwards into.
    """
    from fleetlab._screen import progress, show

    with progress("freed") as tell:
        asked, there = _asked(demand, nodes, at, tell)
        now = _placement(current)
        assert now is not None
        found = fleetlab.defragment(
            asked, there, now, free=free, most=most, mib_per_second=mib_per_second, restart=restart, tell=tell
        )
    if out is not None:
        _write_csv(found.placements, out)
    if not json:
        print("\n".join(found.sentences), end="\n\n")
    show(found, json=json, only=("freed", "moves"))


@app.command(
    help_epilogue=examples(
        "fleetlab autoscale my-trace --nodes pool.toml",
        "fleetlab autoscale my-trace --nodes pool.toml --wait 10 --boot 900 --models last,seasonal,ridge",
    )
)
def autoscale(
    trace: TraceWords,
    *,
    nodes: Path | None = None,
    wait: float = 60.0,
    risk: float | None = None,
    every: float = 300.0,
    boot: float = 300.0,
    learn: float | None = None,
    models: str = "last,seasonal,holt_winters,ridge",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """How many nodes to have ready, by forecasts? Beside reactive scaling, a fixed number and an oracle.

    Parameters
    ----------
    nodes
        A TOML file with one [[node]] entry, its count the most that there may be; the trace's nodes unless told.
    wait
        The goal: the P95 wait in seconds, which every way to scale must meet.
    risk
        Instead of a goal: how often a step may ask for more nodes than a forecast has ready, such as 0.05. The others
        are then held to the P95 wait that comes of it.
    every
        Seconds between two decisions.
    boot
        Seconds that a node takes to start.
    learn
        Seconds at the beginning to learn from; a third of the log unless told. The days after it count.
    models
        Forecasters, with commas between, as `fleetlab forecast` names them; the best of them so far is taken.
    seed
        Of the draws behind intervals.
    """
    from fleetlab._screen import progress, show

    with progress("replays") as tell:
        opened = _opened(trace, nodes, tell)
        found = fleetlab.autoscale(
            opened.workload,
            _cluster_of(opened, trace, "--nodes"),
            wait=wait,
            risk=risk,
            every=every,
            boot=boot,
            learn=learn,
            models=[word.strip() for word in models.split(",") if word.strip()],
            seed=seed,
            tell=tell,
        )
    if not json:
        print("\n".join(found.sentences), end="\n\n")
    show(found, json=json, only=("at the goal", "forecast against"))


def _asked(words: str, nodes: Path | None, at: str, tell: Tell) -> tuple[fleetlab.Workload, fleetlab.Cluster]:
    """A demand from a file of kinds and counts, or of those alive in a trace; and the nodes for it."""
    from fleetlab.plan import alive
    from fleetlab.plan import demand as read_demand

    if Path(words).suffix.lower() in (".toml", ".csv"):
        if nodes is None:
            msg = f"a demand has no nodes of its own: {words}"
            raise fleetlab.WorkloadError(msg, hint="--nodes FILE.toml says which there are")
        return read_demand(words), fleetlab.Cluster.from_toml(nodes)
    opened = _opened(words, nodes, tell)
    return alive(opened, at), _cluster_of(opened, words, "--nodes")


def _prices(words: Sequence[str]) -> dict[str, float] | None:
    prices: dict[str, float] = {}
    for word in words:
        pool, equals, price = word.partition("=")
        try:
            prices[pool.strip()] = float(price)
        except ValueError:
            equals = ""
        if not equals:
            msg = f"--price takes POOL=NUMBER, not: `{word}`"
            raise fleetlab.WorkloadError(msg, hint="--price cpu=4 --price gpu=16")
    return prices or None


def _placement(path: Path | None) -> pl.DataFrame | None:
    if path is None:
        return None
    from polars import String, read_csv
    from polars.exceptions import PolarsError

    try:
        return read_csv(path, schema_overrides={"node": String}, infer_schema_length=None)  # a name, if it is 007
    except (PolarsError, OSError) as e:
        msg = f"cannot read the placement: {path}: {str(e).splitlines()[0]}"
        raise fleetlab.WorkloadError(msg, hint="a CSV file of task, instance, node, gpus, as --out writes it") from None


def _write_csv(table: pl.DataFrame, out: Path) -> None:
    from fleetlab.workload._files import replace

    replace(out, table.write_csv())


@app.command(
    help_epilogue=examples(
        "fleetlab compare builtin:20000",
        "fleetlab compare my-trace --policies fifo,sjf/skip/best_fit/group,fifo/easy --json > compared.json",
    )
)
def compare(
    trace: TraceWords, *, policies: str = "", cluster: ClusterFile = None, seed: Seed = 0, json: Json = False
) -> None:
    """Play several policies with the same arrivals: how long tasks wait by each, and how sure the difference is.

    Parameters
    ----------
    policies
        ORDER/DISCIPLINE/PLACE/ESTIMATE/SHARING, with commas between; what is last may be left out. The first is what
        the others are held against. Five of them unless told.
    seed
        Of the draws behind intervals, and of policies that draw.
    """
    from fleetlab._screen import progress, show
    from fleetlab.studies.compare import FIVE

    with progress("policies") as tell:
        opened = _opened(trace, cluster, tell)
        asked = [word.strip() for word in policies.split(",") if word.strip()] or FIVE
        found = fleetlab.compare(opened.workload, _cluster_of(opened, trace), policies=asked, seed=seed, tell=tell)
    if not json:
        print("\n".join(found.sentences), end="\n\n")
    show(found, json=json)


@app.command(
    help_epilogue=examples(
        "fleetlab tune my-trace --out tuned",
        "fleetlab tune my-trace --cluster small.toml --trials 300 --train-weeks 4 --held-out 4 --goal bsld",
        "fleetlab tune builtin:20000 --days 0.25 --warm 0.05 --against fifo,sjf,smallest --json > tuned.json",
    )
)
def tune(
    trace: TraceWords,
    *,
    trials: int = 100,
    train_weeks: int | None = None,
    held_out: int | None = None,
    days: float = 7.0,
    warm: float = 1.0,
    goal: Literal["wait", "completion", "bsld"] = "wait",
    discipline: str = "skip",
    estimate: str = "group",
    against: str = "",
    seed: Seed = 0,
    out: Path | None = None,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Search for a better policy on some weeks of a trace; judge it on later ones against every built-in policy.

    Parameters
    ----------
    trials
        How many policies are tried; the first are built-in ones.
    train_weeks
        How many weeks to learn on, just before those held out; half of all unless told.
    held_out
        How many weeks, the last of the trace, are played once, at the end; the rest unless told.
    days
        In a week: less for a trace of a few days.
    warm
        Days before the weeks that fill the cluster and do not count.
    goal
        What to make small on the mean: wait, completion (from submission to end), bsld (bounded slowdown).
    discipline
        If the first does not fit: strict, skip, easy, conservative; the same for all policies.
    estimate
        Of run time: oracle, user, user+gpu, group, group+gpu, or a series of the trace; the same for all policies.
    against
        Built-in orders to be held against, with commas between; all unless told.
    out
        A folder for the policy (tuned.py), the result (tuned.json) and the trials: a search that was killed goes on.
    """
    from fleetlab._screen import progress, show

    with progress("played") as tell:
        found = fleetlab.tune(
            _opened(trace, cluster, tell),
            trials=trials,
            train_weeks=train_weeks,
            held_out=held_out,
            days=days,
            warm=warm,
            goal=goal,
            discipline=discipline,
            estimate=estimate,
            against=[word.strip() for word in against.split(",") if word.strip()],
            seed=seed,
            store=out,
            tell=tell,
        )
    if out is not None:
        found.save(out)
    if not json:
        print("\n".join(found.sentences), end="\n\n")
    show(found, json=json, only=("policies", "weeks", "weights"))
    if out is not None:
        _say_saved(out)


@app.command(help_epilogue=examples("fleetlab demo", "fleetlab demo my-trace --out story.html --open"))
def demo(
    trace: TraceWords = "builtin:1260920",
    *,
    out: Path = Path("demo.html"),
    cluster: ClusterFile = None,
    seed: Seed = 0,
    open: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Describe a trace, say why its tasks wait, compare five policies, and write one page of it all.

    Parameters
    ----------
    out
        The page.
    seed
        Of the draws behind intervals.
    open
        Show the page in a browser.
    """
    from fleetlab._screen import progress
    from fleetlab.studies.story import story

    with progress("steps") as tell:
        told = story(_opened(trace, cluster, tell), out=out, seed=seed, tell=tell)
    print("\n".join(f"{k}. {sentence}" for k, sentence in enumerate(told.sentences, 1)))
    print(f"\n{told.page}")
    if open:
        import webbrowser

        webbrowser.open(told.page.resolve().as_uri())


@app.command(
    help_epilogue=examples(
        "fleetlab web",
        "fleetlab web --traces my-traces --open",
        "fleetlab web --host 0.0.0.0 --port 8080",
    )
)
def web(
    *,
    traces: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    workers: int = 2,
    upload_mib: int = 64,
    limit: float = 300.0,
    open: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """A local page on which what-ifs answer as you drag: change rules, load and nodes, and see waiting move.

    It ends with Ctrl-C. Logs that were sent to it go with it.

    Parameters
    ----------
    traces
        A folder whose folders are saved traces: they can be chosen on the page.
    host
        Where it is seen from; elsewhere than on this machine it asks for a token, which is printed once.
    port
        0 takes a free one.
    workers
        Processes that simulate.
    upload_mib
        The largest log that may be sent to it, in MiB.
    limit
        Seconds that one piece of work may take.
    open
        Open the page in the browser.
    """
    fleetlab.web(
        traces=traces, host=host, port=port, workers=workers, upload_mib=upload_mib, limit=limit, open=open, json=json
    )


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


def _cluster_of(opened: fleetlab.Trace, trace: str, option: str = "--cluster") -> fleetlab.Cluster:
    if opened.cluster is None:
        msg = f"the trace has no cluster: {trace}"
        raise fleetlab.TraceError(msg, hint=f"{option} FILE.toml gives it one")
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
