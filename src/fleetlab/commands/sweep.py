"""Many runs: every cell of a study, kept, listed and held against each other."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.words import Json, examples, listed, pairs, talk

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab sweep study.toml",
        "fleetlab sweep study.toml --store runs --workers 8 --json > swept.json",
        "fleetlab sweep study.toml --engine ray --address 10.0.0.1:6379",
    )
)
def sweep(
    study: Path,
    *,
    store: Path = Path("runs"),
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int | None = None,
    json: Json = False,
) -> None:
    """Play every cell of a study that the store does not have: policies, loads, nodes, seeds; compare them in pairs.

    Finished cells are kept, however it ends; the same command goes on where it stopped. Ends with status 1 if a cell
    failed.

    Parameters
    ----------
    study
        A TOML file: traces, loads, nodes, seeds, [simulate] with the rules to combine, [compare] with what to compare.
    store
        The folder of finished cells; several studies, and several sweeps at once, may share one.
    engine
        local: the cores of this machine; ray: a Ray cluster.
    address
        Of the Ray cluster: HOST:PORT, or ray://HOST:PORT; without it one is begun on this machine.
    workers
        How many cells at once; one a core unless told.
    """
    from fleetlab._screen import progress, show

    with progress("cells") as bar:
        found = fleetlab.sweep(study, store=store, engine=engine, address=address, workers=workers, progress=bar)
    show(found, json=json)
    talk(f"\nkept in {store}")
    if found.failed:
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
    """List what a run store has, hold cases against each other, and export every cell.

    Parameters
    ----------
    store
        The folder that `fleetlab sweep` keeps finished cells in.
    where
        WORD=VALUE: only cells that have it; may be given many times. Words: trace, load, nodes, order, backfill,
        place, estimate, sharing, seed and others.
    against
        WORD=VALUE: compare with the case that has it, all else being the same; may be given many times.
    metrics
        With commas between; --json names all that there are.
    out
        Write every cell into this file: .csv or .parquet.
    """
    from fleetlab._screen import show

    wanted = listed(metrics)
    found = fleetlab.runs(store, where=_cells(where, "--where"), against=_cells(against, "--against"), metrics=wanted)
    if out is not None:
        found.export(out)
    show(found, json=json, only=("differences", "scenarios"))
    if out is not None:
        talk(f"\nwritten to {out}")


def _cells(words: tuple[str, ...], option: str) -> dict[str, str]:
    hint = f"{option} order=fifo {option} load=1.2"
    return dict(pairs(words, f"{option} takes WORD=VALUE", str.strip, hint=hint))
