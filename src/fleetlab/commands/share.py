"""`fleetlab share …`: how the tenants of a card share it, seen, switched on and put back; and files of the stacks."""

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.mig import Gpu, mig
from fleetlab.commands.words import Json, examples, on_the_bench, talk, version

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
    version=version,
)
share.command(mig)

Percent = Annotated[int | None, Parameter(help="Of the SMs, that a client may use at most.")]
Memory = Annotated[int | None, Parameter(help="MiB of the card, that a client may use at most.")]


# --- modes -----------------------------------------------------------------------------------------------------------


@share.command(help_epilogue=examples("fleetlab share status", "fleetlab share status --json"))
def status(*, json: Json = False) -> None:
    """What cards are here, who is on them, which MPS runs, and which modes could be used; nothing is changed."""
    from fleetlab._screen import show
    from fleetlab.sharing import status as sharing
    from fleetlab.sharing.result import of_machine

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
    from fleetlab.sharing import mps_daemon as lasting
    from fleetlab.sharing import result as told

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
    from fleetlab.sharing import mps_daemon as lasting

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
    from fleetlab.sharing import run as within
    from fleetlab.sharing.modes import Share

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
    from fleetlab.stacks import emit as compiled
    from fleetlab.stacks import read as back

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
    from fleetlab.stacks import read as back

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
    from fleetlab.stacks import lint as look

    with on_the_bench():
        found = look(file, card=card)
    if json:
        show(found, json=True)
    else:
        for one in found.problems:
            print(f"{one.severity} {one.code} at {cell(one.where, widest=200)}")
            print(f"  {cell(one.what, widest=300)}\n  do: {cell(one.do, widest=300)}")
        counts = ", ".join(f"{e.metric} {e.value:g}" for e in found.summary())
        print(f"{cell(file.name)}, {found.stack}: {counts}")
    if found.count("error"):
        sys.exit(1)


# --- words to nouns --------------------------------------------------------------------------------------------------


def _written(out: Path, text: str) -> None:
    from fleetlab.core.files import atomic_write
    from fleetlab.devices.errors import BenchError

    try:
        atomic_write(out, text)
    except OSError as e:
        msg = f"cannot write {out}: {e.strerror or e}"
        raise BenchError(msg, hint="is the folder there, and may it be written to?") from None


def _only_mps(mode: str, verb: str) -> None:
    if mode != "mps":
        msg = f"nothing to {verb} by that name: `{mode}`"
        hint = "only mps is; time slicing is what a driver does by itself, and MIG has `fleetlab share mig`"
        raise fleetlab.DeviceError(msg, hint=hint)
