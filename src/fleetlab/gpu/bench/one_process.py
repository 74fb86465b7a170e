"""Tenants as threads of one process: on equal streams, on streams with priorities, or on disjoint SMs (green contexts).

Green contexts come from one split of the SMs, so that the parts are disjoint: contexts from separate splits may
overlap. Memory, its bandwidth and the L2 cache stay shared. Cells are written in the format of a suite, as one stage,
in which a tenant alone on all SMs is the baseline.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fleetlab.gpu.bench.loops import closed_loop, summarize_window
from fleetlab.gpu.bench.run import RunFolder, card, now
from fleetlab.gpu.bench.workloads import BenchWorkload, make
from fleetlab.gpu.devices.clock import HostClock, clock_for
from fleetlab.gpu.devices.console import BenchError, Progress, print_error, print_progress
from fleetlab.gpu.devices.nvml import GpuSampler

PAIRS = (
    ("resnet-infer", "resnet-train"),
    ("resnet-infer", "llm-decode"),
    ("llm-decode", "resnet-train"),
    ("bert-infer", "bert-train"),
)
SELF = "fleetlab.gpu.bench.one_process"
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


# --- a tenant in a thread --------------------------------------------------------------------------------------------


class TenantThread(threading.Thread):
    """Loads its workload, then runs a cell on each request, until the process ends."""

    def __init__(self, name: str, lane: Lane, device: torch.device, *, tiny: bool) -> None:
        super().__init__(daemon=True)
        self.name, self.lane, self._device, self._tiny = name, lane, device, tiny
        self.seat = name + lane.mark
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._order: tuple[float, float, float] | None = None
        self.summary: dict[str, Any] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run in its own thread."""
        try:
            with self.lane.entered():
                work, clock = self._load()
                self._done.release()
                while True:
                    self._go.acquire()
                    if self._order is None:
                        return
                    self.summary = self._ran(work, clock, *self._order)
                    self._done.release()
        except Exception as e:  # a failure of a tenant is recorded
            self.error = e
            self._done.release()

    def _load(self) -> tuple[BenchWorkload, HostClock]:
        work = make(self.name, tiny=self._tiny)
        work.setup(self._device)
        for _ in range(3):
            work.step()
        self.about = {"unit": work.unit, "how": getattr(work, "how", "")}
        return work, clock_for(self._device)

    def _ran(self, work: BenchWorkload, clock: HostClock, at: float, settle: float, window: float) -> dict[str, Any]:
        while (left := at - time.monotonic()) > 0:
            time.sleep(left)
        log = closed_loop(work, clock, until=at + settle + window + 0.1)
        if log.error is not None:
            raise log.error
        return summarize_window(log, at + settle, at + settle + window) | {"cpu": 0.0, "late": 0.0}

    def wait(self, within: float) -> bool:
        """Wait until it has loaded or run; False if it failed."""
        if not self._done.acquire(timeout=within):
            self.error = TimeoutError(f"no answer within {within:.0f} s")
        return self.error is None

    def go(self, *order: float) -> None:
        """Run a cell from time `at`."""
        self._order = (order[0], order[1], order[2])
        self._go.release()

    def end(self) -> None:
        """End the thread."""
        self._order = None
        self._go.release()
        self.join(timeout=10)


def measure(
    pairs: tuple[tuple[str, str], ...],
    out: Path,
    *,
    ways: tuple[str, ...] = METHODS,
    sms: int = 64,
    device: str = "cuda",
    tiny: bool = False,
    settle: float = 0.5,
    window: float = 2.0,
    limit: float = 300.0,
    progress: Progress = print,
) -> None:
    """Measure each of a pair alone and both together, with each method; results are in the format of a suite."""
    on = torch.device(device)
    if on.type == "cuda" and not torch.cuda.is_available():
        raise BenchError("no NVIDIA GPU on this machine", hint="--rehearse runs the same on the CPU with tiny sizes")
    folder = RunFolder(out)
    out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + limit
    with GpuSampler(out / "monitor.jsonl") as monitor:
        folder.declare(
            {
                "plan": "together",
                "seed": 0,
                "rehearsal": tiny,
                "device": str(on),
                "card": card(monitor),
                "torch": torch.__version__,
                "settle": settle,
                "window": window,
                "skipped": [],
                "stages": [],
            }
        )
        for way in ways:
            for block, pair in enumerate(pairs):
                if time.monotonic() + 20 > until:
                    progress(f"{way}: no time left for {' + '.join(pair)}")
                    continue
                for cell in _cells(way, pair, on, sms, monitor, tiny=tiny, settle=settle, window=window):
                    cell["cell"] = f"together/{block}/{way}/" + "+".join(cell.pop("names"))
                    folder.append(cell | {"block": block})
                    progress(f"{cell['cell']}: " + _rates_line(cell))


def _cells(
    way: str,
    pair: tuple[str, str],
    device: torch.device,
    sms: int,
    monitor: GpuSampler,
    *,
    tiny: bool,
    settle: float,
    window: float,
) -> Iterator[dict[str, Any]]:
    try:
        tenants = [
            TenantThread(name, lane, device, tiny=tiny)
            for name, lane in zip(pair, lanes(way, device=device, sms=sms), strict=True)
        ]
    except BenchError as e:
        yield _cell([*pair], [], settle, window, failures=[{"seat": way, "kind": "mode", "detail": str(e)}])
        return
    for tenant in tenants:  # one after the other: loading would break another tenant's graph capture
        tenant.start()
        if not tenant.wait(120):
            yield _cell([*pair], [], settle, window, failures=[_failure(tenant)])
            return
    for group in ([tenants[0]], [tenants[1]], tenants):
        at = time.monotonic() + 0.1
        for tenant in group:
            tenant.go(at, settle, window)
        failures = [_failure(tenant) for tenant in group if not tenant.wait(60)]
        yield _cell([t.seat for t in group], group, settle, window, failures=failures) | {
            "gpu": monitor.between(at + settle, at + settle + window)
        }
        if failures:
            break
    for tenant in tenants:
        tenant.end()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _cell(
    names: list[str], group: list[TenantThread], settle: float, window: float, *, failures: list[dict[str, Any]]
) -> dict[str, Any]:
    tenants = [] if failures else [{"seat": t.seat, "tenant": t.name, "copy": 0, **t.about, **t.summary} for t in group]
    return {
        "names": names,
        "stage": "together",
        "mode": "one-process",
        "status": "failed" if failures else "ok",
        "at": now(),
        "settle": settle,
        "window": window,
        "load": os.getloadavg()[0],
        "tenants": tenants,
        "gpu": {},
        "failures": failures,
    }


def _failure(tenant: TenantThread) -> dict[str, Any]:
    return {"seat": tenant.seat, "kind": "error", "detail": f"{type(tenant.error).__name__}: {tenant.error}"[:500]}


def _rates_line(cell: dict[str, Any]) -> str:
    return ", ".join(f"{t['rate']:.4g}/s" for t in cell["tenants"]) or str(cell["failures"])


def main() -> int:
    """`python -m fleetlab.gpu.bench.one_process --out FOLDER`."""
    parser = argparse.ArgumentParser(prog="python -m fleetlab.gpu.bench.one_process", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ways", default=",".join(METHODS), help="streams, priority, green (default: all)")
    parser.add_argument("--sms", type=int, default=64, help="SMs of each green context (default: 64)")
    parser.add_argument("--window", type=float, default=2.0)
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--pairs", help="tenants as FIRST+SECOND, separated by commas")
    parser.add_argument(
        "--rehearse", action="store_true", help="run on the CPU with tiny sizes: results are meaningless"
    )
    options = parser.parse_args()
    ways = options.ways.split(",")
    if len(ways) > 1:
        return max(
            subprocess.run([sys.executable, "-m", SELF, *_for(way, sys.argv[1:])], check=False).returncode
            for way in ways
        )
    try:
        pairs = PAIRS if options.pairs is None else tuple(_pair(word) for word in options.pairs.split(","))
        measure(
            pairs,
            options.out,
            ways=(ways[0],),
            sms=options.sms,
            device="cpu" if options.rehearse else "cuda",
            tiny=options.rehearse,
            window=0.2 if options.rehearse else options.window,
            limit=options.limit,
            progress=print_progress,
        )
    except BenchError as e:
        print_error(e)
        return 2
    return 0


def _for(way: str, arguments: list[str]) -> list[str]:
    """The same arguments for one method, as the last one counts: each method has its own process.

    cuDNN's state of a stream of the whole GPU does not work on a green context.
    """
    return [*arguments, "--ways", way]


def _pair(text: str) -> tuple[str, str]:
    first, plus, second = text.partition("+")
    if not plus or not first or not second:
        raise BenchError(f"not a pair of tenants: `{text}`", hint="resnet-infer+resnet-train")
    return first, second


if __name__ == "__main__":
    sys.exit(main())
