"""Objects of Kueue as `kubectl get … -o json` and manifests have them, in the names of v1beta1 and v1beta2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from fleetlab.core.kubernetes import CPU, Taint
from fleetlab.core.kueue import (
    BEST_EFFORT,
    FINAL_SHARE,
    INITIAL_SHARE,
    MAY_STOP,
    NEVER,
    TRY_NEXT,
    AdmissionCheck,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FairSharing,
    FlavorFungibility,
    LocalQueue,
    PreemptionPolicies,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from fleetlab.core.kueue_quota import ResourceGroup, ResourceQuota
from fleetlab.core.names import lookup
from fleetlab.traces.kubernetes.nodes import texts
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, elements, members, whole, words
from fleetlab.traces.kubernetes.quantity import quantity
from fleetlab.traces.kubernetes.selectors import tolerations_of

HINT = "kubectl get clusterqueues,cohorts,localqueues,resourceflavors,workloads,topologies -A -o json"
GROUP = "kueue.x-k8s.io"
CONFIGURATION = "config.kueue.x-k8s.io"
STOPS = {"Borrow": MAY_STOP, "Preempt": MAY_STOP, MAY_STOP: MAY_STOP, TRY_NEXT: TRY_NEXT}  # v1beta1, v1beta2
POLICIES = (NEVER, "LowerPriority", "LowerOrNewerEqualPriority", "Any")


def is_kueue(item: Mapping[str, object]) -> bool:
    """Return whether an object is one of Kueue's that is read."""
    group = str(item.get("apiVersion", "")).partition("/")[0]
    return group in (GROUP, CONFIGURATION) and item.get("kind") in KINDS


def kueue_object(item: Object) -> object | None:
    """Read one object; None if it is not one of Kueue's; Malformed says what is wrong with it."""
    if not is_kueue(item):
        return None
    name = words(members(item.get("metadata"), "metadata").get("name"), "metadata.name")
    kind = str(item["kind"])
    if not name and kind != "Configuration":
        msg = f"a {kind} without a name"
        raise MalformedObject(msg)
    return KINDS[kind](name, item, members(item.get("spec"), "spec"))


# -- quota -------------------------------------------------------------------------------------------------------------


def counted(resource: str, value: object, where: str) -> int:
    """An amount as Kueue counts it: CPU in thousandths of a core, all else in pieces or bytes."""
    amount = quantity(value, where)
    return ceil(amount * 1000) if resource == CPU else ceil(amount)


def _groups(spec: Object) -> tuple[ResourceGroup, ...]:
    where = "spec.resourceGroups"
    return tuple(_group(members(one, where)) for one in elements(spec.get("resourceGroups"), where))


def _group(group: Object) -> ResourceGroup:
    where = "spec.resourceGroups"
    covered = [words(one, f"{where}.coveredResources") for one in elements(group.get("coveredResources"), where)]
    flavors = {}
    for item in elements(group.get("flavors"), f"{where}.flavors"):
        flavor = members(item, f"{where}.flavors")
        quotas = [members(one, f"{where}.resources") for one in elements(flavor.get("resources"), f"{where}.resources")]
        flavors[words(flavor.get("name"), f"{where}.flavors.name")] = dict(map(_quota, quotas))
    return ResourceGroup(tuple(covered), flavors)


def _quota(quota: Object) -> tuple[str, ResourceQuota]:
    name = words(quota.get("name"), "resources.name")
    values = [
        None if quota.get(key) is None else counted(name, quota[key], f"resources.{key}")
        for key in ("nominalQuota", "borrowingLimit", "lendingLimit")
    ]
    if values[0] is None:
        msg = f"no `nominalQuota` of {name or 'a resource'}, which Kueue requires"
        raise MalformedObject(msg)
    return name, ResourceQuota(values[0], values[1], values[2])


def _weight(spec: Object) -> float:
    sharing = members(spec.get("fairSharing"), "spec.fairSharing")
    return 1.0 if sharing.get("weight") is None else float(quantity(sharing["weight"], "spec.fairSharing.weight"))


# -- one kind each -----------------------------------------------------------------------------------------------------


def _cluster_queue(name: str, _: Object, spec: Object) -> ClusterQueue:
    return ClusterQueue(
        name,
        _groups(spec),
        words(spec.get("cohortName") or spec.get("cohort"), "spec.cohortName") or None,
        _one_of(spec, "queueingStrategy", ("StrictFIFO", "BestEffortFIFO"), BEST_EFFORT),
        _preemption(members(spec.get("preemption"), "spec.preemption")),
        _fungibility(members(spec.get("flavorFungibility"), "spec.flavorFungibility")),
        _weight(spec),
        _one_of(spec, "stopPolicy", ("None", "Hold", "HoldAndDrain"), "None"),
        _checks(spec),
    )


def _one_of(spec: Object, key: str, known: tuple[str, ...], otherwise: str) -> str:
    value = words(spec.get(key), key) or otherwise
    if value not in known:
        msg = f"`{key}` is none of {', '.join(known)}: {value[:80]}"
        raise MalformedObject(msg)
    return value


def _preemption(given: Object) -> PreemptionPolicies:
    borrow = members(given.get("borrowWithinCohort"), "preemption.borrowWithinCohort")
    threshold = borrow.get("maxPriorityThreshold")
    return PreemptionPolicies(
        _one_of(given, "withinClusterQueue", POLICIES[:3], NEVER),
        _one_of(given, "reclaimWithinCohort", POLICIES, NEVER),
        BorrowWithinCohort(
            _one_of(borrow, "policy", POLICIES[:2], NEVER),
            None if threshold is None else whole(threshold, "maxPriorityThreshold"),
        ),
    )


def _fungibility(given: Object) -> FlavorFungibility:
    usual = FlavorFungibility()
    return FlavorFungibility(
        STOPS[_one_of(given, "whenCanBorrow", tuple(STOPS), usual.when_can_borrow)],
        STOPS[_one_of(given, "whenCanPreempt", tuple(STOPS), usual.when_can_preempt)],
        _one_of(given, "preference", ("BorrowingOverPreemption", "PreemptionOverBorrowing"), usual.preference),
    )


def _checks(spec: Object) -> tuple[str, ...]:
    named = [
        words(one, "spec.admissionChecks") for one in elements(spec.get("admissionChecks"), "spec.admissionChecks")
    ]
    where = "spec.admissionChecksStrategy"
    rules = elements(members(spec.get(where[5:]), where).get("admissionChecks"), where)
    return (*named, *(words(members(rule, where).get("name"), where) for rule in rules))


def _cohort(name: str, _: Object, spec: Object) -> Cohort:
    parent = words(spec.get("parentName") or spec.get("parent"), "spec.parentName")
    return Cohort(name, parent or None, _groups(spec), _weight(spec))


def _local_queue(name: str, item: Object, spec: Object) -> LocalQueue:
    namespace = words(members(item.get("metadata"), "metadata").get("namespace"), "metadata.namespace") or "default"
    stop = _one_of(spec, "stopPolicy", ("None", "Hold", "HoldAndDrain"), "None")
    return LocalQueue(namespace, name, words(spec.get("clusterQueue"), "spec.clusterQueue"), stop)


def _flavor(name: str, _: Object, spec: Object) -> ResourceFlavor:
    where = "spec.nodeTaints"
    taints = [members(one, where) for one in elements(spec.get("nodeTaints"), where)]
    return ResourceFlavor(
        name,
        texts(spec.get("nodeLabels"), "spec.nodeLabels"),
        tuple(Taint(*(words(one.get(key), f"{where}.{key}") for key in ("key", "value", "effect"))) for one in taints),
        tuple(tolerations_of(spec)),
        words(spec.get("topologyName"), "spec.topologyName") or None,
    )


def _topology(name: str, _: Object, spec: Object) -> Topology:
    where = "spec.levels"
    levels = [members(one, where) for one in elements(spec.get("levels"), where)]
    return Topology(name, tuple(words(one.get("nodeLabel"), f"{where}.nodeLabel") for one in levels))


def _priority(name: str, item: Object, _: Object) -> WorkloadPriorityClass:
    return WorkloadPriorityClass(name, whole(item.get("value"), "value"))


def _check(name: str, _: Object, spec: Object) -> AdmissionCheck:
    return AdmissionCheck(name, words(spec.get("controllerName"), "spec.controllerName"))


def _configuration(_: str, item: Object, __: Object) -> FairSharing:
    """The configuration of Kueue's controller: of it, fair sharing."""
    if item.get("fairSharing") is None:
        return FairSharing()
    given = members(item["fairSharing"], "fairSharing")
    known = (FINAL_SHARE, INITIAL_SHARE)
    named = [words(one, "preemptionStrategies") for one in elements(given.get("preemptionStrategies"), "strategies")]
    for one in named:
        lookup("preemption strategy", one, list(known))
    gates = members(item.get("featureGates"), "featureGates")
    within = gates.get("FairSharingPreemptWithinNominal", True)
    return FairSharing(bool(given.get("enable", True)), tuple(named) or known, bool(within))


KINDS: dict[str, Callable[[str, Object, Object], object]] = {
    "ClusterQueue": _cluster_queue,
    "Cohort": _cohort,
    "LocalQueue": _local_queue,
    "ResourceFlavor": _flavor,
    "Topology": _topology,
    "WorkloadPriorityClass": _priority,
    "AdmissionCheck": _check,
    "Configuration": _configuration,
}
