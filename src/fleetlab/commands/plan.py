"""Commands that place: where to put instances, and which to move."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.options import Json, Seed, cluster_of, trace_of
from fleetlab.commands.words import examples, pairs

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core import Progress
    from fleetlab.plan import Defragmentation, Plan

DemandWords = Annotated[
    str,
    Parameter(help="A TOML or CSV file of requests and counts, or a trace: the folder of one, or `builtin`."),
]

desk = App()


@desk.command(
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
    at: str | None = None,
    seconds: float = 60.0,
    seed: Seed = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Place every instance on a node, with a bound on how much better a placement could be.

    The exit status is 1 if an instance cannot be placed.

    Parameters
    ----------
    nodes
        A TOML file of [[node]] entries (default: the nodes of the trace).
    objective
        What to minimize: nodes (in use), stranded (idle GPUs on nodes in use), cost (of nodes in use), balance (the
        highest load of a node), moves (from the current placement).
    prices
        For `cost`: POOL=NUMBER, the price of a node of that pool; repeatable.
    current
        For `moves`: a CSV file of the current placement, as --out writes it: job and node, instance and gpus if known.
    at
        For a trace: place the jobs running at this time, in seconds or such as 90m, 3h, 2d (default: busiest).
    seconds
        Time limit of the search.
    out
        Write the placement to this CSV file.
    """
    from fleetlab._screen import progress
    from fleetlab.core.files import may_write

    may_write(out)
    with progress("done") as bar:
        workload, cluster = _demand(demand, nodes, at, bar)
        result = fleetlab.plan(
            workload,
            cluster,
            objective=objective,
            prices=_prices(prices),
            current=_placement(current),
            seconds=seconds,
            seed=seed,
            progress=bar,
        )
    _show(result, out, json=json, only=("does not fit", "nodes"))
    sys.exit(0 if result.feasible else 1)


@desk.command(
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
    at: str | None = None,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Find moves that free whole nodes or GPUs, in order, with their cost.

    Parameters
    ----------
    current
        A CSV file of the current placement, as `fleetlab plan --out` writes it.
    nodes
        A TOML file of [[node]] entries (default: the nodes of the trace).
    free
        What to free: node or gpu.
    most
        How many to free (default: as many as possible).
    mib_per_second
        Speed at which the memory of an instance is copied.
    restart
        Other seconds that a move takes.
    at
        For a trace: the jobs running at this time (default: busiest).
    out
        Write the resulting placement to this CSV file.
    """
    from fleetlab._screen import progress
    from fleetlab.core.files import may_write

    may_write(out)
    with progress("freed") as bar:
        workload, cluster = _demand(demand, nodes, at, bar)
        now = _placement(current)
        assert now is not None
        result = fleetlab.defragment(
            workload, cluster, now, free=free, most=most, mib_per_second=mib_per_second, restart=restart, progress=bar
        )
    _show(result, out, json=json, only=("freed", "moves"))


def _demand(
    words: str, nodes: Path | None, at: str | None, bar: "Progress"
) -> "tuple[fleetlab.Workload, fleetlab.Cluster]":
    """Return the jobs to place, from a file or running in a trace, and the nodes for them."""
    from fleetlab.plan import alive
    from fleetlab.plan import demand as read_demand

    if Path(words).suffix.lower() in (".toml", ".csv"):
        if nodes is None:
            msg = f"a demand has no nodes of its own: {words}"
            raise fleetlab.WorkloadError(msg, hint="--nodes FILE.toml says which there are")
        if at is not None:
            msg = f"--at is for a trace, and a demand has no times: {words}"
            raise fleetlab.WorkloadError(msg, hint="leave --at out, or name the folder of a trace")
        return read_demand(words), fleetlab.Cluster.from_toml(nodes)
    opened = trace_of(words, nodes, bar)
    return alive(opened, "busiest" if at is None else at), cluster_of(opened, words, "--nodes")


def _prices(words: Sequence[str]) -> dict[str, float] | None:
    return dict(pairs(words, "--price takes POOL=NUMBER", float, hint="--price cpu=4 --price gpu=16")) or None


def _placement(path: Path | None) -> "pl.DataFrame | None":
    if path is None:
        return None
    from polars import String, all_horizontal, col, read_csv
    from polars.exceptions import PolarsError

    try:
        table = read_csv(path, schema_overrides={"node": String}, infer_schema_length=None)  # a name, if it is 007
        return table.filter(~all_horizontal(col("*").is_null()))
    except (PolarsError, OSError) as e:
        msg = f"cannot read the placement: {path}: {str(e).splitlines()[0]}"
        raise fleetlab.WorkloadError(msg, hint="a CSV file of job, instance, node, gpus, as --out writes it") from None


def _show(result: "Plan | Defragmentation", out: Path | None, *, json: bool, only: Sequence[str]) -> None:
    """Write the placement and print the result; the answer is shown even if the file cannot be written."""
    from fleetlab._screen import show
    from fleetlab.core.files import atomic_write

    try:
        if out is not None:
            atomic_write(out, result.placements.write_csv())
    finally:
        show(result, json=json, only=only)
