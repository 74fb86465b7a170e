"""Sums of resources; what is not named is none of it."""

from __future__ import annotations

from collections.abc import Iterable

from fleetlab.core.pod_groups import Amounts

LEAST = 0.1  # less than this of anything is nothing: it is lost in rounding


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
