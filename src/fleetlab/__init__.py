"""A laboratory for GPU clusters: the verbs and the nouns, each imported when first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetlab.queueing import model, solve
    from fleetlab.sim import (
        Drain,
        Elastic,
        Faults,
        Outage,
        Prices,
        Recovery,
        Spot,
        check_order,
        check_place,
        order,
        pack,
        place,
        simulate,
    )
    from fleetlab.studies.audit import audit
    from fleetlab.studies.capacity import capacity
    from fleetlab.studies.diagnose import diagnose
    from fleetlab.studies.validate import validate
    from fleetlab.traces import fetch, read, synthesize
    from fleetlab.workload import (
        Cluster,
        DeviceError,
        Estimate,
        Figure,
        FleetlabError,
        PolicyError,
        Provenance,
        Result,
        Saved,
        Slowdown,
        Trace,
        TraceError,
        Workload,
        WorkloadError,
    )

__all__ = [
    "Cluster",
    "DeviceError",
    "Drain",
    "Elastic",
    "Estimate",
    "Faults",
    "Figure",
    "FleetlabError",
    "Outage",
    "PolicyError",
    "Prices",
    "Provenance",
    "Recovery",
    "Result",
    "Saved",
    "Slowdown",
    "Spot",
    "Trace",
    "TraceError",
    "Workload",
    "WorkloadError",
    "audit",
    "capacity",
    "check_order",
    "check_place",
    "diagnose",
    "fetch",
    "model",
    "order",
    "pack",
    "place",
    "read",
    "simulate",
    "solve",
    "synthesize",
    "validate",
]
# Where each verb lives, and the nouns of one room; every other name is a noun of the hall.
_ROOM = {
    "Drain": "fleetlab.sim",
    "Elastic": "fleetlab.sim",
    "Faults": "fleetlab.sim",
    "Outage": "fleetlab.sim",
    "Prices": "fleetlab.sim",
    "Recovery": "fleetlab.sim",
    "Spot": "fleetlab.sim",
    "audit": "fleetlab.studies.audit",
    "capacity": "fleetlab.studies.capacity",
    "check_order": "fleetlab.sim",
    "check_place": "fleetlab.sim",
    "diagnose": "fleetlab.studies.diagnose",
    "fetch": "fleetlab.traces",
    "model": "fleetlab.queueing",
    "order": "fleetlab.sim",
    "pack": "fleetlab.sim",
    "place": "fleetlab.sim",
    "read": "fleetlab.traces",
    "simulate": "fleetlab.sim",
    "solve": "fleetlab.queueing",
    "synthesize": "fleetlab.traces",
    "validate": "fleetlab.studies.validate",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    # A command that only prints its help must not pay for frames and compilers.
    if name not in __all__:
        msg = f"module 'fleetlab' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_ROOM.get(name, "fleetlab.workload")), name)


def __dir__() -> list[str]:
    return list(__all__)
