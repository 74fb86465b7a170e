"""What a flavor assignment says: the flavor of each resource, and what that takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from fleetlab.core.kueue import MAY_STOP, TRY_NEXT, FlavorFungibility
from fleetlab.core.kueue_quota import FlavorResource
from fleetlab.sim.kueue.domains import Placement

Tried = dict[tuple[int, str], int]  # by set and resource, the last flavor tried; -1: all were


class Mode(IntEnum):
    """What an assignment takes, the worst first."""

    NO_FIT = 0
    PREEMPT = 1
    FIT = 2


class Means(IntEnum):
    """How quota is got in one flavor, the worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1  # preemption might help, but there is nobody to preempt
    PREEMPT = 2  # of its own ClusterQueue
    RECLAIM = 3  # of others only
    FIT = 4

    @property
    def mode(self) -> Mode:
        """What it takes, in short."""
        return {Means.NO_FIT: Mode.NO_FIT, Means.FIT: Mode.FIT}.get(self, Mode.PREEMPT)


@dataclass(frozen=True)
class Grade:
    """How good a flavor is: by which means, and from how far away quota is borrowed."""

    means: Means = Means.FIT
    borrowing: int = 0

    def better(self, other: Grade, rule: FlavorFungibility) -> bool:
        """Whether it is preferred to another."""
        if Means.NO_FIT in (self.means, other.means):
            return other.means == Means.NO_FIT != self.means
        if rule.preference == "PreemptionOverBorrowing":
            return (-self.borrowing, self.means) > (-other.borrowing, other.means)
        return (self.means, -self.borrowing) > (other.means, -other.borrowing)

    def ends_search(self, rule: FlavorFungibility) -> bool:
        """Whether no further flavor is tried."""
        if self.means in (Means.NO_FIT, Means.NO_CANDIDATES):
            return False
        if self.means != Means.FIT and rule.when_can_preempt == TRY_NEXT:
            return False
        return self.borrowing == 0 or rule.when_can_borrow == MAY_STOP


@dataclass(frozen=True)
class Choice:
    """The flavor of one resource of a set of pods."""

    flavor: str
    mode: Mode
    borrowing: int


@dataclass
class PodSetAssignment:
    """The flavors of a set of pods; none: it does not fit."""

    name: str
    count: int
    requests: Mapping[str, int]  # of all its pods
    choices: dict[str, Choice] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    @property
    def mode(self) -> Mode:
        """The worst of its resources."""
        if not self.requests:
            return Mode.FIT
        return min((choice.mode for choice in self.choices.values()), default=Mode.NO_FIT)


@dataclass
class Assignment:
    """The flavors of a workload."""

    pod_sets: list[PodSetAssignment] = field(default_factory=list)
    usage: dict[FlavorResource, int] = field(default_factory=dict)
    tried: Tried = field(default_factory=dict)
    mode: Mode = Mode.NO_FIT
    placement: Placement = ()

    @property
    def borrowing(self) -> int:
        """From how far away quota is borrowed; 0: not at all."""
        return max((choice.borrowing for one in self.pod_sets for choice in one.choices.values()), default=0)

    @property
    def short(self) -> frozenset[FlavorResource]:
        """Of what there is too little."""
        return frozenset(
            (choice.flavor, resource)
            for one in self.pod_sets
            for resource, choice in one.choices.items()
            if choice.mode == Mode.PREEMPT
        )

    @property
    def reasons(self) -> list[str]:
        """Why it does not fit at once."""
        return [f"{one.name}: {reason}" for one in self.pod_sets for reason in sorted(one.reasons)]

    @property
    def more_flavors(self) -> bool:
        """Whether flavors are left that this attempt did not try."""
        return any(last >= 0 for last in self.tried.values())
