"""Kueue's Workloads: what a job asks for, since when, in which queue, and how far Kueue has come with it.

A Workload is the job, and outlives its pods: it is there before they are made, and while their owner is suspended.
Pods say where and how long. Which pods are its is said by an annotation, by the name of their group, by their owners
up to the top and, where owners are gone, by labels that name them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from fleetlab.schedulers.kubernetes.config import CPU, SchedulingPod
from fleetlab.schedulers.kubernetes.reader.kueue import GROUP, counted
from fleetlab.schedulers.kubernetes.reader.nodes import texts
from fleetlab.schedulers.kubernetes.reader.objects import (
    MalformedObject,
    Object,
    elements,
    members,
    moment,
    whole,
    words,
)
from fleetlab.schedulers.kubernetes.reader.pod_groups import first_of
from fleetlab.schedulers.kubernetes.reader.pods import (
    Pod,
    controller_of,
    pod_of,
    recurring_name,
    requests_of,
    selects_of,
)
from fleetlab.schedulers.kubernetes.reader.scheduling import scheduling_pod
from fleetlab.schedulers.kubernetes.reader.selectors import rules_of

FlavorResource = tuple[str, str]


@dataclass(frozen=True)
class Condition:
    """Whether a condition holds, since when, and why."""

    holds: bool
    at: float | None
    reason: str


@dataclass(frozen=True)
class PodSetSpec:
    """Pods that are alike, as their user wrote them."""

    name: str
    count: int
    least: int | None
    template: Object
    request: Object  # of topology

    def item(self, about: Object, status: Object) -> Object:
        """One of its pods as an object."""
        own = members(self.template.get("metadata"), "template.metadata")
        return {"metadata": {**own, **about}, "spec": self.template.get("spec"), "status": status}

    @property
    def tells_pods(self) -> bool:
        """Whether it says what its pods ask for."""
        return bool(members(self.template.get("spec"), "template.spec").get("containers"))


@dataclass(frozen=True)
class SetAssignment:
    """What a set of pods was admitted with."""

    count: int | None
    flavors: Mapping[str, str]
    usage: Mapping[FlavorResource, int]


@dataclass(frozen=True)
class QueuedWorkload:
    """One Workload; times are Unix seconds."""

    key: str  # namespace/name
    uid: str
    created: float | None
    queue: str
    priority: int | None
    active: bool
    sets: tuple[PodSetSpec, ...]
    owners: tuple[Object, ...]
    conditions: Mapping[str, Condition]
    cluster_queue: str = ""
    assigned: Mapping[str, SetAssignment] = field(default_factory=dict)
    reclaimable: Mapping[str, int] = field(default_factory=dict)  # pods of a set that are done with their quota
    evictions: int = 0
    requeue_at: float | None = None
    checks: tuple[tuple[str, str, float | None], ...] = ()  # AdmissionChecks: name, state, since when

    def at(self, condition: str) -> float | None:
        """Since when a condition holds; None: it does not."""
        one = self.conditions.get(condition)
        return one.at if one is not None and one.holds else None

    def holds(self, condition: str) -> bool:
        """Whether a condition holds."""
        return condition in self.conditions and self.conditions[condition].holds

    @property
    def has_quota(self) -> bool:
        """Whether Kueue has reserved quota for it."""
        return self.holds("QuotaReserved")

    @property
    def admitted_at(self) -> float | None:
        """When it was admitted; where no checks are told, when quota was reserved."""
        return self.at("Admitted") or self.at("QuotaReserved")

    @property
    def usage(self) -> dict[FlavorResource, int]:
        """The quota it holds, without that of pods that are done."""
        total: dict[FlavorResource, int] = {}
        for name, one in self.assigned.items():
            done, count = self.reclaimable.get(name, 0), one.count or 1
            for at, amount in one.usage.items():
                total[at] = total.get(at, 0) + amount * max(0, count - done) // count
        return total

    @property
    def flavors(self) -> str:
        """The flavors it was admitted in; those of GPUs where it has any."""
        gpus = {
            flavor
            for one in self.assigned.values()
            for name, flavor in one.flavors.items()
            if name != CPU and "/" in name
        }
        every = {flavor for one in self.assigned.values() for flavor in one.flavors.values()}
        return ",".join(sorted(gpus or every))

    def set_of(self, name: str, pod: Pod) -> PodSetSpec | None:
        """The set that a pod is of: by its label, or by what it asks for."""
        complete = [one for one in self.sets if one.tells_pods]
        named = [one for one in self.sets if one.name == name]
        if named or len(self.sets) == 1:
            return (named or list(self.sets))[0]
        alike = [one for one in complete if _containers(one) == pod.containers]
        return alike[0] if alike else None

    # -- without pods --------------------------------------------------------------------------------------------

    def pod(self, one: PodSetSpec) -> tuple[Pod, Object]:
        """A pod of a set of which the list has none: it waits, or is over and was deleted."""
        namespace, _, name = self.key.partition("/")
        owner = next(iter(self.owners), {})
        item = one.item({"namespace": namespace, "name": name, "uid": f"{self.key}:{one.name}"}, {"phase": "Pending"})
        item["metadata"] |= {"creationTimestamp": "1970-01-01T00:00:01Z", "ownerReferences": [owner] if owner else []}
        if self.created is None:
            msg = "no `metadata.creationTimestamp`"
            raise MalformedObject(msg)
        return replace(pod_of(item), submit=self.created, **self.times), item

    @property
    def times(self) -> dict[str, Any]:
        """When it ran and how it ended, as far as it tells without pods."""
        finished = self.conditions.get("Finished")
        if finished is not None and finished.holds:
            start = self.at("PodsReady") or self.admitted_at
            end = None if start is None or finished.at is None else max(start, finished.at)
            return {"status": "failed" if "Fail" in finished.reason else "completed", "start": start, "end": end}
        gone = None if self.active else self.at("Evicted") or self.created
        return {"status": "waiting" if self.active else "cancelled", "start": None, "end": gone}


def _containers(one: PodSetSpec) -> tuple[Any, ...]:
    spec = members(one.template.get("spec"), "template.spec")
    return tuple(requests_of(each, "spec.containers") for each in elements(spec.get("containers"), "spec.containers"))


def is_workload(item: Mapping[str, object]) -> bool:
    """Whether an object is a Workload of Kueue's; scheduling.k8s.io has a kind of that name too."""
    return item.get("kind") == "Workload" and str(item.get("apiVersion", GROUP)).partition("/")[0] == GROUP


# -- reading one -------------------------------------------------------------------------------------------------------


def workload_of(item: Object) -> QueuedWorkload:
    """Read a Workload in the names of v1beta1 and v1beta2; Malformed says what is wrong with it."""
    about, spec = members(item.get("metadata"), "metadata"), members(item.get("spec"), "spec")
    status = members(item.get("status"), "status")
    admission, requeue = (
        members(status.get("admission"), "admission"),
        members(status.get("requeueState"), "requeueState"),
    )
    name = words(about.get("name"), "metadata.name")
    if not name:
        msg = "no `metadata.name`"
        raise MalformedObject(msg)
    stats = members(status.get("schedulingStats"), "schedulingStats")
    return QueuedWorkload(
        f"{words(about.get('namespace'), 'metadata.namespace') or 'default'}/{name}",
        words(about.get("uid"), "metadata.uid"),
        moment(about.get("creationTimestamp"), "metadata.creationTimestamp"),
        words(spec.get("queueName"), "spec.queueName"),
        None if spec.get("priority") is None else whole(spec["priority"], "spec.priority"),
        spec.get("active") is not False,
        tuple(_set(one) for one in _listed(spec.get("podSets"), "spec.podSets")),
        tuple(_listed(about.get("ownerReferences"), "metadata.ownerReferences")),
        {words(one.get("type"), "type"): _condition(one) for one in _listed(status.get("conditions"), "conditions")},
        words(admission.get("clusterQueue"), "admission.clusterQueue"),
        dict(_assigned(one) for one in _listed(admission.get("podSetAssignments"), "podSetAssignments")),
        {words(one.get("name"), "name"): whole(one.get("count"), "count")
         for one in _listed(status.get("reclaimablePods"), "reclaimablePods")},
        sum(whole(one.get("count"), "count") for one in _listed(stats.get("evictions"), "evictions")),
        moment(requeue.get("requeueAt"), "requeueState.requeueAt"),
        tuple(_check(one) for one in _listed(status.get("admissionChecks"), "admissionChecks")),
    )  # fmt: skip


def _check(one: Object) -> tuple[str, str, float | None]:
    name, state = (words(one.get(key), f"admissionChecks.{key}") for key in ("name", "state"))
    return name, state, moment(one.get("lastTransitionTime"), "admissionChecks.lastTransitionTime")


def _listed(value: object, where: str) -> list[Object]:
    return [members(one, where) for one in elements(value, where)]


def _set(one: Object) -> PodSetSpec:
    where = "spec.podSets"
    least = None if one.get("minCount") is None else whole(one["minCount"], f"{where}.minCount")
    count = 1 if one.get("count") is None else whole(one["count"], f"{where}.count")
    template, request = (members(one.get(name), f"{where}.{name}") for name in ("template", "topologyRequest"))
    return PodSetSpec(words(one.get("name"), f"{where}.name") or "main", count, least, template, request)


def _condition(one: Object) -> Condition:
    where = "status.conditions"
    at = moment(one.get("lastTransitionTime"), f"{where}.lastTransitionTime")
    return Condition(one.get("status") == "True", at, words(one.get("reason"), f"{where}.reason"))


def _assigned(one: Object) -> tuple[str, SetAssignment]:
    where = "podSetAssignments"
    flavors, amounts = (
        texts(one.get("flavors"), f"{where}.flavors"),
        members(one.get("resourceUsage"), f"{where}.resourceUsage"),
    )
    usage = {
        (flavor, name): counted(name, amounts.get(name, 0), f"{where}.resourceUsage")
        for name, flavor in flavors.items()
    }
    count = None if one.get("count") is None else whole(one["count"], f"{where}.count")
    return words(one.get("name"), f"{where}.name") or "main", SetAssignment(count, flavors, usage)


# What is kept of Workloads beside their jobs.
SCHEMA = {
    "job": pl.Int64, "workload": pl.String, "cluster_queue": pl.String, "flavor": pl.String, "reserved": pl.Float64,
    "admitted": pl.Float64, "ready": pl.Float64, "evictions": pl.Int64, "evicted_by": pl.String, "active": pl.Boolean,
    "requeue": pl.Float64, "checks": pl.String,
}  # fmt: skip

# -- which pods are whose ----------------------------------------------------------------------------------------------

# What names the Workload itself, and labels of controllers that name what made a pod, with its kind where that is one.
NAMES = ("kueue.x-k8s.io/workload", "kueue.x-k8s.io/prebuilt-workload-name", "kueue.x-k8s.io/pod-group-name")
POD_SET = ("kueue.x-k8s.io/podset", "kueue.x-k8s.io/role-hash")
MAKERS = (
    ("workload.codeflare.dev/appwrapper", "AppWrapper"),
    ("trainer.kubeflow.org/trainjob-name", "TrainJob"),
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("training.kubeflow.org/job-name", ""),
    ("ray.io/originated-from-cr-name", ""),
    ("ray.io/cluster", "RayCluster"),
    ("sparkoperator.k8s.io/app-name", "SparkApplication"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("batch.kubernetes.io/job-name", "Job"),
    ("job-name", "Job"),
)


@dataclass
class Workloads:
    """The Workloads of a list by namespace/name, and what leads from pods to them."""

    every: dict[str, tuple[QueuedWorkload, str, int]] = field(default_factory=dict)
    above: dict[str, str] = field(default_factory=dict)  # of each object, by uid, what made it
    pods: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = field(default_factory=dict)
    _owners: dict[str, str] = field(default_factory=dict)  # Workloads by the uid of an owner
    _makers: dict[tuple[str, str, str], str] = field(default_factory=dict)  # by namespace, kind and name of one

    def store(self, one: QueuedWorkload, file: str, line: int) -> tuple[object, str, int] | None:
        """Take a Workload; return the one of the same name that it supersedes."""
        before = self.every.pop(one.key, None)
        self.every[one.key] = one, file, line
        for owner in one.owners:
            kind, name, uid = (words(owner.get(key), "ownerReferences") for key in ("kind", "name", "uid"))
            self._owners[uid] = one.key
            for named in (kind, ""):
                self._makers[one.key.partition("/")[0], named, name] = one.key
        return before

    def note(self, item: object) -> None:
        """Note what made an object, whatever it is, and what a pod says of its Workload."""
        about = item.get("metadata") if isinstance(item, dict) else None
        if not isinstance(about, dict) or not isinstance(about.get("uid"), str):
            return
        try:
            if owner := controller_of(about):
                self.above[about["uid"]] = words(owner.get("uid"), "metadata.ownerReferences.uid")
            if isinstance(item, dict) and item.get("kind", "Pod") == "Pod":
                texts_of = {
                    **members(about.get("labels"), "labels"),
                    **members(about.get("annotations"), "annotations"),
                }
                made = tuple((kind, first_of(texts_of, (label,))) for label, kind in MAKERS if texts_of.get(label))
                if texts_of:
                    self.pods[about["uid"]] = first_of(texts_of, NAMES), first_of(texts_of, POD_SET), made
        except MalformedObject:
            return  # whoever reads the object says so

    def of(self, pod: Pod) -> QueuedWorkload | None:
        """The Workload of a pod; None: the list has none."""
        named, _, makers = self.pods.get(pod.key, ("", "", ()))
        key = f"{pod.namespace}/{named}" if f"{pod.namespace}/{named}" in self.every else None
        uid, seen = pod.key, set[str]()
        while key is None and uid and uid not in seen:
            seen.add(uid)
            key, uid = self._owners.get(uid), self.above.get(uid, pod.owner if uid == pod.key else "")
        for kind, name in makers:
            key = key or self._makers.get((pod.namespace, kind, name))
        return self.every[key][0] if key is not None and key in self.every else None

    def as_requested(
        self, pod: Pod, one: QueuedWorkload, scheduled: SchedulingPod
    ) -> tuple[Pod, SchedulingPod, PodSetSpec | None]:
        """A pod as its Workload has it: without what Kueue adds when it admits, and since when it waits."""
        found = one.set_of(self.pods.get(pod.key, ("", "", ()))[1], pod)
        if found is not None and found.tells_pods:
            spec = members(found.template.get("spec"), "template.spec")
            rules = replace(rules_of(spec), tolerations=pod.rules.tolerations)
            own, pod = scheduling_pod(found.item({}, {})), replace(pod, selects=tuple(selects_of(spec)), rules=rules)
            scheduled = replace(scheduled, required=own.required, selector=own.selector, preferred=own.preferred)
        return self.with_workload(pod, one), scheduled, found

    @staticmethod
    def with_workload(pod: Pod, one: QueuedWorkload) -> Pod:
        """A pod with what its Workload says of all its pods."""
        over = {} if one.active or pod.start is not None else one.times
        submit = pod.submit if one.created is None else min(one.created, pod.start or one.created)
        owner = next(iter(one.owners), {})
        return replace(
            pod, submit=submit, queue=one.queue or pod.queue, gang=one.key.partition("/")[2],
            priority=pod.priority if one.priority is None else one.priority,
            group=recurring_name(owner) or pod.group if owner.get("kind") != "Pod" else pod.group,
            **over,
        )  # fmt: skip

    def without_pods(
        self, seen: Iterable[tuple[str, str]], some: Container[str]
    ) -> list[tuple[QueuedWorkload, PodSetSpec, str, int]]:
        """The sets of pods of which the list has none; `some` are Workloads with pods whose set is not known."""
        there = set(seen)
        return [
            (one, each, file, line)
            for one, file, line in self.every.values()
            for each in one.sets
            if (one.key, each.name) not in there and one.key not in some and each.tells_pods and each.count > 0
        ]

    def left_out(self, seen: Container[str | None]) -> list[str]:
        """Say which Workloads that wait are no job: those without pods that do not say what pods they want either."""
        names = [one.key for one, _, _ in self.every.values() if one.key not in seen and not one.has_quota]
        some = ", ".join(names[:5])
        return [f"Workloads that wait and do not say for which pods are not in the trace: {len(names)} ({some})"][
            : len(names)
        ]

    def admissions(self, jobs: pl.DataFrame, zero: float) -> pl.DataFrame:
        """What Kueue did with the job of each Workload."""
        rows = []
        for job, key in jobs.filter(pl.col("workload").is_not_null()).select("job", "workload").iter_rows():
            one = self.every[key][0]
            times = (one.at("QuotaReserved"), one.admitted_at if one.has_quota else None, one.at("PodsReady"))
            rows.append((
                job, key, one.cluster_queue or None, one.flavors or None,
                *(None if at is None else at - zero for at in times), one.evictions or int(one.holds("Requeued")),
                one.conditions["Evicted"].reason if "Evicted" in one.conditions else None, one.active,
                None if one.requeue_at is None else one.requeue_at - zero,
                ", ".join(f"{name} ({state})" for name, state, _ in one.checks if state != "Ready") or None,
            ))  # fmt: skip
        return pl.DataFrame(rows, schema=SCHEMA, orient="row")
