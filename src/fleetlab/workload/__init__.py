"""The hall: the nouns that every room shares, each checked once when it is made."""

from fleetlab.workload.cluster import Cluster
from fleetlab.workload.errors import DeviceError, FleetlabError, PolicyError, TraceError, WorkloadError
from fleetlab.workload.figure import Figure, figures_of
from fleetlab.workload.jobs import Workload
from fleetlab.workload.result import Estimate, Provenance, Result, as_json, say
from fleetlab.workload.saved import Saved
from fleetlab.workload.slowdown import Slowdown
from fleetlab.workload.trace import Trace

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
