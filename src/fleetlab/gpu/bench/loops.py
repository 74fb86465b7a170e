"""Run a workload in a closed or an open loop, and summarize its steps inside a measurement window."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fleetlab.gpu.bench.histogram import Histogram, percentile
from fleetlab.gpu.devices.console import BenchError
from fleetlab.stats import design_effect

if TYPE_CHECKING:
    from fleetlab.gpu.bench.workloads import BenchWorkload
    from fleetlab.gpu.devices.clock import HostClock


def arrivals(
    rate: float, seconds: float, *, seed: int | tuple[int, ...], burstiness: float = 1.0
) -> NDArray[np.float64]:
    """Arrival times from 0 to `seconds` with gamma inter-arrival times: shape 1 is Poisson, below 1 bursty (CV 1/√b).

    >>> arrivals(2, 3, seed=0).round(2).tolist()
    [0.34, 0.85, 0.86, 0.86, 1.14, 1.95, 2.29, 2.67]
    """
    if not (math.isfinite(rate) and rate > 0 and math.isfinite(seconds) and seconds >= 0 and 0 < burstiness < math.inf):
        msg = f"not an arrival process: {rate} per second for {seconds} s with shape {burstiness}"
        raise BenchError(msg, hint="rate and shape must be above 0")
    rng = np.random.default_rng(seed)
    parts, now = [], 0.0
    while now < seconds:
        # In chunks of fixed size, so that a longer schedule starts like a shorter one.
        gaps = rng.gamma(burstiness, 1 / (burstiness * rate), size=256)
        times = now + np.cumsum(gaps)
        parts.append(times)
        now = float(times[-1])
    times = np.concatenate(parts) if parts else np.empty(0)
    return times[times < seconds]


# --- run a workload in a closed loop (as fast as possible) or in an open loop (scheduled steps) ----------------------


GOLDEN = (5**0.5 - 1) / 2
IN_FLIGHT = 2  # steps in flight: enough to keep a GPU busy, few enough to stop quickly


@dataclass
class StepLog:
    """Times of the finished steps, in order."""

    begun: list[float] = field(default_factory=list)  # scheduled time, or start on the device
    ended: list[float] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    due: list[float] = field(default_factory=list)  # the whole schedule
    lags: list[float] = field(default_factory=list)  # delay of sending each scheduled step
    starved: int = 0  # steps that found the device idle: the host was too slow
    unsent: int = 0  # scheduled steps that were not sent in time
    error: BaseException | None = None  # what ended the loop early


def closed_loop(
    work: BenchWorkload,
    clock: HostClock,
    *,
    until: float = math.inf,
    steps: int | None = None,
    rest: float = 0.0,
    seed: int = 0,
) -> StepLog:
    """Keep `IN_FLIGHT` steps in flight until a time, or for a number of steps; one if the workload has pauses.

    `rest` adds a pause of that mean to any workload: 0.5 to 1.5 times as long, so that two tenants do not synchronize,
    and by `seed`, so that pauses are the same in every cell. They form a golden-ratio sequence, whose mean converges
    after a few dozen.
    """
    log, flying = StepLog(), deque[tuple[Any, Any, int]]()
    turn = random.Random(seed).random()
    pause = getattr(work, "pause", None) if getattr(work, "rests", False) else None
    if rest:
        pause = lambda _busy: rest * (0.5 + (turn + GOLDEN * len(log.ended)) % 1)  # noqa: E731
    try:
        for _ in range(steps) if steps is not None else count():
            if time.monotonic() >= until:
                break
            log.starved += bool(flying) and clock.done(flying[-1][1])
            first = clock.mark()
            items = work.step()
            flying.append((first, clock.mark(), items))
            if pause is not None:
                _finish_step(log, flying, clock)
                _sleep_until(pause(log.ended[-1] - log.begun[-1]), until)
            elif len(flying) >= IN_FLIGHT:
                _finish_step(log, flying, clock)
        while flying:
            _finish_step(log, flying, clock)
    except Exception as e:  # an error of a workload is a result, not the end of the bench
        log.error = e
    return log


def open_loop(work: BenchWorkload, clock: HostClock, *, due: Sequence[float], until: float) -> StepLog:
    """Send each step at its scheduled time, whether or not earlier ones are done; times count from the schedule."""
    log, flying = StepLog(due=list(due)), deque[tuple[Any, Any, int]]()
    try:
        for k, when in enumerate(due):
            if time.monotonic() >= until:
                log.unsent = len(due) - k
                break
            while flying and clock.done(flying[0][1]) and time.monotonic() < when - 2e-4:
                _finish_step(log, flying, clock)
            _sleep_until(when - time.monotonic(), until)
            log.lags.append(max(time.monotonic() - when, 0.0))
            items = work.step()
            flying.append((when, clock.mark(), items))
        while flying:
            _finish_step(log, flying, clock)
    except Exception as e:
        log.error = e
    return log


def _finish_step(log: StepLog, flying: deque[tuple[Any, Any, int]], clock: HostClock) -> None:
    first, last, items = flying.popleft()
    clock.wait(last)
    log.begun.append(first if isinstance(first, float) else clock.time(first))
    log.ended.append(clock.time(last))
    log.items.append(items)


def _sleep_until(seconds: float, until: float) -> None:
    """Sleep, then wait busily for the last 0.2 ms: sleep is not precise."""
    end = min(time.monotonic() + seconds, until)
    if (pause := end - time.monotonic() - 2e-4) > 0:
        time.sleep(pause)
    while time.monotonic() < end:
        pass


# --- summarize the steps of a tenant inside a measurement window -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class DriveWindow:
    """Times on the monotonic clock for a workload that drives itself: it runs from `start` until `until`."""

    start: float
    opens: float  # what is due or done from here
    closes: float  # to here is measured
    until: float
    seed: int = 0


PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
PARTS = 10  # parts of a window, to check that it was steady


def summarize_window(log: StepLog, opens: float, closes: float) -> dict[str, Any]:
    """Rate inside the window, in total and by tenth, and the times of the steps inside."""
    begun, ended, items = (np.asarray(x, float) for x in (log.begun, log.ended, log.items))
    edges = np.linspace(opens, closes, PARTS + 1)
    done = _done_by(edges, begun, ended, items)
    # A scheduled step belongs to its scheduled time: one that a stall delays past the window must still count.
    by = begun if log.lags else ended
    inside = (by >= opens) & (by < closes)
    took = (ended - begun)[inside]
    times = Histogram.of(took)
    # Step times in one queue are autocorrelated: the design effect is kept, because a histogram loses the order.
    clumps = (
        {name: design_effect(took > np.quantile(took, p)) if took.size else 1.0 for name, p in PERCENTILES}
        if log.lags
        else {}
    )
    return {
        "rate": float((done[-1] - done[0]) / (closes - opens)),
        "rates": [float(f"{r:.5g}") for r in np.diff(done) / np.diff(edges)],
        "items": int(items[inside].sum()),
        "steps": int(inside.sum()),
        "busy": float(f"{_busy(begun, ended, opens, closes):.4g}"),
        "starved": log.starved / max(len(ended), 1),
        "times": times.to_json(),
        **_percentiles(times, clumps),
        **({"clumps": {name: round(c, 2) for name, c in clumps.items()}} if clumps else {}),
        **({"offered": int(((due := np.asarray(log.due)) >= opens).sum() - (due >= closes).sum())} if log.due else {}),
        **({"lag": Histogram.of(log.lags).to_json(), "unsent": log.unsent} if log.lags or log.unsent else {}),
    }


def _done_by(edges: NDArray[Any], begun: NDArray[Any], ended: NDArray[Any], items: NDArray[Any]) -> NDArray[Any]:
    """Items done by each time, spread evenly over the time of their step: the window may cut through steps."""
    if not ended.size:
        return np.zeros(len(edges))
    # Steps of one stream end in order, but scheduled steps wait for each other: count from the end of the previous one.
    taken = np.maximum(begun, np.concatenate(([begun[0]], ended[:-1])))
    at = np.column_stack((taken, np.maximum(ended, taken))).ravel()
    total = np.cumsum(np.column_stack((np.zeros(len(items)), items)).ravel())
    done: NDArray[Any] = np.interp(edges, at, total)
    return done


def _busy(begun: NDArray[Any], ended: NDArray[Any], opens: float, closes: float) -> float:
    """Fraction of the window in which a step was running."""
    if not ended.size:
        return 0.0
    taken = np.maximum(begun, np.concatenate(([begun[0]], ended[:-1])))
    under_way = np.clip(ended, opens, closes) - np.clip(taken, opens, closes)
    return float(np.maximum(under_way, 0).sum() / (closes - opens))


def _percentiles(times: Histogram, clumps: dict[str, float]) -> dict[str, Any]:
    percentiles: dict[str, Any] = {}
    for name, p in PERCENTILES:
        try:
            percentiles[name] = [
                float(f"{x:.4g}") for x in percentile(times, p, effective_n=times.n / clumps.get(name, 1.0))
            ]
        except BenchError as e:
            percentiles[name] = str(e)
    return percentiles
