"""The simulator: what would have happened, under which policy; and own policies.

Each name is imported when first asked for: nothing is compiled before somebody simulates.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetlab.sim.check import check_order, check_placement
    from fleetlab.sim.packing import Packing, pack
    from fleetlab.sim.policy import State, order, placement
    from fleetlab.sim.replay import simulate
    from fleetlab.sim.result import SimResult

_MODULE = {
    "Packing": "packing",
    "SimResult": "result",
    "State": "policy",
    "check_order": "check",
    "check_placement": "check",
    "order": "policy",
    "pack": "packing",
    "placement": "policy",
    "simulate": "replay",
}

__all__ = [
    "Packing",
    "SimResult",
    "State",
    "check_order",
    "check_placement",
    "order",
    "pack",
    "placement",
    "simulate",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _MODULE:
        msg = f"module 'fleetlab.sim' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"fleetlab.sim.{_MODULE[name]}"), name)
