"""The parts that a process of a probe can play: neighbor, aggressor, newcomer, writer and reader.

Everything ends by itself: the kernel that hangs reads the GPU's clock and stops after its time, and memory is taken in
plain blocks, never managed, and never more than the GPU has.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fleetlab.gpu.bench.isolation.fork_server import Port
from fleetlab.gpu.bench.isolation.lanes import Lane, lanes
from fleetlab.gpu.bench.isolation.probes import FATAL, GOOD, REFUSED, WRONG, StepWriter
from fleetlab.gpu.bench.loops import closed_loop
from fleetlab.gpu.bench.plans import STRESSORS
from fleetlab.gpu.bench.workloads import BenchWorkload, make
from fleetlab.gpu.devices.clock import clock_for

LONGEST = 120.0  # s: a neighbor ends by then, whatever happens to the parent
Order = dict[str, Any]


class CheckedWork:
    """A product with a permutation, whose exact result is known without computing it, and compared entry by entry."""

    def __init__(self, device: torch.device) -> None:
        width = 2048 if device.type == "cuda" else 48
        chance = torch.Generator().manual_seed(0)
        numbers = torch.randint(-8, 9, (width, width), generator=chance).float()
        columns = torch.randperm(width, generator=chance)
        self._a, self._b = numbers.to(device), torch.eye(width)[columns].to(device)
        product = torch.empty_like(numbers)
        product[:, columns] = numbers
        self._product = product.to(device)

    def wrong(self) -> int:
        """Compute again; the number of entries that differ."""
        return int((self._a @ self._b != self._product).sum())


def play(order: Order, port: Port) -> None:
    """Play the parts of an order, in one process: a neighbor has its own thread."""
    torch.set_num_threads(1)
    device = torch.device(order["device"])
    ways = lanes(order["lanes"], device=device) if order.get("lanes") else [Lane(""), Lane("")]
    parts = order["parts"]
    if "neighbor" in parts and len(parts) == 1:
        _neighbor(order, port, device, ways[0])
    elif "aggressor" in parts:
        _aggressor(order, port, device, ways)
    else:
        PARTS[parts[0]](order, port, device, ways)


# --- the neighbor ----------------------------------------------------------------------------------------------------


def _neighbor(order: Order, port: Port, device: torch.device, lane: Lane) -> None:
    """Steps until stopped; an error of the device ends it, a refused allocation does not."""
    torch.set_num_threads(1)  # a setting of each thread
    try:
        with lane.entered():
            work, log = CheckedWork(device), StepWriter(Path(order["steps"]))
            work.wrong()
            port.say(at="ready", part="neighbor", pid=os.getpid(), **_device_columns(device))
            until = time.monotonic() + LONGEST
            while not port.stopped.is_set() and time.monotonic() < until:
                if not _step(work, log, device, order.get("grow_mib", 0), port):
                    return
    except Exception as e:  # what a neighbor dies of is the result
        port.say(at="failed", part="neighbor", detail=describe(e))


def _step(work: CheckedWork, log: StepWriter, device: torch.device, grow_mib: int, port: Port) -> bool:
    began, status = time.monotonic(), GOOD
    try:
        if grow_mib:  # a new allocation from the driver at every step, not one that the allocator kept
            allocate(grow_mib, device).fill_(1)
            if device.type == "cuda":
                torch.cuda.empty_cache()
        status = WRONG if work.wrong() else GOOD
    except (RuntimeError, MemoryError) as e:
        status = REFUSED if is_refusal(e) else FATAL
        if status == FATAL:
            port.say(at="failed", part="neighbor", detail=describe(e))
    now = time.monotonic()
    log.write(now, now - began, status)
    return status != FATAL


def _device_columns(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    return {"sms": sms, "free_mib": free >> 20, "total_mib": total >> 20}


# --- the aggressor ---------------------------------------------------------------------------------------------------


def _aggressor(order: Order, port: Port, device: torch.device, ways: list[Lane]) -> None:
    """Prepare, wait for the word, act; beside it, in the same process, the neighbor if it is ordered, too."""
    with ways[1].entered():
        act = ACTS[order["act"]](order, port, device)
        beside = None
        if "neighbor" in order["parts"]:  # after the preparation, which captures graphs
            beside = threading.Thread(target=_neighbor, args=(order, port, device, ways[0]), daemon=True)
            beside.start()
        port.say(at="ready", part="aggressor", pid=os.getpid(), **_device_columns(device))
        port.wait("go")
        port.say(at="acts")
        try:
            act()
            port.say(at="done")
        except Exception as e:  # the fault that was asked for
            port.say(at="done", error=describe(e))
        if beside is not None:
            beside.join()


def _fault(order: Order, port: Port, device: torch.device) -> Callable[[], None]:
    misuse, seconds = misuse_for(device), float(order["hang_s"])
    return {
        "illegal-access": misuse.illegal_access,
        "assert": misuse.device_assert,
        "hang": lambda: misuse.spin(seconds),
        "kill": lambda: _die_at_work(misuse),
    }[order["fault"]]


def _die_at_work(misuse: HostMisuse) -> None:
    """Be killed while a kernel runs."""
    misuse.start_spin(1.0)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def _hog(order: Order, port: Port, device: torch.device) -> Callable[[], None]:
    def act() -> None:
        held, about = take_all(device)
        port.say(at="full", **about)
        port.wait("release")
        held.clear()
        if device.type == "cuda":
            torch.cuda.empty_cache()

    return act


def _stressor(order: Order, port: Port, device: torch.device) -> Callable[[], None]:
    clock = clock_for(device)
    works: dict[str, BenchWorkload] = {}
    for name in STRESSORS:
        works[name] = make(name, tiny=device.type != "cuda")
        works[name].setup(device)
        works[name].step()

    def act() -> None:
        while (word := port.wait("stress", "release"))["do"] == "stress":
            work: Any = works[word["work"]]
            work.duty = word["duty"]
            log = closed_loop(work, clock, until=word["until"])
            port.say(at="stressed", steps=len(log.ended), error=describe(log.error) if log.error else "")

    return act


ACTS: dict[str, Callable[[Order, Port, torch.device], Callable[[], None]]] = {
    "fault": _fault,
    "memory": _hog,
    "stress": _stressor,
}


# --- newcomers, writers and readers -----------------------------------------------------------------------------------


def _newcomer(order: Order, port: Port, device: torch.device, ways: list[Lane]) -> None:
    try:
        wrong = CheckedWork(device).wrong()
        port.say(at="good" if not wrong else "wrong")
    except Exception as e:
        port.say(at="failed", part="newcomer", detail=describe(e))


def _writer(order: Order, port: Port, device: torch.device, ways: list[Lane]) -> None:
    """Fill memory with the pattern, free it, and live on or end; with lanes, read it in the same process."""
    with ways[0].entered():
        secret = [allocate(order["secret_mib"], device).fill_(PATTERN)]
        # In parts: the sum of all would take more memory than the pattern.
        parts: tuple[torch.Tensor, ...] = torch.split(secret[0], 1 << 26)
        words = sum(int((part == PATTERN).sum()) for part in parts)
        del parts
        port.say(at="written", words=words, pid=os.getpid(), **_device_columns(device))
        port.wait("free")
        secret.clear()
        if device.type == "cuda":
            torch.cuda.synchronize()
            if order["variant"] != "cached":
                torch.cuda.empty_cache()
    port.say(at="freed")
    if order.get("lanes"):
        _reader(order, port, device, ways)
    port.wait("end")


def _reader(order: Order, port: Port, device: torch.device, ways: list[Lane]) -> None:
    with ways[1].entered():
        port.say(at="read", pid=os.getpid(), **read_uninitialized(device))


PARTS: dict[str, Callable[[Order, Port, torch.device, list[Lane]], None]] = {
    "newcomer": _newcomer,
    "writer": _writer,
    "reader": _reader,
}


def describe(e: BaseException) -> str:
    """An error as one line."""
    return f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"[:400]


# --- what the misbehaving tenant does, on a GPU and, to rehearse, on a CPU -------------------------------------------


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


class HostMisuse:
    """Faults of a tenant on a CPU: a segmentation fault, an error, a busy loop."""

    def illegal_access(self) -> None:
        """Read address 0."""
        ctypes.string_at(0)

    def device_assert(self) -> None:
        """Raise."""
        raise RuntimeError("assertion failed")

    def spin(self, seconds: float) -> None:
        """Loop."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    def start_spin(self, seconds: float) -> None:
        """Nothing runs beside the host's own thread."""


class CudaMisuse(HostMisuse):
    """The same in kernels; compiled before the start, so that the fault itself takes no time."""

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


def misuse_for(device: torch.device) -> HostMisuse:
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
    blocks: list[torch.Tensor] = []
    taken, refusal = 0, ""
    began = time.monotonic()
    while size >= least and taken + size <= most:
        try:
            blocks.append(allocate(size, device))
            taken += size
        except RuntimeError as e:
            if not is_refusal(e):
                raise
            refusal = refusal or str(e).splitlines()[0]
            size //= 4
    about = {"held_mib": taken, "refused": bool(refusal), "detail": refusal[:300], "bound_mib": most}
    return blocks, about | {"took_s": round(time.monotonic() - began, 3)}


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
    free_mib = (torch.cuda.mem_get_info(device)[0] >> 20) - 3072 if device.type == "cuda" else 16
    blocks: list[torch.Tensor] = []
    matches = other = 0
    while len(blocks) * block + block <= free_mib:
        try:
            blocks.append(allocate(block, device))
        except RuntimeError as e:
            if not is_refusal(e):
                raise
            break
    for words in blocks:
        matches += int((words == PATTERN).sum())
        other += int((words != 0).sum())
    return {"read_mib": len(blocks) * block, "found_words": matches, "nonzero_words": other}
