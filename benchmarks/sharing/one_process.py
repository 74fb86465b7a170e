"""Tenants as threads of one process: `python -m benchmarks.sharing.one_process --out FOLDER`.

They run on equal streams, on streams with priorities, or on disjoint SMs (green contexts). Cells are written in the
format of a suite, as one stage, in which a tenant alone on all SMs is the baseline.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fleetlab.gpu.bench.isolation.lanes import METHODS, Lane, lanes
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
    """`python -m benchmarks.sharing.one_process --out FOLDER`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharing.one_process", description=__doc__)
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
            subprocess.run([sys.executable, __file__, *_for(way, sys.argv[1:])], check=False).returncode for way in ways
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
