"""Run a command in a sharing mode: switch the mode on, watch the command, and restore the state.

The state is restored however the command ends, even if fleetlab is killed: MPS has a guard process.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fleetlab.gpu.devices import nvidia_smi
from fleetlab.gpu.devices.console import BenchError, Progress
from fleetlab.gpu.devices.nvidia_smi import Gpu
from fleetlab.gpu.devices.nvml import open_nvml
from fleetlab.gpu.sharing.modes import NO_MPS, Mps, Share, shared

MODES = ("exclusive", "time-slicing", "mps")
EVERY = 0.5  # s between checks


def run_in_mode(
    mode: str, command: Sequence[str], *, share: Share | None = None, gpu: int = 0, progress: Progress
) -> int:
    """Run the command and return its exit status; 128 plus the number of a signal that ended it."""
    if mode not in MODES:
        msg = f"unknown sharing mode: `{mode}`"
        raise BenchError(msg, hint=f"one of {', '.join(MODES)}; for MIG, `fleetlab share mig`")
    if not command:
        raise BenchError("no command to run", hint=f"fleetlab share run {mode} -- python train.py")
    if shutil.which(command[0]) is None:
        raise BenchError(f"no such command: `{command[0]}`", hint="give a program on the PATH, or its path")
    if mode == "exclusive":
        return _run_exclusive(command, share or Share(), gpu, progress=progress)
    with shared(mode) as way:
        environment = way.environment(share or Share())
        return _run_watched(command, environment, MpsWatch(way) if isinstance(way, Mps) else None, progress=progress)


class MpsWatch:
    """Checks whether any process of the command is a client of the daemon."""

    def __init__(self, mps: Mps) -> None:
        self._mps, self._clients_seen = mps, set[int]()

    def at(self, pid: int) -> bool:
        """One sighting is enough; children may start or end meanwhile."""
        before = process_tree(pid)
        self._clients_seen = self._mps.clients() & (before | process_tree(pid))
        return bool(self._clients_seen)

    def end(self) -> str:
        """List the clients."""
        if self._clients_seen:
            return f"ran under MPS: attached as {', '.join(map(str, sorted(self._clients_seen)))}"
        return (
            "not verified that it ran under MPS: none of its processes was listed as a client "
            "(too short, or the GPU was never used)"
        )


class ExclusiveWatch:
    """Checks whether other processes compute on the GPU."""

    def __init__(self, one: Gpu) -> None:
        self._gpu, (self._nvml, _) = one, open_nvml()
        self._ours, self._others = set[int](), set[int]()
        self._looks, self._blind = 0, ""

    def at(self, pid: int) -> bool:
        """Processes that are not descendants of the command, before or after the query, are others."""
        self._ours |= process_tree(pid)
        try:
            listed = self._listed()
        except BenchError as e:
            self._blind = f"other processes on GPU {self._gpu.index} could not be checked: {e}"
            return True
        self._ours |= process_tree(pid)
        self._others |= listed - self._ours
        self._looks += 1
        return False

    def _listed(self) -> set[int]:
        if self._nvml is None:
            return {p.pid for p in nvidia_smi.processes_on(self._gpu)}
        try:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(self._gpu.uuid)
            return {p.pid for p in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        except self._nvml.NVMLError as e:
            raise BenchError(f"NVML: {e}") from None

    def end(self) -> str:
        """Summarize; a process id that does not exist here may be the command itself, seen from outside a container."""
        where = f"GPU {self._gpu.index}"
        if self._blind:
            return self._blind
        strangers = {pid for pid in self._others if Path(f"/proc/{pid}").exists()}
        if strangers:
            return f"NOT alone on {where}: processes {', '.join(map(str, sorted(strangers)))} used it too"
        if self._others:
            return f"cannot tell whether it was alone on {where}: processes of another PID namespace"
        return f"alone on {where}, {self._looks} checks" if self._looks else f"too short to check for others on {where}"


def process_tree(pid: int) -> set[int]:
    """The process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    pids = {pid}
    while more := {child for child, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return pids


def _run_exclusive(command: Sequence[str], share: Share, gpu: int, *, progress: Progress) -> int:
    if share != Share():
        msg = "an exclusive GPU has no limits per tenant"
        raise BenchError(msg, hint="thread percentage, memory limit and priority are settings of mps")
    one = nvidia_smi.gpu(gpu)
    if one.mig == "Enabled":
        msg = f"GPU {gpu} is in MIG mode"
        raise BenchError(msg, hint="set CUDA_VISIBLE_DEVICES to one of its MIG devices: `nvidia-smi -L` lists them")
    if busy := nvidia_smi.processes_on(one):
        msg = f"GPU {gpu} is in use: {', '.join(f'{p.pid} ({p.name})' for p in busy)}"
        raise BenchError(msg, hint="wait until these processes have ended")
    return _run_watched(command, NO_MPS | {"CUDA_VISIBLE_DEVICES": one.uuid}, ExclusiveWatch(one), progress=progress)


def _run_watched(
    command: Sequence[str], environment: dict[str, str], look: MpsWatch | ExclusiveWatch | None, *, progress: Progress
) -> int:
    try:
        child = subprocess.Popen(command, env=os.environ | environment)
    except OSError as e:
        msg = f"`{command[0]}` cannot be run: {e.strerror or e}"
        raise BenchError(msg, hint="is it an executable for this machine, with a valid interpreter line?") from None
    try:
        status = _wait(child, look)
    except KeyboardInterrupt:
        _terminate(child, 2)  # the command receives Ctrl-C too: give it time to end
        raise
    except BaseException:
        _terminate(child, 0)
        raise
    if look is not None:
        progress(look.end())
    return status if status >= 0 else 128 - status


def _wait(child: subprocess.Popen[bytes], look: MpsWatch | ExclusiveWatch | None) -> int:
    while look is not None:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(timeout=EVERY)
        if look.at(child.pid):
            break
    return child.wait()


def _terminate(child: subprocess.Popen[bytes], grace: float) -> None:
    """Terminate the command and its descendants: SIGTERM first, then SIGKILL."""
    pids = process_tree(child.pid)
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout=grace)
        return
    for blow in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, blow)
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=10)
            return
