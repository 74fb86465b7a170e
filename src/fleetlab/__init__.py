"""A laboratory for GPU clusters: the verbs and the nouns, each imported when first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetlab.core.lazy import lazy

if TYPE_CHECKING:
    from fleetlab.core import (
        Cluster,
        DeviceError,
        Drain,
        Elastic,
        Estimate,
        Faults,
        Figure,
        FleetlabError,
        Outage,
        Policy,
        PolicyError,
        Prices,
        Provenance,
        Recovery,
        Result,
        SavedResult,
        Scenario,
        Speed,
        Spot,
        Trace,
        TraceError,
        Workload,
        WorkloadError,
    )
    from fleetlab.describe import describe
    from fleetlab.forecast import check_forecaster, forecast
    from fleetlab.plan import defragment, plan
    from fleetlab.queueing import model, solve
    from fleetlab.report import report
    from fleetlab.sim import (
        check_order,
        check_placement,
        order,
        pack,
        placement,
        simulate,
    )
    from fleetlab.studies.audit import audit
    from fleetlab.studies.autoscale import autoscale
    from fleetlab.studies.capacity import capacity
    from fleetlab.studies.compare import compare
    from fleetlab.studies.diagnose import diagnose
    from fleetlab.studies.sweep import Study, runs, sweep
    from fleetlab.studies.tune import tune
    from fleetlab.studies.validate import validate
    from fleetlab.traces import fetch, read, synthesize
    from fleetlab.web import web

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
    "Provenance",
    "Recovery",
    "Result",
    "SavedResult",
    "Scenario",
    "Speed",
    "Spot",
    "Study",
    "Trace",
    "TraceError",
    "Workload",
    "WorkloadError",
    "audit",
    "autoscale",
    "capacity",
    "check_forecaster",
    "check_order",
    "check_placement",
    "compare",
    "defragment",
    "describe",
    "diagnose",
    "fetch",
    "forecast",
    "model",
    "order",
    "pack",
    "placement",
    "plan",
    "read",
    "report",
    "runs",
    "simulate",
    "solve",
    "sweep",
    "synthesize",
    "tune",
    "validate",
    "web",
]
# The names in each module; every other name is a noun of `fleetlab.core`.
_NAMES = {
    "describe": ("describe",),
    "forecast": ("check_forecaster", "forecast"),
    "plan": ("defragment", "plan"),
    "queueing": ("model", "solve"),
    "report": ("report",),
    "sim": ("check_order", "check_placement", "order", "pack", "placement", "simulate"),
    "studies.audit": ("audit",),
    "studies.autoscale": ("autoscale",),
    "studies.capacity": ("capacity",),
    "studies.compare": ("compare",),
    "studies.diagnose": ("diagnose",),
    "studies.sweep": ("Study", "runs", "sweep"),
    "studies.tune": ("tune",),
    "studies.validate": ("validate",),
    "traces": ("fetch", "read", "synthesize"),
    "web": ("web",),
}
_MODULE = {name: module for module, names in _NAMES.items() for name in names}


def __dir__() -> list[str]:
    return list(__all__)


lazy("fleetlab", {name: f"fleetlab.{_MODULE.get(name, 'core')}" for name in __all__})
