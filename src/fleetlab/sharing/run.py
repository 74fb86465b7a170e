"""Any command, run while a card is shared in one way: the way is opened, the command watched, and all put back.

It is put back however the command ends, and if we are killed too: MPS has a guard of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from fleetlab.devices import nvidia_smi as cards
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvidia_smi import Card
from fleetlab.sharing.modes import APART, Mps, Share, shared

MODES = ("exclusive", "time-slicing", "mps")
EVERY = 0.5  # s between two looks
Tell = Callable[[str], None]


class Look(Protocol):
    """Watches a command while it runs."""

    def at(self, pid: int) -> bool:
        """Look at the command of that process; True if there is no more to see."""

    def end(self) -> str:
        """What was seen, in words."""


def run(mode: str, command: Sequence[str], *, share: Share | None = None, gpu: int = 0, tell: Tell) -> int:
    """Run it; its exit status, 128 and more if a signal ended it, as a shell says it."""
    if mode not in MODES:
        msg = f"no sharing mode to run in by that name: `{mode}`"
        raise BenchError(msg, hint=f"there are {', '.join(MODES)}; for MIG, `fleetlab share mig`")
    if not command:
        msg = "no command to run"
        raise BenchError(msg, hint=f"fleetlab share run {mode} -- python train.py")
    if shutil.which(command[0]) is None:
        msg = f"no such command: `{command[0]}`"
        raise BenchError(msg, hint="give a program that is on the PATH, or its path")
    if mode == "exclusive":
        return _alone(command, share or Share(), gpu, tell=tell)
    with shared(mode) as way:
        environment = way.environment(share or Share())
        return _watched(command, environment, Attached(way) if isinstance(way, Mps) else None, tell=tell)


class Attached:
    """Is any process of the command a client of this daemon?"""

    def __init__(self, mps: Mps) -> None:
        self._mps, self._found = mps, set[int]()

    def at(self, pid: int) -> bool:
        """Seen once is proof; a child may come or go while the daemon is asked."""
        before = family(pid)
        self._found = self._mps.clients() & (before | family(pid))
        return bool(self._found)

    def end(self) -> str:
        """The processes that are proved."""
        if self._found:
            return f"ran under MPS: attached as {', '.join(map(str, sorted(self._found)))}"
        return (
            "not proved that it ran under MPS: none of its processes was seen among the clients "
            "(too short, or the card was never opened)"
        )


class Alone:
    """Did anybody else compute on the card meanwhile?"""

    def __init__(self, one: Card) -> None:
        self._card, self._nvml = one, _opened()
        self._ours, self._others = set[int](), set[int]()
        self._looks, self._blind = 0, ""

    def at(self, pid: int) -> bool:
        """Whoever is listed and is not of the command's family, before or after, is somebody else."""
        self._ours |= family(pid)
        try:
            listed = self._listed()
        except BenchError as e:
            self._blind = f"who else was on card {self._card.index} could not be watched: {e}"
            return True
        self._ours |= family(pid)
        self._others |= listed - self._ours
        self._looks += 1
        return False

    def _listed(self) -> set[int]:
        if self._nvml is None:
            return {p.pid for p in cards.on(self._card)}
        try:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(self._card.uuid)
            return {p.pid for p in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        except self._nvml.NVMLError as e:
            msg = f"NVML: {e}"
            raise BenchError(msg) from None

    def end(self) -> str:
        """Who came; a process id that is not of this machine's may be the command's own, seen from outside."""
        where = f"card {self._card.index}"
        if self._blind:
            return self._blind
        strangers = {pid for pid in self._others if Path(f"/proc/{pid}").exists()}
        if strangers:
            return f"NOT alone on {where}: {', '.join(map(str, sorted(strangers)))} came too"
        if self._others:
            return f"whether it was alone on {where} cannot be told: processes that are not to be seen from here"
        return f"alone on {where}, {self._looks} looks" if self._looks else f"too short to watch who is on {where}"


def family(pid: int) -> set[int]:
    """The process and all that it started, and they."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _alone(command: Sequence[str], share: Share, gpu: int, *, tell: Tell) -> int:
    if share != Share():
        msg = "an exclusive card has no shares to give"
        raise BenchError(msg, hint="thread percentage, memory limit and priority belong to mps")
    one = cards.card(gpu)
    if one.mig == "Enabled":
        msg = f"card {gpu} is cut by MIG"
        raise BenchError(msg, hint="set CUDA_VISIBLE_DEVICES to one of its parts: `nvidia-smi -L` lists them")
    if busy := cards.on(one):
        msg = f"card {gpu} is not free: {', '.join(f'{p.pid} ({p.name})' for p in busy)}"
        raise BenchError(msg, hint="wait until they have ended; nobody is sent away")
    return _watched(command, APART | {"CUDA_VISIBLE_DEVICES": one.uuid}, Alone(one), tell=tell)


def _watched(command: Sequence[str], environment: dict[str, str], look: Look | None, *, tell: Tell) -> int:
    try:
        child = subprocess.Popen(command, env=os.environ | environment)
    except OSError as e:
        msg = f"`{command[0]}` cannot be run: {e.strerror or e}"
        raise BenchError(
            msg, hint="is it a program for this machine, with a first line that names its interpreter?"
        ) from None
    try:
        status = _waited(child, look)
    except KeyboardInterrupt:
        _put_down(child, 2)  # Ctrl-C reaches the command by itself: let it end as it likes
        raise
    except BaseException:
        _put_down(child, 0)
        raise
    if look is not None:
        tell(look.end())
    return status if status >= 0 else 128 - status


def _waited(child: subprocess.Popen[bytes], look: Look | None) -> int:
    while look is not None:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(timeout=EVERY)
        if look.at(child.pid):
            break
    return child.wait()


def _put_down(child: subprocess.Popen[bytes], grace: float) -> None:
    """End the command and what it started: gently, then not."""
    pids = family(child.pid)
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


def _opened() -> Any:  # noqa: ANN401
    try:
        import pynvml  # type: ignore[import-untyped]

        pynvml.nvmlInit()
    except ImportError:
        return None
    except pynvml.NVMLError:
        return None
    return pynvml
