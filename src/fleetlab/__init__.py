"""A laboratory for GPU clusters: the verbs and the nouns, each imported when first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetlab.traces import fetch, read, synthesize
    from fleetlab.workload import (
        Cluster,
        DeviceError,
        Estimate,
        FleetlabError,
        PolicyError,
        Provenance,
        Result,
        Slowdown,
        Trace,
        TraceError,
        Workload,
        WorkloadError,
    )

_HOMES = {
    "fleetlab.traces": ("fetch", "read", "synthesize"),
    "fleetlab.workload": (
        "Cluster",
        "DeviceError",
        "Estimate",
        "FleetlabError",
        "PolicyError",
        "Provenance",
        "Result",
        "Slowdown",
        "Trace",
        "TraceError",
        "Workload",
        "WorkloadError",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Cluster",
    "DeviceError",
    "Estimate",
    "FleetlabError",
    "PolicyError",
    "Provenance",
    "Result",
    "Slowdown",
    "Trace",
    "TraceError",
    "Workload",
    "WorkloadError",
    "fetch",
    "read",
    "synthesize",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    # A command that only prints its help must not pay for frames and compilers.
    if name not in _HOME_OF:
        msg = f"module 'fleetlab' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
