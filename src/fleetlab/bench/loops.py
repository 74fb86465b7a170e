"""Run a workload in a closed loop (as fast as possible) or in an open loop (scheduled steps)."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from fleetlab.bench.workloads import BenchWorkload
from fleetlab.devices.clock import Clock

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
    clock: Clock,
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
    fed, flying = StepLog(), deque[tuple[Any, Any, int]]()
    turn = random.Random(seed).random()
    pause = getattr(work, "pause", None) if getattr(work, "rests", False) else None
    if rest:
        pause = lambda _busy: rest * (0.5 + (turn + GOLDEN * len(fed.ended)) % 1)  # noqa: E731
    try:
        for _ in range(steps) if steps is not None else count():
            if time.monotonic() >= until:
                break
            fed.starved += bool(flying) and clock.done(flying[-1][1])
            first = clock.mark()
            items = work.step()
            flying.append((first, clock.mark(), items))
            if pause is not None:
                _finish_step(fed, flying, clock)
                _sleep_until(pause(fed.ended[-1] - fed.begun[-1]), until)
            elif len(flying) >= IN_FLIGHT:
                _finish_step(fed, flying, clock)
        while flying:
            _finish_step(fed, flying, clock)
    except Exception as e:  # an error of a workload is a result, not the end of the bench
        fed.error = e
    return fed


def open_loop(work: BenchWorkload, clock: Clock, *, due: Sequence[float], until: float) -> StepLog:
    """Send each step at its scheduled time, whether or not earlier ones are done; times count from the schedule."""
    fed, flying = StepLog(due=list(due)), deque[tuple[Any, Any, int]]()
    try:
        for k, when in enumerate(due):
            if time.monotonic() >= until:
                fed.unsent = len(due) - k
                break
            while flying and clock.done(flying[0][1]) and time.monotonic() < when - 2e-4:
                _finish_step(fed, flying, clock)
            _sleep_until(when - time.monotonic(), until)
            fed.lags.append(max(time.monotonic() - when, 0.0))
            items = work.step()
            flying.append((when, clock.mark(), items))
        while flying:
            _finish_step(fed, flying, clock)
    except Exception as e:
        fed.error = e
    return fed


def _finish_step(fed: StepLog, flying: deque[tuple[Any, Any, int]], clock: Clock) -> None:
    first, last, items = flying.popleft()
    clock.wait(last)
    fed.begun.append(first if isinstance(first, float) else clock.time(first))
    fed.ended.append(clock.time(last))
    fed.items.append(items)


def _sleep_until(seconds: float, until: float) -> None:
    """Sleep, then wait busily for the last 0.2 ms: sleep is not precise."""
    end = min(time.monotonic() + seconds, until)
    if (left := end - time.monotonic() - 2e-4) > 0:
        time.sleep(left)
    while time.monotonic() < end:
        pass
