"""Speed of a workload among several neighbors, from its speed beside each: rules, and their errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np

from fleetlab.bench.profile.pairs import SpeedTable
from fleetlab.bench.profile.time_slicing import TimeSlicingModel
from fleetlab.stats import Interval, bootstrap_units

Group = tuple[str, tuple[str, ...]]  # workload, neighbors
Speed = Callable[[str, Sequence[str]], float]
Rule = Callable[[SpeedTable], Speed]


def product(table: SpeedTable) -> Speed:
    """Slowdowns multiply."""

    def speed(workload: str, others: Sequence[str]) -> float:
        alone = table.alone[workload]
        return alone * math.prod(table.speed[workload, other] / alone for other in others)

    return speed


def fair_product(table: SpeedTable) -> Speed:
    """Slowdowns multiply, down to an equal share."""
    least = product(table)
    return lambda workload, others: max(least(workload, others), table.alone[workload] / (1 + len(others)))


def added_waits(table: SpeedTable) -> Speed:
    """Waits add up: 1/speed = 1/alone + the sum of (1/beside - 1/alone)."""

    def speed(workload: str, others: Sequence[str]) -> float:
        alone = 1 / table.alone[workload]
        return 1 / (alone + sum(1 / table.speed[workload, other] - alone for other in others))

    return speed


def growing_waits(table: SpeedTable) -> Speed:
    """Waits add up, and grow because neighbors with pauses spend more of their time at the GPU in company.

    By the arrival theorem a neighbor is found there as often as without the arriving one.
    """

    def there(work: str, speed: float) -> float:
        return 1 - (1 - min(table.busy[work], 1.0)) * speed  # pauses keep their length, but become rarer

    @cache
    def among(workload: str, others: tuple[str, ...]) -> float:
        alone = wait = 1 / table.alone[workload]
        for k, other in enumerate(others):
            grown = there(other, among(other, others[:k] + others[k + 1 :])) / there(other, table.alone[other])
            wait += (1 / table.speed[workload, other] - alone) * grown
        return 1 / wait

    return lambda workload, others: among(workload, tuple(sorted(others)))


def time_slicing(table: SpeedTable) -> Speed:
    """A closed queueing network of one processor, fitted on pairs."""
    return TimeSlicingModel().fit(table).among


RULES: dict[str, Rule] = {
    "product": product,
    "product, at least an equal share": fair_product,
    "added waits": added_waits,
    "growing waits": growing_waits,
    "turns": time_slicing,
}


def groups_of(table: SpeedTable, groups: dict[Group, float]) -> dict[Group, float]:
    """Groups of which every pair was measured, also of equal workloads."""
    return {
        (who, others): speed
        for (who, others), speed in groups.items()
        if len(others) > 1 and all(pair in table.speed for pair in permutations((who, *others), 2))
    }


def rule_errors(mode: str, table: SpeedTable, groups: dict[Group, float], *, seed: int) -> Iterable[dict[str, Any]]:
    """Error of each rule for three and for more workloads, with an interval if there are enough groups."""
    known = groups_of(table, groups)
    for name, rule in RULES.items():
        speed = rule(table)
        predicted = {group: speed(*group) for group in known}
        for size, few in (("3", True), ("4 and more", False)):
            here = [group for group in known if (len(group[1]) == 2) == few]
            if here:
                logs = [math.log(predicted[group] / known[group]) for group in here]
                off = [abs(predicted[group] - known[group]) for group in here]
                error = _interval(off, _clusters(here), seed=seed)
                about = {"mode": mode, "works": size, "rule": name, "speeds": len(here)}
                yield (
                    about
                    | dict(zip(("error", "low", "high"), error, strict=True))
                    | {
                        "bias": math.exp(float(np.mean(logs))) - 1,
                        "worst": math.exp(max(logs, key=abs)) - 1,
                    }
                )


def _clusters(groups: Sequence[Group]) -> list[tuple[str, ...]]:
    """The mix of each speed: speeds of one mix are correlated."""
    return [tuple(sorted((who, *others))) for who, others in groups]


def _interval(off: Sequence[float], mixes: Sequence[tuple[str, ...]], *, seed: int) -> Interval:
    by = [[x for x, m in zip(off, mixes, strict=True) if m == mix] for mix in dict.fromkeys(mixes)]
    rows = np.array([(sum(x), len(x)) for x in by])

    def mean(some: Any) -> float:  # noqa: ANN401
        return float(some[:, 0].sum() / some[:, 1].sum())

    return bootstrap_units(rows, mean, seed=seed)
