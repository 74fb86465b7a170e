"""A Kubernetes cluster's own lists: what `kubectl get pods,nodes -A -o json` prints, in one file or several.

A pod is a job. Pods of one pod group that ask for the same are one job, a gang; those that ask for different things
are jobs of one job. A list is a snapshot: pods that were deleted before it was taken are in none.

In the rejects, `line` is the line on which the object begins, and the reason ends with the object's name: some tools
write all of a list on one line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, Trace, TraceError, Workload
from fleetlab.core.cluster import SCHEMA as CLUSTER
from fleetlab.core.schedulers import Scheduler
from fleetlab.schedulers.kubernetes.config import KubeScheduler, SchedulingNode
from fleetlab.schedulers.kubernetes.reader.claims import KINDS as DEVICES
from fleetlab.schedulers.kubernetes.reader.claims import TABLE as DEVICES_TABLE
from fleetlab.schedulers.kubernetes.reader.claims import Devices
from fleetlab.schedulers.kubernetes.reader.gang_schedulers import gang_scheduler_of
from fleetlab.schedulers.kubernetes.reader.gangs import Row, gangs_of, jobs_of, placements_of, row_of
from fleetlab.schedulers.kubernetes.reader.jobs import TABLE as JOBS
from fleetlab.schedulers.kubernetes.reader.jobs import JobTimes
from fleetlab.schedulers.kubernetes.reader.kueue import configurations
from fleetlab.schedulers.kubernetes.reader.kueue_snapshot import LISTED, KueueInventory
from fleetlab.schedulers.kubernetes.reader.kueue_snapshot import TABLE as KUEUE_OBJECTS
from fleetlab.schedulers.kubernetes.reader.nodes import Fleet, Node, kubelet_version, node_of
from fleetlab.schedulers.kubernetes.reader.objects import HINT, KIND, YAML, MalformedObject, Object, items, members
from fleetlab.schedulers.kubernetes.reader.pod_specs import Parallelisms, Spec, node_spec, spec_series
from fleetlab.schedulers.kubernetes.reader.pods import Pod, pod_of
from fleetlab.schedulers.kubernetes.reader.requests import unknown_resources
from fleetlab.schedulers.kubernetes.reader.scheduler_config import is_scheduler, scheduler_in
from fleetlab.schedulers.kubernetes.reader.scheduling import scheduling_pod, unread_namespaces
from fleetlab.schedulers.kubernetes.reader.selectors import features_of
from fleetlab.schedulers.kubernetes.reader.site_rules import READERS as RULES
from fleetlab.schedulers.kubernetes.reader.site_rules import TABLE as RULES_TABLE
from fleetlab.schedulers.kubernetes.reader.site_rules import Priorities, SiteRules, created_pod
from fleetlab.schedulers.kubernetes.reader.workloads import (
    PodSetSpec,
    QueuedWorkload,
    Workloads,
    is_workload,
    workload_of,
)
from fleetlab.schedulers.kubernetes.specs import ADMISSIONS, PARALLELISM
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import PEEK, Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake

TABLES = {
    "Pod": "pods", "Node": "nodes", "Job": JOBS, "Queue": "queues", "PodGroup": "pod groups",
    **dict.fromkeys(LISTED, KUEUE_OBJECTS), **dict.fromkeys(RULES, RULES_TABLE),
    **dict.fromkeys(DEVICES, DEVICES_TABLE),
}  # fmt: skip
# Objects that are no rows of a trace; of those that own pods, or owners of pods, it is noted what made them.
OWNERS = (
    "JobSet", "PyTorchJob", "TrainJob", "RayJob", "RayCluster", "AppWrapper", "LeaderWorkerSet", "SparkApplication",
    "StatefulSet", "ReplicaSet", "Deployment",
)  # fmt: skip
PASSED_OVER = (*OWNERS, "Event", "Namespace", "KubeSchedulerConfiguration")


@dataclass
class Inventory:
    """Everything that the files hold, by what it is; of what stands in several the last counts."""

    pods: dict[str, tuple[Pod, str, int]] = field(default_factory=dict)
    nodes: dict[str, tuple[Node, str, int]] = field(default_factory=dict)
    scheduler: Scheduler | None = None
    specs: dict[str, Spec] = field(default_factory=dict)  # of pods, by their uid
    node_specs: dict[str, SchedulingNode] = field(default_factory=dict)
    rules: SiteRules = field(default_factory=SiteRules)
    jobs: JobTimes = field(default_factory=JobTimes)
    kueue: KueueInventory = field(default_factory=KueueInventory)
    workloads: Workloads = field(default_factory=Workloads)
    devices: Devices = field(default_factory=Devices)
    parallelism: Parallelisms = field(default_factory=Parallelisms)
    queues: dict[str, Object] = field(default_factory=dict)  # of Volcano or KAI
    listed: dict[tuple[str, str], tuple[object, str, int]] = field(default_factory=dict)  # Jobs, queues and pod groups
    unread: set[str] = field(default_factory=set)  # pods that choose namespaces of other pods by labels
    version: tuple[int, int] = (0, 0)  # of the latest kubelet
    groups: set[str] = field(default_factory=set)  # names of their pod groups: pods say which they are of


def read(path: Path, intake: Intake) -> Trace:
    """Read one file or all of a folder; nodes are also looked for in the files beside."""
    files, others, scheduler = _files(path)
    lists = Inventory(scheduler=scheduler)
    for source in files:
        _collect(source, lists, intake, only=None)
    _queues(lists, intake)
    if not lists.nodes and not path.is_dir():
        for source in (s for s in sources(path.parent) if _first_kind(s) == "Node"):
            _collect(source, lists, intake, only="Node")
    if not intake.rows.get("pods") and not lists.workloads.every:
        msg = f"{path.name}: contains no pods"
        raise TraceError(msg, hint=HINT)
    return _trace(path, lists, others, intake)


def _trace(path: Path, lists: Inventory, others: list[str], intake: Intake) -> Trace:
    _count_devices(lists)
    unknown_classes = _resolve_priorities(lists)
    requests = _pod_requests(lists, intake)
    cluster = _cluster(lists, [pod for pod, _, _, _ in requests], intake)
    rows = _rows(requests, lists, intake)
    gangs = gangs_of(rows)
    jobs, zero = relative_to_first(jobs_of(gangs))
    jobs = jobs.with_columns(job=pl.int_range(pl.len(), dtype=pl.Int64))
    source = f"kubernetes:{path.name}"
    frame = jobs.drop("name", "at", "job", "unsized", "least", "completions", "stretch", "workload", "set")
    unsized = jobs.filter("unsized").select("job")
    parts = jobs.filter(pl.col("least").is_not_null()).select("job", "least", "completions", count="instances")
    series = {"unsized": unsized, PARALLELISM: parts, ADMISSIONS: lists.workloads.admissions(jobs, zero)}
    workload = Workload.of(frame, source=source, epoch=zero if len(jobs) else None)
    if (jobs["stretch"] > 1).any():  # what they were seen to run, too, as with all of their pods
        seen = workload.frame["runtime_at_least"] / jobs["stretch"]
        workload = replace(workload, frame=workload.frame.with_columns(runtime_at_least=seen))
    if intake.rows.get("pods"):
        intake.keep("pods", sum(row["name"] is not None for row in rows))
    kueue, left_out = lists.kueue.site(lists.scheduler if isinstance(lists.scheduler, KubeScheduler) else None)
    site, ruled = lists.rules.site(
        kueue or lists.scheduler, [pod for pod, _ in lists.specs.values()], later=lists.version >= (1, 23)
    )
    if intake.rows.get(KUEUE_OBJECTS):
        intake.keep(KUEUE_OBJECTS, len(lists.kueue.objects) + len(lists.workloads.every))
    counts = {RULES_TABLE: len(lists.rules), JOBS: len(lists.jobs.jobs), DEVICES_TABLE: len(lists.devices.stored)}
    for table, kept in counts.items():
        if intake.rows.get(table):
            intake.keep(table, kept)
    nodes, budgets = lists.node_specs.values(), lists.rules.budgets
    specs = spec_series(gangs, jobs, lists.specs, nodes, budgets) if cluster is not None else {}
    return finish(
        intake,
        workload,
        source=source,
        cluster=cluster,
        scheduler=site,
        placements=placements_of(gangs, jobs, zero),
        names=jobs.select("job", "name").lazy(),
        series=specs | {name: of.lazy() for name, of in series.items() if of.height},
        notes=(
            *_notes(rows, lists, cluster),
            *unknown_classes,
            *left_out,
            *ruled,
            *lists.workloads.left_out({row["workload"] for row in rows}),
            *lists.parallelism.notes(int((jobs["stretch"] > 1).sum())),
            *others,
        ),
    )


# -- files and objects ---------------------------------------------------------------------------------------------


def _files(path: Path) -> tuple[list[SourceFile], list[str], KubeScheduler | None]:
    """The files with objects, those that are passed over, and what the scheduler's own configuration says."""
    every = sources(path)
    configured = [source for source in every if is_scheduler(Peek(source.path).beginning(source))]
    here = [source for source in every if source not in configured]
    readable = [source for source in here if _first_kind(source)]
    if not readable:
        _surface_damage(here)
        msg = f"{path.name}: contains no JSON list of pods"
        raise TraceError(msg, hint=HINT)
    passed = [source.name for source in here if source not in readable]
    notes = [f"not read: {', '.join(passed[:10])}"] if passed else []
    if len(configured) > 1:
        notes.append(f"of several configurations of kube-scheduler the first is read: {configured[0].name}")
    if not configured:
        return readable, notes, None
    try:
        return readable, notes, _scheduler(configured[0])
    except TraceError as e:  # pods and nodes can be read all the same
        return readable, [*notes, f"the configuration of kube-scheduler is left out: {e}"], None


def _scheduler(source: SourceFile) -> KubeScheduler:
    with source.open() as stream:
        return scheduler_in(stream.read(1 << 20).decode("utf-8", "replace"), source.name)


def _surface_damage(here: list[SourceFile]) -> None:
    """Raise what is wrong with the archives themselves, if that is why nothing was recognised."""
    for source in here:
        with source.open() as stream:
            stream.read(PEEK)


def _first_kind(source: SourceFile) -> str | None:
    """What a file's first object is, by its beginning; of a mere list, what its first element is."""
    return _kind_in(Peek(source.path).beginning(source))


def _kind_in(beginning: str) -> str | None:
    text = beginning.replace("\x00", "").lstrip("\ufeff\ufffd \t\r\n")
    if not text.startswith("{") and not YAML.search(text):
        return None
    kinds = KIND.findall(text)
    if re.search(r'"items"\s*:\s*\[\s*\]', text) and "List" in kinds:
        return "List"
    return next((k for kind in kinds if (k := kind.removesuffix("List")) in (*TABLES, *OWNERS, "ConfigMap")), None)


def _collect(source: SourceFile, lists: Inventory, intake: Intake, *, only: str | None) -> None:
    for number, (line, item, share) in enumerate(items(source)):
        lists.workloads.note(item)
        kind = _kind(item)
        if (only and kind != only) or kind in PASSED_OVER:
            continue
        if kind == "ConfigMap":
            for one in configurations(members(item, "ConfigMap")):
                intake.read(KUEUE_OBJECTS, 1)
                _store("Configuration", one, lists, source.name, line, intake)
            continue
        table = TABLES.get(kind, "other objects")
        intake.read(table, 1)
        if number % 1000 == 0:
            intake.progress(table, intake.rows[table], share)
        try:
            _store(kind, item, lists, source.name, line, intake)
        except MalformedObject as e:
            intake.reject(table, source.name, [(line, _of(_name(item), str(e)))])


def _name(item: object) -> str:
    """What an object is called, if that can be said."""
    about = item.get("metadata") if isinstance(item, dict) else None
    namespace, name = (about.get(key) for key in ("namespace", "name")) if isinstance(about, dict) else ("", "")
    if not isinstance(name, str) or not name:
        return ""
    return (f"{namespace}/{name}" if isinstance(namespace, str) and namespace else name)[:160]


def _of(name: str, reason: str) -> str:
    if not name or reason.endswith(name):
        return reason
    return str(MalformedObject(f"{reason} ({name})" if ": " in reason else f"{reason}: {name}"))


def _kind(item: object) -> str:
    """What an object is; lists of one kind do not say it of each, but a pod has containers and a node capacity."""
    if not isinstance(item, dict):
        return "nothing"
    if isinstance(item.get("kind"), str):
        gang = item["kind"] == "Workload" and not is_workload(item)
        return "Event" if gang else str(item["kind"])  # Kubernetes has a Workload too, which says of a gang what it is
    spec, status = item.get("spec"), item.get("status")
    if isinstance(spec, dict) and "containers" in spec:
        return "Pod"
    return "Node" if isinstance(status, dict) and {"capacity", "allocatable"} & status.keys() else "nothing"


def _store(kind: str, item: object, lists: Inventory, file: str, line: int, intake: Intake) -> None:
    if kind == "Pod":
        pod = pod_of(members(item, "pod"))
        _again(lists.pods.get(pod.key), "pods", pod.name, intake)
        lists.specs[pod.key] = scheduling_pod(members(item, "pod")), created_pod(members(item, "pod"))
        if unread_namespaces(members(item, "pod")):
            lists.unread.add(pod.key)
        lists.pods.pop(pod.key, None)
        lists.pods[pod.key] = (pod, file, line)
    elif kind == "Node":
        node = node_of(members(item, "node"))
        _again(lists.nodes.get(node.name), "nodes", node.name, intake)
        lists.node_specs[node.name] = node_spec(members(item, "node"))
        lists.nodes[node.name] = (node, file, line)
        lists.version = max(lists.version, kubelet_version(members(item, "node")))
    elif kind == "Job":
        lists.parallelism.store_job(members(item, "job"))
        _listed((JOBS, lists.jobs.store(members(item, "job"))), item, lists, (file, line), intake)
    elif kind in RULES:
        _again(lists.rules.store(members(item, "object"), _name(item), file, line), RULES_TABLE, _name(item), intake)
    elif kind in DEVICES:
        before = lists.devices.store(members(item, "object"), kind, _name(item), (file, line))
        _again(before, DEVICES_TABLE, _name(item), intake)
    elif kind == "Workload":
        one = workload_of(members(item, "object"))
        lists.parallelism.store_workload(one)
        _again(lists.workloads.store(one, file, line), KUEUE_OBJECTS, one.key, intake)
    elif kind in LISTED:
        _again(lists.kueue.store(members(item, "object"), file, line), KUEUE_OBJECTS, _name(item), intake)
    elif kind == "Queue":
        lists.queues[_name(item)] = members(item, "queue")
        _listed(("queues", _name(item)), item, lists, (file, line), intake)
    elif kind == "PodGroup":
        lists.groups.add(_name(item))
        _listed(("pod groups", _name(item)), item, lists, (file, line), intake)
    else:
        msg = f"neither a pod nor a node: {kind[:80]}"
        raise MalformedObject(msg)


def _listed(key: tuple[str, str], item: object, lists: Inventory, at: tuple[str, int], intake: Intake) -> None:
    """Note an object of a table, by its uid or name, and where it was last."""
    _again(lists.listed.get(key), key[0], _name(item), intake)
    lists.listed[key] = (None, *at)


def _queues(lists: Inventory, intake: Intake) -> None:
    """Volcano or KAI as the site's queues configure it, where nothing else does."""
    found = gang_scheduler_of(lists.queues.values())
    lists.scheduler = lists.scheduler or found
    for table, kept in (("queues", len(lists.queues)), ("pod groups", len(lists.groups))):
        if intake.rows.get(table):
            intake.keep(table, kept)


def _again(before: tuple[object, str, int] | None, table: str, name: str, intake: Intake) -> None:
    if before:
        intake.reject(table, before[1], [(before[2], f"superseded by a later object of the same name: {name}")])


# -- what is in them ------------------------------------------------------------------------------------------------


def _count_devices(lists: Inventory) -> None:
    """Give pods the GPUs of their claims, and nodes those of their slices: these may be in a later file."""
    for key, (pod, file, line) in lists.pods.items():
        lists.pods[key] = lists.devices.charge(pod), file, line
    for name, (node, file, line) in lists.nodes.items():
        lists.nodes[name] = lists.devices.offer(node), file, line


def _resolve_priorities(lists: Inventory) -> list[str]:
    """Give pods the priority of their class where they say none: classes may be in a later file than pods."""
    priorities = Priorities(lists.rules.classes)
    for key, (pod, file, line) in lists.pods.items():
        resolved, lists.specs[key] = priorities.resolve(pod, lists.specs[key])
        lists.pods[key] = (resolved, file, line)
    return priorities.notes()


# A pod as its user wrote it, or one that stands for those of a set; its Workload and set; where it is listed.
PodRequest = tuple[Pod, QueuedWorkload | None, PodSetSpec | None, tuple[str, int] | None]


def _pod_requests(lists: Inventory, intake: Intake) -> list[PodRequest]:
    """All pods as their users wrote them, and one for each set of a Workload of which the list has none."""
    # Kueue suspends Jobs, and tells itself since when they wait.
    jobs = JobTimes() if lists.workloads.every else lists.jobs
    wanted = jobs.with_submissions(pod for pod, _, _ in lists.pods.values())
    requests: list[PodRequest] = []
    for key, (_, file, line) in lists.pods.items():
        pod, workload = wanted[key], lists.workloads.of(wanted[key])
        of = None
        if workload is not None:
            scheduled, created = lists.specs[key]
            pod, scheduled, of = lists.workloads.as_requested(pod, workload, scheduled)
            lists.specs[key] = scheduled, created
        requests.append((pod, workload, of, (file, line)))
    added = lists.kueue.tolerations  # whatever flavor it gets, it tolerates what that says
    return [
        (pod if one is None else pod.tolerating(added), one, of, at)
        for pod, one, of, at in (*requests, *_without_pods(requests, lists, intake))
    ]


def _without_pods(requests: list[PodRequest], lists: Inventory, intake: Intake) -> Iterator[PodRequest]:
    seen = [(one.key, of.name) for _, one, of, _ in requests if one is not None and of is not None]
    some = {one.key for _, one, of, _ in requests if one is not None and of is None}  # pods of which no set is known
    for one, of, file, line in lists.workloads.without_pods(seen, some):
        if one.key not in lists.workloads.every:
            continue
        try:
            pod, item = one.pod(of)
            lists.specs[pod.key] = scheduling_pod(item), created_pod(item)
        except MalformedObject as e:
            del lists.workloads.every[one.key]
            intake.reject(KUEUE_OBJECTS, file, [(line, _of(one.key, str(e)))])
            continue
        yield lists.workloads.with_workload(lists.devices.charge(pod), one), one, of, None


def _cluster(lists: Inventory, pods: list[Pod], intake: Intake) -> Cluster | None:
    if not lists.nodes:
        return None
    keys = lists.kueue.label_keys | {key for pod in pods for key in pod.rules.keys}
    rows = [asdict(node) | {"node": node.name, "gpu_memory_mib": node.card.memory or 0 if node.gpus else 0,
                            "features": features_of(node, keys)}
            for node, _, _ in lists.nodes.values()]  # fmt: skip
    columns = {name: kind for name, kind in CLUSTER.items() if name not in ("partitions", "weight")}
    cluster = Cluster.of(
        pl.DataFrame([{k: row[k] for k in columns} for row in rows], schema=columns), source="kubernetes"
    )
    intake.keep("nodes", len(cluster))
    return cluster


def _rows(requests: list[PodRequest], lists: Inventory, intake: Intake) -> list[Row]:
    """Each pod with its demand; that some have none that can be only shows when all nodes are known."""
    fleet = Fleet(node for node, _, _ in lists.nodes.values())
    rows: list[Row] = []
    for pod, workload, of, at in requests:
        parallel = lists.parallelism.of(pod.owner)
        own = pod if parallel is None else replace(pod, gang=pod.gang or pod.owner)  # Kueue admits its pods together
        try:
            row = row_of(own, fleet)
        except MalformedObject as e:
            table, (file, line) = ("pods", at) if at else (KUEUE_OBJECTS, lists.workloads.every[_key(workload)][1:])
            intake.reject(table, file, [(line, _of(pod.name, str(e)))])
            continue
        row |= {
            "key": pod.key,
            "parallel": parallel,
            "name": pod.name if at else None,
            "workload": _key(workload) or None,
        }
        rows.append(row | {"set": of.name if of else None, "count": of.count if of else None})
    return rows


def _key(workload: QueuedWorkload | None) -> str:
    return workload.key if workload else ""


def _notes(rows: list[Row], lists: Inventory, cluster: Cluster | None) -> tuple[str, ...]:
    pods = [pod for pod, _, _ in lists.pods.values()]
    out = sum(node.out for node, _, _ in lists.nodes.values())
    size = "a list of nodes would give the size" if cluster is None else "the list of nodes does not give it"
    claims, pinned = sum(bool(pod.claims) for pod in pods), sum(pod.rules.left_out for pod in pods)
    rounded, unsized = (sum(row[name] for row in rows) for name in ("rounded", "unsized"))
    gone = sum(row["end"] is None and row["status"] not in ("running", "waiting") for row in rows)
    unknown = Counter(name for pod in pods for name in unknown_resources(pod))
    named = ", ".join(f"{name} ({k:,} pods)" for name, k in sorted(unknown.items(), key=lambda n: (-n[1], n[0]))[:20])
    notes = {
        "the list is a snapshot: pods deleted before it was taken are missing": True,
        f"{claims:,} pods request devices by ResourceClaims not in the list, or not of whole GPUs: not counted": claims,
        f"{pinned:,} pods select a node by its name, or by comparing numbers: read without that": pinned,
        f"{len(lists.unread):,} pods choose namespaces of others by labels that are not read: only their own counts": (
            lists.unread
        ),
        f"{rounded:,} pods request fractions of more than one GPU: counted as whole GPUs, rounded up": rounded,
        f"{unsized:,} pods request fractional GPUs of unknown size: counted as whole GPUs; {size}": unsized,
        f"{out:,} nodes were cordoned or not ready when the list was made: counted as available": out,
        f"{gone:,} pods ended at an unknown time: their runtime is unknown": gone,
        f"unknown resources, not counted: {named}": unknown,
        "no nodes in the list: `kubectl get nodes -o json` prints them": cluster is None,
    }
    return tuple(note for note, holds in notes.items() if holds)


def _fits(peek: Peek) -> bool:
    return any(_kind_in(peek.beginning(source)) for source in peek.files.values())


FORMAT = Format(
    name="kubernetes",
    title="Kubernetes' own lists of pods and nodes",
    expects="what `kubectl get pods,nodes -A -o json` prints, and of Kueue's objects, in a file or folder, or gzipped",
    licence="yours",
    origin="your cluster: kubectl(1)",
    read=read,
    fits=_fits,
    unpacks=True,
)
