"""The parts that a process of a probe can play: neighbor, aggressor, newcomer, writer and reader."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fleetlab.bench.isolation.misuse import (
    PATTERN,
    Misuse,
    allocate,
    is_refusal,
    misuse_for,
    read_uninitialized,
    take_all,
)
from fleetlab.bench.isolation.port import Port
from fleetlab.bench.isolation.steps import FATAL, GOOD, REFUSED, WRONG, StepWriter
from fleetlab.bench.loops import closed_loop
from fleetlab.bench.one_process import Lane, lanes
from fleetlab.bench.workloads import BenchWorkload, make
from fleetlab.devices.clock import clock_for

LONGEST = 120.0  # s: a neighbor ends by then, whatever happens to the parent
STRESSORS = ("gemm", "hbm", "l2", "h2d")
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
            port.say(at="ready", part="neighbor", pid=os.getpid(), **_seen(device))
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


def _seen(device: torch.device) -> dict[str, Any]:
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
        port.say(at="ready", part="aggressor", pid=os.getpid(), **_seen(device))
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


def _die_at_work(misuse: Misuse) -> None:
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
        port.say(at="written", words=words, pid=os.getpid(), **_seen(device))
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
