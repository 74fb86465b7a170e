"""`fleetlab bench …`: words to a plan or a folder, one verb, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fleetlab._words import Json, examples, on_the_bench, talk

bench = App(
    name="bench",
    help="Measure how work shares a GPU: real tenants, alone and beside each other.",
    help_epilogue=examples("fleetlab bench suite pairs-ts --out pairs", "fleetlab bench show pairs"),
    help_format="plaintext",
)


@bench.command(
    help_epilogue=examples(
        "fleetlab bench suite pairs-mps --out pairs-mps --limit 500",
        "fleetlab bench suite mine.toml --out mine --blocks 5 --seed 1",
        "fleetlab bench suite pairs-ts --rehearse --out try",
    )
)
def suite(
    plan: str,
    *,
    out: Path,
    limit: float = 3600,
    blocks: int | None = None,
    settle: float | None = None,
    window: float | None = None,
    seed: int = 0,
    rehearse: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """Measure a plan, cell by cell; the same command goes on where it stopped.

    Parameters
    ----------
    plan
        solo, sm-curve, pairs-ts, pairs-mps, pairs-mps-50, breaking, or a TOML file of tenants, mixes and modes.
    out
        The folder of the results.
    limit
        Seconds after which no cell is begun.
    blocks
        How often each cell is measured.
    settle
        Seconds that a cell runs before it is measured.
    window
        Seconds that it is measured.
    seed
        Of the order of cells.
    rehearse
        On the CPU, tiny and short: the same code, but the numbers mean nothing.
    """
    from fleetlab._screen import show
    from fleetlab.bench.measured import measured
    from fleetlab.bench.run import planned
    from fleetlab.bench.suite import Suite

    with on_the_bench():
        made = planned(plan, blocks=blocks, settle=settle, window=window, seed=seed, rehearse=rehearse)
        Suite(made, out, limit=limit, rehearse=rehearse, tell=talk).run()
    show(measured(out), json=json)


@bench.command(name="show", help_epilogue=examples("fleetlab bench show pairs", "fleetlab bench show pairs --json"))
def show_measured(folder: Path, *, json: Json = False) -> None:
    """Show what a suite measured: rates alone, progress beside others, throughput and fairness of each mix.

    Parameters
    ----------
    folder
        What `fleetlab bench suite --out` wrote.
    """
    from fleetlab._screen import show
    from fleetlab.bench.measured import measured

    show(measured(folder), json=json)
