"""Energy of tenants that share a GPU, relative to alone: the one definition of it.

It is the power of a mix over the power that its tenants take to do the same work alone, one after the other. An item of
each tenant takes that multiple of its energy alone: the joules of a mix are split in proportion to what the work of
each tenant takes alone, and add up to all of them. Of equal tenants it is the power over the items per second.
"""

from __future__ import annotations

from collections.abc import Iterable


def energy_times(watts: float | None, work: Iterable[tuple[float | None, float | None]]) -> float | None:
    """Energy relative to alone, from the progress of each tenant and its watts alone; None if one is not known.

    >>> energy_times(440.0, [(0.6, 300.0), (0.5, 200.0)])
    1.5714285714285714
    """
    apart = 0.0
    for progress, alone in work:
        if not progress or not alone or alone <= 0:
            return None
        apart += progress * alone
    return watts / apart if watts and watts > 0 and apart > 0 else None
