"""Feed a work for a while: as fast as it goes, or by a timetable that does not wait for it."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from fleetlab.bench.workloads import Work
from fleetlab.devices.clock import Clock

GOLDEN = (5**0.5 - 1) / 2
AHEAD = 2  # steps in flight: enough that a GPU never waits, few enough that it stops when told


@dataclass
class Fed:
    """What came of it: one entry a finished step, in order."""

    begun: list[float] = field(default_factory=list)  # when it was due, or when the device took it up
    ended: list[float] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    due: list[float] = field(default_factory=list)  # the whole timetable
    lags: list[float] = field(default_factory=list)  # how late the timetable's steps were sent
    starved: int = 0  # steps that found the device idle: the host was too slow to keep it busy
    unsent: int = 0  # steps of the timetable that there was no time left to send
    error: BaseException | None = None  # what ended it early


def saturate(
    work: Work, clock: Clock, *, until: float = math.inf, steps: int | None = None, rest: float = 0.0, seed: int = 0
) -> Fed:
    """Keep `AHEAD` steps in flight until a time, or for so many steps; a work that rests has one, and then its pause.

    `rest` gives any work a pause of that mean: half to one and a half times as long, lest two tenants fall into step,
    by `seed`, so that it rests alike alone and beside others. Pauses go round by the golden section, so that a few
    dozen already have their mean.
    """
    fed, flying = Fed(), deque[tuple[Any, Any, int]]()
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
                _land(fed, flying, clock)
                _rest(pause(fed.ended[-1] - fed.begun[-1]), until)
            elif len(flying) >= AHEAD:
                _land(fed, flying, clock)
        while flying:
            _land(fed, flying, clock)
    except Exception as e:  # whatever a work raises is a finding about it, not the end of the bench
        fed.error = e
    return fed


def by_timetable(work: Work, clock: Clock, *, due: Sequence[float], until: float) -> Fed:
    """Send each step when it is due, finished or not what went before; its time runs from when it was due."""
    fed, flying = Fed(due=list(due)), deque[tuple[Any, Any, int]]()
    try:
        for k, when in enumerate(due):
            if time.monotonic() >= until:
                fed.unsent = len(due) - k
                break
            while flying and clock.done(flying[0][1]) and time.monotonic() < when - 2e-4:
                _land(fed, flying, clock)
            _rest(when - time.monotonic(), until)
            fed.lags.append(max(time.monotonic() - when, 0.0))
            items = work.step()
            flying.append((when, clock.mark(), items))
        while flying:
            _land(fed, flying, clock)
    except Exception as e:
        fed.error = e
    return fed


def _land(fed: Fed, flying: deque[tuple[Any, Any, int]], clock: Clock) -> None:
    first, last, items = flying.popleft()
    clock.wait(last)
    fed.begun.append(first if isinstance(first, float) else clock.time(first))
    fed.ended.append(clock.time(last))
    fed.items.append(items)


def _rest(seconds: float, until: float) -> None:
    """Sleep, but the last fifth of a millisecond awake: a sleeper wakes late."""
    end = min(time.monotonic() + seconds, until)
    if (left := end - time.monotonic() - 2e-4) > 0:
        time.sleep(left)
    while time.monotonic() < end:
        pass
