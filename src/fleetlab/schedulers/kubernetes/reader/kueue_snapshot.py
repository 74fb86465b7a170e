"""Kueue at one moment: its objects, who has quota and who waits, as `kubectl get … -o json` prints them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fleetlab.core import PolicyError, TraceError
from fleetlab.core.durations import plural
from fleetlab.schedulers.kubernetes.config import KubeScheduler, SchedulingNode, Toleration
from fleetlab.schedulers.kubernetes.reader.kueue import GROUP, HINT, KINDS, is_kueue, kueue_object, remarks
from fleetlab.schedulers.kubernetes.reader.objects import MalformedObject, Object, items, members, whole, words
from fleetlab.schedulers.kubernetes.reader.scheduling import scheduling_node, scheduling_pod
from fleetlab.schedulers.kubernetes.reader.workloads import PodSetSpec, QueuedWorkload, is_workload, workload_of
from fleetlab.schedulers.kueue.config import ClusterQueue, Kueue, LocalQueue, ResourceFlavor
from fleetlab.schedulers.kueue.state import Admitted
from fleetlab.schedulers.kueue.workload import KueueWorkload, PodSet, TopologyRequest
from fleetlab.traces.input.files import sources

# -- what a site's lists say of Kueue: its objects, and through which queue each job came ------------------------------

LISTED = (*KINDS, "Workload")
TABLE = "Kueue objects"


@dataclass
class KueueInventory:
    """The objects by kind and name, of which the last counts."""

    objects: dict[tuple[str, str], tuple[object, str, int]] = field(default_factory=dict)
    remarks: Counter[str] = field(default_factory=Counter)  # on fields that are not read

    def store(self, item: Object, file: str, line: int) -> tuple[object, str, int] | None:
        """Take an object; return the one of the same name that it supersedes."""
        one = kueue_object(item)
        if one is None:
            msg = f"not an object of {GROUP}: {item.get('kind')}"
            raise MalformedObject(msg)
        self.remarks.update(remarks(item))
        key = (type(one).__name__, str(getattr(one, "key", None) or getattr(one, "name", "")))
        before = self.objects.get(key)
        self.objects[key] = (one, file, line)
        return before

    @property
    def label_keys(self) -> frozenset[str]:
        """The labels by which flavors and topologies tell nodes apart."""
        every = [one for one, _, _ in self.objects.values()]
        labels = [key for one in every for key in getattr(one, "labels", ())]
        return frozenset([*labels, *(level for one in every for level in getattr(one, "levels", ()))])

    @property
    def tolerations(self) -> tuple[Toleration, ...]:
        """What Kueue lets pods tolerate that it admits, by any flavor."""
        flavors = [one for one, _, _ in self.objects.values() if isinstance(one, ResourceFlavor)]
        return tuple(dict.fromkeys(each for one in flavors for each in one.tolerations))

    def site(self, pods: KubeScheduler | None) -> tuple[Kueue | None, list[str]]:
        """The site's Kueue, where there are ClusterQueues, and what was left out of it."""
        every = [one for one, _, _ in self.objects.values()]
        names = {one.name for one in every if isinstance(one, ClusterQueue)}
        if not names:
            return None, []
        lost = [one.key for one in every if isinstance(one, LocalQueue) and one.cluster_queue not in names]
        kept = [one for one in every if not (isinstance(one, LocalQueue) and one.key in lost)]
        notes = [f"{remark} ({plural(count, 'object')})" for remark, count in self.remarks.items()]
        notes += [f"LocalQueues that lead to no ClusterQueue of the list: {', '.join(lost[:10])}"] if lost else []
        try:
            return Kueue.of(*kept, *([pods] if pods else [])), notes
        except PolicyError as e:
            raise TraceError(str(e), hint=f"list all of Kueue's objects: {HINT}") from None


PLACES = ("required", "preferred", "unconstrained", "podSetSliceRequiredTopology", "podSetSliceSize")


@dataclass
class KueueSnapshot:
    """The site, and its workloads that are not finished."""

    kueue: Kueue
    admitted: list[Admitted] = field(default_factory=list)
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
                if is_workload(one):
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
        queued = workload_of(item)
        local = found.kueue.local_queues.get(f"{queued.key.partition('/')[0]}/{queued.queue}")
        queue = queued.cluster_queue or (local.cluster_queue if local else "")
        if queued.holds("Finished") or queue not in found.kueue.cluster_queues:
            return
        one = _workload(queued, queue)
        if queued.has_quota and queued.assigned:
            since = queued.at("QuotaReserved") or 0.0
            found.admitted.append(Admitted(one, queued.usage, since, one.created, queued.holds("Evicted")))
        elif queued.active:
            found.pending[queued.key] = one
    except MalformedObject as e:
        msg = f"{file}: {e}"
        raise TraceError(msg, hint=HINT) from None


def _workload(one: QueuedWorkload, queue: str) -> KueueWorkload:
    sets = tuple(_pod_set(each) for each in one.sets)
    return KueueWorkload(one.key, queue, sets, one.priority or 0, one.created or 0.0, one.uid)


def _pod_set(one: PodSetSpec) -> PodSet:
    pod = scheduling_pod(one.item({}, {}))
    required, preferred, anywhere, slices, size = (one.request.get(name) for name in PLACES)
    place = TopologyRequest(
        words(required, "required") or None, words(preferred, "preferred") or None, bool(anywhere),
        words(slices, "podSetSliceRequiredTopology") or None, whole(size, "podSetSliceSize") or None,
    )  # fmt: skip
    return PodSet(
        one.name, one.count, pod.requests, one.least, pod.selector, pod.required, pod.tolerations,
        None if place == TopologyRequest() else place,
    )  # fmt: skip
