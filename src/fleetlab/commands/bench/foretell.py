"""What measurements foretell: a speed profile for the simulator, and works on MIG slices."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.words import Json, Seed, examples, listed, on_the_bench, talk

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab bench profile classes --classes --out mine.json",
        "fleetlab simulate builtin:2000 --sharing mps --slowdown mine.json",
        "fleetlab bench profile pairs-ts pairs-mps solo --check",
    )
)
def profile(
    folders: list[Path],
    /,
    *,
    out: Path | None = None,
    works: str = "",
    classes: Annotated[bool, Parameter(negative=())] = False,
    check: Annotated[bool, Parameter(negative=())] = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make a speed profile of what was measured, for the simulator; or see how far its model can be trusted.

    Parameters
    ----------
    folders
        What `fleetlab bench suite --out` wrote on one card, or folders of such.
    out
        The file of the profile: what `fleetlab simulate --slowdown` takes.
    works
        Those to be in it, with commas between; all that met somebody if not given.
    classes
        Take works together as light, medium and heavy, by how busy each keeps a card of its own.
    check
        Make no profile: foretell what was measured from the rest, and tell how far off that is.
    seed
        Of the intervals of the check.
    """
    from fleetlab._screen import show
    from fleetlab.bench import profile as room

    if check and (out or works or classes):
        msg = "--check makes no profile: leave out --out, --works and --classes"
        raise fleetlab.DeviceError(msg)
    with on_the_bench():
        if check:
            talk("each pair and each work is left out in turn: some seconds")
            show(room.check(folders, seed=seed), json=json, most=200)
            return
        named = tuple(listed(works))
        made = room.profile(folders, works=named, classes=classes)
        if out:
            talk(f"saved: {made.save(out)}")
        show(made, json=json)


@desk.command(name="mig", help_epilogue=examples("fleetlab bench mig solo pairs-ts sm-curve --card A100-80"))
def on_slices(folders: list[Path], /, *, card: str | None = None, json: Json = False) -> None:
    """Foretell how fast works would be on each MIG slice of a card: predicted from runs on fewer SMs, never measured.

    Parameters
    ----------
    folders
        What `fleetlab bench suite --out` wrote on one card; the plan sm-curve must be among it.
    card
        A100-40, A100-80, H100-80 or H200-141; the card that was measured if not given.
    """
    from fleetlab._screen import show
    from fleetlab.bench.profile import slices

    with on_the_bench():
        show(slices(folders, card=card), json=json)
