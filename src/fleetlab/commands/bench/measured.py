"""What was measured: shown, and what it means."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from fleetlab.commands.words import Json, examples, on_the_bench, talk

desk = App()

Table = Literal["alone", "progress", "mixes", "latency", "serving", "costs", "density", "runs", "gates", "failures"]


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
    """Show what a suite measured: rates, progress, throughput and fairness, latency, costs, and what to believe.

    A load that was kept is shown as when it was measured; goals and prices are of suites.

    Parameters
    ----------
    folder
        What `fleetlab bench suite --out` wrote, or `fleetlab bench load --out`.
    price
        Of a card's hour, in any currency: what 1,000 items cost.
    progress
        How much the worst of several tenants must make, of what it makes alone: how many may share a card?
    slowdown
        How many times as long as alone a step may take, at P95.
    slo_ms
        Milliseconds that a step or request may take, at P99.
    table
        Only this one; may be given many times.
    """
    from fleetlab._screen import show
    from fleetlab.bench.results.density import Goals
    from fleetlab.bench.results.suite import measured
    from fleetlab.serving.load.result import kept

    goals = Goals(progress=progress, slowdown=slowdown, slo_ms=slo_ms)
    with on_the_bench():
        found = kept(folder) or measured(folder, price=price, goals=goals)
    show(found, json=json, only=table)


@desk.command(
    help_epilogue=examples(
        "fleetlab bench analyse pairs",
        "fleetlab bench analyse measurements --price 3.5 --out report",
        "fleetlab bench analyse measurements --json",
    )
)
def analyse(
    folder: Path,
    *,
    out: Path | None = None,
    price: float | None = None,
    slo_factor: float = 3.0,
    json: Json = False,
) -> None:
    """Say what measured suites mean: charts, tables, a mode for each mix with its margin of error, six answers.

    Parameters
    ----------
    folder
        What `fleetlab bench suite --out` wrote, or a folder of such, all of one card.
    out
        The folder of tables, figures, analysis.txt and analysis.html; `analysis` in the first if not given.
    price
        Of an hour of the card, in any currency; without it costs are in GPU seconds.
    slo_factor
        A tenant is broken when its tail is longer than so many times that alone.
    """
    from fleetlab._screen import show
    from fleetlab.bench import analysis

    with on_the_bench():
        found = analysis.analyse(folder, price=price, slo_factor=slo_factor)
        files = analysis.written(found, out or folder / "analysis", tell=talk)
    if json:
        show(found, json=True)
    else:
        print(analysis.brief(found), end="")
    talk(f"{len(files)} files in {out or folder / 'analysis'}; open analysis.html")
