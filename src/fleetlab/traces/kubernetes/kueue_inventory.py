"""What a site's lists say of Kueue: its objects, and through which queue each job came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fleetlab.core import PolicyError, TraceError
from fleetlab.core.kubernetes import KubeScheduler
from fleetlab.core.kueue import ClusterQueue, Kueue, LocalQueue
from fleetlab.traces.kubernetes.kueue import GROUP, HINT, KINDS, kueue_object
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, elements, members, words
from fleetlab.traces.kubernetes.pods import Pod

LISTED = (*KINDS, "Workload")
TABLE = "Kueue objects"


@dataclass
class KueueInventory:
    """The objects by kind and name, of which the last counts, and the queue of each job by its uid."""

    objects: dict[tuple[str, str], tuple[object, str, int]] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    workloads: int = 0
    pending: dict[str, str] = field(default_factory=dict)  # Workloads without quota, by the uid of what they are of

    def store(self, item: Object, file: str, line: int) -> tuple[object, str, int] | None:
        """Take an object; return the one of the same name that it supersedes."""
        if item.get("kind") == "Workload":
            self._store_workload(item)
            return None
        one = kueue_object(item)
        if one is None:
            msg = f"not an object of {GROUP}: {item.get('kind')}"
            raise MalformedObject(msg)
        key = (type(one).__name__, str(getattr(one, "key", None) or getattr(one, "name", "")))
        before = self.objects.get(key)
        self.objects[key] = (one, file, line)
        return before

    def _store_workload(self, item: Object) -> None:
        about, spec = members(item.get("metadata"), "metadata"), members(item.get("spec"), "spec")
        queue = words(spec.get("queueName"), "spec.queueName")
        owners = elements(about.get("ownerReferences"), "metadata.ownerReferences")
        uids = [words(members(one, "metadata.ownerReferences").get("uid"), "uid") for one in owners]
        self.queues |= {uid: queue for uid in uids if queue and uid}
        if not _has_quota(item):
            name = words(about.get("name"), "metadata.name")
            self.pending |= {uid or name: name for uid in uids or [""]}
        self.workloads += 1

    def __len__(self) -> int:
        return len(self.objects) + self.workloads

    def with_queue(self, pod: Pod) -> Pod:
        """The pod with the queue of its job, whose pods Kueue admits together, where it does not say so itself."""
        if pod.owner not in self.queues:
            return pod
        return replace(pod, queue=pod.queue or self.queues[pod.owner], gang=pod.gang or pod.owner)

    def without_pods(self, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return a note of Workloads that wait for quota and have no pods yet, as suspended jobs do."""
        seen = {str(row["parent"]).rpartition("/")[2] for row in rows}  # the uid, or namespace and uid
        missing = [name for uid, name in self.pending.items() if uid not in seen]
        some = ", ".join(missing[:5])
        return [f"Workloads that wait for quota and have no pods are not in the trace: {len(missing)} ({some})"][
            : len(missing)
        ]

    @property
    def label_keys(self) -> frozenset[str]:
        """The labels by which flavors and topologies tell nodes apart."""
        every = [one for one, _, _ in self.objects.values()]
        labels = [key for one in every for key in getattr(one, "labels", ())]
        return frozenset([*labels, *(level for one in every for level in getattr(one, "levels", ()))])

    def site(self, pods: KubeScheduler | None) -> tuple[Kueue | None, list[str]]:
        """The site's Kueue, where there are ClusterQueues, and what was left out of it."""
        every = [one for one, _, _ in self.objects.values()]
        names = {one.name for one in every if isinstance(one, ClusterQueue)}
        if not names:
            return None, []
        lost = [one.key for one in every if isinstance(one, LocalQueue) and one.cluster_queue not in names]
        kept = [one for one in every if not (isinstance(one, LocalQueue) and one.key in lost)]
        notes = [f"LocalQueues that lead to no ClusterQueue of the list: {', '.join(lost[:10])}"] if lost else []
        try:
            return Kueue.of(*kept, *([pods] if pods else [])), notes
        except PolicyError as e:
            raise TraceError(str(e), hint=f"list all of Kueue's objects: {HINT}") from None


def _has_quota(item: Object) -> bool:
    """Whether Kueue has reserved quota for a Workload."""
    status = members(item.get("status"), "status")
    conditions = [members(one, "conditions") for one in elements(status.get("conditions"), "status.conditions")]
    return any(one.get("type") == "QuotaReserved" and one.get("status") == "True" for one in conditions)
