"""The nouns that every room shares, each checked once when it is made.

Names are imported on first use, so that help and catalogs need no data frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetlab.core.lazy import lazy

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
    from fleetlab.core.speed import Speed
    from fleetlab.core.trace import Trace
    from fleetlab.core.words import Words
    from fleetlab.core.workload import Workload

_NAMES = {
    "cluster": ("Cluster",),
    "errors": ("DeviceError", "FleetlabError", "PolicyError", "TraceError", "WorkloadError"),
    "events": ("Drain", "Elastic", "Faults", "Outage", "Recovery", "Spot"),
    "figure": ("Figure",),
    "policy": ("Policy",),
    "prices": ("Prices",),
    "progress": ("Progress",),
    "result": ("Estimate", "Provenance", "Result", "SavedResult", "as_json", "say"),
    "scenario": ("Scenario",),
    "speed": ("Speed",),
    "trace": ("Trace",),
    "words": ("Words",),
    "workload": ("Workload",),
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
    "Speed",
    "Spot",
    "Trace",
    "TraceError",
    "Words",
    "Workload",
    "WorkloadError",
    "as_json",
    "say",
]

lazy("fleetlab.core", {name: f"fleetlab.core.{module}" for module, names in _NAMES.items() for name in names})
