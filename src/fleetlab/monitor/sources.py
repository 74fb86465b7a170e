"""What a watch sees: cards that each say some numbers now, and nothing where they have no answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from fleetlab.devices.errors import BenchError

Row = dict[str, Any]
# The numbers of one card at one time; each may be null. `used_mib` is what processes hold, without what the driver
# reserves; `joules` is a counter.
VALUES = (
    "util",
    "memory_util",
    "used_mib",
    "free_mib",
    "reserved_mib",
    "total_mib",
    "celsius",
    "memory_celsius",
    "watts",
    "joules",
    "sm_mhz",
    "memory_mhz",
    "reasons",
)
BACKENDS = ("nvml", "cpu")


@dataclass(frozen=True, slots=True)
class Card:
    """Which one it is, as monitors name it."""

    index: int
    name: str
    uuid: str
    bus: str
    device: str


class Source(Protocol):
    """Cards that can be looked at."""

    @property
    def cards(self) -> tuple[Card, ...]:
        """Those that are watched, in order."""

    def look(self) -> list[Row]:
        """One row a card now: `card`, `VALUES`, `events` (of the clocks, in words) and `processes`."""

    def close(self) -> None:
        """Let go of them."""


def source(backend: str = "nvml", *, index: str = "all") -> Source:
    """The cards of this machine, or the machine itself in the place of one."""
    if backend not in BACKENDS:
        msg = f"nothing to watch by that name: `{backend}`"
        raise BenchError(msg, hint=f"there are {', '.join(BACKENDS)}")
    if backend == "cpu":
        from fleetlab.monitor.host import Host

        return Host(index=index)
    from fleetlab.monitor.nvml import Nvml

    return Nvml(index=index)


def chosen(index: str, count: int) -> list[int]:
    """Which of `count` cards are meant.

    >>> chosen("all", 3), chosen("2,0,2", 3)
    ([0, 1, 2], [0, 2])
    """
    if index == "all":
        return list(range(count))
    words = [word.strip() for word in index.split(",")]
    if wrong := [w for w in words if not (w.isascii() and w.isdigit() and int(w) < count)]:
        msg = f"no card by that number: {', '.join(wrong) or '(none)'}"
        raise BenchError(msg, hint=f"there are {', '.join(map(str, range(count)))}; or `all`")
    return sorted({int(w) for w in words})
