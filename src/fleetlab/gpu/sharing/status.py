"""How the GPUs of this machine are shared, and which modes are available. Read-only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fleetlab.gpu.devices import nvidia_smi
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.devices.nvidia_smi import Gpu, GpuProcess
from fleetlab.gpu.sharing.mig import apply
from fleetlab.gpu.sharing.mig.mode import ALLOW, permitted_gpu
from fleetlab.gpu.sharing.mps import CONTROL, Mps, mps_record, parse_number

DEFAULT_PIPE = "/tmp/nvidia-mps"  # the default of NVIDIA's control program


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """An MPS daemon: its pipe directory, owner, default limits and clients."""

    pipe: str
    whose: str
    answers: bool
    percent: float | None = None
    memory: str | None = None
    servers: Mapping[int, list[int]] = field(default_factory=dict)

    @property
    def clients(self) -> list[int]:
        """Clients of all its servers."""
        return sorted(pid for pids in self.servers.values() for pid in pids)


@dataclass(frozen=True, slots=True)
class ModeStatus:
    """Whether a mode is available on a GPU, and why not."""

    gpu: int | None
    name: str
    possible: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class SharingStatus:
    """The state of this machine; `absent` says why there are no GPUs."""

    gpus: list[Gpu]
    processes: list[GpuProcess]
    daemons: list[MpsDaemon]
    modes: list[ModeStatus]
    absent: str = ""


# --- the present state -----------------------------------------------------------------------------------------------


def status() -> SharingStatus:
    """Query the state. No GPU is a valid answer."""
    running = daemons()
    try:
        here, busy = nvidia_smi.gpus(), nvidia_smi.processes()
    except nvidia_smi.NoGpu as e:
        return SharingStatus(
            [], [], running, [ModeStatus(None, name, possible=False, why=str(e)) for name in OBSTACLES], str(e)
        )
    modes = [
        ModeStatus(one.index, name, possible=not (why := "; ".join(stopped_by(one))), why=why)
        for one in here
        for name, stopped_by in OBSTACLES.items()
    ]
    return SharingStatus(here, busy, running, modes)


def suite_modes(index: int = 0, *, allow_mig: bool = False) -> list[ModeStatus]:
    """Modes in which a suite can measure on a GPU, and why not in the others; MIG needs permission besides."""
    try:
        one = nvidia_smi.gpu(index)
    except BenchError as e:
        return [ModeStatus(None, name, possible=False, why=str(e)) for name in SUITE_MODES]
    against = {name: list(OBSTACLES[name](one)) for name in SUITE_MODES}
    try:
        permitted = permitted_gpu(allow=allow_mig)
        if permitted.uuid != one.uuid:
            against["mig"].append(f"{ALLOW} names another GPU: {permitted.uuid}")
    except BenchError as e:
        against["mig"].append(str(e))
    return [ModeStatus(index, name, possible=not why, why="; ".join(why)) for name, why in against.items()]


def daemons() -> list[MpsDaemon]:
    """Daemons that a program started here could use: fleetlab's, the environment's, the default."""
    record = mps_record()
    places = {
        "started by fleetlab": record and record["pipe"],
        "from the environment": os.environ.get("CUDA_MPS_PIPE_DIRECTORY"),
        "default": DEFAULT_PIPE,
    }
    pipes: dict[str, str] = {}
    for whose, pipe in places.items():
        if pipe and Path(pipe).is_dir():
            pipes.setdefault(str(Path(pipe).resolve()), whose)
    states = [_daemon(pipe, whose) for pipe, whose in pipes.items()]
    return [one for one in states if one.answers or one.whose == "started by fleetlab"]


def _daemon(pipe: str, whose: str) -> MpsDaemon:
    mps = Mps.at(Path(pipe))
    percent = parse_number(mps.ask("get_default_active_thread_percentage"))
    if percent is None:
        return MpsDaemon(pipe, whose, answers=False)
    memory = mps.ask("get_default_device_pinned_mem_limit 0") or None
    servers = {server: sorted(pids) for server, pids in mps.servers().items()}
    return MpsDaemon(pipe, whose, answers=True, percent=percent, memory=memory, servers=servers)


def _exclusive_obstacles(one: Gpu) -> Iterator[str]:
    if busy := nvidia_smi.processes_on(one):
        yield "processes are running: " + ", ".join(str(p.pid) for p in busy)


def _time_slicing_obstacles(one: Gpu) -> Iterator[str]:
    if one.compute_mode != "Default":
        yield f"compute mode is {one.compute_mode}"


def _mps_obstacles(one: Gpu) -> Iterator[str]:
    if shutil.which(CONTROL) is None:
        yield f"`{CONTROL}` is not installed"
    if one.compute_mode == "Prohibited":
        yield "compute mode is Prohibited"
    if one.mig == "Enabled":
        yield "MIG mode is on: MPS would need a MIG device"


def _green_context_obstacles(one: Gpu) -> Iterator[str]:
    try:
        major, minor = (int(n) for n in version("torch").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        yield "torch is not installed"
        return
    if (major, minor) < (2, 10):
        yield f"torch {major}.{minor} is too old: 2.10 or later"
    if not one.driver.partition(".")[0].isdigit() or int(one.driver.partition(".")[0]) < 550:
        yield f"driver {one.driver} is too old: 550 or later"


def _mig_obstacles(one: Gpu) -> Iterator[str]:
    if one.mig is None:
        yield "not supported by this GPU"
    else:
        yield from apply.obstacles(one)
        try:
            yield from apply.conflicts(one)
        except BenchError as e:
            yield str(e)


SUITE_MODES = ("time-slicing", "mps", "mig")
OBSTACLES = {
    "exclusive": _exclusive_obstacles,
    "time-slicing": _time_slicing_obstacles,
    "mps": _mps_obstacles,
    "green-contexts": _green_context_obstacles,
    "mig": _mig_obstacles,
}
