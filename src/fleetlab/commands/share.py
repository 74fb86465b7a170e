"""`fleetlab share …`: see and switch how a GPU is shared; configuration files of Kubernetes stacks."""

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.mig import GpuIndex, mig
from fleetlab.commands.words import Json, examples, talk, version

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
share.command(mig)

Percent = Annotated[int | None, Parameter(help="Active thread percentage of an MPS client (default: no limit).")]
Memory = Annotated[int | None, Parameter(help="Device memory limit of an MPS client in MiB (default: no limit).")]


# --- modes -----------------------------------------------------------------------------------------------------------


@share.command(help_epilogue=examples("fleetlab share status", "fleetlab share status --json"))
def status(*, json: Json = False) -> None:
    """Show GPUs, their processes, MPS daemons, and which sharing modes are available. Nothing is changed."""
    from fleetlab._screen import show
    from fleetlab.sharing import status as sharing_status
    from fleetlab.sharing.result import status_tables

    current = sharing_status.status()
    show(status_tables(current), json=json, most=200)


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
    from fleetlab._screen import show
    from fleetlab.sharing import mps_daemon
    from fleetlab.sharing.result import machine_tables, table

    _only_mps(mode, "start")
    environment = mps_daemon.start(percent=percent, memory_mib=memory, pipe=pipe)
    if json:
        rows = table({"name": name, "value": value} for name, value in environment.items())
        show(machine_tables("share start", {"environment": rows}), json=True)
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
    from fleetlab.sharing import mps_daemon

    _only_mps(mode, "stop")
    clients = mps_daemon.stop(anyway=anyway)
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
    from fleetlab.sharing.modes import Share
    from fleetlab.sharing.run_command import run_in_mode

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
    from fleetlab import stacks
    from fleetlab._screen import prose, show, table

    result = stacks.emit(stacks.read(spec).spec, to=to, source=spec.name)
    if out is not None:
        _write(out, result.text)
    if json:
        show(result, json=True)
        return
    if out is None:
        print(result.text, end="")
    report = talk if out is None else print
    report("\nlost" if result.losses else "\nlost: nothing")
    for loss in result.losses:
        report(prose(f"{loss.part}: {loss.requested} -> {loss.kept}; {loss.why}", "    ", "  "))
    report(f"\nguarantees\n{table(result.tables()['guarantees'].drop('why'))}")
    for one in result.guarantees:
        if one.why:
            report(prose(f"{one.guarantee}: {one.why}", "    ", "  "))


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
    from fleetlab import stacks
    from fleetlab._screen import show

    result = stacks.read(file)
    if json:
        show(result, json=True)
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
    from fleetlab import stacks
    from fleetlab._screen import cell, prose, show

    result = stacks.lint(file, gpu=model)
    if json:
        show(result, json=True)
    else:
        for one in result.problems:
            print(prose(f"{one.severity} {one.code} at {cell(one.where, widest=200)}", "  "))
            print(prose(cell(one.what, widest=300), "  ", "  "))
            print(prose(f"do: {cell(one.do, widest=300)}", "    ", "  "))
        counts = ", ".join(f"{e.metric} {e.value:g}" for e in result.summary())
        print(f"{cell(file.name)}, {result.stack}: {counts}")
    if result.count("error"):
        sys.exit(1)


def _write(out: Path, text: str) -> None:
    from fleetlab.devices.errors import BenchError
    from fleetlab.devices.files import atomic_write

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
