"""What the misbehaving tenant does, on a GPU and, to rehearse, on a CPU.

Everything ends by itself: the kernel that hangs reads the GPU's clock and stops after its time, and memory is taken in
plain blocks, never managed, and never more than the GPU has.
"""

from __future__ import annotations

import ctypes
import resource
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

PATTERN = 0x5EC2E7A5  # as a signed word it is positive
KERNELS = r"""
extern "C" __global__ void illegal(unsigned long long address) { *(volatile int*)address = 1; }
extern "C" __global__ void set_end(unsigned long long span, unsigned long long* end) {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    *end = now + span;
}
extern "C" __global__ void spin(const volatile unsigned long long* end) {
    unsigned long long now;
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now < *end);
}
"""


class Misuse(Protocol):
    """Faults of a tenant."""

    def illegal_access(self) -> None:
        """Write to an address that is not the tenant's."""

    def device_assert(self) -> None:
        """Fail an assertion in a kernel."""

    def spin(self, seconds: float) -> None:
        """Occupy every multiprocessor for a time."""

    def start_spin(self, seconds: float) -> None:
        """Do so, and do not wait for its end."""


class CudaMisuse:
    """Faults in kernels; compiled before the start, so that the fault itself takes no time."""

    def __init__(self, device: torch.device) -> None:
        import cupy  # type: ignore[import-not-found]

        self._device, self._cupy = device, cupy
        torch.zeros(1, device=device)  # CuPy uses PyTorch's context
        module = cupy.RawModule(code=KERNELS)
        self._kernels = {name: module.get_function(name) for name in ("illegal", "set_end", "spin")}
        self._end = torch.zeros(1, dtype=torch.int64, device=device)
        self._index = torch.tensor([1 << 20], device=device)
        self._few = torch.zeros(4, device=device)
        self.start_spin(0.001)
        torch.cuda.synchronize()

    def illegal_access(self) -> None:
        """Write to address 16, which nobody has."""
        with self._default():
            self._launch("illegal", 1, 1, 16)
        torch.cuda.synchronize()

    def device_assert(self) -> None:
        """Index out of bounds: PyTorch's kernel asserts."""
        self._few[self._index]
        torch.cuda.synchronize()

    def spin(self, seconds: float) -> None:
        """Fill every multiprocessor that this tenant sees with threads that wait for the GPU's clock."""
        self._fill(seconds)
        torch.cuda.current_stream().synchronize()

    def start_spin(self, seconds: float) -> None:
        """Fill the GPU from the default stream."""
        with self._default():
            self._fill(seconds)

    def _fill(self, seconds: float) -> None:
        sms = torch.cuda.get_device_properties(self._device).multi_processor_count
        self._launch("set_end", 1, 1, int(seconds * 1e9), self._end.data_ptr())
        self._launch("spin", 2 * sms, 1024, self._end.data_ptr())

    def _default(self) -> Any:  # noqa: ANN401
        """The stream of the whole context: a fault is of the context, whatever the tenant's own stream is."""
        return torch.cuda.stream(torch.cuda.default_stream(self._device))

    def _launch(self, name: str, blocks: int, threads: int, *numbers: int) -> None:
        with self._cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            self._kernels[name]((blocks,), (threads,), tuple(np.uint64(number) for number in numbers))


class HostMisuse:
    """The same words on a CPU: a segmentation fault, an error, a busy loop."""

    def illegal_access(self) -> None:
        """Read address 0."""
        ctypes.string_at(0)

    def device_assert(self) -> None:
        """Raise."""
        msg = "assertion failed"
        raise RuntimeError(msg)

    def spin(self, seconds: float) -> None:
        """Loop."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    def start_spin(self, seconds: float) -> None:
        """Nothing runs beside the host's own thread."""


def misuse_for(device: torch.device) -> Misuse:
    """Faults for a device."""
    return CudaMisuse(device) if device.type == "cuda" else HostMisuse()


# --- memory ----------------------------------------------------------------------------------------------------------


def is_refusal(e: BaseException) -> bool:
    """Whether an error says that there is no memory."""
    text = str(e)
    kinds = isinstance(e, torch.OutOfMemoryError | MemoryError)
    return kinds or "allocate memory" in text or "ALLOC_FAILED" in text or "out of memory" in text


def allocate(mib: int, device: torch.device) -> torch.Tensor:
    """An uninitialized block of words."""
    return torch.empty(mib << 18, dtype=torch.int32, device=device)


def take_all(device: torch.device) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """Allocate until refused: large blocks first, then smaller ones; at most what the GPU has."""
    most, size, least = _bounds(device)
    held: list[torch.Tensor] = []
    taken, refusal = 0, ""
    began = time.monotonic()
    while size >= least and taken + size <= most:
        try:
            held.append(allocate(size, device))
            taken += size
        except RuntimeError as e:
            if not is_refusal(e):
                raise
            refusal = refusal or str(e).splitlines()[0]
            size //= 4
    about = {"held_mib": taken, "refused": bool(refusal), "detail": refusal[:300], "bound_mib": most}
    return held, about | {"took_s": round(time.monotonic() - began, 3)}


def _bounds(device: torch.device) -> tuple[int, int, int]:
    """Most, largest block and smallest block in MiB. A CPU gets a limit on its address space, to be refused."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory >> 20, 1024, 16
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20), resource.RLIM_INFINITY))
    return 4096, 16, 1


# --- information -----------------------------------------------------------------------------------------------------


def read_uninitialized(device: torch.device) -> dict[str, Any]:
    """Allocate nearly all free memory, hold it, and count words with the pattern and words that are not 0."""
    block = 1024 if device.type == "cuda" else 1
    room = (torch.cuda.mem_get_info(device)[0] >> 20) - 3072 if device.type == "cuda" else 16
    held: list[torch.Tensor] = []
    found = other = 0
    while len(held) * block + block <= room:
        try:
            held.append(allocate(block, device))
        except RuntimeError as e:
            if not is_refusal(e):
                raise
            break
    for words in held:
        found += int((words == PATTERN).sum())
        other += int((words != 0).sum())
    return {"read_mib": len(held) * block, "found_words": found, "nonzero_words": other}
