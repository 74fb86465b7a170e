"""When a queue may take from another: below its fair share, from those over theirs, and never past their ratio."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fleetlab.core.kai import UNLIMITED
from fleetlab.core.pod_groups import Amounts
from fleetlab.sim.gangs.amounts import add, minus, wanted
from fleetlab.sim.kai.shares import RESOURCES, QueueState, at_most, line

States = Mapping[str, QueueState]


def can_reclaim(states: States, queue: str, asked: Amounts, *, preemptible: bool) -> bool:
    """Return whether a queue stays within its fair share, and with a group that is not preemptible within its quota."""
    state = states[queue]
    if not at_most(add(state.amounts("allocated"), asked), state.amounts("fair")):
        return False
    return preemptible or at_most(add(state.amounts("fixed"), asked), state.amounts("deserved"))


def fits_strategy(asked: Amounts, taker: QueueState, giver: QueueState, remaining: Amounts) -> bool:
    """Return whether a queue may lose: it is over its share, or it is over its quota and the other within its own."""
    if not at_most(remaining, giver.amounts("allocatable")):
        return True
    after = add(taker.amounts("allocated"), asked)
    return at_most(after, taker.amounts("deserved")) and not at_most(remaining, giver.amounts("deserved"))


def may_lose(states: States, queue: str, asked: Amounts, loser: str) -> bool:
    """Return whether a queue may lose anything to another; what it has lost before only makes that harder."""
    taker, giver = _side_by_side(states, queue, loser)
    return fits_strategy(asked, taker, giver, giver.amounts("allocated"))


def may_reclaim(
    states: States, queue: str, asked: Amounts, losses: Mapping[str, Sequence[Amounts]], rule: tuple[bool, float]
) -> bool:
    """Return whether a group of a queue may take what others lose; `rule` is (preemptible, saturation multiplier)."""
    remaining: dict[str, dict[str, float]] = {}
    involved: dict[str, set[str]] = {}
    for loser, lost in losses.items():
        taker, giver = _side_by_side(states, queue, loser)
        names = {name for one in lost for name in wanted(one) if name in RESOURCES}
        for one in lost:
            now = remaining.setdefault(giver.name, giver.amounts("allocated"))
            if not fits_strategy(asked, taker, giver, now):
                return False
            for state in line(states, loser):
                before = remaining.get(state.name) or state.amounts("allocated")
                remaining[state.name] = minus(before, {n: a for n, a in one.items() if n in RESOURCES})
                involved.setdefault(state.name, set()).update(names)
    return _stays_in_bounds(states, queue, asked, (remaining, involved), rule)


def _stays_in_bounds(
    states: States,
    queue: str,
    asked: Amounts,
    lost: tuple[dict[str, dict[str, float]], dict[str, set[str]]],
    rule: tuple[bool, float],
) -> bool:
    """Whether, on each level, the taker's part of its fair share stays below that of those that lost."""
    remaining, involved = lost
    preemptible, multiplier = rule
    mine = {name for name in wanted(asked) if name in RESOURCES}
    for state in reversed(line(states, queue)):
        held = add(remaining.get(state.name) or state.amounts("allocated"), asked)
        for name in remaining:
            other = states[name]
            if other.queue.parent == state.queue.parent and name != state.name:
                names = involved[name] | mine
                if not _is_less_saturated(names, (held, state), (remaining[name], other), multiplier):
                    return False
        if not preemptible and not at_most(add(state.amounts("fixed"), asked), state.amounts("deserved")):
            return False
    return True


def _is_less_saturated(
    names: set[str], mine: tuple[Amounts, QueueState], theirs: tuple[Amounts, QueueState], multiplier: float
) -> bool:
    for name in names:
        fair, other = mine[1].shares[name].fair, theirs[1].shares[name].fair
        if fair == other == UNLIMITED:
            continue
        ratio = saturation(mine[0].get(name, 0.0), fair)
        if ratio > 1 and other > 0 and ratio * multiplier >= saturation(theirs[0].get(name, 0.0), other):
            return False
    return True


def saturation(allocated: float, fair: float) -> float:
    """What is held as a part of the fair share."""
    if fair == UNLIMITED:
        return 0.0
    if fair == 0:
        return math.inf if allocated > 0 else 0.0
    return allocated / fair


def _side_by_side(states: States, one: str, other: str) -> tuple[QueueState, QueueState]:
    """The queues above two queues, or they themselves, that first differ."""
    pair = states[one], states[other]
    for pair in zip(line(states, one), line(states, other), strict=False):
        if pair[0] is not pair[1]:
            break
    return pair
