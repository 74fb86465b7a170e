"""The neighbor's log: one record per step, written at once, so that it survives the death of the process."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GOOD, WRONG, REFUSED, FATAL = range(4)  # how a step ended
RECORD = struct.Struct("<ddB")
KIND = np.dtype([("ended", "<f8"), ("took", "<f8"), ("status", "u1")])


class StepWriter:
    """Append records to a file without a buffer."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, ended: float, took: float, status: int) -> None:
        """Write one step: its end on the host's monotonic clock, its length in seconds, and how it ended."""
        os.write(self._file, RECORD.pack(ended, took, status))


def read_steps(path: Path) -> NDArray[Any]:
    """All complete records of a file."""
    data = path.read_bytes() if path.exists() else b""
    return np.frombuffer(data[: len(data) // RECORD.size * RECORD.size], KIND)


def summarize_steps(steps: NDArray[Any], *, acts: float, over: float, tail: float) -> dict[str, Any]:
    """Steps before an event, during it and after it, and how long the neighbor was without a good step."""
    good = steps["ended"][steps["status"] == GOOD]
    later = good[good > acts]
    return {
        "before": _phase(steps, -np.inf, acts),
        "during": _phase(steps, acts, over),
        "after": _phase(steps, over, over + tail),
        "fatal": bool((steps["status"] == FATAL).any()),
        "next_good_s": round(float(later[0] - acts), 4) if later.size else None,
        "good_after": bool((good > over).any()),
        "longest_gap_s": _longest_gap(good, acts),
    }


def rate_between(steps: NDArray[Any], opens: float, closes: float) -> dict[str, Any]:
    """Good steps per second and step times in a window."""
    return _phase(steps, opens, closes) | {"window": round(closes - opens, 4)}


def _phase(steps: NDArray[Any], opens: float, closes: float) -> dict[str, Any]:
    here = steps[(steps["ended"] >= opens) & (steps["ended"] < closes)]
    good = here["took"][here["status"] == GOOD]
    first = max(opens, float(steps["ended"][0] - steps["took"][0])) if steps.size else opens
    span = closes - first if np.isfinite(first) and closes > first else 0.0
    counts = {name: int((here["status"] == k).sum()) for k, name in enumerate(("good", "wrong", "refused", "fatal"))}
    if not good.size:
        return counts | {"per_second": 0.0}
    return counts | {
        "per_second": round(good.size / span, 3) if span else 0.0,
        "median_ms": round(1e3 * float(np.median(good)), 4),
        "max_ms": round(1e3 * float(good.max()), 4),
    }


def _longest_gap(good: NDArray[Any], acts: float) -> float | None:
    """The longest time between two good steps, one of which ends after the event."""
    around = np.concatenate((good[good <= acts][-1:], good[good > acts]))
    return round(float(np.diff(around).max()), 4) if around.size > 1 else None
