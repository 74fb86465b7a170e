"""Measure a workload for a time or for a number of steps, with the suite's closed loop."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import torch

from fleetlab.bench.loops import StepLog, closed_loop
from fleetlab.bench.window import summarize_window
from fleetlab.bench.workloads import BenchWorkload
from fleetlab.devices.clock import clock_for
from fleetlab.devices.errors import BenchError

WARM = 3  # warm-up steps


def measure(
    name: str, work: BenchWorkload, device: torch.device, *, seconds: float | None, steps: int | None, settle: float
) -> tuple[dict[str, Any], StepLog]:
    """Measure one window; the summary includes its length and start."""
    clock = clock_for(device)
    if steps is None:
        assert seconds is not None
        opens = time.monotonic() + settle
        closes = opens + seconds
        fed = closed_loop(work, clock, until=closes)
    else:
        fed = closed_loop(work, clock, steps=steps)
    raise_workload_error(name, fed.error)
    return full_window(fed) if steps is not None else window(fed, opens, closes), fed


def full_window(fed: StepLog) -> dict[str, Any]:
    """Summarize from the start of the first step to the end of the last one."""
    return window(fed, fed.begun[0], math.nextafter(fed.ended[-1], math.inf))


def window(fed: StepLog, opens: float, closes: float) -> dict[str, Any]:
    """Summarize a window, with its length and start."""
    return summarize_window(fed, opens, closes) | {"seconds": closes - opens, "opens": opens}


def load_and_warm_up(name: str, work: BenchWorkload, device: torch.device) -> BenchWorkload:
    """Load a workload on a device and warm it up."""
    try:
        work.setup(device)
        for _ in range(WARM):
            work.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    except Exception as e:  # any error of a workload becomes an error for the user
        raise_workload_error(name, e)
    return work


def raise_workload_error(name: str, e: BaseException | None) -> None:
    """Raise the error of a workload as one that says what to do."""
    if e is None:
        return
    if isinstance(e, BenchError):
        raise e
    text = str(e).splitlines()[0] if str(e) else type(e).__name__
    request = re.search(r"[Tt]ried to allocate ([\d.,]+ ?\w+)", text)
    if isinstance(e, torch.OutOfMemoryError | MemoryError) or (request and "memory" in text):
        more = f": requested {request[1]} more{_left()}" if request else f": {text}"
        msg = f"{name}: out of memory{more}"
        raise BenchError(msg, hint="use a smaller --batch, or a smaller model with --set") from e
    msg = f"{name}: failed: {type(e).__name__}: {text[:300]}"
    raise BenchError(msg, hint="are the settings compatible with each other?") from e


def _left() -> str:
    if not torch.cuda.is_available():
        return ""
    free, total = (x / 2**30 for x in torch.cuda.mem_get_info())
    return f", with {free:.1f} of {total:.1f} GiB free"
