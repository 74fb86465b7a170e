"""Arrival schedules: generated from a distribution and a seed, or replayed from a list."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetlab.bench.arrivals import arrivals
from fleetlab.bench.llm.trace import read_trace
from fleetlab.devices.errors import BenchError
from fleetlab.serving.load.settings import LoadSettings
from fleetlab.serving.load.tokens import request_lengths

Floats = NDArray[np.float64]
DISTRIBUTIONS = "poisson, gamma:B (bursty if B is below 1) and uniform"


@dataclass(frozen=True, slots=True)
class ArrivalSchedule:
    """Scheduled times in seconds from the start; those from `opens` to `closes` are measured."""

    due: Floats
    opens: float
    closes: float
    notes: tuple[str, ...] = ()


def arrival_schedule(settings: LoadSettings) -> ArrivalSchedule:
    """Make the schedule; it depends only on the settings, and a longer one starts like a shorter one.

    >>> arrival_schedule(LoadSettings(url="", rate=2, arrivals="uniform", seconds=2, warmup=1)).due.tolist()
    [0.5, 1.0, 1.5, 2.0, 2.5]
    """
    end = settings.warmup + settings.seconds
    all_due, whole = _replayed(settings) if is_replay(settings) else (_generated(settings, end), False)
    due = all_due[all_due < end][: settings.limit]
    notes = []
    if len(due) == settings.limit or (whole and len(due) == len(all_due)):
        # The schedule is shorter than requested: the window ends with it, or rates would be too low.
        last = float(due[-1] * len(due) / max(len(due) - 1, 1)) if len(due) else 0.0
        if 0 < last < end:
            notes.append(f"the schedule ends after {len(due):,} requests: {last:.1f} s instead of {end:.1f} s")
            end = last
    if not ((due >= settings.warmup) & (due < end)).any():
        msg = f"no request is scheduled after the warm-up of {settings.warmup:g} s"
        raise BenchError(msg, hint="use a higher --rate, more --seconds, a shorter --warmup or a larger --limit")
    return ArrivalSchedule(due, settings.warmup, end, tuple(notes))


def is_replay(settings: LoadSettings) -> bool:
    """Whether arrivals are replayed from a list rather than generated."""
    return settings.times is not None or not (
        settings.arrivals in ("poisson", "uniform", "dataset") or settings.arrivals.startswith("gamma:")
    )


def _generated(settings: LoadSettings, end: float) -> Floats:
    if settings.scale is not None:
        msg = "--scale applies only to arrivals from a file or a trace"
        raise BenchError(msg, hint="set --rate instead")
    if settings.arrivals == "dataset":
        return _of_dataset(settings, end)
    if settings.rate is None:
        msg = "no rate given"
        raise BenchError(msg, hint="--rate 50, or --clients 8 for a closed loop")
    end = min(end, (2 * settings.limit + 20) / settings.rate)  # beyond the limit nothing needs to be generated
    if settings.arrivals == "uniform":
        return np.arange(1, math.ceil(end * settings.rate) + 1) / settings.rate
    return arrivals(settings.rate, end, seed=settings.seed, burstiness=_burstiness(settings.arrivals))


def _of_dataset(settings: LoadSettings, end: float) -> Floats:
    """Arrivals of a dataset at its own rate, or at the given one."""
    assert settings.dataset is not None
    speed = settings.rate / read_trace(settings.dataset).rate if settings.rate is not None else 1.0
    due = (at / speed for at, _, _ in request_lengths(settings.dataset, settings.seed))
    return np.array(list(takewhile(lambda at: at < end, islice(due, settings.limit))))


def _burstiness(words: str) -> float:
    if words == "poisson":
        return 1.0
    try:
        burstiness = float(words.removeprefix("gamma:"))
    except ValueError:
        burstiness = math.nan
    if not 0.01 <= burstiness <= 1e6:
        msg = f"gamma takes a shape from 0.01 to 1e6: `{words}`"
        raise BenchError(msg, hint="gamma:1 is Poisson; gamma:0.25 has inter-arrival times with a CV of 2")
    return burstiness


def _replayed(settings: LoadSettings) -> tuple[Floats, bool]:
    """Times from the first one on, scaled to the rate."""
    listed = read_times(Path(settings.arrivals)) if settings.times is None else settings.times
    times = np.sort(np.asarray(listed, float))
    if not times.size or not np.isfinite(times).all():
        msg = f"{settings.arrivals}: not a list of arrival times"
        raise BenchError(msg, hint="at least one finite number of seconds")
    times -= times[0]
    if settings.scale is not None:
        times /= settings.scale
    if settings.rate is not None:
        if not times[-1] > 0:
            msg = f"{settings.arrivals}: all arrivals are at the same time, so they have no rate"
            raise BenchError(msg)
        times *= (len(times) - 1) / times[-1] / settings.rate
    return times, True


def read_times(path: Path) -> tuple[float, ...]:
    """Read a file of times in seconds: one per line, or a JSON list."""
    try:
        text = path.read_text("utf-8")
    except OSError as e:
        msg = f"no such arrivals: `{path}`: {e.strerror}"
        raise BenchError(
            msg, hint=f"one of {DISTRIBUTIONS}, a file of times in seconds, or the folder of a trace"
        ) from None
    except UnicodeDecodeError:
        text = "?"
    try:
        words = json.loads(text) if text.lstrip().startswith("[") else text.split()
        return tuple(float(word) for word in words)
    except (ValueError, TypeError, RecursionError) as e:
        msg = f"{path}: not a list of arrival times: {e}"
        raise BenchError(msg, hint="seconds, one per line, or a JSON list of numbers") from None
