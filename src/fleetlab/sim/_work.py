"""How a job's work passes: checkpoints, what a break costs, and how fast it goes beside others on its GPU."""

from __future__ import annotations

import math

import numpy as np

from fleetlab.sim._books import (
    AT,
    BELIEVED,
    BESIDE,
    CLASS,
    GANG,
    HERE,
    INTRO,
    LEFT,
    LOST,
    NEED,
    OWNED_BY,
    RAN,
    RUNTIME,
    SEGMENT,
    SHAPE,
    SINCE,
    SPEED,
    TODO,
    Book,
    Ground,
    Rules,
    inner_step,
    on_tick,
    set_alarm,
)  # fmt: skip
from fleetlab.sim._nodes import FIRST, GPUS, MILLI, WHOLE


@inner_step
def takes(todo: float, intro: float, every: float, save: float) -> float:
    """Own seconds of a run that does all the work: a checkpoint after each `every` of it, but none at the end."""
    saves = (math.ceil(todo / every) - 1) * save if every > 0 and todo > 0 else 0.0
    return intro + todo + saves


@inner_step
def done_in(own: float, every: float, save: float) -> tuple[float, float]:
    """The work done in so many own seconds of a run, and how much of it is in checkpoints."""
    if own <= 0:
        return 0.0, 0.0
    if every == 0:
        return own, 0.0
    rounds = math.floor(own / (every + save))
    return rounds * every + min(own - rounds * (every + save), every), rounds * every


@inner_step
def left_at(book: Book, t: int, now: float) -> float:
    """Own seconds a running job has left."""
    V = book.V
    return max(0.0, V[t, LEFT] - (now - V[t, SINCE]) * V[t, SPEED])


@inner_step
def believed_left(book: Book, t: int, left: float) -> float:
    """Seconds that a job with `left` own seconds is believed to need: it errs by what the estimate errs."""
    return max(0.0, (left - book.V[t, RUNTIME]) + book.estimate[t])


@inner_step
def next_run(book: Book, rules: Rules, t: int) -> float:
    """Own seconds that the next run of a waiting job takes."""
    return takes(book.V[t, TODO], book.V[t, INTRO], rules.every, rules.save)


@inner_step
def look_at(book: Book, t: int, now: float) -> None:
    """Bring what policies see of a running job up to now."""
    V = book.V
    book.attained[t] = (V[t, RAN] + (now - V[t, SEGMENT])) * book.T[t, NEED] / WHOLE
    book.remaining[t] = believed_left(book, t, left_at(book, t, now))


@inner_step
def set_back(book: Book, rules: Rules, t: int, now: float, saved: int) -> None:
    """A run breaks off: work is kept up to now if it is saved (1), else up to the last checkpoint."""
    V = book.V
    spent = next_run(book, rules, t) - left_at(book, t, now)
    done, kept = done_in(spent - V[t, INTRO], rules.every, rules.save)
    work = min(V[t, TODO], done if saved else kept)
    V[t, LOST] += spent - work
    V[t, TODO] -= work
    V[t, INTRO] = 0.0
    if V[t, TODO] < V[t, RUNTIME]:  # there is something to load again
        V[t, INTRO] = rules.restart + (rules.save if saved and work > 0 else 0.0)
    book.remaining[t] = believed_left(book, t, next_run(book, rules, t))


@inner_step
def in_vain(book: Book, rules: Rules, t: int, now: float) -> float:
    """Own seconds that a running job has spent on anything but work."""
    spent = next_run(book, rules, t) - left_at(book, t, now)
    return spent - min(book.V[t, TODO], done_in(spent - book.V[t, INTRO], rules.every, rules.save)[0])


@inner_step
def set_off(book: Book, rules: Rules, t: int, now: float) -> None:
    """A run begins at full speed."""
    V = book.V
    V[t, SEGMENT], V[t, SINCE], V[t, SPEED] = now, now, 1.0
    V[t, LEFT] = next_run(book, rules, t)
    V[t, BELIEVED] = now + believed_left(book, t, V[t, LEFT])
    set_alarm(book, t, now + V[t, LEFT])


# -- neighbours ------------------------------------------------------------------------------------------------------


@inner_step
def gpu_of(book: Book, ground: Ground, i: int) -> int:
    """The GPU that instance `i` has a share of; -1 where it has none or whole ones."""
    s = book.T[book.I[i, OWNED_BY], SHAPE]
    if ground.S[s, GPUS] == 0 or ground.S[s, MILLI] == WHOLE:
        return -1
    g, bits = ground.N[book.I[i, HERE], FIRST], book.I[i, HERE + 1]
    while bits > 1:
        bits >>= 1
        g += 1
    return g


@inner_step
def move_in(book: Book, g: int, i: int) -> None:
    """Instance `i` comes to share a GPU."""
    book.I[i, BESIDE] = book.tenants[g]
    book.tenants[g] = i


@inner_step
def move_out(book: Book, g: int, i: int) -> None:
    """Instance `i` leaves a GPU."""
    at = book.tenants[g]
    if at == i:
        book.tenants[g] = book.I[i, BESIDE]
        return
    while book.I[at, BESIDE] != i:
        at = book.I[at, BESIDE]
    book.I[at, BESIDE] = book.I[i, BESIDE]


@inner_step
def speed_on(book: Book, rules: Rules, g: int, i: int) -> float:
    """How fast instance `i` is on the GPU it shares: slowed by each of its neighbours in turn."""
    mine = book.T[book.I[i, OWNED_BY], CLASS]
    speed, k = rules.alone[mine], book.tenants[g]
    while k >= 0:
        if k != i:
            speed *= rules.pair[mine, book.T[book.I[k, OWNED_BY], CLASS]]
        k = book.I[k, BESIDE]
    return speed


@inner_step
def pace_of(book: Book, t: int) -> float:
    """A gang is as fast as its slowest instance."""
    slowest = np.inf
    for i in range(book.T[t, AT], book.T[t, AT] + book.T[t, GANG]):
        slowest = min(slowest, book.pace[i])
    return slowest


@inner_step
def set_pace(book: Book, t: int, now: float) -> None:
    """Reckon anew when a running job ends, if its speed has changed."""
    V = book.V
    speed = pace_of(book, t)
    if speed == V[t, SPEED]:
        return
    V[t, LEFT], V[t, SINCE], V[t, SPEED] = left_at(book, t, now), now, speed
    end = now + V[t, LEFT] if speed == 1.0 else on_tick(now + V[t, LEFT] / speed)
    set_alarm(book, t, end)


@inner_step
def disturb(book: Book, rules: Rules, g: int, now: float) -> None:
    """The tenants of a GPU have changed: each goes at another speed."""
    k = book.tenants[g]
    while k >= 0:
        book.pace[k] = speed_on(book, rules, g, k)
        k = book.I[k, BESIDE]
    k = book.tenants[g]
    while k >= 0:
        set_pace(book, book.I[k, OWNED_BY], now)
        k = book.I[k, BESIDE]


@inner_step
def join(book: Book, ground: Ground, rules: Rules, t: int, now: float) -> None:
    """A job that has just begun meets its neighbours."""
    first, last = book.T[t, AT], book.T[t, AT] + book.T[t, GANG]
    for i in range(first, last):
        g = gpu_of(book, ground, i)
        if g >= 0:
            move_in(book, g, i)
        book.pace[i] = rules.alone[book.T[t, CLASS]] if ground.S[book.T[t, SHAPE], GPUS] else 1.0
    for i in range(first, last):
        g = gpu_of(book, ground, i)
        if g >= 0:
            disturb(book, rules, g, now)
    set_pace(book, t, now)


@inner_step
def part(book: Book, ground: Ground, rules: Rules, t: int, now: float) -> None:
    """A job that has just ended leaves its neighbours."""
    first, last = book.T[t, AT], book.T[t, AT] + book.T[t, GANG]
    for i in range(first, last):
        g = gpu_of(book, ground, i)
        if g >= 0:
            move_out(book, g, i)
    for i in range(first, last):
        g = gpu_of(book, ground, i)
        if g >= 0:
            disturb(book, rules, g, now)
