"""What cards this machine has and who is on them, as `nvidia-smi` tells; nothing here changes anything."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass

from fleetlab.devices.errors import BenchError

SMI = "nvidia-smi"
PATIENCE = 30.0  # s; a driver that is stuck answers never
FIELDS = (
    "index",
    "name",
    "uuid",
    "driver_version",
    "memory.total",
    "memory.used",
    "compute_mode",
    "persistence_mode",
    "mig.mode.current",
    "mig.mode.pending",
)
ABSENT = "no NVIDIA GPU to be seen: this machine has no nvidia-smi"
NONE_HERE = ("No devices were found", "No devices found")


class NoCard(BenchError):
    """There is no NVIDIA GPU here: an answer to some, an error to others."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU; MIG is None where the card has none."""

    index: int
    name: str
    uuid: str
    driver: str
    memory_mib: int | None
    used_mib: int | None
    compute_mode: str
    persistence: str
    mig: str | None  # Enabled or Disabled
    mig_pending: str | None
    time_slice: str | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """Somebody who computes on a card."""

    uuid: str
    pid: int
    name: str
    memory_mib: int | None


def ask(*words: str) -> str:
    """What `nvidia-smi` answers, or why not. An exit status of 0 proves nothing: ask again what became of it."""
    status, said = _run((SMI, *words))
    if any(none in said for none in NONE_HERE):
        msg = "no NVIDIA GPU on this machine: nvidia-smi finds no device"
        raise NoCard(msg, hint="`nvidia-smi -L` lists what the driver sees")
    if status:
        reason = " ".join(said.split())[:300] or "no reason given"
        msg = f"`{SMI} {' '.join(words)}` failed with status {status}: {reason}"
        raise BenchError(msg, hint=_advice(said))
    return said


def cards() -> list[Card]:
    """Every card, in the driver's order."""
    rows = _table("--query-gpu=" + ",".join(FIELDS), len(FIELDS))
    slices = _time_slices()
    return [_card(row, slices) for row in rows]


def card(index: int) -> Card:
    """The card of that number."""
    here = cards()
    for one in here:
        if one.index == index:
            return one
    msg = f"no card of that number: {index}"
    raise BenchError(msg, hint=f"there are {', '.join(str(one.index) for one in here)}")


def processes() -> list[Process]:
    """Who computes on any card. Clients of MPS do not show: their server does."""
    rows = _table("--query-compute-apps=gpu_uuid,pid,used_memory,process_name", 4)
    return [Process(uuid, _whole(pid, "a process id"), name, _number(used)) for uuid, pid, used, name in rows]


def on(one: Card) -> list[Process]:
    """Who computes on this card; on an instance of some card, it counts for each."""
    return [p for p in processes() if p.uuid == one.uuid or not p.uuid.startswith("GPU")]


# --- asking ----------------------------------------------------------------------------------------------------------


def _run(words: tuple[str, ...]) -> tuple[int, str]:
    try:
        asked = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        raise NoCard(ABSENT, hint="it comes with NVIDIA's driver") from None
    except OSError as e:
        msg = f"`{words[0]}` cannot be run: {e.strerror or e}"
        raise BenchError(msg, hint="look at its permissions: `command -v nvidia-smi`") from None
    try:
        said, _ = asked.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        _abandon(asked)
        msg = f"`{' '.join(words)}` does not answer within {PATIENCE:g} s"
        raise BenchError(msg, hint="the driver may be stuck: look at `dmesg`; a restart mends it") from None
    except BaseException:
        _abandon(asked)
        raise
    return asked.returncode, said


def _abandon(asked: subprocess.Popen[str]) -> None:
    """End it, but do not wait for it: a process that is stuck inside the driver cannot be ended."""
    asked.kill()
    assert asked.stdout is not None
    asked.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        asked.wait(timeout=2)


def _advice(said: str) -> str:
    low = said.lower()
    if "permission" in low:
        return "this needs root, and in a container also the right to it"
    if "in use" in low:
        return "somebody still holds the card: `fuser -v /dev/nvidia*` names who"
    if "driver" in low:
        return "is the driver loaded? `lsmod | grep nvidia`, `dmesg`"
    return "run it by hand to see all that it says"


def _table(query: str, width: int) -> list[list[str]]:
    said = ask(query, "--format=csv,noheader,nounits")
    # Warnings come in between; nothing is quoted, so the last column may hold commas of its own.
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("WARNING")]
    rows = [[cell.strip() for cell in line.split(",", width - 1)] for line in lines]
    for row in rows:
        if len(row) != width:
            msg = f"nvidia-smi answers something else than was asked: `{', '.join(row)[:200]}`"
            raise BenchError(msg, hint=f"run `{SMI} {query} --format=csv` by hand")
    return rows


def _card(row: list[str], slices: dict[int, str]) -> Card:
    index, name, uuid, driver, total, used, mode, persistence, mig, pending = row
    number = _whole(index, "the number of a card")
    return Card(
        index=number,
        name=name,
        uuid=uuid,
        driver=driver,
        memory_mib=_number(total),
        used_mib=_number(used),
        compute_mode=mode,
        persistence=persistence,
        mig=_word(mig),
        mig_pending=_word(pending),
        time_slice=slices.get(number),
    )


def _time_slices() -> dict[int, str]:
    """How long a turn is, where the driver tells; many do not."""
    try:
        said = ask("compute-policy", "-l")
    except BenchError:
        return {}
    return {int(index): value for index, value in re.findall(r"^\|\s*(\d+)\s+Timeslice\s+(.+?)\s*\|", said, re.M)}


def _word(cell: str) -> str | None:
    return None if cell.startswith("[") or cell in ("", "N/A") else cell


def _number(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None


def _whole(cell: str, what: str) -> int:
    if not cell.isdigit():
        msg = f"nvidia-smi answers something that is not {what}: `{cell[:100]}`"
        raise BenchError(msg, hint=f"run `{SMI}` by hand")
    return int(cell)
