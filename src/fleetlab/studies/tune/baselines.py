"""The policies that a tuned one is compared with: every built-in order, and every placement with the best of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetlab.core import Policy, PolicyError, Progress
from fleetlab.core.catalog import BACKFILLS, ORDERS, PLACEMENTS
from fleetlab.core.words import WORDS, plain

PLACEMENT = WORDS["placement"].default
PREEMPTIVE = ORDERS.where("preemptive")  # preemption costs nothing here
RESERVING = BACKFILLS.where("reserves")  # backfills that cannot be combined with preemption

Means = dict[int, float]  # by week


@dataclass(frozen=True, slots=True)
class Baseline:
    """A policy, and its means in the training weeks; a preemptive one is not simulated there."""

    order: Any
    placement: Any
    train: Means = field(default_factory=dict)

    @property
    def name(self) -> str:
        """ORDER/PLACEMENT."""
        return f"{plain(self.order)}/{plain(self.placement)}"

    @property
    def preempts(self) -> bool:
        """Whether it preempts running jobs."""
        return self.order in PREEMPTIVE


def orders(against: Sequence[str], backfill: str) -> list[str]:
    """Return the orders to compare with (default: all), of which at least one does not preempt."""
    for name in against:
        ORDERS.index(name)
    wanted = [name for name in ORDERS.names if name in against] if against else list(ORDERS.names)
    if all(name in PREEMPTIVE for name in wanted):
        msg = f"at least one order that does not preempt is needed: {', '.join(wanted)}"
        raise PolicyError(msg, hint="fifo, sjf, smallest, fair, or nothing for all of them")
    return [name for name in wanted if name not in PREEMPTIVE or backfill not in RESERVING]


def train(means: Callable[..., Means], names: Sequence[str], policy: Policy, progress: Progress) -> list[Baseline]:
    """Simulate every order, every placement with the best of them, and the policy of the scenario; preemptive last."""
    static = [name for name in names if name not in PREEMPTIVE]
    steps, found = len(static) + len(PLACEMENTS), list[Baseline]()

    def run(order: Any, placement: Any) -> None:  # noqa: ANN401
        progress("simulating the built-in policies", len(found), len(found) / steps)
        found.append(Baseline(order, placement, means(order=order, placement=placement)))

    for name in static:
        run(name, PLACEMENT)
    first = best(found).order
    for name in PLACEMENTS.names:
        if name != PLACEMENT:
            run(first, name)
    if not policy.preempts and (policy.order, policy.placement) not in {(b.order, b.placement) for b in found}:
        run(policy.order, policy.placement)
    progress("simulating the built-in policies", len(found), 1.0)
    return [*found, *(Baseline(name, PLACEMENT) for name in names if name in PREEMPTIVE)]


def best(baselines: Sequence[Baseline]) -> Baseline:
    """Return the best of those that were simulated in training; of equal ones the first."""
    return min((baseline for baseline in baselines if baseline.train), key=lambda baseline: mean(baseline.train))


def mean(weeks: Means) -> float:
    """Return the mean over weeks."""
    return sum(weeks.values()) / len(weeks)
