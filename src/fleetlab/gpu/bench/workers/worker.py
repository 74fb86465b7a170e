"""The worker process of a tenant: reads requests from standard input and answers on standard output.

Both are one JSON object per line. It ends when its standard input is closed, at the latest after `GRACE`: a parent that
was killed must not leave a process on the GPU, even one that hangs in a step.
"""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, TextIO

import torch

from fleetlab.gpu.bench.loops import DriveWindow, StepLog, closed_loop, open_loop, summarize_window
from fleetlab.gpu.bench.workloads import OWN, BenchWorkload, make
from fleetlab.gpu.bench.workloads.own import OwnCommand, announce
from fleetlab.gpu.devices.clock import clock_for

TAIL = 0.15  # s after the window in which all tenants keep running
GRACE = 5.0  # s after the end of the input to end in order


def serve() -> None:
    """Serve requests until `quit` or the end of the input."""
    # Output of libraries must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    _answer(answers, {"at": "ready", "pid": os.getpid(), "torch": torch.__version__})
    try:
        _serve(answers)
    finally:
        end_command()


def _serve(answers: TextIO) -> None:
    work: BenchWorkload | None = None
    device = torch.device("cpu")
    for order in _orders():
        if order["do"] == "quit":
            return
        try:
            if order["do"] == "load":
                device = torch.device(order["device"])
                work = None
                work, about = _load(order, device)
                _answer(answers, {"at": "loaded", **about})
            elif work is None:
                _answer(answers, {"at": "failed", "kind": "not-loaded", "detail": "nothing is loaded"})
            else:
                _answer(answers, _run(work, device, order))
        except Exception as e:  # a failure of a tenant is recorded and does not end its process
            _answer(answers, {"at": "failed", **_failure(e)})


def _orders() -> Iterator[dict[str, Any]]:
    """Requests as they come; a thread waits for them, so that the end of the input is seen during a step, too."""
    lines = SimpleQueue[bytes]()

    def read() -> None:
        rest = b""
        while more := os.read(0, 1 << 16):  # not `sys.stdin`, whose lock a thread must not hold when the process ends
            *whole, rest = (rest + more).split(b"\n")
            for line in whole:
                lines.put(line)
        lines.put(b"")
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    while line := lines.get():
        yield json.loads(line)


def _load(order: dict[str, Any], device: torch.device) -> tuple[BenchWorkload, dict[str, Any]]:
    began = time.monotonic()
    torch.manual_seed(order["seed"])
    if order["work"] in OWN:
        announce(order["device"], tiny=order["tiny"])
    work = make(order["work"], tiny=order["tiny"], **order["settings"])
    if isinstance(work, OwnCommand):
        return work, _start(work, device)
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else 0
    opened = time.monotonic()
    work.setup(device)
    for _ in range(3):
        work.step()
    if on_gpu:
        torch.cuda.synchronize()
    about = {
        "unit": work.unit,
        "how": getattr(work, "how", ""),
        "open_s": round(opened - began, 3),
        "load_s": round(time.monotonic() - opened, 3),
    }
    return work, about | _visible() | (_on_card(device, free) if on_gpu else {})


def _visible() -> dict[str, str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"visible": visible} if visible else {}


def _start(work: OwnCommand, device: torch.device) -> dict[str, Any]:
    """Start a command of the user's own; the worker itself stays off the GPU."""
    began = time.monotonic()
    _commands.append(work)
    try:
        work.setup(device)
    except BaseException:
        end_command()
        raise
    took = round(time.monotonic() - began, 3)
    return {"unit": work.unit, "how": work.how, "load_s": took, "pids": work.processes()} | _visible()


_commands: list[OwnCommand] = []  # that were started


def end_command() -> None:
    """End the commands that were started, with everything that they started."""
    while _commands:
        _commands.pop().close()


def _on_card(device: torch.device, free: int) -> dict[str, Any]:
    card = torch.cuda.get_device_properties(device)
    return {
        "sms": card.multi_processor_count,
        "memory_mib": torch.cuda.max_memory_reserved(device) >> 20,
        "free_before_mib": free >> 20,
        "card_mib": card.total_memory >> 20,
    }


def _run(work: BenchWorkload, device: torch.device, order: dict[str, Any]) -> dict[str, Any]:
    own = work if isinstance(work, OwnCommand) else None
    clock = clock_for(torch.device("cpu") if own else device)
    spent_by = own.cpu_seconds if own else time.process_time
    opens = order["at"] + order["settle"]
    closes = opens + order["window"]
    late = time.monotonic() - order["at"]
    while (pause := order["at"] - time.monotonic()) > 0:
        time.sleep(pause)
    used = spent_by()
    drive = getattr(work, "drive", None)
    if own:
        summary = _summary(own.watch(closes=closes, until=closes + TAIL), opens, closes)
    elif drive is not None:
        window = DriveWindow(order["at"], opens, closes, closes + TAIL, order.get("seed", 0))
        summary = {"at": "done", **drive(window)}
    elif "due" in order:
        due = [order["at"] + t for t in order["due"]]
        summary = _summary(open_loop(work, clock, due=due, until=closes + order["grace"]), opens, closes)
    else:
        log = closed_loop(work, clock, until=closes + TAIL, rest=order["rest"], seed=order["seed"])
        summary = _summary(log, opens, closes)
    spent = (spent_by() - used) / (time.monotonic() - order["at"])
    return summary | {"cpu": round(spent, 4), "late": round(max(late, 0.0), 4)}


def _summary(log: StepLog, opens: float, closes: float) -> dict[str, Any]:
    summary = summarize_window(log, opens, closes)
    if log.error is None:
        return {"at": "done", **summary}
    return {"at": "failed", **_failure(log.error), **summary}


def _failure(e: BaseException) -> dict[str, Any]:
    if isinstance(e, torch.OutOfMemoryError):
        return {"kind": "out-of-memory", "detail": str(e).splitlines()[0]}
    traceback.print_exception(e)
    return {"kind": "error", "detail": f"{type(e).__name__}: {e}"[:500]}


def _answer(answers: TextIO, about: dict[str, Any]) -> None:
    answers.write(json.dumps(about) + "\n")
    answers.flush()
