"""Where to put instances, and which of them to move."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.words import Json, Seed, cluster_of, examples, pairs, trace_of

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.plan import Defragmentation, Plan
    from fleetlab.traces import Progress

DemandWords = Annotated[
    str,
    Parameter(help="A TOML or CSV file of kinds and counts, or a trace: the folder of one, or `builtin`."),
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
        For `moves`: a CSV file of who is where now, as --out writes it: job and node, instance and gpus if known.
    at
        Of a trace, whom to place: those alive at that time, in seconds or such as 90m, 3h, 2d; when it is `busiest`
        unless told.
    seconds
        To search for at most.
    seed
        Of orders that are drawn, and of the solver.
    out
        A CSV file to write who goes where into.
    """
    from fleetlab._screen import progress

    _may_write(out)
    with progress("done") as bar:
        asked, there = _asked(demand, nodes, at, bar)
        found = fleetlab.plan(
            asked,
            there,
            objective=objective,
            prices=_prices(prices),
            current=_placement(current),
            seconds=seconds,
            seed=seed,
            progress=bar,
        )
    _hand_over(found, out, json=json, only=("does not fit", "nodes"))
    sys.exit(0 if found.feasible else 1)


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
        Of a trace, who is there: those alive at that time; when it is `busiest` unless told.
    out
        A CSV file to write who is where afterwards into.
    """
    from fleetlab._screen import progress

    _may_write(out)
    with progress("freed") as bar:
        asked, there = _asked(demand, nodes, at, bar)
        now = _placement(current)
        assert now is not None
        found = fleetlab.defragment(
            asked, there, now, free=free, most=most, mib_per_second=mib_per_second, restart=restart, progress=bar
        )
    _hand_over(found, out, json=json, only=("freed", "moves"))


def _asked(
    words: str, nodes: Path | None, at: str | None, bar: "Progress"
) -> "tuple[fleetlab.Workload, fleetlab.Cluster]":
    """A demand from a file of kinds and counts, or of those alive in a trace; and the nodes for it."""
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


def _may_write(out: Path | None) -> None:
    from fleetlab.core.files import may_write

    if out is not None:
        may_write(out)


def _hand_over(found: "Plan | Defragmentation", out: Path | None, *, json: bool, only: Sequence[str]) -> None:
    """To the file and to the screen; a file that cannot be written after all does not take the answer with it."""
    from fleetlab._screen import show
    from fleetlab.core.files import atomic_write

    try:
        if out is not None:
            atomic_write(out, found.placements.write_csv())
    finally:
        show(found, json=json, only=only)
