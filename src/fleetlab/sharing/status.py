"""How the cards of this machine are shared and how they could be: asked, and nothing changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fleetlab.devices import nvidia_smi as cards
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvidia_smi import Card, Process
from fleetlab.sharing.mig import apply as mig
from fleetlab.sharing.modes import CONTROL, Mps
from fleetlab.sharing.mps_daemon import number, recorded

DEFAULT_PIPE = "/tmp/nvidia-mps"  # where NVIDIA's own program looks if nobody says otherwise


@dataclass(frozen=True, slots=True)
class Daemon:
    """An MPS daemon: where it is, whose, what it gives a client unless told otherwise, and who is attached."""

    pipe: str
    whose: str
    answers: bool
    percent: float | None = None
    memory: str | None = None
    servers: Mapping[int, list[int]] = field(default_factory=dict)

    @property
    def clients(self) -> list[int]:
        """Of all its servers."""
        return sorted(pid for pids in self.servers.values() for pid in pids)


@dataclass(frozen=True, slots=True)
class Mode:
    """Could a card be shared so, and what stops it?"""

    card: int | None
    name: str
    possible: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """What is here; `absent` says why there are no cards."""

    cards: list[Card]
    processes: list[Process]
    daemons: list[Daemon]
    modes: list[Mode]
    absent: str = ""


# --- what is here ----------------------------------------------------------------------------------------------------


def status() -> Status:
    """Ask, and change nothing. That there is no card is an answer too."""
    found = daemons()
    try:
        here, busy = cards.cards(), cards.processes()
    except cards.NoCard as e:
        return Status([], [], found, [Mode(None, name, possible=False, why=str(e)) for name in STOPPED_BY], str(e))
    modes = [
        Mode(one.index, name, possible=not (why := "; ".join(stopped_by(one))), why=why)
        for one in here
        for name, stopped_by in STOPPED_BY.items()
    ]
    return Status(here, busy, found, modes)


def daemons() -> list[Daemon]:
    """Those that a program of ours could meet: the one started from here, the environment's, the default."""
    record = recorded()
    places = {
        "started by fleetlab": record and record["pipe"],
        "of this environment": os.environ.get("CUDA_MPS_PIPE_DIRECTORY"),
        "the default": DEFAULT_PIPE,
    }
    seen: dict[str, str] = {}
    for whose, pipe in places.items():
        if pipe and Path(pipe).is_dir():
            seen.setdefault(str(Path(pipe).resolve()), whose)
    asked = [_daemon(pipe, whose) for pipe, whose in seen.items()]
    return [one for one in asked if one.answers or one.whose == "started by fleetlab"]


def _daemon(pipe: str, whose: str) -> Daemon:
    mps = Mps.at(Path(pipe))
    percent = number(mps.ask("get_default_active_thread_percentage"))
    if percent is None:
        return Daemon(pipe, whose, answers=False)
    memory = mps.ask("get_default_device_pinned_mem_limit 0") or None
    servers = {server: sorted(pids) for server, pids in mps.servers().items()}
    return Daemon(pipe, whose, answers=True, percent=percent, memory=memory, servers=servers)


def _against_exclusive(one: Card) -> Iterator[str]:
    if busy := cards.on(one):
        yield "processes run: " + ", ".join(str(p.pid) for p in busy)


def _against_turns(one: Card) -> Iterator[str]:
    if one.compute_mode != "Default":
        yield f"compute mode is {one.compute_mode}"


def _against_mps(one: Card) -> Iterator[str]:
    if shutil.which(CONTROL) is None:
        yield f"`{CONTROL}` is not here"
    if one.compute_mode == "Prohibited":
        yield "compute mode is Prohibited"
    if one.mig == "Enabled":
        yield "MIG is on: a daemon would need one instance for itself"


def _against_green(one: Card) -> Iterator[str]:
    try:
        major, minor = (int(n) for n in version("torch").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        yield "torch is not here"
        return
    if (major, minor) < (2, 10):
        yield f"torch {major}.{minor} has none: 2.10 does"
    if not one.driver.partition(".")[0].isdigit() or int(one.driver.partition(".")[0]) < 550:
        yield f"driver {one.driver} has none: 550 does"


def _against_mig(one: Card) -> Iterator[str]:
    if one.mig is None:
        yield "not on this card"
    else:
        yield from mig.obstacles(one)
        try:
            yield from mig.taken(one)
        except BenchError as e:
            yield str(e)


STOPPED_BY = {
    "exclusive": _against_exclusive,
    "time-slicing": _against_turns,
    "mps": _against_mps,
    "green-contexts": _against_green,
    "mig": _against_mig,
}
