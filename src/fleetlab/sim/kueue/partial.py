"""Partial admission: the most pods of each set, between its minimum and its count, that can be admitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fleetlab.core.kueue_workload import PodSet

T = TypeVar("T")


def reduced(pod_sets: Sequence[PodSet], amount: int) -> list[int]:
    """Counts with some pods fewer, off each set in proportion to how many it can do without."""
    spare = [_spare(one) for one in pod_sets]
    total = sum(spare)
    return [one.count - (each * amount // total if total else 0) for one, each in zip(pod_sets, spare, strict=True)]


def most_pods(pod_sets: Sequence[PodSet], fits: Callable[[list[int]], T | None]) -> T | None:
    """What `fits` returns for the most pods for which it returns anything, by halving."""
    total = sum(_spare(one) for one in pod_sets)
    if not total:
        return None
    low, high, best = 0, total + 1, None
    while low < high:
        middle = (low + high) // 2
        found = fits(reduced(pod_sets, middle)) if middle <= total else None
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best if low <= total else None


def _spare(one: PodSet) -> int:
    return one.count - (one.count if one.min_count is None else one.min_count)
