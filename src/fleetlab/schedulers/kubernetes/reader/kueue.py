"""Objects of Kueue as `kubectl get … -o json` and manifests have them, in the names of v1beta1 and v1beta2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from math import ceil
from pathlib import Path

from fleetlab.core import TraceError
from fleetlab.core.names import lookup
from fleetlab.core.records import to_values
from fleetlab.schedulers.kubernetes.config import CPU, Taint
from fleetlab.schedulers.kubernetes.reader.nodes import texts
from fleetlab.schedulers.kubernetes.reader.objects import (
    MalformedObject,
    Object,
    documents,
    elements,
    members,
    quantity,
    title_of,
    whole,
    words,
)
from fleetlab.schedulers.kubernetes.reader.scheduler_config import scheduler_of
from fleetlab.schedulers.kubernetes.reader.selectors import tolerations_of
from fleetlab.schedulers.kueue.config import (
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
    Kueue,
    LocalQueue,
    PreemptionPolicies,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
    WorkloadPriorityClass,
)

HINT = "kubectl get clusterqueues,cohorts,localqueues,resourceflavors,workloads,topologies -A -o json"
GROUP = "kueue.x-k8s.io"
CONFIGURATION = "config.kueue.x-k8s.io"
PATCH = "$patch"  # of an object that is to be deleted
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


# -- fields that Kueue does not have, as it would refuse them, or that are of a later release --------------------------

GROUPS = (
    "resourceGroups coveredResources flavors name resources nominalQuota borrowingLimit lendingLimit fairSharing weight"
)
FIELDS = {
    "ClusterQueue": f"{GROUPS} cohort cohortName queueingStrategy namespaceSelector flavorFungibility whenCanBorrow "
    "whenCanPreempt preference preemption reclaimWithinCohort borrowWithinCohort policy maxPriorityThreshold "
    "withinClusterQueue admissionChecks admissionChecksStrategy onFlavors stopPolicy admissionScope "
    "concurrentAdmissionPolicy",
    "Cohort": f"{GROUPS} parent parentName",
    "LocalQueue": "clusterQueue stopPolicy fairSharing weight",
    "ResourceFlavor": "nodeLabels nodeTaints key value effect timeAdded tolerations topologyName",
    "Topology": "levels nodeLabel",
    "AdmissionCheck": "controllerName parameters retryDelayMinutes",
}
ANYTHING = (
    "nodeLabels",
    "tolerations",
    "namespaceSelector",
    "parameters",
    "admissionScope",
    "concurrentAdmissionPolicy",
)
NOT_SIMULATED = ("admissionScope", "concurrentAdmissionPolicy", "onFlavors", "namespaceSelector")


def fields_in(value: object) -> Iterator[str]:
    """The names of all fields of a specification, apart from those that anybody may choose."""
    for each in value if isinstance(value, list) else ():
        yield from fields_in(each)
    for name, inner in value.items() if isinstance(value, dict) else ():
        if inner not in (None, {}, []):
            yield name
            yield from () if name in ANYTHING else fields_in(inner)


def remarks(item: Object) -> Iterator[str]:
    """What to know of the fields of an object: that there are none such, or that they are not simulated."""
    kind = str(item.get("kind"))
    known = FIELDS[kind].split() if kind in FIELDS else None
    for name in dict.fromkeys(fields_in(item.get("spec"))) if known else ():
        if name not in (known or ()):
            near = get_close_matches(name, known or (), 1)
            yield f"unknown field `{name[:80]}` of {kind}{f'; did you mean {near[0]}?' if near else ''}"
        elif name in NOT_SIMULATED:
            yield f"`{name}` of {kind} is not simulated"


def configurations(item: Object) -> Iterator[Object]:
    """The configurations of Kueue's controller in a ConfigMap."""
    for text in members(item.get("data"), "data").values():
        if isinstance(text, str) and CONFIGURATION in text:
            yield from documents(text, title_of(item), HINT)


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


# -- a file of Kueue's objects, as a site applies it or `kubectl get … -o json` prints it ------------------------------


def read_kueue(path: Path, own: Kueue | None = None) -> Kueue:
    """Read a file of Kueue's objects, in YAML or JSON; a KubeSchedulerConfiguration places the pods.

    With the site's `own`, they are applied to it as by `kubectl apply`: objects that the file does not have stay as
    they are, and one with `$patch: delete` is deleted.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        msg = f"{path.name}: cannot be read: {e}"
        raise TraceError(msg, hint=HINT) from None
    found: list[object] = []
    deleted: list[object] = []
    for item in documents(text, path.name, HINT):
        try:
            one = _record(item)
        except MalformedObject as e:
            msg = f"{path.name}, {title_of(item)}: {e}"
            raise TraceError(msg, hint=HINT) from None
        if one is not None:
            (deleted if item.get(PATCH) == "delete" else found).append(one)
    if own is None and not any(isinstance(one, ClusterQueue) for one in found):
        msg = f"{path.name}: contains no ClusterQueue"
        raise TraceError(msg, hint=HINT)
    if not found and not deleted:
        msg = f"{path.name}: contains no object of Kueue"
        raise TraceError(msg, hint=HINT)
    return Kueue.of(*found) if own is None else own.applied(found, deleted)


def _record(item: Object) -> object | None:
    """One object as a record; None where it has no say in admission."""
    if item.get("kind") == "KubeSchedulerConfiguration":
        return scheduler_of(item)
    for remark in remarks(item) if is_kueue(item) else ():
        if remark.startswith("unknown"):
            raise MalformedObject(remark)
    return kueue_object(item)


# -- which settings differ between two sites' Kueue --------------------------------------------------------------------

QUOTA = (("nominal", "nominalQuota"), ("borrowing_limit", "borrowingLimit"), ("lending_limit", "lendingLimit"))


def settings_of(kueue: Kueue) -> Iterator[tuple[str, str]]:
    """Each setting by name, as text."""
    for queue in kueue.cluster_queues.values():
        yield from _of_queue(queue)
    for cohort in kueue.cohorts.values():
        yield f"Cohort {cohort.name}: parent", str(cohort.parent)
        yield from _quotas(f"Cohort {cohort.name}", cohort)
    for local in kueue.local_queues.values():
        yield f"LocalQueue {local.key}: clusterQueue", local.cluster_queue
        yield f"LocalQueue {local.key}: stopPolicy", local.stop_policy
    for kind in (kueue.flavors, kueue.topologies, kueue.checks):
        for name, one in kind.items():
            yield f"{type(one).__name__} {name}", str({k: v for k, v in to_values(one).items() if k != "name"})
    sharing = kueue.fair_sharing
    yield "fairSharing", ", ".join(sharing.strategies) if sharing.enable else "off"


def _of_queue(queue: ClusterQueue) -> Iterator[tuple[str, str]]:
    policies, borrow, flavors = queue.preemption, queue.preemption.borrow_within_cohort, queue.fungibility
    threshold = "" if borrow.max_priority_threshold is None else f" up to {borrow.max_priority_threshold}"
    fields = {
        "cohort": queue.cohort,
        "queueingStrategy": queue.strategy,
        "withinClusterQueue": policies.within_cluster_queue,
        "reclaimWithinCohort": policies.reclaim_within_cohort,
        "borrowWithinCohort": f"{borrow.policy}{threshold}",
        "whenCanBorrow": flavors.when_can_borrow,
        "whenCanPreempt": flavors.when_can_preempt,
        "preference": flavors.preference,
        "stopPolicy": queue.stop_policy,
    }
    yield from ((f"ClusterQueue {queue.name}: {name}", str(value)) for name, value in fields.items())
    yield from _quotas(f"ClusterQueue {queue.name}", queue)


def _quotas(title: str, node: ClusterQueue | Cohort) -> Iterable[tuple[str, str]]:
    yield f"{title}: fairSharing weight", f"{node.weight:g}"
    for group in node.groups:
        for (flavor, resource), quota in group.quotas():
            for field, name in QUOTA:
                value = getattr(quota, field)
                yield f"{title}: {name} of {resource} in {flavor}", "no limit" if value is None else f"{value:,}"
