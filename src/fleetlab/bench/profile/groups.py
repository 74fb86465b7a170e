"""How fast a work is among several, from how fast it is beside each of them: rules, and which one is right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np

from fleetlab.bench.profile.pairs import Table
from fleetlab.bench.profile.time_slicing import Turns
from fleetlab.stats import Interval, bootstrap_units

Group = tuple[str, tuple[str, ...]]  # who, among whom
Speed = Callable[[str, Sequence[str]], float]
Rule = Callable[[Table], Speed]


def product(table: Table) -> Speed:
    """Each neighbour takes its part of what the others left."""

    def speed(workload: str, others: Sequence[str]) -> float:
        alone = table.alone[workload]
        return alone * math.prod(table.speed[workload, other] / alone for other in others)

    return speed


def fair_product(table: Table) -> Speed:
    """The same, but never less than an equal share."""
    least = product(table)
    return lambda workload, others: max(least(workload, others), table.alone[workload] / (1 + len(others)))


def added_waits(table: Table) -> Speed:
    """Each neighbour adds the wait that it causes by itself: 1/speed = 1/alone + the sum of (1/beside - 1/alone)."""

    def speed(workload: str, others: Sequence[str]) -> float:
        alone = 1 / table.alone[workload]
        return 1 / (alone + sum(1 / table.speed[workload, other] - alone for other in others))

    return speed


def growing_waits(table: Table) -> Speed:
    """The same, but who rests is at the card more often in company, and then causes more of a wait.

    How often a neighbour is found there is, by the arrival theorem, as if oneself were not.
    """

    def there(work: str, speed: float) -> float:
        return 1 - (1 - min(table.busy[work], 1.0)) * speed  # it rests as long as ever, but less often

    @cache
    def among(workload: str, others: tuple[str, ...]) -> float:
        alone = wait = 1 / table.alone[workload]
        for k, other in enumerate(others):
            grown = there(other, among(other, others[:k] + others[k + 1 :])) / there(other, table.alone[other])
            wait += (1 / table.speed[workload, other] - alone) * grown
        return 1 / wait

    return lambda workload, others: among(workload, tuple(sorted(others)))


def in_turns(table: Table) -> Speed:
    """As a network of one processor says, its one number fitted on pairs."""
    return Turns().fit(table).among


RULES: dict[str, Rule] = {
    "product": product,
    "product, at least an equal share": fair_product,
    "added waits": added_waits,
    "growing waits": growing_waits,
    "turns": in_turns,
}


def groups_of(table: Table, groups: dict[Group, float]) -> dict[Group, float]:
    """Those groups of which every pair was measured, also that of a work with itself where it has a twin."""
    return {
        (who, others): speed
        for (who, others), speed in groups.items()
        if len(others) > 1 and all(pair in table.speed for pair in permutations((who, *others), 2))
    }


def judged(mode: str, table: Table, groups: dict[Group, float], *, seed: int) -> Iterable[dict[str, Any]]:
    """How far each rule is off, for three and for more; an interval where there are groups enough for one."""
    known = groups_of(table, groups)
    for name, rule in RULES.items():
        speed = rule(table)
        told = {group: speed(*group) for group in known}
        for size, few in (("3", True), ("4 and more", False)):
            here = [group for group in known if (len(group[1]) == 2) == few]
            if here:
                logs = [math.log(told[group] / known[group]) for group in here]
                off = [abs(told[group] - known[group]) for group in here]
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
    """The mix that a speed was measured in: its speeds stand or fall together."""
    return [tuple(sorted((who, *others))) for who, others in groups]


def _interval(off: Sequence[float], mixes: Sequence[tuple[str, ...]], *, seed: int) -> Interval:
    by = [[x for x, m in zip(off, mixes, strict=True) if m == mix] for mix in dict.fromkeys(mixes)]
    rows = np.array([(sum(x), len(x)) for x in by])

    def mean(some: Any) -> float:  # noqa: ANN401
        return float(some[:, 0].sum() / some[:, 1].sum())

    return bootstrap_units(rows, mean, seed=seed)
