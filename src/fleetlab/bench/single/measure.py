"""Run a work for a time or for a number of steps, by the feeder of the suite, and say what came of it."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import torch

from fleetlab.bench.loops import Fed, saturate
from fleetlab.bench.window import tally
from fleetlab.bench.workloads import Work
from fleetlab.devices.clock import clock_of
from fleetlab.devices.errors import BenchError

WARM = 3  # steps before anything is measured


def measure(
    name: str, work: Work, device: torch.device, *, seconds: float | None, steps: int | None, settle: float
) -> tuple[dict[str, Any], Fed]:
    """A window of a work: what `tally` says of it, with its length and when it opened."""
    clock = clock_of(device)
    if steps is None:
        assert seconds is not None
        opens = time.monotonic() + settle
        closes = opens + seconds
        fed = saturate(work, clock, until=closes)
    else:
        fed = saturate(work, clock, steps=steps)
    raised(name, fed.error)
    return whole(fed) if steps is not None else window(fed, opens, closes), fed


def whole(fed: Fed) -> dict[str, Any]:
    """The window from the first step's beginning to the last one's end, which still belongs to it."""
    return window(fed, fed.begun[0], math.nextafter(fed.ended[-1], math.inf))


def window(fed: Fed, opens: float, closes: float) -> dict[str, Any]:
    """What `tally` says, with the window's length and when it opened."""
    return tally(fed, opens, closes) | {"seconds": closes - opens, "opens": opens}


def ready(name: str, work: Work, device: torch.device) -> Work:
    """Put a work on a device and warm it up; what goes wrong is the user's to mend."""
    try:
        work.setup(device)
        for _ in range(WARM):
            work.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    except Exception as e:  # whatever a work raises is a finding about it
        raised(name, e)
    return work


def raised(name: str, e: BaseException | None) -> None:
    """Tell what a work raised, as an error that says what to do."""
    if e is None:
        return
    if isinstance(e, BenchError):
        raise e
    text = str(e).splitlines()[0] if str(e) else type(e).__name__
    asked = re.search(r"[Tt]ried to allocate ([\d.,]+ ?\w+)", text)
    if isinstance(e, torch.OutOfMemoryError | MemoryError) or (asked and "memory" in text):
        more = f": asked for {asked[1]} more{_left()}" if asked else f": {text}"
        msg = f"{name}: out of memory{more}"
        raise BenchError(msg, hint="a smaller --batch, or a smaller model by --set") from e
    msg = f"{name}: failed: {type(e).__name__}: {text[:300]}"
    raise BenchError(msg, hint="are the settings possible together?") from e


def _left() -> str:
    if not torch.cuda.is_available():
        return ""
    free, total = (x / 2**30 for x in torch.cuda.mem_get_info())
    return f", with {free:.1f} of {total:.1f} GiB free"
