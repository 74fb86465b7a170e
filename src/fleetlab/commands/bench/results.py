"""Commands that show and analyze measurements."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from fleetlab.commands.words import Json, examples, on_the_bench, talk

desk = App()

Table = Literal["alone", "progress", "mixes", "latency", "serving", "costs", "density", "runs", "checks", "failures"]


@desk.command(
    name="show",
    help_epilogue=examples(
        "fleetlab bench show pairs",
        "fleetlab bench show pairs --price 3.5 --table costs",
        "fleetlab bench show crowded --slo-ms 15 --table density --table serving",
        "fleetlab bench show at-200",
    ),
)
def show_measured(
    folder: Path,
    *,
    price: float | None = None,
    progress: float = 0.5,
    slowdown: float = 3.0,
    slo_ms: float | None = None,
    table: Annotated[tuple[Table, ...], Parameter(negative=())] = (),
    json: Json = False,
) -> None:
    """Show the results of a suite: rates, progress, throughput, fairness, latency, costs, and validity checks.

    The saved results of `fleetlab bench load` are shown as well; the options below apply to suites.

    Parameters
    ----------
    folder
        Folder of `fleetlab bench suite --out` or `fleetlab bench load --out`.
    price
        Price of a GPU hour, in any currency: adds the cost of 1,000 items.
    progress
        Table density: minimum progress of the slowest tenant, relative to its rate alone.
    slowdown
        Table density: maximum P95 step time, as a multiple of that of one tenant alone.
    slo_ms
        Table density: maximum P99 of a step or request, in milliseconds.
    table
        Show only this table; may be repeated.
    """
    from fleetlab._screen import show
    from fleetlab.bench.results.density import DensityGoals
    from fleetlab.bench.results.suite import suite_result
    from fleetlab.serving.load.result import saved_load

    goals = DensityGoals(progress=progress, slowdown=slowdown, slo_ms=slo_ms)
    with on_the_bench():
        result = saved_load(folder) or suite_result(folder, price=price, goals=goals)
    show(result, json=json, only=table)


@desk.command(
    help_epilogue=examples(
        "fleetlab bench analyze pairs",
        "fleetlab bench analyze measurements --price 3.5 --out report",
        "fleetlab bench analyze measurements --json",
    )
)
def analyze(
    folder: Path,
    *,
    out: Path | None = None,
    price: float | None = None,
    slo_factor: float = 3.0,
    json: Json = False,
) -> None:
    """Analyze suites: which sharing mode for which mix, with intervals; charts, tables, and answers to six questions.

    Parameters
    ----------
    folder
        Folder of `fleetlab bench suite --out`, or a folder of such, all of one GPU model.
    out
        Folder for tables, figures, analysis.txt and analysis.html (default: FOLDER/analysis).
    price
        Price of a GPU hour, in any currency (default: costs are in GPU seconds).
    slo_factor
        Limit of the tail latency, as a multiple of that of one tenant alone.
    """
    from fleetlab._screen import show
    from fleetlab.bench import analysis

    with on_the_bench():
        result = analysis.analyze(folder, price=price, slo_factor=slo_factor)
        files = analysis.write_analysis(result, out or folder / "analysis", progress=talk)
    if json:
        show(result, json=True)
    else:
        print(analysis.brief_text(result), end="")
    talk(f"{len(files)} files in {out or folder / 'analysis'}; open analysis.html")
