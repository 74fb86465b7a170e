"""The built-in policies that a tuned one is held against: every order, and by the best of them every place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fleetlab.core import PolicyError
from fleetlab.core.catalog import BACKFILLS, ORDERS, PLACEMENTS

USUAL = "best_fit"
INTERRUPTING = ORDERS.where("preemptive")  # they stop running jobs, which costs nothing here
RESERVING = BACKFILLS.where("reserves")  # backfills under which nobody is interrupted

Rules = Mapping[str, object]
Means = dict[int, float]  # by week
Play = Callable[[Rules], Means]
Progress = Callable[[str, int, float], None]


@dataclass(frozen=True, slots=True)
class Rival:
    """A built-in policy, and how it did in the weeks to learn on; those that interrupt are not played there."""

    order: str
    placement: str
    train: Means = field(default_factory=dict)

    @property
    def name(self) -> str:
        """In the words of `compare`."""
        return f"{self.order}/{self.placement}"

    @property
    def interrupts(self) -> bool:
        """Does it stop jobs that run?"""
        return self.order in INTERRUPTING

    @property
    def rules(self) -> dict[str, str]:
        """As `simulate` takes them."""
        return {"order": self.order, "placement": self.placement}


def orders(against: Sequence[str], backfill: str) -> list[str]:
    """Those to be held against; at least one that lets jobs run to their end."""
    for name in against:
        ORDERS.index(name)
    wanted = [name for name in ORDERS.names if name in against] if against else list(ORDERS.names)
    if all(name in INTERRUPTING for name in wanted):
        msg = f"at least one order that lets jobs run to their end is needed: {', '.join(wanted)}"
        raise PolicyError(msg, hint="fifo, sjf, smallest, fair, or nothing: then all are taken")
    return [name for name in wanted if name not in INTERRUPTING or backfill not in RESERVING]


def in_training(play: Play, names: Sequence[str], progress: Progress) -> list[Rival]:
    """Every order; the best of them in every place; and those that interrupt, which are not chosen from."""
    calm = [name for name in names if name not in INTERRUPTING]
    steps = len(calm) + len(PLACEMENTS.names) - 1
    found: list[Rival] = []
    for name in calm:
        progress("built-in policies", len(found), len(found) / steps)
        found.append(Rival(name, USUAL, play({"order": name, "placement": USUAL})))
    first = best(found).order
    for name in PLACEMENTS.names:
        if name != USUAL:
            progress("built-in policies", len(found), len(found) / steps)
            found.append(Rival(first, name, play({"order": first, "placement": name})))
    progress("built-in policies", len(found), 1.0)
    return [*found, *(Rival(name, USUAL) for name in names if name in INTERRUPTING)]


def best(rivals: Sequence[Rival]) -> Rival:
    """The best of those that were played in training; of two alike the first."""
    return min((rival for rival in rivals if rival.train), key=lambda rival: mean(rival.train))


def mean(weeks: Means) -> float:
    """Every week counts alike."""
    return sum(weeks.values()) / len(weeks)
