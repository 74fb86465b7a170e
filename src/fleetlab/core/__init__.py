"""The hall: the nouns that every room shares, each checked once when it is made."""

from fleetlab.core.cluster import Cluster
from fleetlab.core.errors import DeviceError, FleetlabError, PolicyError, TraceError, WorkloadError
from fleetlab.core.figure import Figure
from fleetlab.core.result import Estimate, Provenance, Result, SavedResult, as_json, say
from fleetlab.core.slowdown import Slowdown
from fleetlab.core.trace import Trace
from fleetlab.core.workload import Workload

__all__ = [
    "Cluster",
    "DeviceError",
    "Estimate",
    "Figure",
    "FleetlabError",
    "PolicyError",
    "Provenance",
    "Result",
    "SavedResult",
    "Slowdown",
    "Trace",
    "TraceError",
    "Workload",
    "WorkloadError",
    "as_json",
    "say",
]
