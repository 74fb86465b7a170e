"""Commands that place: where to put instances, and which to move."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter

import fleetlab
from fleetlab.commands import screen
from fleetlab.commands.options import Json, Seed, cluster_of, examples, of_verb, pairs, split, trace_of

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core import Progress
    from fleetlab.plan import Defragmentation, Plan
    from fleetlab.studies.plan_ahead import PlanAhead

DemandWords = Annotated[
    str, Parameter(help="A TOML or CSV file of requests and counts, or a trace: the folder of one, or `builtin`.")
]

FORECAST = Group("Forecast", sort_key=1)

app = App()


def _option(text: str) -> Parameter:
    return Parameter(help=text, group=FORECAST, show_default=False)


@Parameter(name="*")
@dataclass(frozen=True)
class ForecastOptions:
    """What is forecast with --forecast; what is not given has the default that its help names."""

    quantile: Annotated[
        float | None, _option("Upper quantile of the demand, planned for beside the median (default: 0.9).")
    ] = None
    target: Annotated[
        Literal["requests", "level"] | None,
        _option(
            "requests: place all that is requested over the horizon beside what runs, of which nothing ends; level: "
            "place what is allocated at its peak (default: requests)."
        ),
    ] = None
    every: Annotated[
        str | None, _option("Length of a step: seconds, or a number followed by s, m, h or d (default: 1h).")
    ] = None
    horizon: Annotated[int | None, _option("Steps to plan for (default: 24).")] = None
    by: Annotated[
        Literal["role", "app", "gpu_type"] | None,
        _option("Forecast each role, app or GPU type by itself (default: role, where the trace names some)."),
    ] = None
    models: Annotated[str | None, _option("Forecast models, as in `fleetlab forecast` (default: simple,classic).")] = (
        None
    )
    recent: Annotated[
        str | None, _option("How much of the end of the log the shapes of new instances are taken from (default: 7d).")
    ] = None

    def words(self) -> dict[str, Any]:
        """Return the options that were given, as `plan_ahead` takes them."""
        options = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}
        return options | ({"models": split(options["models"])} if "models" in options else {})


NO_FORECAST = ForecastOptions()


@app.command(
    help_epilogue=examples(
        "fleetlab plan demand.toml --nodes nodes.toml",
        "fleetlab plan my-trace --nodes nodes.toml --at busiest --seconds 60",
        "fleetlab plan demand.csv --nodes nodes.toml --objective cost --price cpu=4 --price gpu=16 --out placement.csv",
        "fleetlab plan demand.toml --nodes fewer.toml --objective moves --current placement.csv",
        "fleetlab plan my-trace --nodes nodes.toml --forecast --every 1h --horizon 24 --quantile 0.9",
    )
)
@of_verb("plan/plan.py")
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
    forecast: Annotated[bool, Parameter(negative=(), show_default=False, group=FORECAST)] = False,
    options: ForecastOptions = NO_FORECAST,
    json: Json = False,
) -> None:
    """Place every instance on a node, with a bound on how much better a placement could be.

    With --forecast, place what comes after the end of a trace beside what runs and waits there: how many nodes of each
    kind the median of the demand needs, and an upper quantile. The exit status is 1 if an instance cannot be placed.

    Parameters
    ----------
    nodes
        A TOML file of [[node]] entries (default: the nodes of the trace).
    prices
        For `cost`: POOL=NUMBER, the price of a node of that pool; repeatable.
    current
        For `moves`: a CSV file of the current placement, as --out writes it: job and node, instance and gpus if known.
    at
        For a trace: place the jobs running at this time, in seconds or such as 90m, 3h, 2d (default: busiest).
    out
        Write the placement to this CSV file; with --forecast, that of the upper quantile.
    forecast
        Forecast the demand that comes next, and place it beside what runs and waits at the end of the trace.
    """
    screen.may_write(out)
    _forecast_words(demand, options, at, current, forecast=forecast)
    how: dict[str, Any] = {"objective": objective, "prices": _prices(prices), "seconds": seconds, "seed": seed}
    result: Plan | PlanAhead
    with screen.progress("done") as bar:
        if forecast:
            trace = trace_of(demand, nodes, bar)
            cluster = cluster_of(trace, demand, "--nodes")
            result = fleetlab.plan_ahead(trace, cluster, **options.words(), **how, progress=bar)
        else:
            workload, cluster = _demand(demand, nodes, at, bar)
            result = fleetlab.plan(workload, cluster, current=_placement(current), **how, progress=bar)
    _show(result, out, json=json, only=("demand", "does not fit", "nodes"))
    sys.exit(0 if result.feasible else 1)


@app.command(
    help_epilogue=examples(
        "fleetlab defragment demand.toml --nodes nodes.toml --current placement.csv",
        "fleetlab defragment demand.toml --nodes nodes.toml --current placement.csv --free gpu --most 3",
    )
)
@of_verb("plan/defragment.py")
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
    at
        For a trace: the jobs running at this time (default: busiest).
    out
        Write the resulting placement to this CSV file.
    """
    screen.may_write(out)
    with screen.progress("freed") as bar:
        workload, cluster = _demand(demand, nodes, at, bar)
        now = _placement(current)
        assert now is not None
        result = fleetlab.defragment(
            workload, cluster, now, free=free, most=most, mib_per_second=mib_per_second, restart=restart, progress=bar
        )
    _show(result, out, json=json, only=("freed", "moves"))


def _forecast_words(
    words: str, options: ForecastOptions, at: str | None, current: Path | None, *, forecast: bool
) -> None:
    """Refuse options that do not go together."""
    if not forecast:
        if option := next(iter(options.words()), None):
            msg = f"--{option} is for a forecast"
            raise fleetlab.WorkloadError(msg, hint="--forecast plans for the demand that comes next")
        return
    if Path(words).suffix.lower() in (".toml", ".csv"):
        msg = f"a forecast needs a trace, and a demand has no times: {words}"
        raise fleetlab.WorkloadError(msg, hint="name the folder of a trace, or omit --forecast")
    if at is not None or current is not None:
        msg = f"a forecast begins at the end of the trace, and takes no {'--at' if at is not None else '--current'}"
        raise fleetlab.WorkloadError(msg, hint="omit it, or omit --forecast")


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


def _show(result: "Plan | PlanAhead | Defragmentation", out: Path | None, *, json: bool, only: Sequence[str]) -> None:
    """Write the placement and print the result; the answer is shown even if the file cannot be written."""
    from fleetlab.core.files import csv_text

    try:
        if out is not None:
            screen.atomic_write(out, csv_text(result.placements))
    finally:
        screen.show(result, json=json, only=only)
