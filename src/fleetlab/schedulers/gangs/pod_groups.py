"""Pods that are scheduled together: what Volcano and KAI call a PodGroup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleetlab.schedulers.kubernetes.config import SchedulingPod

# By resource, as the schedulers count: CPU in thousandths of a core, memory in bytes, all else in pieces.
Amounts = Mapping[str, float]
NON_PREEMPTIBLE = 100  # from this priority on KAI takes a group not to be preemptible, unless it says so
LEAST = 0.1  # less than this of anything is nothing: it is lost in rounding


@dataclass(frozen=True)
class PodGroup:
    """A gang: no pod of it runs before `min_member` of them can."""

    name: str  # one of its own in the whole cluster: namespace/name
    queue: str
    pods: tuple[SchedulingPod, ...]
    min_member: int
    priority: int = 0
    created: float = 0.0
    min_resources: Amounts | None = None  # what it needs to be admitted (Volcano)
    waiting_time: float | None = None  # after which it is admitted at once (Volcano's sla)
    preemptible: bool = True  # whether it may run over its queue's quota, and be evicted for it (KAI)
    grace: float | None = None  # s that an evicted pod of it takes to leave; None: as of all others
    kept: frozenset[str] = frozenset()  # pods that may not be evicted (volcano.sh/preemptable: "false")


# -- sums of resources; what is not named is none of it ----------------------------------------------------------------


def add(*many: Amounts) -> dict[str, float]:
    """Add up."""
    total: dict[str, float] = {}
    for one in many:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


def minus(one: Amounts, other: Amounts) -> dict[str, float]:
    """Take away; what is more than there was leaves less than nothing."""
    return add(one, {name: -amount for name, amount in other.items()})


def beyond(one: Amounts, other: Amounts) -> dict[str, float]:
    """What is more than another, and nothing where it is less."""
    return {name: max(0.0, amount - other.get(name, 0)) for name, amount in one.items()}


def within(one: Amounts, other: Amounts, names: Iterable[str] | None = None) -> bool:
    """Return whether no resource, of all or of those named, is more than another's."""
    return all(one.get(name, 0) - other.get(name, 0) < LEAST for name in (one if names is None else names))


def wanted(one: Amounts) -> list[str]:
    """Names of which there is some."""
    return [name for name, amount in one.items() if amount > 0]
