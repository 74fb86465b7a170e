"""What each mode guarantees to a tenant, whatever its neighbors do: from NVIDIA's documentation, not measured.

Sources: docs.nvidia.com/deploy/mps (memory protection, limits, error containment), docs.nvidia.com/datacenter/tesla/
mig-user-guide (isolation of instances), the GPU operator's guide to time slicing (no memory or fault isolation).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

YES, NO = "yes", "no"


class Guarantee(NamedTuple):
    """One guarantee: what holds in each mode; `limits` is MPS with limits for each tenant."""

    name: str
    time_slicing: str
    mps: str
    limits: str
    mig: str


GUARANTEES = (
    Guarantee("memory of others cannot be read or written", YES, YES, YES, YES),
    Guarantee("others cannot take its memory", NO, NO, "yes, with a memory limit", YES),
    Guarantee("others cannot take its SMs", NO, NO, "no: a limit caps each, it reserves nothing", YES),
    Guarantee("others cannot take its memory bandwidth and cache", NO, NO, NO, YES),
    Guarantee("an error of another does not end it", "not guaranteed", NO, NO, YES),
)


def column(mode: str) -> str:
    """The column of a measured mode: `mps@50` is MPS with limits."""
    if mode.startswith("mig"):
        return "mig"
    if mode.startswith("mps"):
        return "limits" if any(mark in mode for mark in "@~") else "mps"
    return "time_slicing"


def guaranteed(mode: str) -> int:
    """How many of them a mode gives."""
    return sum(getattr(one, column(mode)).startswith(YES) for one in GUARANTEES)


def guarantee_rows(modes: list[str]) -> Iterator[dict[str, Any]]:
    """One row per guarantee, one column per mode."""
    for one in GUARANTEES:
        yield {"guarantee": one.name} | {mode: getattr(one, column(mode)) for mode in modes}
