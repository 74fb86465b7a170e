"""The simulator's room: what would happen to these tasks on that cluster.

The compiled loops are imported when a verb is called, not before: asking for help compiles nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetlab.sim.packing import pack
    from fleetlab.sim.replay import simulate

__all__ = ["pack", "simulate"]

_HOME = {"pack": "fleetlab.sim.packing", "simulate": "fleetlab.sim.replay"}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _HOME:
        msg = f"module 'fleetlab.sim' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOME[name]), name)
