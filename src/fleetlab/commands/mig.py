"""`fleetlab share mig …`: profiles and layouts of MIG instances, created and destroyed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.words import Json, examples, talk, version

if TYPE_CHECKING:
    from fleetlab.sharing.mig.profiles import MigGpu

mig = App(
    name="mig",
    help="MIG instances of a GPU: list profiles and layouts, check, create and undo a layout.",
    help_epilogue=examples(
        "fleetlab share mig layouts --model H200", "fleetlab share mig check 3g.71gb,2g.35gb,1g.18gb --model H200"
    ),
    help_format="plaintext",
    version=version,
)

GpuIndex = Annotated[int, Parameter(name="gpu", help="Index of a GPU of this machine, as in nvidia-smi.")]
ModelName = Annotated[
    str | None, Parameter(help="A GPU model such as A30, A100-40 or H200 (default: the GPU of this machine).")
]
LayoutWords = Annotated[str, Parameter(help="Profiles separated by commas; `7x1g.18gb` is seven of one profile.")]
Really = Annotated[bool, Parameter(negative=(), help="Run the commands; without it they are only printed.")]

DEVICE_NOTES = ("CUDA_VISIBLE_DEVICES=UUID selects one MIG device", "`fleetlab share mig undo` prints how to undo it")


@mig.command(help_epilogue=examples("fleetlab share mig profiles", "fleetlab share mig profiles --model A100-40"))
def profiles(*, model: ModelName = None, gpu: GpuIndex = 0, json: Json = False) -> None:
    """List the MIG profiles of a GPU: slices, SMs, memory, maximum number and placements."""
    from fleetlab._screen import show
    from fleetlab.sharing.result import profile_tables

    mig_gpu = _mig_gpu(model, gpu)
    show(profile_tables(mig_gpu), json=json)


@mig.command(help_epilogue=examples("fleetlab share mig layouts --model H200", "fleetlab share mig layouts --json"))
def layouts(*, model: ModelName = None, gpu: GpuIndex = 0, json: Json = False) -> None:
    """List every layout to which no instance can be added, with its unused slices."""
    from fleetlab._screen import show
    from fleetlab.sharing.result import layout_tables

    mig_gpu = _mig_gpu(model, gpu)
    show(layout_tables(mig_gpu), json=json, most=200)


@mig.command(
    help_epilogue=examples(
        "fleetlab share mig check 3g.71gb,2g.35gb,1g.18gb --model H200",
        "fleetlab share mig check 7x1g.5gb --model A100-40",
    )
)
def check(layout: LayoutWords, *, model: ModelName = None, gpu: GpuIndex = 0, json: Json = False) -> None:
    """Check whether a layout is possible: show its placements, or what does not fit."""
    from fleetlab._screen import show
    from fleetlab.sharing.mig.layouts import parse_layout, place, slices_left
    from fleetlab.sharing.result import machine_tables, placement_table

    mig_gpu = _mig_gpu(model, gpu)
    placed = place(mig_gpu, parse_layout(layout))
    compute, memory = slices_left(placed, mig_gpu)
    note = f"possible; unused: {compute} of {mig_gpu.slices} compute slices, {memory} of {mig_gpu.sizes} memory slices"
    tables = {mig_gpu.name: placement_table(placed)}
    show(machine_tables("share mig check", tables, [note], instances=len(placed)), json=json)


@mig.command(
    help_epilogue=examples(
        "fleetlab share mig apply 3g.71gb,2x2g.35gb",
        "fleetlab share mig apply 7x1g.18gb --model H200",
        "fleetlab share mig apply 3g.71gb,2x2g.35gb --really",
    )
)
def apply(
    layout: LayoutWords, *, gpu: GpuIndex = 0, model: ModelName = None, really: Really = False, json: Json = False
) -> None:
    """Print the commands that create a layout and those that undo it; with --really, create it.

    Refuses while processes run on the GPU, and if it has MIG instances; a change that fails is rolled back.
    """
    from fleetlab._screen import show
    from fleetlab.devices import nvidia_smi
    from fleetlab.sharing.mig import apply as mig_apply
    from fleetlab.sharing.mig.layouts import parse_layout, place
    from fleetlab.sharing.result import machine_tables, table

    if really and model is not None:
        msg = "--model names a GPU model, and --really changes the GPU of this machine"
        raise fleetlab.DeviceError(msg, hint="omit one of them")
    placed = place(_mig_gpu(model, gpu), parse_layout(layout))
    if really:
        devices = mig_apply.apply(placed, gpu, progress=talk)
        rows = table({"profile": profile, "uuid": uuid} for profile, uuid in devices)
        show(machine_tables("share mig apply", {"devices": rows}, DEVICE_NOTES, devices=len(devices)), json=json)
        return
    one = None if model else nvidia_smi.gpu(gpu)
    plan = mig_apply.layout_commands(placed, gpu, on_already=one is not None and one.mig == "Enabled")
    against = () if one is None else (*mig_apply.obstacles(one), *mig_apply.conflicts(one))
    _print_commands("share mig apply", {"do": plan.do, "undo": plan.undo}, against, json=json)


@mig.command(help_epilogue=examples("fleetlab share mig undo", "fleetlab share mig undo --gpu 1 --really"))
def undo(*, gpu: GpuIndex = 0, really: Really = False, json: Json = False) -> None:
    """Print the commands that restore a GPU to its state before `share mig apply`; with --really, run them."""
    from fleetlab.devices import nvidia_smi
    from fleetlab.sharing.mig import apply as mig_apply
    from fleetlab.sharing.mig import guard

    if really and mig_apply.mig_record(gpu).get("temporary"):
        guard.restore(gpu, within=0, progress=talk)  # not while its suite is running
    elif really:
        mig_apply.undo(gpu, progress=talk)
    if really:
        talk(f"GPU {gpu} is restored")
        return
    record, one = mig_apply.mig_record(gpu), nvidia_smi.gpu(gpu)
    commands = mig_apply.undo_commands(record, one, mig_apply.instances(gpu))
    against = tuple(mig_apply.obstacles(one))
    _print_commands("share mig undo", {"undo": commands}, against, json=json)


def _mig_gpu(model: str | None, gpu: int) -> "MigGpu":
    from fleetlab.devices.nvidia_smi import NoGpu
    from fleetlab.sharing.mig.models import BY_NAME, gpu_profiles, mig_gpu

    if model is not None:
        return mig_gpu(model)
    try:
        return gpu_profiles(gpu)
    except NoGpu as e:
        msg = f"no GPU model given: {e}"
        raise fleetlab.DeviceError(msg, hint=f"--model takes {', '.join(BY_NAME)}") from None


def _print_commands(
    verb: str, steps: dict[str, Sequence[tuple[str, ...]]], against: Sequence[str], *, json: bool
) -> None:
    """Print commands in full length, so that they can be copied."""
    from fleetlab._screen import show
    from fleetlab.sharing.mig.apply import command_line
    from fleetlab.sharing.result import machine_tables, table

    notes = ["nothing was changed: run it as root with --really", *(f"would be refused now: {why}" for why in against)]
    if json:
        frames = {name: table({"command": command_line(command)} for command in some) for name, some in steps.items()}
        show(machine_tables(verb, frames, notes), json=True)
        return
    for name, some in steps.items():
        print(f"to {name}\n" + "\n".join(f"  {command_line(command)}" for command in some) + "\n")
    print("notes\n" + "\n".join(f"- {note}" for note in notes))
