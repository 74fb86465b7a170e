"""A cluster at one moment, as kube-scheduler sees it: what `kubectl get pods,nodes,pdb -A -o json` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fleetlab.core import TraceError
from fleetlab.schedulers.kubernetes.config import DisruptionBudget, SchedulingNode, SchedulingPod
from fleetlab.schedulers.kubernetes.reader.objects import MalformedObject, Object, items, members, moment, words
from fleetlab.schedulers.kubernetes.reader.scheduling import disruption_budget, scheduling_node, scheduling_pod
from fleetlab.traces.input.files import sources

HINT = "kubectl get pods,nodes,pdb -A -o json"
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True)
class BoundPod:
    """A pod on a node: since when it runs, in Unix seconds, and whether it was asked to go."""

    pod: SchedulingPod
    node: str
    start: float | None
    terminating: bool


@dataclass
class Snapshot:
    """Nodes, the pods on them, those that wait, and budgets."""

    nodes: list[SchedulingNode] = field(default_factory=list)
    bound: list[BoundPod] = field(default_factory=list)
    waiting: dict[str, SchedulingPod] = field(default_factory=dict)  # by namespace/name
    nominated: dict[str, str] = field(default_factory=dict)  # node by pending pod that preempts there
    budgets: list[DisruptionBudget] = field(default_factory=list)


def read_snapshot(path: Path) -> Snapshot:
    """Read one file or all of a folder; objects of other kinds are passed over."""
    found = Snapshot()
    for source in sources(path):
        for line, item, _ in items(source):
            try:
                _store(members(item, "object"), found)
            except MalformedObject as e:
                msg = f"{source.name}, line {line}: {e}"
                raise TraceError(msg, hint=HINT) from None
    if not found.nodes:
        msg = f"{path.name}: contains no nodes"
        raise TraceError(msg, hint=HINT)
    return found


def _store(item: Object, found: Snapshot) -> None:
    kind = item.get("kind")
    if kind == "Node":
        found.nodes.append(scheduling_node(item))
    elif kind == "PodDisruptionBudget":
        found.budgets.append(disruption_budget(item))
    elif kind == "Pod":
        _store_pod(item, found)


def _store_pod(item: Object, found: Snapshot) -> None:
    status = members(item.get("status"), "status")
    if words(status.get("phase"), "status.phase") in OVER:
        return
    pod = scheduling_pod(item)
    node = words(members(item.get("spec"), "spec").get("nodeName"), "spec.nodeName")
    if not node:
        found.waiting[pod.name] = pod
        if nominated := words(status.get("nominatedNodeName"), "status.nominatedNodeName"):
            found.nominated[pod.name] = nominated
        return
    leaving = members(item.get("metadata"), "metadata").get("deletionTimestamp") is not None
    found.bound.append(BoundPod(pod, node, moment(status.get("startTime"), "status.startTime"), leaving))
