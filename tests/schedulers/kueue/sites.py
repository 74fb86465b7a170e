"""Sites that run Kueue, as `kubectl get … -o json` writes them, whose truth is known.

Workloads come over a day, are admitted by quota, run, are preempted and end, as Kueue's rules in this project decide;
what is written of that are objects of the API alone: Workloads, their owners, pods and nodes, in whole seconds.
"""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np

from fleetlab.schedulers.kubernetes.config import HOSTNAME, Requirement, SchedulingNode, Selector
from fleetlab.schedulers.kueue.config import (
    ClusterQueue,
    Kueue,
    PreemptionPolicies,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
)
from fleetlab.schedulers.kueue.loop import KueueSite, play
from fleetlab.schedulers.kueue.workload import KueueWorkload, PodSet, TopologyRequest

GPU, PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
MODELS = {"h100": "NVIDIA-H100-80GB-HBM3", "a100": "NVIDIA-A100-SXM4-80GB"}
NODES = {f"{flavor}-{k}": flavor for flavor in MODELS for k in range(4)}
QUEUES = {"vision": (16, 8), "speech": (8, 16), "batch": (8, 8)}  # nominal GPUs of h100 and a100
PRIORITIES = {"prod": 1000, "normal": 100, "low": 0}
WORK = 13_000  # GPU-seconds of a Workload, so that the 64 GPUs are in demand all day
BEGIN, DAY = datetime(2026, 11, 1, tzinfo=UTC), 86_400
# Of each kind: its API group and version, the kind in the name of its Workload, and who owns its pods, from the top.
OWNERS = {
    "Job": ("batch/v1", ()),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", ("Job",)),
    "PyTorchJob": ("kubeflow.org/v1", ()),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", ("JobSet", "Job")),
    "RayJob": ("ray.io/v1", ("RayCluster",)),
    "RayCluster": ("ray.io/v1", ()),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", ("StatefulSet",)),
    "AppWrapper": ("workload.codeflare.dev/v1beta2", ("Job",)),
    "SparkApplication": ("sparkoperator.k8s.io/v1beta2", ()),
    "PodGroup": ("v1", ()),  # plain pods that are admitted together
    "Pod": ("v1", ()),
}
APIS = {kind: api for kind, (api, _) in OWNERS.items()} | {"StatefulSet": "apps/v1"}
HEADS = ("RayJob", "RayCluster", "SparkApplication")  # with one pod more, which has no GPU


@dataclass
class Truth:
    """One Workload as it was."""

    name: str  # namespace/name
    kind: str
    queue: str
    priority: int
    created: float
    pods: int
    gpus: int  # of each pod
    runtime: float
    own_model: str | None  # a GPU that its user asks for
    flavor: str | None = None
    admitted: float | None = None
    started: float | None = None
    ended: float | None = None
    evictions: int = 0
    active: bool = True
    owners_gone: bool = False
    pods_gone: bool = False
    nodes: list[str] = field(default_factory=list)

    @property
    def state(self):
        if self.ended is not None:
            return "completed"
        return "running" if self.started is not None else "waiting"


@dataclass
class Site:
    """What kubectl writes, and what is true."""

    objects: list[dict]
    truth: list[Truth]

    def write(self, folder):
        """Write a list for each kind, as `fleetlab collect kubernetes` does."""
        folder.mkdir(parents=True, exist_ok=True)
        kinds = {}
        for one in self.objects:
            kinds.setdefault((one["kind"], one["apiVersion"]), []).append(one)
        for (kind, api), items in kinds.items():
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
            (folder / f"{kind.lower()}s.{api.partition('/')[0]}.json").write_text(text)
        return folder


def kueue_of():
    """The quotas, with nodes as a topology so that pods get places."""
    flavors = [ResourceFlavor(name, {PRODUCT: model}, topology="nodes") for name, model in MODELS.items()]
    policies = PreemptionPolicies("LowerPriority", "Any")
    queues = [
        ClusterQueue(name, (ResourceGroup((GPU,), {
            flavor: {GPU: ResourceQuota(amount)} for flavor, amount in zip(MODELS, nominal, strict=True)}),),
            "lab", preemption=policies)
        for name, nominal in QUEUES.items()
    ]  # fmt: skip
    return Kueue.of(*flavors, *queues, Topology("nodes", (HOSTNAME,)))


@cache
def truth_of(seed, count):
    """Draw what comes over a day, and let Kueue decide."""
    draw = np.random.default_rng(seed)
    kinds, queues = list(OWNERS), list(QUEUES)
    truth = []
    for k, at in enumerate(np.sort(draw.integers(0, DAY - 600, count)).tolist()):
        kind, queue = kinds[k % len(kinds)], queues[draw.integers(len(queues))]
        gpus = int(draw.choice([1, 2, 4, 8]))
        pods = 1 if kind == "Pod" or (gpus < 8 and kind == "Job") else int(draw.choice([1, 2, 3]))
        name = f"{queue}/{kind.lower()}-run-{k:03d}-{draw.integers(16**5):05x}"
        truth.append(Truth(
            name, kind, queue, PRIORITIES[str(draw.choice(list(PRIORITIES)))], float(at), pods, gpus,
            float(120 + draw.exponential(WORK) // (gpus * pods)),
            MODELS["h100"] if draw.random() < 0.15 else None,
            active=bool(draw.random() > 0.01), owners_gone=bool(draw.random() < 0.1),
            pods_gone=bool(draw.random() < 0.05),
        ))  # fmt: skip
    nodes = [
        SchedulingNode(name, {GPU: 8, "pods": 110}, {HOSTNAME: name, PRODUCT: MODELS[f]}) for name, f in NODES.items()
    ]
    workloads = [_workload(one) for one in truth]
    submit = [one.created if one.active else np.inf for one in truth]
    site = KueueSite(kueue_of(), nodes)
    played = play(replace(site, grace=30.0), workloads, submit, [one.runtime for one in truth], seed)
    for run in played.runs:
        if run.admitted <= DAY:
            _follow(truth[run.workload], run, draw)
    return truth


def _workload(one):
    selector = Selector((Requirement(PRODUCT, "In", (one.own_model,)),)) if one.own_model else Selector()
    pods = PodSet("main", one.pods, {GPU: one.gpus}, selector=selector, topology=TopologyRequest(unconstrained=True))
    return KueueWorkload(one.name, one.queue, (pods,), one.priority)


def _follow(one, run, draw):
    """Take over a run that began on this day; of several the last."""
    if run.preempted and run.end <= DAY:
        one.evictions += 1
        one.flavor, one.admitted, one.started, one.nodes = None, None, None, []
        return
    one.flavor, one.admitted = next(iter(run.usage))[0], run.admitted
    one.started = run.admitted + int(draw.integers(1, 6))
    one.ended = run.end if run.end <= DAY and not run.preempted else None
    one.nodes = [seats.domain[-1] for seats in run.placement for _ in range(seats.count)]
    if one.ended is not None:
        one.runtime = one.ended - one.started


# -- as objects --------------------------------------------------------------------------------------------------------


def site(version="v1beta2", seed=0, count=400):
    """A site at the end of a day."""
    truth = truth_of(seed, count)
    objects = [*_nodes(), *_queues(version)]
    for one in truth:
        objects += _of_workload(one, version)
    # What gangs of Kubernetes itself are called, and what has nothing to do with Kueue.
    gang = {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 4}}}]}
    objects.append(_object("scheduling.k8s.io/v1alpha1", "Workload", "other-gang", "vision", gang))
    return Site(objects, truth)


def time(at):
    return (BEGIN + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _object(api, kind, name, namespace=None, spec=None, at=0.0, **about):
    named = {"name": name, "uid": f"{kind}-{namespace or ''}-{name}", "creationTimestamp": time(at), **about}
    if namespace:
        named["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": named} | ({} if spec is None else {"spec": spec})


def _owned(owner):
    about = owner["metadata"]
    return [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": about["name"], "uid": about["uid"],
             "controller": True, "blockOwnerDeletion": True}]  # fmt: skip


def _nodes():
    size = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110", GPU: "8"}
    for name, flavor in NODES.items():
        labels = {HOSTNAME: name, PRODUCT: MODELS[flavor], "nvidia.com/gpu.memory": "81559"}
        taint = {"key": GPU, "value": "present", "effect": "NoSchedule"}
        one = _object("v1", "Node", name, None, {"taints": [taint]}, labels=labels)
        yield one | {"status": {"allocatable": size, "capacity": size, "nodeInfo": {"kubeletVersion": "v1.34.1"}}}


def _queues(version):
    api, later = f"kueue.x-k8s.io/{version}", version == "v1beta2"
    for name, model in MODELS.items():
        spec = {"nodeLabels": {PRODUCT: model}, "tolerations": [{"key": GPU, "operator": "Exists"}]}
        yield _object(api, "ResourceFlavor", name, None, spec)
    for name, value in PRIORITIES.items():
        yield _object(api, "WorkloadPriorityClass", name) | {"value": value, "description": ""}
    for name, nominal in QUEUES.items():
        flavors = [
            {"name": flavor, "resources": [{"name": GPU, "nominalQuota": str(amount)}]}
            for flavor, amount in zip(MODELS, nominal, strict=True)
        ]
        stop = "MayStopSearch" if later else "Borrow"
        spec = {
            "cohortName" if later else "cohort": "lab",
            "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO", "stopPolicy": "None",
            "flavorFungibility": {"whenCanBorrow": stop, "whenCanPreempt": "TryNextFlavor"},
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any",
                           "borrowWithinCohort": {"policy": "Never"}},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
        }  # fmt: skip
        yield _object(api, "ClusterQueue", name, None, spec) | {"status": {"pendingWorkloads": 0}}
        yield _object(api, "LocalQueue", "main", name, {"clusterQueue": name, "stopPolicy": "None"})


def _template(one, *, gpus):
    """Pods as their user wrote them."""
    requests = {"cpu": "4", "memory": "16Gi"} | ({GPU: str(gpus)} if gpus else {})
    spec = {"restartPolicy": "Never", "containers": [
        {"name": "main", "resources": {"requests": requests, "limits": dict(requests)}}]}  # fmt: skip
    return spec | ({"nodeSelector": {PRODUCT: one.own_model}} if one.own_model and gpus else {})


def _sets(one):
    """The sets of pods of a Workload: name, pods, GPUs."""
    workers = {"Job": "main", "Pod": "main", "PodGroup": "b54683bb", "JobSet": "workers", "TrainJob": "node",
               "SparkApplication": "executor", "AppWrapper": "job-0"}.get(one.kind, "worker")  # fmt: skip
    head = {"SparkApplication": "driver"}.get(one.kind, "head")
    if one.kind in HEADS:
        return [(head, 1, 0), (workers, one.pods, one.gpus)]
    if one.kind in ("PyTorchJob", "LeaderWorkerSet") and one.pods > 1:
        return [("master" if one.kind == "PyTorchJob" else "leader", 1, one.gpus), (workers, one.pods - 1, one.gpus)]
    return [(workers, one.pods, one.gpus)]


def _of_workload(one, version):
    namespace, name = one.name.split("/")
    plain = one.kind in ("Pod", "PodGroup")
    base = "-".join(name.split("-")[1:3])
    chain = []
    for kind in () if plain else (one.kind, *OWNERS[one.kind][1]):
        labels = {"kueue.x-k8s.io/queue-name": "main"} if kind == one.kind else {}
        about = {"ownerReferences": _owned(chain[-1])} if chain else {}
        title = base if kind == one.kind else f"{base}-{kind.lower()}-0"
        chain.append(_object(APIS[kind], kind, title, namespace, {"suspend": one.admitted is None}, one.created,
                             labels=labels, **about))  # fmt: skip
    suspended = one.started is None and not plain
    gone = suspended or (one.pods_gone and one.ended is not None)
    pods = [] if gone else list(_pods(one, chain, namespace, name, base))
    own = [{"apiVersion": "v1", "kind": "Pod"} | {key: pod["metadata"][key] for key in ("name", "uid")} for pod in pods]
    owners = _owned(chain[0]) if chain else own
    yield _written_workload(one, version, owners)
    yield from pods
    if not (one.owners_gone and one.ended is not None):
        yield from chain


def _pods(one, chain, namespace, name, base):
    number, places = 0, iter(one.nodes)
    for pod_set, count, gpus in _sets(one):
        for k in range(count):
            spec = _template(one, gpus=gpus)
            labels = {"kueue.x-k8s.io/podset": pod_set, "kueue.x-k8s.io/managed": "true"}
            notes = {}
            if one.kind in ("PodGroup", "LeaderWorkerSet"):
                labels["kueue.x-k8s.io/pod-group-name"] = name
            if one.kind not in ("Pod", "PodGroup") and one.owners_gone:  # else its owners lead to it
                notes["kueue.x-k8s.io/workload"] = name
            else:
                labels["kueue.x-k8s.io/queue-name"] = "main"
            made = one.created if one.kind in ("Pod", "PodGroup") else one.admitted
            gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
            status = {"phase": "Pending", "conditions": [gated | {"lastTransitionTime": None}]}
            if one.started is None:
                spec["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
            else:
                # What Kueue adds when it admits: labels and tolerations of the flavor.
                spec["nodeSelector"] = spec.get("nodeSelector", {}) | {PRODUCT: MODELS[one.flavor]}
                spec["tolerations"] = [{"key": GPU, "operator": "Exists"}]
                spec["nodeName"] = next(places) if gpus else f"{one.flavor}-0"
                placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": time(one.started)}
                phase = "Succeeded" if one.ended is not None else "Running"
                status = {"phase": phase, "startTime": time(one.started), "conditions": [placed]}
                state = {"running": {"startedAt": time(one.started)}}
                if one.ended is not None:
                    state = {
                        "terminated": {"exitCode": 0, "startedAt": time(one.started), "finishedAt": time(one.ended)}
                    }
                status["containerStatuses"] = [{"name": "main", "state": state}]
            about = {"ownerReferences": _owned(chain[-1])} if chain else {}
            yield _object("v1", "Pod", f"{base}-{pod_set}-{number if one.kind != 'Pod' else k}", namespace, spec, made,
                          labels=labels, annotations=notes, **about) | {"status": status}  # fmt: skip
            number += 1


def _written_workload(one, version, owners):
    namespace, name = one.name.split("/")
    names = {value: title for title, value in PRIORITIES.items()}
    sets = [{"name": title, "count": count, "template": {"metadata": {}, "spec": _template(one, gpus=gpus)}}
            for title, count, gpus in _sets(one)]  # fmt: skip
    spec = {"queueName": "main", "priority": one.priority, "active": one.active, "podSets": sets}
    if version == "v1beta2":
        spec["priorityClassRef"] = {
            "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": names[one.priority]}  # fmt: skip
    else:
        spec |= {
            "priorityClassName": names[one.priority],
            "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
        }
    status = {"conditions": list(_conditions(one))}
    if one.admitted is not None:
        status["admission"] = {"clusterQueue": one.queue, "podSetAssignments": [
            {"name": title, "count": count, "flavors": {GPU: one.flavor} if gpus else {},
             "resourceUsage": {GPU: str(count * gpus)} if gpus else {}}
            for title, count, gpus in _sets(one)]}  # fmt: skip
    if one.evictions:
        status["schedulingStats"] = {"evictions": [
            {"reason": "Preempted", "underlyingCause": "", "count": one.evictions}]}  # fmt: skip
    return _object(f"kueue.x-k8s.io/{version}", "Workload", name, namespace, spec, one.created,
                   ownerReferences=owners) | {"status": status}  # fmt: skip


def _conditions(one):
    def condition(kind, at, reason, *, holds=True):
        return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": "",
                "lastTransitionTime": time(at), "observedGeneration": 1}  # fmt: skip

    if one.evictions:
        at = one.admitted if one.admitted is not None else min(one.created + 60, DAY)
        yield condition("Evicted", at, "Preempted", holds=one.admitted is None)
        yield condition("Preempted", at, "InCohortReclamation", holds=one.admitted is None)
        yield condition("Requeued", at, "Preempted")
    if one.admitted is None:
        message = "Inadmissible" if not one.active else "Pending"
        yield condition("QuotaReserved", one.created, message, holds=False)
        return
    yield condition("QuotaReserved", one.admitted, "QuotaReserved")
    yield condition("Admitted", one.admitted, "Admitted")
    yield condition("PodsReady", one.started, "Started")
    if one.ended is not None:
        yield condition("Finished", one.ended, "Succeeded")
