"""A workload played on a cluster: filled up, replayed, and by several policies."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

import fleetlab
from fleetlab.commands.scenario import DEFAULTS, ScenarioOptions
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
    scenario: ScenarioOptions = DEFAULTS,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Simulate a scenario: when and where does each job run, and why does it wait?

    Parameters
    ----------
    out
        Write the schedule to this file, .csv or .parquet: one row per job, with when and where it ran, and its wait by
        reason.
    """
    from fleetlab._screen import progress, show

    _may_write(out)
    with progress("jobs") as report:
        found = fleetlab.simulate(scenario.scenario(trace).open(report), progress=report)
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
        found = fleetlab.compare(
            opened.workload,
            cluster_of(opened, trace),
            policies=asked,
            estimates=_named(opened, asked),
            seed=seed,
            progress=bar,
        )
    show(found, json=json)


def _named(opened: "fleetlab.Trace", policies: Sequence[str]) -> "dict[str, pl.Series]":
    """The series of the trace that policies name as their estimate."""
    from fleetlab.studies.believed import believed
    from fleetlab.studies.compare import rules_of

    told = {name: believed(opened, name) for name in {rules_of(p).get("estimate", "") for p in policies}}
    return {name: column for name, column in told.items() if not isinstance(column, str)}


def _may_write(out: Path | None) -> None:
    from fleetlab.core.files import may_write

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

    from fleetlab.core.files import atomic_write

    buffer = BytesIO()
    if out.suffix == ".csv":
        table.with_columns(lists().cast(List(String)).list.join(";")).write_csv(buffer)
    else:
        table.write_parquet(buffer)
    atomic_write(out, buffer.getvalue())


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
