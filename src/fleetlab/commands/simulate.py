"""A workload played on a cluster: filled up, replayed, and by several policies."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.rules import RULES, Rules
from fleetlab.commands.words import ClusterFile, Json, Seed, TraceWords, cluster_of, examples, listed, talk, trace_of

if TYPE_CHECKING:
    import polars as pl

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab pack my-trace --placement fgd,best_fit,random --seeds 42-51",
        "fleetlab pack builtin:20000 --json",
    )
)
def pack(
    trace: TraceWords,
    *,
    placement: str = "fgd,best_fit",
    seeds: str = "42-51",
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Fill a cluster with jobs drawn from a trace until they no longer fit: how much of it can each policy give away?

    Parameters
    ----------
    place
        Place policies, with commas between: fgd, best_fit, dot_product, gpu_packing, gpu_clustering, random,
        first_fit, worst_fit.
    seeds
        Runs of each, as FIRST-LAST or a list with commas.
    """
    from fleetlab._screen import progress, show

    wanted = listed(placement)
    with progress("runs") as bar:
        opened = trace_of(trace, cluster, bar)
        on = cluster_of(opened, trace)
        found = fleetlab.pack(opened.workload, on, placement=wanted, seeds=_seeds(seeds), progress=bar)
    show(found, json=json, only=("summary",))


@desk.command(
    help_epilogue=examples(
        "fleetlab simulate builtin:20000 --order sjf",
        "fleetlab simulate my-trace --backfill easy --placement worst_fit --cluster bigger.toml",
        "fleetlab simulate my-trace --order my_module:mine --estimate group",
        "fleetlab simulate my-trace --events faults.toml --sharing time-slicing --seed 3",
        "fleetlab simulate my-trace --backfill easy --out schedule.parquet",
    )
)
def simulate(
    trace: TraceWords,
    *,
    rules: Rules = RULES,
    slowdown: Path | None = None,
    preempt: Annotated[bool, Parameter(negative=())] = False,
    events: Path | None = None,
    quota: float | None = None,
    until: float | None = None,
    seed: Seed = 0,
    cluster: ClusterFile = None,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Replay a workload on a cluster: when and where does each job run, and why did it wait?

    Parameters
    ----------
    rules.order
        Who is next: fifo, sjf (shortest by estimate), smallest, largest (by GPUs), priority, aging, las, fair, and, by
        putting others off, srpt, server_filling, server_filling_srpt; or MODULE:NAME for one of your own.
    rules.backfill
        If the first does not fit: strict (all wait behind it), skip (it is passed over), easy (others may go before it
        if that does not delay it), conservative (if that delays nobody before them).
    rules.placement
        Where: best_fit, first_fit, worst_fit, dot_product, gpu_packing, gpu_clustering, fgd, reserve_and_pack, spread,
        random; or MODULE:NAME for one of your own.
    rules.estimate
        Of run time: oracle; the mean of finished jobs of the same user, user+gpu, group, group+gpu; or, where the
        trace has a series of seconds by job, its name, such as requested.
    rules.sharing
        Of a GPU: shares (as fast as a whole one), exclusive (shares take whole GPUs), or a mode of a slowdown profile:
        time-slicing, mps, mig.
    slowdown
        For a mode of --sharing: a profile, as JSON, in place of the one that ships, measured on an H200.
    preempt
        A job may put off others that rank after it.
    events
        A TOML file of what happens to nodes: [[faults]], [[outage]], [[drain]], [[spot]], [[elastic]], [recovery].
    quota
        GPUs that a user may hold at once.
    until
        Stop the clock at that second.
    out
        Write the schedule into this file, .csv or .parquet: a row a job, with when and where it ran, and its wait by
        reason.
    """
    from fleetlab._screen import progress, show
    from fleetlab.core import Slowdown
    from fleetlab.core.events import from_toml
    from fleetlab.studies.believed import believed

    _may_be_shared(slowdown, rules.sharing)
    _may_write(out)
    with progress("jobs") as bar:
        opened = trace_of(trace, cluster, bar)
        on = cluster_of(opened, trace)
        happens, recovery = from_toml(events) if events else ((), None)
        found = fleetlab.simulate(
            opened.workload,
            on,
            **asdict(rules) | {"estimate": believed(opened, rules.estimate)},
            slowdown=Slowdown.load(slowdown) if slowdown else None,
            preempt=preempt,
            recovery=recovery,
            events=happens,
            quota=quota,
            seed=seed,
            until=until,
            progress=bar,
        )
    try:
        if out is not None:
            _write(out, found.schedule())
    finally:  # a file that cannot be written after all does not take the answer with it
        show(found, json=json, only=("by request", "waiting", "refused"))
    if out is not None:
        talk(f"\nwritten to {out}")


@desk.command(
    help_epilogue=examples(
        "fleetlab compare builtin:20000",
        "fleetlab compare my-trace --policies fifo,sjf/greedy/best_fit/group,fifo/easy --json > compared.json",
    )
)
def compare(
    trace: TraceWords, *, policies: str = "", cluster: ClusterFile = None, seed: Seed = 0, json: Json = False
) -> None:
    """Play several policies with the same arrivals: how long jobs wait by each, and how sure the difference is.

    Parameters
    ----------
    policies
        ORDER/BACKFILL/PLACE/ESTIMATE/SHARING, as `fleetlab simulate` takes them, with commas between; what is last
        may be left out. The first is what the others are held against. Five of them unless told.
    seed
        Of the draws behind intervals, and of policies that draw.
    """
    from fleetlab._screen import progress, show
    from fleetlab.studies.compare import FIVE

    with progress("policies") as bar:
        opened = trace_of(trace, cluster, bar)
        asked = listed(policies) or FIVE
        on = cluster_of(opened, trace)
        found = fleetlab.compare(opened, on, policies=asked, seed=seed, progress=bar)
    show(found, json=json)


def _may_be_shared(slowdown: Path | None, sharing: str) -> None:
    """Refuse a profile that nothing would look at."""
    if slowdown is not None and sharing in ("fractional", "exclusive"):
        msg = f"--slowdown says how jobs slow each other, and by --sharing {sharing} they do not"
        raise fleetlab.WorkloadError(msg, hint="--sharing time-slicing, mps or mig; or leave --slowdown out")


def _may_write(out: Path | None) -> None:
    from fleetlab.core._files import may_write

    if out is None:
        return
    if out.suffix not in (".csv", ".parquet"):
        msg = f"a schedule is written as .csv or .parquet, not: {out.name}"
        raise fleetlab.WorkloadError(msg, hint="--out schedule.csv, or --out schedule.parquet")
    may_write(out)


def _write(out: Path, table: "pl.DataFrame") -> None:
    """All of it or nothing; a cell of CSV holds no list, so there it is one text with `;` between."""
    from io import BytesIO

    from polars import List, String
    from polars.selectors import list as lists

    from fleetlab.core._files import replace

    buffer = BytesIO()
    if out.suffix == ".csv":
        table.with_columns(lists().cast(List(String)).list.join(";")).write_csv(buffer)
    else:
        table.write_parquet(buffer)
    replace(out, buffer.getvalue())


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
