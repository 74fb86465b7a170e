"""Create a MIG layout with `nvidia-smi` and undo it; by default the commands are only printed.

A record is written before the first command, the result is verified after the last, and a failed change is rolled back.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlab.gpu.devices import nvidia_smi
from fleetlab.gpu.devices.console import BenchError, Progress
from fleetlab.gpu.devices.nvidia_smi import Gpu
from fleetlab.gpu.sharing import records
from fleetlab.gpu.sharing.mig.layouts import Layout, layout_name

INSTANCE = re.compile(r"^\|\s*(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)\s+(\d+):(\d+)\s*\|", re.MULTILINE)
NONE_YET = ("No GPU instances found", "No MIG-enabled devices found", "No MIG-supported devices found")

Command = tuple[str, ...]  # arguments of `nvidia-smi`
Hold = tuple[int, ...]  # file descriptors of locks that each `nvidia-smi` keeps while it changes the GPU


@dataclass(frozen=True, slots=True)
class MigInstance:
    """An existing GPU instance."""

    name: str
    id: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class MigCommands:
    """Commands that create a layout, and commands that undo it."""

    do: tuple[Command, ...]
    undo: tuple[Command, ...]


def layout_commands(layout: Layout, index: int, *, on_already: bool = False) -> MigCommands:
    """Commands for the GPU with that index; MIG mode is enabled first unless it is on already."""
    gpu = str(index)
    make = ("mig", "-i", gpu, "-cgi", ",".join(map(str, layout)), "-C")
    clear = (("mig", "-i", gpu, "-dci"), ("mig", "-i", gpu, "-dgi"))
    if on_already:
        return MigCommands((make,), clear)
    return MigCommands((("-i", gpu, "-mig", "1"), make), (*clear, ("-i", gpu, "-mig", "0")))


def command_line(command: Command) -> str:
    """Format a command for a shell."""
    return shlex.join((nvidia_smi.SMI, *command))


def instances(index: int) -> list[MigInstance]:
    """List the GPU instances of the GPU with that index."""
    try:
        text = nvidia_smi.run_smi("mig", "-i", str(index), "-lgi")
    except BenchError as e:
        if any(word in str(e) for word in NONE_YET):
            return []
        raise
    present = [
        MigInstance(n, int(i), int(s), int(z)) for g, n, _p, i, s, z in INSTANCE.findall(text) if int(g) == index
    ]
    if not present and not any(word in text for word in NONE_YET):
        msg = f"unexpected output of nvidia-smi, not a list of instances: `{' '.join(text.split())[:200]}`"
        raise BenchError(msg, hint=f"run `nvidia-smi mig -i {index} -lgi` by hand")
    return present


def devices(index: int) -> list[tuple[str, str]]:
    """Profile and UUID of each MIG device of a GPU, as CUDA_VISIBLE_DEVICES takes them."""
    here, pairs = -1, []
    for line in nvidia_smi.run_smi("-L").splitlines():
        if gpu := re.match(r"GPU (\d+):", line):
            here = int(gpu[1])
        elif (part := re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (\S+)\)", line)) and here == index:
            pairs.append((part[1], part[2]))
    return pairs


def obstacles(one: Gpu) -> Iterator[str]:
    """Reasons why this GPU's layout cannot be changed now."""
    if one.mig is None:
        yield f"GPU {one.index} does not support MIG: {one.name}"
        return
    if os.geteuid() != 0:
        yield "only root can change MIG"
    if busy := nvidia_smi.processes_on(one):
        yield f"processes are running on GPU {one.index}: " + ", ".join(f"{p.pid} ({p.name})" for p in busy)


def conflicts(one: Gpu) -> Iterator[str]:
    """Parts of an earlier layout that prevent a new one."""
    if records.read(record_name(one.index)) is not None:
        yield f"fleetlab created a layout on GPU {one.index} before: run `fleetlab share mig undo` first"
    elif there := instances(one.index):
        yield f"GPU {one.index} already has instances: {', '.join(f'{i.name} at {i.start}' for i in there)}"
    if one.mig != one.mig_pending:
        yield f"MIG mode of GPU {one.index} is {one.mig}, {one.mig_pending} after a pending reset"


def apply(
    layout: Layout, index: int, *, progress: Progress, hold: Hold = (), temporary: bool = False
) -> list[tuple[str, str]]:
    """Create a layout on a GPU and return its MIG devices. A change that fails is rolled back.

    A temporary layout is that of one run: if the run is killed, its guard or the next run undoes it.
    """
    one = nvidia_smi.gpu(index)
    _refuse_if("make", [*obstacles(one), *conflicts(one)])
    plan = layout_commands(layout, index, on_already=one.mig == "Enabled")
    record = {
        "gpu": index,
        "uuid": one.uuid,
        "mig": one.mig,
        "places": list(map(str, layout)),
        "layout": layout_name(layout),
    }
    records.write(record_name(index), record)
    try:
        for command in plan.do:
            progress(command_line(command))
            nvidia_smi.run_smi(*command, hold=hold)
            _check_enabled(index)
        return _verify(layout, index)
    except BaseException as e:
        _roll_back(record, e, progress=progress, hold=hold)
        raise


def undo(index: int, *, progress: Progress, hold: Hold = ()) -> None:
    """Restore the GPU to its state before `apply`."""
    record = mig_record(index)
    one = nvidia_smi.gpu(index)
    if one.uuid != record["uuid"]:
        msg = f"GPU {index} is not the one whose layout was changed: {one.uuid}, not {record['uuid']}"
        raise BenchError(msg, hint=f"see `nvidia-smi -L`; the record is in {records.folder()}")
    _refuse_if("undo", list(obstacles(one)))
    _restore(record, progress=progress, hold=hold)


def mig_record(index: int) -> dict[str, Any]:
    """Return the record that `apply` wrote for this GPU."""
    record = records.read(record_name(index))
    if record is None:
        msg = f"fleetlab created no layout on GPU {index}"
        raise BenchError(msg, hint="`fleetlab share mig apply` creates one; layouts of others are not undone")
    if not {"gpu", "uuid", "mig", "places", "layout"} <= record.keys():
        msg = f"{records.folder() / record_name(index)}.json: not a record of a layout"
        raise BenchError(msg, hint="inspect the file")
    return record


def undo_commands(record: dict[str, Any], one: Gpu, there: Sequence[MigInstance]) -> list[Command]:
    """Commands that lead from the present instances back to the recorded state."""
    back: list[Command] = []
    if strangers := [i for i in there if _place(i.name, i.start) not in record["places"]]:
        msg = f"GPU {record['gpu']} has instances that fleetlab did not create: {', '.join(i.name for i in strangers)}"
        raise BenchError(msg, hint="someone else changed the layout since; ask them")
    gpu = str(record["gpu"])
    if there:
        ids = ",".join(str(i.id) for i in there)
        back += [("mig", "-i", gpu, "-dci", "-gi", ids), ("mig", "-i", gpu, "-dgi", "-gi", ids)]
    if _still_on(record, one):
        back.append(("-i", gpu, "-mig", "0"))
    return back


# --- apply and roll back ---------------------------------------------------------------------------------------------


def record_name(index: int) -> str:
    """Name of the record of a GPU."""
    return f"mig-{index}"


def _place(name: str, start: int) -> str:
    return f"{name}:{start}"


def _still_on(record: dict[str, Any], one: Gpu) -> bool:
    return record["mig"] == "Disabled" and "Enabled" in (one.mig, one.mig_pending)


def _refuse_if(verb: str, against: Sequence[str]) -> None:
    if against:
        msg = f"cannot {verb} a layout: {'; '.join(against)}"
        raise BenchError(msg, hint="without --really the commands are only printed")


def _check_enabled(index: int) -> None:
    """Check that MIG mode is on. An A100 may need a GPU reset first, which fleetlab never does."""
    one = nvidia_smi.gpu(index)
    if one.mig != "Enabled":
        msg = f"MIG mode of GPU {index} did not become active: {one.mig}, {one.mig_pending} after a reset"
        raise BenchError(msg, hint=f"run `nvidia-smi -i {index} --gpu-reset` or reboot, then try again")


def _verify(layout: Layout, index: int) -> list[tuple[str, str]]:
    want = sorted(_place(p.profile.name, p.start) for p in layout)
    have = sorted(_place(i.name, i.start) for i in instances(index))
    if have != want:
        msg = f"nvidia-smi created other instances: {', '.join(have) or 'none'} instead of {', '.join(want)}"
        raise BenchError(msg, hint="the change was rolled back")
    parts = devices(index)
    if sorted(name for name, _ in parts) != sorted(p.profile.name for p in layout):
        msg = f"the instances exist, but the MIG devices are: {', '.join(n for n, _ in parts) or 'none'}"
        raise BenchError(msg, hint="the change was rolled back")
    return parts


def _roll_back(record: dict[str, Any], e: BaseException, *, progress: Progress, hold: Hold) -> None:
    progress("rolling back")
    index = record["gpu"]
    try:
        # There were no instances before, so all that exist now are ours, wherever they were placed.
        record = record | {"places": [_place(i.name, i.start) for i in instances(index)]}
        records.write(record_name(index), record)
        _restore(record, progress=progress, hold=hold)
    except BenchError as worse:
        msg = f"{e or type(e).__name__}; and rolling back failed: {worse}"
        raise BenchError(msg, hint=f"fix the cause, then `fleetlab share mig undo --gpu {index} --really`") from None


def _restore(record: dict[str, Any], *, progress: Progress, hold: Hold) -> None:
    index = record["gpu"]
    failed = None
    for command in undo_commands(record, nvidia_smi.gpu(index), instances(index)):
        progress(command_line(command))
        try:
            nvidia_smi.run_smi(*command, hold=hold)
        except BenchError as e:
            failed = e
            if "-dci" not in command:  # an instance may have no compute instances; every other step must succeed
                break
    one, there = nvidia_smi.gpu(index), instances(index)
    if there or _still_on(record, one):
        rest = ", ".join(i.name for i in there) or f"MIG {one.mig}, {one.mig_pending} after a reset"
        msg = f"GPU {index} is not restored: {rest}" + (f" ({failed})" if failed else "")
        raise BenchError(msg, hint=(failed and failed.hint) or "run the commands by hand")
    records.forget(record_name(index))
