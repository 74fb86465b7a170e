"""GPUs and compute processes of this machine, as `nvidia-smi` lists them. Read-only."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass

from fleetlab.gpu.devices.console import BenchError

SMI = "nvidia-smi"
TIMEOUT = 30.0  # s; nvidia-smi never returns if the driver hangs
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
NO_SMI = "no NVIDIA GPU: nvidia-smi is not installed on this machine"
NO_DEVICES = ("No devices were found", "No devices found")


class NoGpu(BenchError):
    """The machine has no NVIDIA GPU."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; `mig` is None if the GPU does not support MIG."""

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
class GpuProcess:
    """A compute process on a GPU."""

    uuid: str
    pid: int
    name: str
    memory_mib: int | None


def run_smi(*arguments: str, hold: tuple[int, ...] = ()) -> str:
    """Run `nvidia-smi` and return its output. It may exit with 0 and do nothing, so check the effect of a change.

    `hold` are file descriptors that it keeps open while it runs: locks, which it then holds even if we are killed.
    """
    status, output = _run((SMI, *arguments), hold)
    if any(none in output for none in NO_DEVICES):
        msg = "no NVIDIA GPU on this machine: nvidia-smi finds no device"
        raise NoGpu(msg, hint="`nvidia-smi -L` lists the GPUs that the driver finds")
    if status:
        reason = " ".join(output.split())[:300] or "no reason given"
        raise BenchError(f"`{SMI} {' '.join(arguments)}` failed with status {status}: {reason}", hint=_advice(output))
    return output


def gpus() -> list[Gpu]:
    """List all GPUs in the driver's order."""
    rows = _table("--query-gpu=" + ",".join(FIELDS), len(FIELDS))
    slices = _time_slices()
    return [_parse_gpu(row, slices) for row in rows]


def gpu(index: int) -> Gpu:
    """Return the GPU with that index."""
    here = gpus()
    for one in here:
        if one.index == index:
            return one
    raise BenchError(f"no GPU with index {index}", hint=f"there are {', '.join(str(one.index) for one in here)}")


def processes() -> list[GpuProcess]:
    """List compute processes on all GPUs. Under MPS the server is listed, not its clients."""
    rows = _table("--query-compute-apps=gpu_uuid,pid,used_memory,process_name", 4)
    return [GpuProcess(uuid, _parse_int(pid, "a process id"), name, _number(used)) for uuid, pid, used, name in rows]


def processes_on(one: Gpu) -> list[GpuProcess]:
    """List compute processes on a GPU; a process on a MIG instance counts for every GPU."""
    return [p for p in processes() if p.uuid == one.uuid or not p.uuid.startswith("GPU")]


# --- running nvidia-smi ----------------------------------------------------------------------------------------------


def _run(command: tuple[str, ...], hold: tuple[int, ...] = ()) -> tuple[int, str]:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=hold,
        )
    except FileNotFoundError:
        raise NoGpu(NO_SMI, hint="it is part of NVIDIA's driver") from None
    except OSError as e:
        msg = f"`{command[0]}` cannot be run: {e.strerror or e}"
        raise BenchError(msg, hint="check its permissions: `command -v nvidia-smi`") from None
    try:
        output, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        _abandon(process)
        msg = f"`{' '.join(command)}` did not finish within {TIMEOUT:g} s"
        raise BenchError(msg, hint="the driver may hang: check `dmesg`; a reboot clears it") from None
    except BaseException:
        _abandon(process)
        raise
    return process.returncode, output


def _abandon(process: subprocess.Popen[str]) -> None:
    """Kill it without waiting long: a process that hangs inside the driver cannot be killed."""
    process.kill()
    assert process.stdout is not None
    process.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=2)


def _advice(output: str) -> str:
    low = output.lower()
    if "permission" in low:
        return "this needs root, and in a container also the capability"
    if "in use" in low:
        return "a process still uses the GPU: `fuser -v /dev/nvidia*` lists them"
    if "driver" in low:
        return "is the driver loaded? `lsmod | grep nvidia`, `dmesg`"
    return "run it by hand to see the full output"


def _table(query: str, width: int) -> list[list[str]]:
    output = run_smi(query, "--format=csv,noheader,nounits")
    # Warnings appear between rows; fields are not quoted, so the last column may contain commas.
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("WARNING")]
    rows = [[cell.strip() for cell in line.split(",", width - 1)] for line in lines]
    for row in rows:
        if len(row) != width:
            msg = f"unexpected output of nvidia-smi: `{', '.join(row)[:200]}`"
            raise BenchError(msg, hint=f"run `{SMI} {query} --format=csv` by hand")
    return rows


def _parse_gpu(row: list[str], slices: dict[int, str]) -> Gpu:
    index, name, uuid, driver, total, used, mode, persistence, mig, pending = row
    number = _parse_int(index, "a GPU index")
    return Gpu(
        *(number, name, uuid, driver, _number(total), _number(used), mode, persistence),
        *(_word(mig), _word(pending), slices.get(number)),
    )


def _time_slices() -> dict[int, str]:
    """Time-slice length by GPU, where the driver reports it; many do not."""
    try:
        output = run_smi("compute-policy", "-l")
    except BenchError:
        return {}
    return {int(index): value for index, value in re.findall(r"^\|\s*(\d+)\s+Timeslice\s+(.+?)\s*\|", output, re.M)}


def _word(cell: str) -> str | None:
    return None if cell.startswith("[") or cell in ("", "N/A") else cell


def _number(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None


def _parse_int(cell: str, what: str) -> int:
    if not cell.isdigit():
        raise BenchError(f"unexpected output of nvidia-smi, not {what}: `{cell[:100]}`", hint=f"run `{SMI}` by hand")
    return int(cell)
