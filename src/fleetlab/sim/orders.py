"""The built-in queue orders, each a policy of a few lines: the lowest key first, ties by arrival.

The simulator knows these by name and has quicker ways for them; what they mean is here.
"""

from __future__ import annotations

from fleetlab.sim.policy import State, order

ENOUGH = 3600.0  # GPU-seconds: whoever has had less goes first under `las`


@order
def fifo(s: State, job: int, now: float) -> float:
    """First come, first served."""
    return s.submit[job]


@order
def sjf(s: State, job: int, now: float) -> float:
    """Shortest estimated runtime first."""
    return s.estimate[job]


@order
def smallest(s: State, job: int, now: float) -> float:
    """The fewest GPUs first, those of the whole gang."""
    return s.instances[job] * s.gpu_milli[job]


@order
def largest(s: State, job: int, now: float) -> float:
    """The most GPUs first, those of the whole gang."""
    return -s.instances[job] * s.gpu_milli[job]


@order
def priority(s: State, job: int, now: float) -> float:
    """The highest priority first."""
    return -s.priority[job]


@order
def fair(s: State, job: int, now: float) -> float:
    """The user who holds least first, by dominant share."""
    return s.usage[s.user[job]]


@order
def srpt(s: State, job: int, now: float) -> float:
    """Shortest estimated remaining runtime first."""
    return s.remaining[job]


def aging(weight: float = 1.0) -> order:
    """Shortest first, but each second of waiting takes `weight` seconds off."""

    # All wait at the same pace, so who leads whom never changes: the same ranking as estimate - weight × waited.
    @order
    def aging(s: State, job: int, now: float) -> float:
        """Shortest first, but waiting counts."""
        return s.estimate[job] + weight * s.submit[job]

    return aging


def las(enough: float = ENOUGH) -> order:
    """Least attained service first, in two queues: who has had fewer than `enough` GPU-seconds goes first."""

    @order
    def las(s: State, job: int, now: float) -> float:
        """Least attained service first, in two queues."""
        return s.attained[job] >= enough

    return las


BY_NAME = {
    "fifo": fifo,
    "sjf": sjf,
    "smallest": smallest,
    "largest": largest,
    "priority": priority,
    "aging": aging(),
    "las": las(),
    "fair": fair,
    "srpt": srpt,
}
