"""Kueue at one moment: its objects, who has quota and who waits, as `kubectl get … -o json` prints them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fleetlab.core import PolicyError, TraceError
from fleetlab.core.kubernetes import SchedulingNode
from fleetlab.core.kueue import Kueue
from fleetlab.core.kueue_quota import FlavorResource
from fleetlab.core.kueue_workload import KueueWorkload, PodSet, TopologyRequest
from fleetlab.traces.input.files import sources
from fleetlab.traces.kubernetes.kueue import HINT, counted, is_kueue, kueue_object
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, elements, items, members, moment, whole, words
from fleetlab.traces.kubernetes.scheduling import scheduling_node, scheduling_pod

PLACES = ("required", "preferred", "unconstrained", "podSetSliceRequiredTopology", "podSetSliceSize")


@dataclass(frozen=True)
class AdmittedWorkload:
    """A workload with quota: how much in which flavors, and since when in Unix seconds."""

    workload: KueueWorkload
    usage: dict[FlavorResource, int]
    since: float
    evicted: bool


@dataclass
class KueueSnapshot:
    """The site, and its workloads that are not finished."""

    kueue: Kueue
    admitted: list[AdmittedWorkload] = field(default_factory=list)
    pending: dict[str, KueueWorkload] = field(default_factory=dict)  # by namespace/name
    nodes: list[SchedulingNode] = field(default_factory=list)


def read_kueue_snapshot(path: Path) -> KueueSnapshot:
    """Read one file or all of a folder; objects of other kinds are passed over."""
    objects: list[object] = []
    workloads: list[Object] = []
    nodes: list[SchedulingNode] = []
    for source in sources(path):
        for line, item, _ in items(source):
            try:
                one = members(item, "object")
                if one.get("kind") == "Workload":
                    workloads.append(one)
                elif one.get("kind") == "Node":
                    nodes.append(scheduling_node(one))
                elif is_kueue(one):
                    objects.append(kueue_object(one))
            except MalformedObject as e:
                msg = f"{source.name}, line {line}: {e}"
                raise TraceError(msg, hint=HINT) from None
    try:
        found = KueueSnapshot(Kueue.of(*objects), nodes=nodes)
    except PolicyError as e:
        raise TraceError(str(e), hint=HINT) from None
    if not found.kueue.cluster_queues:
        msg = f"{path.name}: contains no ClusterQueue"
        raise TraceError(msg, hint=HINT)
    for one in workloads:
        _store(one, found, path.name)
    return found


def _store(item: Object, found: KueueSnapshot, file: str) -> None:
    try:
        about, status = members(item.get("metadata"), "metadata"), members(item.get("status"), "status")
        name = f"{words(about.get('namespace'), 'namespace') or 'default'}/{words(about.get('name'), 'name')}"
        true = dict(_conditions(status))
        if "Finished" in true:
            return
        admission = members(status.get("admission"), "status.admission")
        queue = words(admission.get("clusterQueue"), "clusterQueue") or _queue(found.kueue, item, name)
        if queue not in found.kueue.cluster_queues:
            return
        one = _workload(item, name, queue)
        if admission and "QuotaReserved" in true:
            since, evicted = true["QuotaReserved"], "Evicted" in true
            found.admitted.append(AdmittedWorkload(one, _usage(admission), since, evicted))
        elif members(item.get("spec"), "spec").get("active") is not False:
            found.pending[name] = one
    except MalformedObject as e:
        msg = f"{file}: {e}"
        raise TraceError(msg, hint=HINT) from None


def _conditions(status: Object) -> list[tuple[str, float]]:
    """The conditions that hold, and since when."""
    where = "status.conditions"
    every = [members(one, where) for one in elements(status.get("conditions"), where)]
    held = [one for one in every if one.get("status") == "True"]
    return [(words(one.get("type"), where), moment(one.get("lastTransitionTime"), where) or 0.0) for one in held]


def _queue(kueue: Kueue, item: Object, name: str) -> str:
    queue = words(members(item.get("spec"), "spec").get("queueName"), "spec.queueName")
    local = kueue.local_queues.get(f"{name.partition('/')[0]}/{queue}")
    return local.cluster_queue if local else ""


def _usage(admission: Object) -> dict[FlavorResource, int]:
    usage: dict[FlavorResource, int] = {}
    where = "status.admission.podSetAssignments"
    for item in elements(admission.get("podSetAssignments"), where):
        one = members(item, where)
        amounts = members(one.get("resourceUsage"), f"{where}.resourceUsage")
        for resource, flavor in members(one.get("flavors"), f"{where}.flavors").items():
            at = (words(flavor, f"{where}.flavors"), resource)
            usage[at] = usage.get(at, 0) + counted(resource, amounts.get(resource, 0), f"{where}.resourceUsage")
    return usage


def _workload(item: Object, name: str, queue: str) -> KueueWorkload:
    about, spec = members(item.get("metadata"), "metadata"), members(item.get("spec"), "spec")
    return KueueWorkload(
        name,
        queue,
        tuple(_pod_set(members(one, "spec.podSets")) for one in elements(spec.get("podSets"), "spec.podSets")),
        whole(spec.get("priority"), "spec.priority"),
        moment(about.get("creationTimestamp"), "metadata.creationTimestamp") or 0.0,
        words(about.get("uid"), "metadata.uid"),
    )


def _pod_set(one: Object) -> PodSet:
    template = members(one.get("template"), "spec.podSets.template")
    pod = scheduling_pod({"metadata": {}, "spec": template.get("spec")})
    least, request = one.get("minCount"), members(one.get("topologyRequest"), "topologyRequest")
    required, preferred, anywhere, slices, size = (request.get(name) for name in PLACES)
    place = TopologyRequest(
        words(required, "required") or None, words(preferred, "preferred") or None, bool(anywhere),
        words(slices, "podSetSliceRequiredTopology") or None, whole(size, "podSetSliceSize") or None,
    )  # fmt: skip
    return PodSet(
        words(one.get("name"), "spec.podSets.name") or "main",
        whole(one.get("count"), "spec.podSets.count"),
        pod.requests,
        None if least is None else whole(least, "minCount"),
        pod.selector,
        pod.required,
        pod.tolerations,
        None if place == TopologyRequest() else place,
    )
