"""`fleetlab share …`: how the tenants of a card share it, seen, switched on and put back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab._words import Json, examples, on_the_bench, talk

if TYPE_CHECKING:
    from fleetlab.bench.mig.profiles import Cut

share = App(
    name="share",
    help="How tenants share a GPU: see it, switch MPS on and off, cut a card by MIG, say it to a stack.",
    help_epilogue=examples(
        "fleetlab share status",
        "fleetlab share run mps --percent 50 -- python train.py",
        "fleetlab share mig layouts --card H200",
        "fleetlab share emit lab.toml --to gpu-operator",
    ),
    help_format="plaintext",
)
mig = App(
    name="mig",
    help="Cut a card into instances: which cuts there are, made and undone.",
    help_epilogue=examples(
        "fleetlab share mig layouts --card H200", "fleetlab share mig check 3g.71gb,2g.35gb,1g.18gb --card H200"
    ),
    help_format="plaintext",
)
share.command(mig)

Percent = Annotated[int | None, Parameter(help="Of the SMs, that a client may use at most.")]
Memory = Annotated[int | None, Parameter(help="MiB of the card, that a client may use at most.")]
Gpu = Annotated[int, Parameter(help="The number of a card on this machine, as nvidia-smi counts.")]
CardName = Annotated[
    str | None, Parameter(help="A100-40, A100-80, H100-80 or H200-141; if not given, the card of this machine.")
]
LayoutWords = Annotated[str, Parameter(help="Profiles with commas between them; `7x1g.18gb` is seven of one.")]
Really = Annotated[bool, Parameter(negative=(), help="Do it, and do not only show what would be done.")]


# --- modes -----------------------------------------------------------------------------------------------------------


@share.command(help_epilogue=examples("fleetlab share status", "fleetlab share status --json"))
def status(*, json: Json = False) -> None:
    """What cards are here, who is on them, which MPS runs, and which modes could be used; nothing is changed."""
    from fleetlab._screen import show
    from fleetlab.bench import sharing
    from fleetlab.bench.told import of_machine

    with on_the_bench():
        found = sharing.status()
    show(of_machine(found), json=json, most=200)


@share.command(
    help_epilogue=examples("fleetlab share start mps", 'eval "$(fleetlab share start mps --percent 50 --memory 20000)"')
)
def start(
    mode: str, *, percent: Percent = None, memory: Memory = None, pipe: Path | None = None, json: Json = False
) -> None:
    """Start an MPS that stays, in a folder of its own, and print what a client needs in its environment.

    The card's compute mode is left as it is: a program without this environment does not come under MPS.

    Parameters
    ----------
    mode
        mps: the only one that has to be started.
    pipe
        The folder that clients find it by; if not given, one that nobody else uses.
    """
    from fleetlab._screen import show
    from fleetlab.bench import lasting, told

    _only_mps(mode, "start")
    with on_the_bench():
        environment = lasting.start(percent=percent, memory_mib=memory, pipe=pipe)
    if json:
        named = told.rows({"name": name, "value": value} for name, value in environment.items())
        show(told.here("share start", {"environment": named}), json=True)
    else:
        print("\n".join(f"export {name}={quote(value)}" for name, value in environment.items()))
    talk("MPS runs; `fleetlab share stop mps` ends it")


@share.command(help_epilogue=examples("fleetlab share stop mps", "fleetlab share stop mps --anyway"))
def stop(mode: str, *, anyway: Annotated[bool, Parameter(negative=())] = False) -> None:
    """End the MPS that `share start mps` left, and see that it is gone.

    Parameters
    ----------
    mode
        mps: the only one that has to be stopped.
    anyway
        Even if clients are attached; they fail.
    """
    from fleetlab.bench import lasting

    _only_mps(mode, "stop")
    with on_the_bench():
        clients = lasting.stop(anyway=anyway)
    talk("MPS is gone" + (f"; clients that it had: {', '.join(map(str, clients))}" if clients else ""))


@share.command(
    help_epilogue=examples(
        "fleetlab share run mps --percent 50 -- python train.py",
        "fleetlab share run exclusive --gpu 1 -- python serve.py",
        "fleetlab share run time-slicing -- ./bench",
    )
)
def run(
    mode: str,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    percent: Percent = None,
    memory: Memory = None,
    priority: int | None = None,
    gpu: Gpu = 0,
) -> None:
    """Run a command in one mode of sharing; end with its status, and put back what was switched on.

    Parameters
    ----------
    mode
        exclusive (refuses a card that somebody uses, and tells if somebody came), time-slicing, or mps.
    command
        After `--`: what to run.
    priority
        Of a client of mps: 0 is normal, 1 below normal.
    """
    from fleetlab.bench import within
    from fleetlab.bench.modes import Share

    with on_the_bench():
        status = within.run(mode, command, share=Share(percent, memory, priority), gpu=gpu, tell=talk)
    sys.exit(status)


# --- files of the stacks ---------------------------------------------------------------------------------------------


@share.command(
    help_epilogue=examples(
        "fleetlab share emit lab.toml --to gpu-operator",
        "fleetlab share emit lab.toml --to dra --out claim.yaml",
        "fleetlab share emit lab.toml --to hami --json",
    )
)
def emit(spec: Path, *, to: str, out: Path | None = None, json: Json = False) -> None:
    """Write how a card is to be shared in the format of a stack, and say what is lost on the way.

    The file goes to stdout, and what is lost to stderr; with --out the file goes there, and what is lost to stdout.

    Parameters
    ----------
    spec
        A spec in TOML: docs/share-emit.md says what it may hold.
    to
        device-plugin, gpu-operator, mig-parted, dra, hami, volcano, kai, kueue, compose or env.
    out
        Where to write the file; what was there is replaced once the new one is whole.
    """
    from fleetlab._screen import show, table
    from fleetlab.bench.compile import emit as compiled
    from fleetlab.bench.compile import read as back

    with on_the_bench():
        found = compiled(back(spec).spec, to=to, source=spec.name)
        if out is not None:
            _written(out, found.text)
    if json:
        show(found, json=True)
        return
    if out is None:
        print(found.text, end="")
    tell = talk if out is None else print
    tell("\nlost" if found.losses else "\nlost: nothing")
    for loss in found.losses:
        tell(f"  {loss.part}: {loss.asked} -> {loss.kept}; {loss.why}")
    tell(f"\nguarantees\n{table(found.tables()['guarantees'].drop('why'))}")
    for one in found.promises:
        if one.why:
            tell(f"  {one.guarantee}: {one.why}")


@share.command(
    name="read",
    help_epilogue=examples("fleetlab share read time-slicing.yaml", "fleetlab share read claim.yaml --json"),
)
def read_file(file: Path, *, json: Json = False) -> None:
    """Read a file of any stack as a spec, in TOML; which stack it is of is seen from what is in it.

    Parameters
    ----------
    file
        YAML of a stack, a Compose file, or lines of KEY=VALUE.
    """
    from fleetlab._screen import show
    from fleetlab.bench.compile import read as back

    with on_the_bench():
        found = back(file)
    if json:
        show(found, json=True)
        return
    talk(f"{file.name} is of {found.stack}")
    print(found.text, end="")


@share.command(
    help_epilogue=examples(
        "fleetlab share lint time-slicing.yaml", "fleetlab share lint mps.yaml --card V100-16 --json"
    )
)
def lint(file: Path, *, card: str | None = None, json: Json = False) -> None:
    """Look for the traps of every stack in a file; ends with status 1 if there is an error.

    Parameters
    ----------
    file
        A file of a stack, pods, a quota, or a spec in TOML.
    card
        The card it is for, as in H200: some traps are those of a card.
    """
    from fleetlab._screen import cell, show
    from fleetlab.bench.compile import lint as look

    with on_the_bench():
        found = look(file, card=card)
    if json:
        show(found, json=True)
    else:
        for one in found.findings:
            print(f"{one.severity} {one.code} at {cell(one.where, widest=200)}")
            print(f"  {cell(one.what, widest=300)}\n  do: {cell(one.do, widest=300)}")
        counts = ", ".join(f"{e.metric} {e.value:g}" for e in found.summary())
        print(f"{cell(file.name)}, {found.stack}: {counts}")
    if found.count("error"):
        sys.exit(1)


# --- MIG -------------------------------------------------------------------------------------------------------------


@mig.command(help_epilogue=examples("fleetlab share mig profiles", "fleetlab share mig profiles --card A100-40"))
def profiles(*, card: CardName = None, gpu: Gpu = 0, json: Json = False) -> None:
    """The instances that a card can be cut into: their slices, SMs, memory, number and places."""
    from fleetlab._screen import show
    from fleetlab.bench.told import of_profiles

    with on_the_bench():
        cut = _cut(card, gpu)
    show(of_profiles(cut), json=json)


@mig.command(help_epilogue=examples("fleetlab share mig layouts --card H200", "fleetlab share mig layouts --json"))
def layouts(*, card: CardName = None, gpu: Gpu = 0, json: Json = False) -> None:
    """Every layout to which nothing can be added, and the slices that it leaves over."""
    from fleetlab._screen import show
    from fleetlab.bench.told import of_layouts

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
    from fleetlab.bench import told
    from fleetlab.bench.mig.layouts import left, names, place

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
    from fleetlab.bench import cards, told
    from fleetlab.bench.mig import apply as making
    from fleetlab.bench.mig.layouts import names, place

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
    from fleetlab.bench import cards
    from fleetlab.bench.mig import apply as making

    with on_the_bench():
        if really:
            making.undo(gpu, tell=talk)
            talk(f"card {gpu} is as it was")
            return
        record, one = making.remembered(gpu), cards.card(gpu)
        back = making.undoing(record, one, making.instances(gpu))
        against = tuple(making.obstacles(one))
    _dry("share mig undo", {"undo": back}, against, json=json)


# --- words to nouns --------------------------------------------------------------------------------------------------

PARTS = ("CUDA_VISIBLE_DEVICES=UUID gives a program one part", "`fleetlab share mig undo` shows the way back")


def _written(out: Path, text: str) -> None:
    from fleetlab.bench.errors import BenchError
    from fleetlab.workload._files import replace

    try:
        replace(out, text)
    except OSError as e:
        msg = f"cannot write {out}: {e.strerror or e}"
        raise BenchError(msg, hint="is the folder there, and may it be written to?") from None


def _only_mps(mode: str, verb: str) -> None:
    if mode != "mps":
        msg = f"nothing to {verb} by that name: `{mode}`"
        hint = "only mps is; time slicing is what a driver does by itself, and MIG has `fleetlab share mig`"
        raise fleetlab.DeviceError(msg, hint=hint)


def _cut(card: str | None, gpu: int) -> Cut:
    from fleetlab.bench import cards
    from fleetlab.bench.mig.profiles import BY_NAME, here, known

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
    from fleetlab.bench import told
    from fleetlab.bench.mig.apply import said

    notes = ["nothing was done: --really does it, as root", *(f"now it would be refused: {why}" for why in against)]
    if json:
        frames = {name: told.rows({"command": said(command)} for command in some) for name, some in steps.items()}
        show(told.here(verb, frames, notes), json=True)
        return
    for name, some in steps.items():
        print(f"to {name}\n" + "\n".join(f"  {said(command)}" for command in some) + "\n")
    print("notes\n" + "\n".join(f"- {note}" for note in notes))
