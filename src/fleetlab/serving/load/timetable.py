"""When each request is due: by a law and a seed, or as a list says; no server can change it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetlab.bench.arrivals import arrivals
from fleetlab.devices.errors import BenchError
from fleetlab.serving.load.settings import Asked

Floats = NDArray[np.float64]
LAWS = "poisson, gamma:B (B below 1 comes in bursts) and uniform"


@dataclass(frozen=True, slots=True)
class Timetable:
    """Seconds from the start at which requests are due; those from `opens` to `closes` count."""

    due: Floats
    opens: float
    closes: float
    notes: tuple[str, ...] = ()


def timetable(asked: Asked) -> Timetable:
    """The same for the same words and seed; a longer one begins like a shorter one.

    >>> timetable(Asked(url="", rate=2, arrivals="uniform", seconds=2, warmup=1)).due.tolist()
    [0.5, 1.0, 1.5, 2.0, 2.5]
    """
    end = asked.warmup + asked.seconds
    all_due, whole = _listed(asked) if is_list(asked) else (_by_law(asked, end), False)
    due = all_due[all_due < end][: asked.limit]
    notes = []
    if len(due) == asked.limit or (whole and len(due) == len(all_due)):
        # It ends before its time: the window ends with it, or its rates would be those of a longer one.
        last = float(due[-1] * len(due) / max(len(due) - 1, 1)) if len(due) else 0.0
        if 0 < last < end:
            notes.append(f"the timetable ends after {len(due):,} requests: {last:.1f} s instead of {end:.1f} s")
            end = last
    if not ((due >= asked.warmup) & (due < end)).any():
        msg = f"no request is due after the warm-up of {asked.warmup:g} s"
        raise BenchError(msg, hint="a higher --rate, more --seconds, a shorter --warmup or a larger --limit")
    return Timetable(due, asked.warmup, end, tuple(notes))


def is_list(asked: Asked) -> bool:
    """Are the arrivals listed, rather than drawn by a law?"""
    return asked.times is not None or not (
        asked.arrivals in ("poisson", "uniform") or asked.arrivals.startswith("gamma:")
    )


def _by_law(asked: Asked, end: float) -> Floats:
    if asked.scale is not None:
        msg = "a scale is for arrivals from a list"
        raise BenchError(msg, hint="--rate says how fast these come")
    if asked.rate is None:
        msg = "no rate to send at"
        raise BenchError(msg, hint="--rate 50, or --clients 8 for a closed loop")
    end = min(end, (2 * asked.limit + 20) / asked.rate)  # of what lies beyond the limit nothing need be drawn
    if asked.arrivals == "uniform":
        return np.arange(1, math.ceil(end * asked.rate) + 1) / asked.rate
    return arrivals(asked.rate, end, seed=asked.seed, burstiness=_burstiness(asked.arrivals))


def _burstiness(words: str) -> float:
    if words == "poisson":
        return 1.0
    try:
        found = float(words.removeprefix("gamma:"))
    except ValueError:
        found = math.nan
    if not 0.01 <= found <= 1e6:
        msg = f"gamma takes a burstiness from 0.01 to 1e6: `{words}`"
        raise BenchError(msg, hint="gamma:1 is Poisson; gamma:0.25 has gaps that vary by twice their mean")
    return found


def _listed(asked: Asked) -> tuple[Floats, bool]:
    """Times from the first one on, squeezed or stretched to the rate; all of the list, so that it may run out."""
    told = read_times(Path(asked.arrivals)) if asked.times is None else asked.times
    times = np.sort(np.asarray(told, float))
    if not times.size or not np.isfinite(times).all():
        msg = f"{asked.arrivals}: not a list of arrival times"
        raise BenchError(msg, hint="at least one, all of them finite numbers of seconds")
    times -= times[0]
    if asked.scale is not None:
        times /= asked.scale
    if asked.rate is not None:
        if not times[-1] > 0:
            msg = f"{asked.arrivals}: all arrivals at once have no rate to change"
            raise BenchError(msg)
        times *= (len(times) - 1) / times[-1] / asked.rate
    return times, True


def read_times(path: Path) -> tuple[float, ...]:
    """A file of seconds: one a line, or a JSON list."""
    try:
        text = path.read_text("utf-8")
    except OSError as e:
        msg = f"no such arrivals: `{path}`: {e.strerror}"
        raise BenchError(msg, hint=f"there are {LAWS}, or name a file of seconds, or the folder of a trace") from None
    except UnicodeDecodeError:
        text = "?"
    try:
        words = json.loads(text) if text.lstrip().startswith("[") else text.split()
        return tuple(float(word) for word in words)
    except (ValueError, TypeError, RecursionError) as e:
        msg = f"{path}: not a list of arrival times: {e}"
        raise BenchError(msg, hint="seconds, one a line, or a JSON list of numbers") from None
