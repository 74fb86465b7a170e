"""What a KubeSchedulerConfiguration has since v1beta2: plugins at many points at once, and strategies of scoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fleetlab.core import TraceError
from fleetlab.core.kubernetes import LATER_SCORES, LEAST, MOST, RATIO, KubeScheduler, Shape
from fleetlab.core.names import lookup
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, elements, members, whole, words

# Plugins that score nothing; one may be named where a configuration is about many points.
SILENT = (
    "SchedulingGates", "PrioritySort", "NodeUnschedulable", "NodeName", "NodePorts", "VolumeRestrictions", "EBSLimits",
    "GCEPDLimits", "NodeVolumeLimits", "AzureDiskLimits", "VolumeBinding", "VolumeZone", "DefaultPreemption",
    "DefaultBinder", "DynamicResources",
)  # fmt: skip
KNOWN = (*LATER_SCORES, *SILENT)
# Plugins of v1beta1, and what they are since.
STRATEGIES = {"NodeResourcesLeastAllocated": LEAST, "NodeResourcesMostAllocated": MOST, RATIO: RATIO}


def later_weights(plugins: Object, defaults: Mapping[str, int]) -> Mapping[str, int]:
    """The weights of the plugins that score: the default ones, changed for many points, then for scoring alone."""
    many, many_off = _set(plugins, "multiPoint")
    own, own_off = _set(plugins, "score")
    weights = {} if "*" in many_off else {name: w for name, w in defaults.items() if name not in many_off}
    weights |= {name: weight for name, weight in many.items() if name in LATER_SCORES}
    if "*" in own_off:
        weights = {}
    kept = {name: weight for name, weight in weights.items() if name not in own_off}
    return kept | {name: weight for name, weight in own.items() if name in LATER_SCORES}


def _set(plugins: Object, point: str) -> tuple[dict[str, int], list[str]]:
    """The plugins that are enabled at a point, with their weights, and those that are disabled."""
    given = members(plugins.get(point), f"plugins.{point}")
    off = [words(members(one, "disabled").get("name"), "name") for one in elements(given.get("disabled"), "disabled")]
    enabled: dict[str, int] = {}
    for one in elements(given.get("enabled"), "enabled"):
        plugin = members(one, "enabled")
        name = words(plugin.get("name"), "name")
        if name in STRATEGIES:
            now = f"`scoringStrategy.type: {STRATEGIES[name]}` in the arguments of NodeResourcesFit"
            msg = f"{name} is no plugin since v1beta2: it is {now}"
            raise MalformedObject(msg)
        lookup("plugin of kube-scheduler", name, KNOWN, error=TraceError)
        enabled[name] = whole(plugin.get("weight"), "weight") or 1
    return enabled, off


def fit_arguments(profile: KubeScheduler, arguments: Object) -> KubeScheduler:
    """Return a profile with the scoring strategy of NodeResourcesFit."""
    given = members(arguments.get("scoringStrategy"), "scoringStrategy")
    strategy = words(given.get("type"), "scoringStrategy.type") or LEAST
    if strategy not in (LEAST, MOST, RATIO):
        msg = f"`scoringStrategy.type` is none of {LEAST}, {MOST}, {RATIO}: {strategy}"
        raise MalformedObject(msg)
    shape = members(given.get("requestedToCapacityRatio"), "requestedToCapacityRatio").get("shape")
    weights = _resources(given)
    return replace(
        profile,
        strategy=strategy,
        shape=_shape(shape) if strategy == RATIO else profile.shape,
        resources=dict(profile.resources) | ({"NodeResourcesFit": weights} if weights else {}),
    )


def _resources(given: Object) -> dict[str, int]:
    where = "scoringStrategy.resources"
    weights = {}
    for item in elements(given.get("resources"), where):
        one = members(item, where)
        # None given is 1; the scheduler takes 1 to 100.
        weight = 1 if one.get("weight") is None else whole(one.get("weight"), f"{where}.weight")
        if not 1 <= weight <= 100:
            msg = f"`{where}.weight` is not from 1 to 100: {weight}"
            raise MalformedObject(msg)
        weights[words(one.get("name"), f"{where}.name")] = weight
    return weights


def _shape(value: object) -> Shape:
    where = "scoringStrategy.requestedToCapacityRatio.shape"
    listed = [members(one, where) for one in elements(value, where)]
    if not listed:
        msg = f"no `{where}`"
        raise MalformedObject(msg)
    return Shape(tuple((whole(one.get("utilization"), where), whole(one.get("score"), where)) for one in listed))
