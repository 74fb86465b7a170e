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
# The module of each verb; every other name is a noun of `fleetlab.core`.
_ROOM = {
    "Study": "fleetlab.studies.sweep",
    "audit": "fleetlab.studies.audit",
    "autoscale": "fleetlab.studies.autoscale",
    "capacity": "fleetlab.studies.capacity",
    "check_forecaster": "fleetlab.forecast",
    "check_order": "fleetlab.sim",
    "check_placement": "fleetlab.sim",
    "compare": "fleetlab.studies.compare",
    "defragment": "fleetlab.plan",
    "describe": "fleetlab.describe",
    "diagnose": "fleetlab.studies.diagnose",
    "fetch": "fleetlab.traces",
    "forecast": "fleetlab.forecast",
    "model": "fleetlab.queueing",
    "order": "fleetlab.sim",
    "pack": "fleetlab.sim",
    "placement": "fleetlab.sim",
    "plan": "fleetlab.plan",
    "read": "fleetlab.traces",
    "report": "fleetlab.report",
    "runs": "fleetlab.studies.sweep",
    "simulate": "fleetlab.sim",
    "solve": "fleetlab.queueing",
    "sweep": "fleetlab.studies.sweep",
    "synthesize": "fleetlab.traces",
    "tune": "fleetlab.studies.tune",
    "validate": "fleetlab.studies.validate",
    "web": "fleetlab.web",
}


def __dir__() -> list[str]:
    return list(__all__)


lazy("fleetlab", {name: _ROOM.get(name, "fleetlab.core") for name in __all__})
