"""The simulator: what would have happened, under which policy; and own policies.

Each name is imported when first asked for: nothing is compiled before somebody simulates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetlab.core.lazy import lazy

if TYPE_CHECKING:
    from fleetlab.sim.check import check_order, check_placement
    from fleetlab.sim.packing import Packing, pack
    from fleetlab.sim.policy import State, order, placement
    from fleetlab.sim.result import SimResult
    from fleetlab.sim.simulate import simulate

_MODULE = {
    "Packing": "packing",
    "SimResult": "result",
    "State": "policy",
    "check_order": "check",
    "check_placement": "check",
    "order": "policy",
    "pack": "packing",
    "placement": "policy",
    "simulate": "simulate",
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

lazy("fleetlab.sim", {name: f"fleetlab.sim.{module}" for name, module in _MODULE.items()})
