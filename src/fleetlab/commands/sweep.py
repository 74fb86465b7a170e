"""Commands for many runs: simulate every cell of a study, list and compare stored cells."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.words import Json, examples, listed, of_verb, pairs, talk

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab sweep study.toml",
        "fleetlab sweep study.toml --store runs --workers 8 --json > swept.json",
        "fleetlab sweep study.toml --engine ray --address 10.0.0.1:6379",
    )
)
@of_verb("studies/sweep/sweep.py")
def sweep(
    study: Path,
    *,
    store: Path = Path("runs"),
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int | None = None,
    json: Json = False,
) -> None:
    """Simulate every combination (cell) of policies, loads, nodes and seeds in a study file, and compare them.

    Finished cells are kept; the same command resumes an interrupted sweep. The exit status is 1 if a cell failed.

    Parameters
    ----------
    study
        A TOML file of scenarios: one value or a list for each word, seeds, and [compare] (docs/sweep.md).
    engine
        local: the cores of this machine; ray: a Ray cluster.
    address
        Address of the Ray cluster: HOST:PORT, or ray://HOST:PORT (default: start one on this machine).
    """
    from fleetlab._screen import progress, show

    with progress("cells") as bar:
        result = fleetlab.sweep(study, store=store, engine=engine, address=address, workers=workers, progress=bar)
    show(result, json=json)
    talk(f"\nkept in {store}")
    if result.failed:
        sys.exit(1)


@desk.command(
    help_epilogue=examples(
        "fleetlab runs runs",
        "fleetlab runs runs --where order=sjf --where load=1.2",
        "fleetlab runs runs --against order=fifo --metrics 'mean wait,P99 wait'",
        "fleetlab runs runs --out cells.parquet",
    )
)
def runs(
    store: Path,
    *,
    where: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    against: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    metrics: str = "mean wait,P90 wait",
    out: Path | None = None,
    json: Json = False,
) -> None:
    """List the finished simulations (cells) of sweeps, compare them, and export them.

    Parameters
    ----------
    store
        The folder that `fleetlab sweep` keeps finished cells in.
    where
        WORD=VALUE: only cells with this value; repeatable. Words: trace, load, nodes, order, backfill, placement,
        estimate, sharing, seed and others.
    against
        WORD=VALUE: compare with the scenario that has this value and is otherwise the same; repeatable.
    metrics
        Metrics separated by commas; --json lists all.
    out
        Write every cell to this file: .csv or .parquet.
    """
    from fleetlab._screen import show
    from fleetlab.core.files import may_write

    may_write(out)
    names = listed(metrics)
    result = fleetlab.runs(store, where=_cells(where, "--where"), against=_cells(against, "--against"), metrics=names)
    if out is not None:
        result.export(out)
    show(result, json=json, only=("differences", "scenarios"))
    if out is not None:
        talk(f"\nwritten to {out}")


def _cells(words: tuple[str, ...], option: str) -> dict[str, str]:
    hint = f"{option} order=fifo {option} load=1.2"
    return dict(pairs(words, f"{option} takes WORD=VALUE", str.strip, hint=hint))
