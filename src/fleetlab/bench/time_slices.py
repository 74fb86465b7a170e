"""How long is a slice of time? Two processes watch the clock of the device, and tell when they were not running.

Each runs one thread that reads the clock as fast as it can. Between two readings lies some nanoseconds, or the time in
which the other process had the device: a gap. What lies between two gaps is a slice of one's own. No right beyond that
to use the card is needed. On a card the clock is `%globaltimer`; without one, two processes on one core watch the
operating system share it, which is the rehearsal.
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

from fleetlab.bench.workers.process import importable
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.modes import Share, shared

LEAST = 20_000  # ns: what is shorter is no gap
MOST = 100_000  # gaps that are kept
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
Gaps = NDArray[np.int64]  # one row a gap: when it began and ended, in ns from the first reading


def slices(
    *, modes: tuple[str, ...] = ("time-slicing", "mps"), seconds: float = 2.0, device: str = "cuda"
) -> dict[str, Any]:
    """Watch alone, and two at once in each mode: how long slices and gaps are, and what of the time is nobody's."""
    rehearse = device == "cpu"
    told: dict[str, Any] = {"device": device, "seconds": seconds, "least_ns": LEAST}
    for mode in modes:
        with shared(mode, rehearse=rehearse) as on:
            env = on.environment(Share())
            told[mode] = {str(n): summed(_watched(n, seconds=seconds, device=device, env=env), seconds) for n in (1, 2)}
    return told


def summed(watched: list[Gaps], seconds: float) -> dict[str, Any]:
    """What the watchers of one time saw. Their parts of it add up to 1 less what switching costs, or to more."""
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
    """Least, quartiles, P95 and most."""
    return [round(float(q), 4) for q in np.quantile(ms, (0, 0.25, 0.5, 0.75, 0.95, 1))] if ms.size else []


def _watched(n: int, *, seconds: float, device: str, env: dict[str, str]) -> list[Gaps]:
    at = time.time() + (8 if device == "cuda" else 1.5)  # until all have opened the card
    words = [
        sys.executable,
        "-m",
        "fleetlab.bench.time_slices",
        "--watch",
        f"{at}",
        "--seconds",
        f"{seconds}",
        "--device",
        device,
    ]
    surroundings = os.environ | importable() | env
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=surroundings) for _ in range(n)]
    try:
        told = [process.communicate(timeout=60 + 2 * seconds)[0] for process in started]
    except subprocess.TimeoutExpired:
        msg = f"no answer from who watches the clock within {60 + 2 * seconds:.0f} s"
        raise BenchError(msg) from None
    finally:
        for process in started:
            process.kill()
    if any(process.returncode for process in started):
        msg = "who watches the clock fell"
        raise BenchError(msg, hint="on a card this needs CuPy; `--device cpu` watches the operating system")
    return [np.array(json.loads(text), np.int64).reshape(-1, 2) for text in told]


# --- a watcher -------------------------------------------------------------------------------------------------------


def watch_card(at: float, seconds: float) -> list[list[int]]:
    """By one thread on the GPU."""
    import cupy  # type: ignore[import-not-found]

    kernel = cupy.RawKernel(KERNEL, "watch")
    gaps, count = cupy.zeros((MOST, 2), cupy.uint64), cupy.zeros(1, cupy.int32)

    def run(span: float) -> None:
        kernel((1,), (1,), (np.uint64(span * 1e9), np.uint64(LEAST), np.int32(MOST), gaps, count))
        cupy.cuda.Device().synchronize()

    run(0.01)  # compiled and warm
    time.sleep(max(at - time.time(), 0))
    run(seconds)
    found: list[list[int]] = gaps[: int(count[0])].get().astype(np.int64).tolist()
    return found


def watch_host(at: float, seconds: float) -> list[list[int]]:
    """By one thread of the CPU, with the other watcher on the same core."""
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
    """`python -m fleetlab.bench.time_slices --out FILE`."""
    parser = argparse.ArgumentParser(prog="python -m fleetlab.bench.time_slices", description=__doc__)
    parser.add_argument("--out", type=Path, help="where to write what was seen, as JSON")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to watch (2)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--modes", default="time-slicing,mps")
    parser.add_argument("--watch", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.watch is not None:
        print(json.dumps({"cuda": watch_card, "cpu": watch_host}[asked.device](asked.watch, asked.seconds)))
        return 0
    try:
        told = slices(modes=tuple(asked.modes.split(",")), seconds=asked.seconds, device=asked.device)
    except BenchError as e:
        print(f"error: {e}" + (f"\nhint: {e.hint}" if e.hint else ""), file=sys.stderr)
        return 2
    text = json.dumps(told, indent=1)
    if asked.out:
        beside = asked.out.with_suffix(".new")
        beside.write_text(text + "\n", "utf-8")
        beside.replace(asked.out)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
