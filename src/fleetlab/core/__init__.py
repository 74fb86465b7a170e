"""The nouns that every room shares, each checked once when it is made.

Names are imported on first use, so that help and catalogs need no data frames.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetlab.core.cluster import Cluster
    from fleetlab.core.errors import DeviceError, FleetlabError, PolicyError, TraceError, WorkloadError
    from fleetlab.core.events import Drain, Elastic, Faults, Outage, Recovery, Spot
    from fleetlab.core.figure import Figure
    from fleetlab.core.policy import Policy
    from fleetlab.core.prices import Prices
    from fleetlab.core.progress import Progress
    from fleetlab.core.result import Estimate, Provenance, Result, SavedResult, as_json, say
    from fleetlab.core.scenario import Scenario
    from fleetlab.core.slowdown import Slowdown
    from fleetlab.core.trace import Trace
    from fleetlab.core.words import Words
    from fleetlab.core.workload import Workload

_MODULE = {
    "Cluster": "cluster",
    "DeviceError": "errors",
    "Drain": "events",
    "Elastic": "events",
    "Estimate": "result",
    "Faults": "events",
    "Figure": "figure",
    "FleetlabError": "errors",
    "Outage": "events",
    "Policy": "policy",
    "PolicyError": "errors",
    "Prices": "prices",
    "Progress": "progress",
    "Provenance": "result",
    "Recovery": "events",
    "Result": "result",
    "SavedResult": "result",
    "Scenario": "scenario",
    "Slowdown": "slowdown",
    "Spot": "events",
    "Trace": "trace",
    "TraceError": "errors",
    "Words": "words",
    "Workload": "workload",
    "WorkloadError": "errors",
    "as_json": "result",
    "say": "result",
}

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
    "Policy",
    "PolicyError",
    "Prices",
    "Progress",
    "Provenance",
    "Recovery",
    "Result",
    "SavedResult",
    "Scenario",
    "Slowdown",
    "Spot",
    "Trace",
    "TraceError",
    "Words",
    "Workload",
    "WorkloadError",
    "as_json",
    "say",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _MODULE:
        msg = f"module 'fleetlab.core' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"fleetlab.core.{_MODULE[name]}"), name)
