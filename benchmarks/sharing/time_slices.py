"""Measure the length of a time slice: two processes read the device's clock and report when they were not running.

Each runs one thread that reads the clock continuously. A gap between two readings is the time slice of the other
process, and the time between two gaps is its own. No privileges are needed. On a GPU the clock is `%globaltimer`;
without one, two processes on one core measure the scheduler of the operating system.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetlab.gpu.devices.console import BenchError, atomic_write, print_error, python_path
from fleetlab.gpu.sharing.modes import Share, shared

LEAST = 20_000  # ns: minimum length of a gap
MOST = 100_000  # maximum number of gaps
KERNEL = r"""
extern "C" __global__ void watch(unsigned long long span, unsigned long long least, int most,
                                 unsigned long long* gaps, int* count) {
    unsigned long long first, last, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(first));
    last = first;
    int n = 0;
    while (last - first < span) {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - last > least && n < most) { gaps[2 * n] = last - first; gaps[2 * n + 1] = now - first; ++n; }
        last = now;
    }
    *count = n;
}
"""
Gaps = NDArray[np.int64]  # one row per gap: begin and end in ns from the first reading


def measure_slices(
    *, modes: tuple[str, ...] = ("time-slicing", "mps"), seconds: float = 2.0, device: str = "cuda"
) -> dict[str, Any]:
    """Measure one process alone and two at once in each mode: lengths of slices and gaps, and unused time."""
    rehearse = device == "cpu"
    report: dict[str, Any] = {"device": device, "seconds": seconds, "least_ns": LEAST}
    for mode in modes:
        with shared(mode, rehearse=rehearse) as on:
            env = on.environment(Share())
            report[mode] = {
                str(n): summarize_gaps(_run_watchers(n, seconds=seconds, device=device, env=env), seconds)
                for n in (1, 2)
            }
    return report


def summarize_gaps(watched: list[Gaps], seconds: float) -> dict[str, Any]:
    """Summarize the gaps of concurrent watchers. Their shares of time sum to 1 minus the switching overhead."""
    gaps = np.concatenate([g[:, 1] - g[:, 0] for g in watched]) / 1e6
    own = np.concatenate([g[1:, 0] - g[:-1, 1] for g in watched]) / 1e6
    away = sum(float((g[:, 1] - g[:, 0]).sum()) for g in watched) / (1e9 * seconds)
    return {
        "watchers": len(watched),
        "gaps": int(gaps.size),
        "running": round(len(watched) - away, 4),
        "gap_ms": _quantiles(gaps),
        "slice_ms": _quantiles(own),
    }


def _quantiles(ms: NDArray[np.float64]) -> list[float]:
    """Minimum, quartiles, P95 and maximum."""
    return [round(float(q), 4) for q in np.quantile(ms, (0, 0.25, 0.5, 0.75, 0.95, 1))] if ms.size else []


def _run_watchers(n: int, *, seconds: float, device: str, env: dict[str, str]) -> list[Gaps]:
    at = time.time() + (8 if device == "cuda" else 1.5)  # until all have opened the GPU
    words = [sys.executable, __file__, "--watch", f"{at}", "--seconds", f"{seconds}", "--device", device]
    surroundings = os.environ | python_path() | env
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=surroundings) for _ in range(n)]
    try:
        outputs = [process.communicate(timeout=60 + 2 * seconds)[0] for process in started]
    except subprocess.TimeoutExpired:
        raise BenchError(f"a watcher process did not answer within {60 + 2 * seconds:.0f} s") from None
    finally:
        for process in started:
            process.kill()
    if any(process.returncode for process in started):
        msg = "a watcher process failed"
        raise BenchError(msg, hint="on a GPU this needs CuPy; `--device cpu` measures the operating system")
    return [np.array(json.loads(text), np.int64).reshape(-1, 2) for text in outputs]


# --- a watcher -------------------------------------------------------------------------------------------------------


def watch_card(at: float, seconds: float) -> list[list[int]]:
    """Record gaps with one GPU thread."""
    import cupy  # type: ignore[import-not-found]

    kernel = cupy.RawKernel(KERNEL, "watch")
    gaps, count = cupy.zeros((MOST, 2), cupy.uint64), cupy.zeros(1, cupy.int32)

    def run(span: float) -> None:
        kernel((1,), (1,), (np.uint64(span * 1e9), np.uint64(LEAST), np.int32(MOST), gaps, count))
        cupy.cuda.Device().synchronize()

    run(0.01)  # compile and warm up
    time.sleep(max(at - time.time(), 0))
    run(seconds)
    rows: list[list[int]] = gaps[: int(count[0])].get().astype(np.int64).tolist()
    return rows


def watch_host(at: float, seconds: float) -> list[list[int]]:
    """Record gaps with one CPU thread, on the same core as the other watcher."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    time.sleep(max(at - time.time(), 0))
    first = last = time.monotonic_ns()
    gaps, span = [], int(seconds * 1e9)
    while last - first < span:
        now = time.monotonic_ns()
        if now - last > LEAST:
            gaps.append([last - first, now - first])
        last = now
    return gaps[:MOST]


def main() -> int:
    """`python -m benchmarks.sharing.time_slices --out FILE`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharing.time_slices", description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a measurement (default: 2)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--modes", default="time-slicing,mps")
    parser.add_argument("--watch", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watch is not None:
        print(json.dumps({"cuda": watch_card, "cpu": watch_host}[options.device](options.watch, options.seconds)))
        return 0
    try:
        report = measure_slices(modes=tuple(options.modes.split(",")), seconds=options.seconds, device=options.device)
    except BenchError as e:
        print_error(e)
        return 2
    text = json.dumps(report, indent=1)
    if options.out:
        atomic_write(options.out, text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
