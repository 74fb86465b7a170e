"""Lanes of tenants in one process: equal streams, streams with priorities, or disjoint SMs (green contexts).

Green contexts come from one split of the SMs, so that the parts are disjoint: contexts from separate splits may
overlap. Memory, its bandwidth and the L2 cache stay shared.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from fleetlab.gpu.devices.console import BenchError

METHODS = ("streams", "priority", "green")
MARK = {"streams": ("", ""), "priority": ("!high", "!low")}  # suffixes of the two tenants' names


@dataclass(frozen=True)
class Lane:
    """Where one tenant runs: a stream, and a suffix of the tenant's name."""

    mark: str
    stream: Any = None  # None on a CPU

    def entered(self) -> AbstractContextManager[Any]:
        """Use the stream in this thread until the end of the block.

        The stream is enough: making a green context current would invalidate cuDNN's handles.
        """
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


def lanes(way: str, *, device: torch.device, sms: int = 64) -> list[Lane]:
    """Two lanes for two tenants."""
    if way not in METHODS:
        raise BenchError(f"unknown method for tenants of one process: `{way}`", hint=f"there are {', '.join(METHODS)}")
    if device.type != "cuda":
        return [Lane(mark) for mark in MARK.get(way, (f"@{sms}sms", f"@{sms}sms"))]
    if way == "green":
        return _green(device, sms)
    above = (-1, 0) if way == "priority" else (0, 0)
    return [Lane(m, torch.cuda.Stream(device, priority=p)) for m, p in zip(MARK[way], above, strict=True)]  # type: ignore[no-untyped-call]


def _green(device: torch.device, sms: int) -> list[Lane]:
    """Split the SMs into two parts of `sms` each; the rest of the GPU stays unused."""
    try:
        from cuda.bindings import driver  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        msg = "no green contexts: CUDA's Python bindings are not installed"
        raise BenchError(msg, hint="they are part of PyTorch's CUDA builds (cuda-bindings)") from None
    torch.zeros(1, device=device)  # creates the primary context
    card = _check_driver(driver.cuDeviceGet(device.index or 0))
    whole = _check_driver(driver.cuDeviceGetDevResource(card, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    parts, count, _ = _check_driver(driver.cuDevSmResourceSplitByCount(2, whole, 0, sms))
    if count != 2:
        raise BenchError(f"the GPU does not have twice {sms} SMs", hint=f"it has {whole.sm.smCount}, in steps of 8")
    return [_green_lane(driver, card, part) for part in parts]


def _green_lane(driver: Any, card: Any, part: Any) -> Lane:  # noqa: ANN401  the driver's own handles
    described = _check_driver(driver.cuDevResourceGenerateDesc([part], 1))
    flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    green = _check_driver(driver.cuGreenCtxCreate(described, card, flags))
    stream = _check_driver(driver.cuGreenCtxStreamCreate(green, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
    return Lane(f"@{part.sm.smCount}sms", torch.cuda.ExternalStream(int(stream)))  # type: ignore[no-untyped-call]


def _check_driver(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401
    status, *values = answer
    if int(status):
        msg = f"the driver returned an error: {status.name if hasattr(status, 'name') else status}"
        raise BenchError(msg, hint="green contexts need CUDA 12.4 or later")
    return values[0] if len(values) == 1 else tuple(values)
