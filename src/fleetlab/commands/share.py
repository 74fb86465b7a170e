"""`fleetlab share …`: see and switch how a GPU is shared; MIG instances; configuration files of Kubernetes stacks."""

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands import screen
from fleetlab.commands.options import Json, examples, talk, version

if TYPE_CHECKING:
    from fleetlab.gpu import MigGpu

share = App(
    name="share",
    help="Share a GPU: show its state, run MPS, create MIG instances, write and lint Kubernetes configuration.",
    help_epilogue=examples(
        "fleetlab share status",
        "fleetlab share run mps --percent 50 -- python train.py",
        "fleetlab share mig layouts --model H200",
        "fleetlab share emit lab.toml --to gpu-operator",
    ),
    help_format="plaintext",
    version=version,
)

mig = App(
    name="mig",
    help="MIG instances of a GPU: list profiles and layouts, check, create and undo a layout.",
    help_epilogue=examples(
        "fleetlab share mig layouts --model H200", "fleetlab share mig check 3g.71gb,2g.35gb,1g.18gb --model H200"
    ),
    help_format="plaintext",
    version=version,
)

share.command(mig)

GpuIndex = Annotated[int, Parameter(name="gpu", help="Index of a GPU of this machine, as in nvidia-smi.")]
ModelName = Annotated[
    str | None, Parameter(help="A GPU model such as A30, A100-40 or H200 (default: the GPU of this machine).")
]
LayoutWords = Annotated[str, Parameter(help="Profiles separated by commas; `7x1g.18gb` is seven of one profile.")]
Really = Annotated[bool, Parameter(negative=(), help="Run the commands; without it they are only printed.")]

DEVICE_NOTES = ("CUDA_VISIBLE_DEVICES=UUID selects one MIG device", "`fleetlab share mig undo` prints how to undo it")
Percent = Annotated[int | None, Parameter(help="Active thread percentage of an MPS client (default: no limit).")]
Memory = Annotated[int | None, Parameter(help="Device memory limit of an MPS client in MiB (default: no limit).")]


# --- modes -----------------------------------------------------------------------------------------------------------


@share.command(help_epilogue=examples("fleetlab share status", "fleetlab share status --json"))
def status(*, json: Json = False) -> None:
    """Show GPUs, their processes, MPS daemons, and which sharing modes are available. Nothing is changed."""
    from fleetlab.gpu import status_tables
    from fleetlab.gpu.sharing import status as sharing_status

    current = sharing_status.status()
    screen.show(status_tables(current), json=json, most=200)


@share.command(
    help_epilogue=examples("fleetlab share start mps", 'eval "$(fleetlab share start mps --percent 50 --memory 20000)"')
)
def start(
    mode: str, *, percent: Percent = None, memory: Memory = None, pipe: Path | None = None, json: Json = False
) -> None:
    """Start an MPS daemon that keeps running, and print the environment variables of its clients.

    The GPU's compute mode is not changed: a program without these variables does not use MPS.

    Parameters
    ----------
    mode
        mps, the only mode with a daemon.
    pipe
        Pipe directory (CUDA_MPS_PIPE_DIRECTORY) of the daemon (default: a private one).
    """
    from fleetlab.gpu import machine_tables
    from fleetlab.gpu.sharing import mps
    from fleetlab.gpu.sharing.result import table

    _only_mps(mode, "start")
    environment = mps.start(percent=percent, memory_mib=memory, pipe=pipe)
    if json:
        rows = table({"name": name, "value": value} for name, value in environment.items())
        screen.show(machine_tables("share start", {"environment": rows}), json=True)
    else:
        print("\n".join(f"export {name}={quote(value)}" for name, value in environment.items()))
    talk("MPS is running; `fleetlab share stop mps` stops it")


@share.command(help_epilogue=examples("fleetlab share stop mps", "fleetlab share stop mps --anyway"))
def stop(mode: str, *, anyway: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Stop the MPS daemon that `share start mps` started, and verify that it is gone.

    Parameters
    ----------
    mode
        mps, the only mode with a daemon.
    anyway
        Stop it even if clients are attached; they fail.
    """
    from fleetlab.gpu.sharing import mps

    _only_mps(mode, "stop")
    clients = mps.stop(anyway=anyway)
    talk("MPS is stopped" + (f"; it had these clients: {', '.join(map(str, clients))}" if clients else ""))


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
    gpu: GpuIndex = 0,
) -> None:
    """Run a command in a sharing mode, and restore the previous state. The exit status is that of the command.

    Parameters
    ----------
    mode
        exclusive (refuses a GPU in use, and reports other processes), time-slicing, or mps.
    command
        The command, after `--`.
    priority
        Priority of an MPS client: 0 is normal, 1 below normal.
    """
    from fleetlab.gpu import Share, run_in_mode

    exit_status = run_in_mode(mode, command, share=Share(percent, memory, priority), gpu=gpu, progress=talk)
    sys.exit(exit_status)


# --- configuration of stacks -----------------------------------------------------------------------------------------


@share.command(
    help_epilogue=examples(
        "fleetlab share emit lab.toml --to gpu-operator",
        "fleetlab share emit lab.toml --to dra --out claim.yaml",
        "fleetlab share emit lab.toml --to hami --json",
    )
)
def emit(spec: Path, *, to: str, out: Path | None = None, json: Json = False) -> None:
    """Write a sharing spec in the format of a stack, and list what the stack cannot express.

    The file goes to stdout and the list to stderr; with --out the list goes to stdout.

    Parameters
    ----------
    spec
        Spec in TOML; its keys are in docs/share-emit.md.
    to
        device-plugin, gpu-operator, mig-parted, dra, hami, volcano, kai, kueue, compose or env.
    out
        File to write, atomically.
    """
    from fleetlab.gpu import stacks

    result = stacks.emit(stacks.read(spec).spec, to=to, source=spec.name)
    if out is not None:
        _write(out, result.text)
    if json:
        screen.show(result, json=True)
        return
    if out is None:
        print(result.text, end="")
    report = talk if out is None else print
    report("\nlost" if result.losses else "\nlost: nothing")
    for loss in result.losses:
        report(screen.prose(f"{loss.part}: {loss.requested} -> {loss.kept}; {loss.why}", "    ", "  "))
    report(f"\nguarantees\n{screen.table(result.tables()['guarantees'].drop('why'))}")
    for one in result.guarantees:
        if one.why:
            report(screen.prose(f"{one.guarantee}: {one.why}", "    ", "  "))


@share.command(
    name="read",
    help_epilogue=examples("fleetlab share read time-slicing.yaml", "fleetlab share read claim.yaml --json"),
)
def read_file(file: Path, *, json: Json = False) -> None:
    """Read a configuration file of any stack, and print it as a spec in TOML. The stack is recognized by its contents.

    Parameters
    ----------
    file
        YAML of a stack, a Compose file, or lines of KEY=VALUE.
    """
    from fleetlab.gpu import stacks

    result = stacks.read(file)
    if json:
        screen.show(result, json=True)
        return
    talk(f"{file.name}: format {result.stack}")
    print(result.text, end="")


@share.command(
    help_epilogue=examples(
        "fleetlab share lint time-slicing.yaml", "fleetlab share lint mps.yaml --model V100-16 --json"
    )
)
def lint(file: Path, *, model: str | None = None, json: Json = False) -> None:
    """Check a configuration file against the rules of every stack. The exit status is 1 if there is an error.

    Parameters
    ----------
    file
        A file of a stack, pods, a quota, or a spec in TOML.
    model
        GPU model, such as H200, for rules that depend on it.
    """
    from fleetlab.gpu import stacks

    result = stacks.lint(file, gpu=model)
    if json:
        screen.show(result, json=True)
    else:
        for one in result.problems:
            print(screen.prose(f"{one.severity} {one.code} at {screen.cell(one.where, widest=200)}", "  "))
            print(screen.prose(screen.cell(one.what, widest=300), "  ", "  "))
            print(screen.prose(f"do: {screen.cell(one.do, widest=300)}", "    ", "  "))
        counts = ", ".join(f"{e.metric} {e.value:g}" for e in result.summary())
        print(f"{screen.cell(file.name)}, {result.stack}: {counts}")
    if result.count("error"):
        sys.exit(1)


def _write(out: Path, text: str) -> None:
    from fleetlab.gpu import BenchError
    from fleetlab.gpu.devices.console import atomic_write

    try:
        atomic_write(out, text)
    except OSError as e:
        msg = f"cannot write {out}: {e.strerror or e}"
        raise BenchError(msg, hint="does the folder exist, and is it writable?") from None


def _only_mps(mode: str, verb: str) -> None:
    if mode != "mps":
        msg = f"cannot {verb} the mode `{mode}`"
        hint = "only mps has a daemon; time slicing is the driver's default, and MIG has `fleetlab share mig`"
        raise fleetlab.DeviceError(msg, hint=hint)


# --- MIG -------------------------------------------------------------------------------------------------------------


@mig.command(help_epilogue=examples("fleetlab share mig profiles", "fleetlab share mig profiles --model A100-40"))
def profiles(*, model: ModelName = None, gpu: GpuIndex = 0, json: Json = False) -> None:
    """List the MIG profiles of a GPU: slices, SMs, memory, maximum number and placements."""
    from fleetlab.gpu import profile_tables

    mig_gpu = _mig_gpu(model, gpu)
    screen.show(profile_tables(mig_gpu), json=json)


@mig.command(help_epilogue=examples("fleetlab share mig layouts --model H200", "fleetlab share mig layouts --json"))
def layouts(*, model: ModelName = None, gpu: GpuIndex = 0, json: Json = False) -> None:
    """List every layout to which no instance can be added, with its unused slices."""
    from fleetlab.gpu import layout_tables

    mig_gpu = _mig_gpu(model, gpu)
    screen.show(layout_tables(mig_gpu), json=json, most=200)


@mig.command(
    help_epilogue=examples(
        "fleetlab share mig check 3g.71gb,2g.35gb,1g.18gb --model H200",
        "fleetlab share mig check 7x1g.5gb --model A100-40",
    )
)
def check(layout: LayoutWords, *, model: ModelName = None, gpu: GpuIndex = 0, json: Json = False) -> None:
    """Check whether a layout is possible: show its placements, or what does not fit."""
    from fleetlab.gpu import machine_tables, parse_layout, placement_table, slices_left
    from fleetlab.gpu.sharing.mig.layouts import place

    mig_gpu = _mig_gpu(model, gpu)
    placed = place(mig_gpu, parse_layout(layout))
    compute, memory = slices_left(placed, mig_gpu)
    note = f"possible; unused: {compute} of {mig_gpu.slices} compute slices, {memory} of {mig_gpu.sizes} memory slices"
    tables = {mig_gpu.name: placement_table(placed)}
    screen.show(machine_tables("share mig check", tables, [note], instances=len(placed)), json=json)


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
    from fleetlab.gpu import machine_tables, parse_layout
    from fleetlab.gpu.devices import nvidia_smi
    from fleetlab.gpu.sharing.mig import apply as mig_apply
    from fleetlab.gpu.sharing.mig.layouts import place
    from fleetlab.gpu.sharing.result import table

    if really and model is not None:
        msg = "--model names a GPU model, and --really changes the GPU of this machine"
        raise fleetlab.DeviceError(msg, hint="omit one of them")
    placed = place(_mig_gpu(model, gpu), parse_layout(layout))
    if really:
        devices = mig_apply.apply(placed, gpu, progress=talk)
        rows = table({"profile": profile, "uuid": uuid} for profile, uuid in devices)
        screen.show(machine_tables("share mig apply", {"devices": rows}, DEVICE_NOTES, devices=len(devices)), json=json)
        return
    one = None if model else nvidia_smi.gpu(gpu)
    plan = mig_apply.layout_commands(placed, gpu, on_already=one is not None and one.mig == "Enabled")
    against = () if one is None else (*mig_apply.obstacles(one), *mig_apply.conflicts(one))
    _print_commands("share mig apply", {"do": plan.do, "undo": plan.undo}, against, json=json)


@mig.command(help_epilogue=examples("fleetlab share mig undo", "fleetlab share mig undo --gpu 1 --really"))
def undo(*, gpu: GpuIndex = 0, really: Really = False, json: Json = False) -> None:
    """Print the commands that restore a GPU to its state before `share mig apply`; with --really, run them."""
    from fleetlab.gpu.devices import nvidia_smi
    from fleetlab.gpu.sharing.mig import apply as mig_apply
    from fleetlab.gpu.sharing.mig import mode

    if really and mig_apply.mig_record(gpu).get("temporary"):
        mode.restore(gpu, within=0, progress=talk)  # not while its suite is running
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
    from fleetlab.gpu import NoGpu, gpu_profiles, mig_gpu
    from fleetlab.gpu.sharing.mig.layouts import BY_NAME

    if model is not None:
        return mig_gpu(model)
    try:
        return gpu_profiles(gpu)
    except NoGpu as e:
        raise fleetlab.DeviceError(f"no GPU model given: {e}", hint=f"--model takes {', '.join(BY_NAME)}") from None


def _print_commands(
    verb: str, steps: dict[str, Sequence[tuple[str, ...]]], against: Sequence[str], *, json: bool
) -> None:
    """Print commands in full length, so that they can be copied."""
    from fleetlab.gpu import machine_tables
    from fleetlab.gpu.sharing.mig.apply import command_line
    from fleetlab.gpu.sharing.result import table

    notes = ["nothing was changed: run it as root with --really", *(f"would be refused now: {why}" for why in against)]
    if json:
        frames = {name: table({"command": command_line(command)} for command in some) for name, some in steps.items()}
        screen.show(machine_tables(verb, frames, notes), json=True)
        return
    for name, some in steps.items():
        print(f"to {name}\n" + "\n".join(f"  {command_line(command)}" for command in some) + "\n")
    print("notes\n" + "\n".join(f"- {note}" for note in notes))
