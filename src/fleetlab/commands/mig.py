"""`fleetlab share mig …`: which instances a card can be cut into, made and undone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.words import Json, examples, on_the_bench, talk, version

if TYPE_CHECKING:
    from fleetlab.sharing.mig.profiles import Cut

mig = App(
    name="mig",
    help="Cut a card into instances: which cuts there are, made and undone.",
    help_epilogue=examples(
        "fleetlab share mig layouts --card H200", "fleetlab share mig check 3g.71gb,2g.35gb,1g.18gb --card H200"
    ),
    help_format="plaintext",
    version=version,
)

Gpu = Annotated[int, Parameter(help="The number of a card on this machine, as nvidia-smi counts.")]
CardName = Annotated[
    str | None, Parameter(help="A100-40, A100-80, H100-80 or H200-141; if not given, the card of this machine.")
]
LayoutWords = Annotated[str, Parameter(help="Profiles with commas between them; `7x1g.18gb` is seven of one.")]
Really = Annotated[bool, Parameter(negative=(), help="Do it, and do not only show what would be done.")]

PARTS = ("CUDA_VISIBLE_DEVICES=UUID gives a program one part", "`fleetlab share mig undo` shows the way back")


@mig.command(help_epilogue=examples("fleetlab share mig profiles", "fleetlab share mig profiles --card A100-40"))
def profiles(*, card: CardName = None, gpu: Gpu = 0, json: Json = False) -> None:
    """The instances that a card can be cut into: their slices, SMs, memory, number and places."""
    from fleetlab._screen import show
    from fleetlab.sharing.result import of_profiles

    with on_the_bench():
        cut = _cut(card, gpu)
    show(of_profiles(cut), json=json)


@mig.command(help_epilogue=examples("fleetlab share mig layouts --card H200", "fleetlab share mig layouts --json"))
def layouts(*, card: CardName = None, gpu: Gpu = 0, json: Json = False) -> None:
    """Every layout to which nothing can be added, and the slices that it leaves over."""
    from fleetlab._screen import show
    from fleetlab.sharing.result import of_layouts

    with on_the_bench():
        cut = _cut(card, gpu)
    show(of_layouts(cut), json=json, most=200)


@mig.command(
    help_epilogue=examples(
        "fleetlab share mig check 3g.71gb,2g.35gb,1g.18gb --card H200",
        "fleetlab share mig check 7x1g.5gb --card A100-40",
    )
)
def check(layout: LayoutWords, *, card: CardName = None, gpu: Gpu = 0, json: Json = False) -> None:
    """Is a layout possible? Where each instance would lie, or what does not fit."""
    from fleetlab._screen import show
    from fleetlab.sharing import result as told
    from fleetlab.sharing.mig.layouts import left, names, place

    with on_the_bench():
        cut = _cut(card, gpu)
        placed = place(cut, names(layout))
    compute, memory = left(placed, cut)
    note = f"possible; left over: {compute} of {cut.slices} slices of compute, {memory} of {cut.sizes} of memory"
    show(told.here("share mig check", {cut.card: told.placed(placed)}, [note], instances=len(placed)), json=json)


@mig.command(
    help_epilogue=examples(
        "fleetlab share mig apply 3g.71gb,2x2g.35gb",
        "fleetlab share mig apply 7x1g.18gb --card H200",
        "fleetlab share mig apply 3g.71gb,2x2g.35gb --really",
    )
)
def apply(
    layout: LayoutWords, *, gpu: Gpu = 0, card: CardName = None, really: Really = False, json: Json = False
) -> None:
    """Show the commands that make a layout and those that undo it; with --really, run them.

    Refuses while processes run on the card, and on a card that is cut already; what fails midway is undone.
    """
    from fleetlab._screen import show
    from fleetlab.devices import nvidia_smi as cards
    from fleetlab.sharing import result as told
    from fleetlab.sharing.mig import apply as making
    from fleetlab.sharing.mig.layouts import names, place

    if really and card is not None:
        msg = "--card names a kind of card, and --really works on the one that is here"
        raise fleetlab.DeviceError(msg, hint="leave one of them out")
    with on_the_bench():
        placed = place(_cut(card, gpu), names(layout))
        if really:
            parts = making.apply(placed, gpu, tell=talk)
            found = told.rows({"profile": profile, "uuid": uuid} for profile, uuid in parts)
            show(told.here("share mig apply", {"parts": found}, PARTS, parts=len(parts)), json=json)
            return
        one = None if card else cards.card(gpu)
        plan = making.steps(placed, gpu, on_already=one is not None and one.mig == "Enabled")
        against = () if one is None else (*making.obstacles(one), *making.taken(one))
    _dry("share mig apply", {"do": plan.do, "undo": plan.undo}, against, json=json)


@mig.command(help_epilogue=examples("fleetlab share mig undo", "fleetlab share mig undo --gpu 1 --really"))
def undo(*, gpu: Gpu = 0, really: Really = False, json: Json = False) -> None:
    """Show the commands that put a card back to what it was before `share mig apply`; with --really, run them."""
    from fleetlab.devices import nvidia_smi as cards
    from fleetlab.sharing.mig import apply as making

    with on_the_bench():
        if really:
            making.undo(gpu, tell=talk)
            talk(f"card {gpu} is as it was")
            return
        record, one = making.remembered(gpu), cards.card(gpu)
        back = making.undoing(record, one, making.instances(gpu))
        against = tuple(making.obstacles(one))
    _dry("share mig undo", {"undo": back}, against, json=json)


def _cut(card: str | None, gpu: int) -> "Cut":
    from fleetlab.devices import nvidia_smi as cards
    from fleetlab.sharing.mig.profiles import BY_NAME, here, known

    if card is not None:
        return known(card)
    try:
        return here(gpu)
    except cards.NoCard as e:
        msg = f"which card? {e}"
        raise fleetlab.DeviceError(msg, hint=f"--card takes {', '.join(BY_NAME)}") from None


def _dry(verb: str, steps: dict[str, Sequence[tuple[str, ...]]], against: Sequence[str], *, json: bool) -> None:
    """Commands as they would be typed, never cut short: somebody may want to copy them."""
    from fleetlab._screen import show
    from fleetlab.sharing import result as told
    from fleetlab.sharing.mig.apply import said

    notes = ["nothing was done: --really does it, as root", *(f"now it would be refused: {why}" for why in against)]
    if json:
        frames = {name: told.rows({"command": said(command)} for command in some) for name, some in steps.items()}
        show(told.here(verb, frames, notes), json=True)
        return
    for name, some in steps.items():
        print(f"to {name}\n" + "\n".join(f"  {said(command)}" for command in some) + "\n")
    print("notes\n" + "\n".join(f"- {note}" for note in notes))
