"""The hall: the nouns that every room shares, each checked once when it is made."""

from fleetlab.core.cluster import Cluster
from fleetlab.core.errors import DeviceError, FleetlabError, PolicyError, TraceError, WorkloadError
from fleetlab.core.figure import Figure, figures_of
from fleetlab.core.result import Estimate, Provenance, Result, as_json, say
from fleetlab.core.saved import Saved
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
    "Saved",
    "Slowdown",
    "Trace",
    "TraceError",
    "Workload",
    "WorkloadError",
    "as_json",
    "figures_of",
    "say",
]
