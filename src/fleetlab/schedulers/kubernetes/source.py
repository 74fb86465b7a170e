"""Kubernetes, read by kubectl: its pods and nodes; a pod that is deleted is gone, so its last state is stored."""

from __future__ import annotations

import json
import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from fleetlab.core.errors import TraceError
from fleetlab.core.sources import (
    DOWN,
    DRAINED,
    ENDED,
    LONGEST_S,
    PRESENT,
    UNSEEN,
    UP,
    CollectOptions,
    Missing,
    Poll,
    Row,
    SourceError,
    ask,
    mark_of,
)
from fleetlab.schedulers.kubernetes.reader.collect import collect as by_kubectl
from fleetlab.schedulers.kubernetes.reader.pod_groups import pod_group
from fleetlab.schedulers.kubernetes.reader.pods import GONE

# The first cause that the message names counts: a resource that no node has at all before one that is in use.
REASONS = (
    ("SchedulingGated", r"SchedulingGated|scheduling is blocked due to non-empty scheduling gates"),
    ("InsufficientGPU", r"Insufficient (?:nvidia\.com|amd\.com|gpu\.intel\.com|aliyun\.com|volcano\.sh)/\S+"),
    ("InsufficientCPU", r"Insufficient cpu"),
    ("InsufficientMemory", r"Insufficient memory"),
    ("InsufficientResource", r"Insufficient |Too many pods"),
    ("PodTopologySpread", r"topology spread constraints"),
    ("PodAffinity", r"pod (?:anti-)?affinity"),
    ("NodeAffinity", r"node (?:affinity|selector)|node\(s\) didn't match"),
    ("Taint", r"taint"),
    ("NodeNotReady", r"not ready|unschedulable|no nodes available"),
    ("Volume", r"volume|PersistentVolumeClaim|persistentvolumeclaim"),
    ("PodGroup", r"gang|pod ?group|PodGroup"),
)
NOT_LOOKED_AT, UNSCHEDULABLE = "NotYetScheduled", "Unschedulable"


def wait_reason(pod: dict[str, Any]) -> str:
    """Return why a pod that is not bound waits.

    >>> status = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    >>> status["message"] = "0/9 nodes are available: 3 Insufficient nvidia.com/gpu, 6 node(s) had taint {a: b}."
    >>> wait_reason({"status": {"conditions": [status]}}), wait_reason({})
    ('InsufficientGPU', 'NotYetScheduled')
    """
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if isinstance(condition, dict) and condition.get("type") == "PodScheduled":
            message = f"{condition.get('reason')} {condition.get('message')}"
            return next((name for name, form in REASONS if re.search(form, message)), UNSCHEDULABLE)
    return NOT_LOOKED_AT


ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 500  # objects of one answer
Object = dict[str, Any]


class Api(Protocol):
    """Something that answers a GET."""

    def get(self, path: str) -> str:
        """Return the body of the answer; SourceError if there is none."""

    def server(self) -> str:
        """Return the address of the cluster, without name or password."""


class Kubectl:
    """kubectl, with its own configuration or another."""

    def __init__(self, kubeconfig: Path | None, context: str | None) -> None:
        self._words = ["kubectl"]
        self._words += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
        self._words += [f"--context={context}"] if context else []

    def get(self, path: str) -> str:
        """Ask by `kubectl get --raw`."""
        return ask([*self._words, "--request-timeout=50s", "get", "--raw", path])

    def server(self) -> str:
        """Return the address of the cluster, without name or password."""
        view = ask([*self._words, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"])
        return view.strip() or "kubernetes"


class InPod:
    """The API server of the cluster that this process is a pod of."""

    def __init__(self, account: Path = ACCOUNT, url: str | None = None) -> None:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        host = f"[{host}]" if ":" in host else host
        self._account, self._url = account, url or f"https://{host}:{port}"

    def get(self, path: str) -> str:
        """Ask with the token of the service account, which is renewed on disk now and then."""
        try:
            token = (self._account / "token").read_text("ascii").strip()
            context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
            request = Request(self._url + path, headers={"Authorization": f"Bearer {token}"})
            with urlopen(request, timeout=LONGEST_S, context=context) as answer:
                return str(answer.read().decode("utf-8", "replace"))
        except URLError as e:
            raise SourceError(str(e)) from None
        except (OSError, ValueError) as e:
            raise SourceError(getattr(e, "strerror", None) or str(e)) from None

    def server(self) -> str:
        """Return the address of the cluster."""
        return self._url


def api_of(kubeconfig: Path | None, context: str | None) -> Kubectl | InPod:
    """Return the API server of the pod that this runs in, if it is one and nothing else is named."""
    named = kubeconfig or context or os.environ.get("KUBECONFIG")
    inside = os.environ.get("KUBERNETES_SERVICE_HOST") and (ACCOUNT / "token").is_file()
    return InPod() if inside and not named else Kubectl(kubeconfig, context)


def items(api: Api, path: str, selector: str = "") -> Iterator[Object]:
    """Yield the objects of a list, page by page; the list is that of one moment."""
    words, more = f"limit={PAGE}" + (f"&fieldSelector={quote(selector)}" if selector else ""), ""
    while True:
        text = api.get(f"{path}?{words}" + (f"&continue={quote(more)}" if more else ""))
        listed, about = _items(text, path)
        yield from (item for item in listed if isinstance(item, dict))
        more = about.get("continue") or ""
        if not more:
            return


def _items(text: str, path: str) -> tuple[list[Any], Object]:
    """Return the objects of an answer and what it says of the list; a server may write no objects as null."""
    try:
        answer = json.loads(text)
        listed, about = answer["items"], answer.get("metadata") or {}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        listed, about = "", {}
    if not isinstance(listed, list | None) or not isinstance(about, dict):
        raise SourceError(f"{path}: no JSON list: {' '.join(text.split())[:80] or 'nothing'}")
    return listed or [], about


OVER = ("Succeeded", "Failed")
SPEC = ("nodeName", "priority", "priorityClassName", "schedulerName", "nodeSelector", "affinity", "tolerations",
        "overhead", "resources", "resourceClaims")  # fmt: skip
ABOUT = ("name", "namespace", "uid", "creationTimestamp", "labels", "ownerReferences", "deletionTimestamp")
LONGEST = 256  # characters of an annotation: what tells of scheduling is short, and others may hold secrets
CONDITION = ("type", "status", "reason", "lastTransitionTime")
CLOSE_POLLS = 3  # polls: a pod that vanishes between two of them, no further apart, ended halfway
KILLED = "involvedObject.kind=Pod,reason=Killing"


class KubernetesSource:
    """A Kubernetes cluster."""

    format: ClassVar[str] = "kubernetes"
    parts: ClassVar[tuple[str, ...]] = ("pods", "nodes")
    hint: ClassVar[str] = "`kubectl get pods -A` must work here, or --kubeconfig and --context say how"
    queue: ClassVar[tuple[str, ...]] = ("queue", "user")
    team: ClassVar[str] = "user"  # the reader keeps the namespace there

    def __init__(self, api: Api, clock: Callable[[], float] = time.time) -> None:
        self._api, self._clock = api, clock

    @classmethod
    def at(cls, kubeconfig: Path | None = None, context: str | None = None) -> Self:
        """Return the cluster of kubectl, or of the pod that this runs in."""
        return cls(api_of(kubeconfig, context))

    @staticmethod
    def collect(out: Path, options: CollectOptions, say: Callable[[str], None]) -> None:
        """Gather a site's log and rules in a folder, by kubectl."""
        there = by_kubectl(out, context=options.context, config_map=options.scheduler_config, say=say)
        say(f"gathered in {out}: {', '.join(f'{n:,} {kind}' for kind, n in there.objects.items())}")

    @staticmethod
    def script() -> str:
        """Refuse: kubectl does it."""
        msg = "there is no script for kubernetes"
        raise TraceError(msg, hint="`fleetlab collect kubernetes --out DIR` gathers by kubectl")

    def name(self) -> str:
        """Return the address of the API server, after it has answered."""
        self._api.get("/api/v1/nodes?limit=1")
        return self._api.server()

    def poll(self, begun: float, accounted: float) -> Poll:
        """List pods and nodes."""
        poll = Poll(self._clock())
        poll.accounted = poll.at
        for part, look in (("pods", self._pods), ("nodes", self._nodes)):
            try:
                look(poll)
            except SourceError as e:
                poll.failures[part] = str(e)
        return poll

    def _pods(self, poll: Poll) -> None:
        rows = [_row(pod) for pod in items(self._api, "/api/v1/pods")]
        for row in rows:
            if row.key:
                poll.add(row)
        poll.listed = True

    def _nodes(self, poll: Poll) -> None:
        nodes = [stripped_node(node) for node in items(self._api, "/api/v1/nodes")]
        poll.nodes = json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": nodes})
        poll.nodes_mark = mark_of(*({**node, "spec": {}} for node in nodes))
        poll.states = {node["metadata"]["name"]: _state(node) for node in nodes}

    def resolve(self, poll: Poll, missing: Mapping[str, Missing], every: float) -> None:
        """Say when deleted pods ended: when they were killed, or between two polls, or nobody knows."""
        if not missing:
            return
        killed: dict[str, float] = {}
        try:
            killed = _killed(items(self._api, "/api/v1/events", KILLED))
        except SourceError as e:
            poll.failures["events"] = str(e)
        for key, job in missing.items():
            close = poll.at - job.last_seen <= CLOSE_POLLS * max(every, 1.0)
            at = killed.get(key, (job.last_seen + poll.at) / 2 if close else None)
            poll.add(
                Row(
                    key,
                    UNSEEN if at is None else ENDED,
                    _deleted_pod(job.data, at),
                    last_seen=job.last_seen if at is None else None,
                )
            )

    def site(self, folder: Path) -> None:
        """There is none: all that matters is in pods and nodes."""

    # -- for the reader ------------------------------------------------------------------------------------------------

    @staticmethod
    def job_names(row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return namespace and name, and those of its pod group: pods of one that ask for the same are one job."""
        about = row["metadata"]
        tags = {**_dict(about.get("labels")), **_dict(about.get("annotations"))}
        names = filter(None, (about["name"], pod_group(tags)))
        return tuple(f"{about.get('namespace') or 'default'}/{name}" for name in names)

    @staticmethod
    def write_log(rows: Iterable[Mapping[str, Any]], nodes: str, folder: Path) -> None:
        """Write a list of pods and a list of nodes, as kubectl prints them."""
        with (folder / "pods.json").open("w", encoding="utf-8") as out:
            out.write('{"apiVersion":"v1","kind":"PodList","items":[')
            for number, row in enumerate(rows):
                out.write(",\n" if number else "\n")
                json.dump(row, out)
            out.write("\n]}\n")
        if nodes:
            (folder / "nodes.json").write_text(nodes, "utf-8")


def _row(pod: Object) -> Row:
    stripped = stripped_pod(pod)
    about, spec, status = stripped["metadata"], stripped["spec"], stripped["status"]
    waits = status.get("phase") == "Pending" and not spec.get("nodeName")
    reason = wait_reason(pod) if waits else ""
    rank = ENDED if status.get("phase") in OVER else PRESENT
    return Row(about.get("uid") or "", rank, stripped, mark_of(spec, status, about.get("labels"), reason), reason)


def stripped_pod(pod: Object) -> Object:
    """Return what tells of scheduling: no environment, no commands, no volumes, no images."""
    about, spec, status = (_dict(pod.get(key)) for key in ("metadata", "spec", "status"))
    short = {k: v for k, v in _dict(about.get("annotations")).items() if isinstance(v, str) and len(v) <= LONGEST}
    over = status.get("phase") in OVER
    types = ("PodScheduled", "DisruptionTarget", "Ready") if over else ("PodScheduled", "DisruptionTarget")
    conditions = [_only(c, CONDITION) for c in _list(status.get("conditions")) if c.get("type") in types]
    stripped: Object = {
        "kind": "Pod",
        "metadata": _only(about, ABOUT) | ({"annotations": short} if short else {}),
        "spec": _only(spec, SPEC)
        | {"containers": [_only(c, ("resources",)) for c in _list(spec.get("containers"))]}
        | {"initContainers": [_only(c, ("resources", "restartPolicy")) for c in _list(spec.get("initContainers"))]},
        "status": _only(status, ("phase", "startTime")) | {"conditions": conditions},
    }
    if over:
        ended = [_only(c, ("state",)) for c in _list(status.get("containerStatuses"))]
        stripped["status"]["containerStatuses"] = [{"state": _ended(c.get("state"))} for c in ended]
    return stripped


def _ended(state: object) -> Object:
    return {"terminated": _only(_dict(_dict(state).get("terminated")), ("finishedAt", "exitCode"))}


def stripped_node(node: Object) -> Object:
    """Return what a node has, and whether it takes pods."""
    about, spec, status = (_dict(node.get(key)) for key in ("metadata", "spec", "status"))
    ready = [_only(c, ("type", "status")) for c in _list(status.get("conditions")) if c.get("type") == "Ready"]
    return {
        "kind": "Node",
        "metadata": {"name": str(about.get("name") or ""), **_only(about, ("labels",))},
        "spec": _only(spec, ("unschedulable", "taints")),
        "status": _only(status, ("capacity", "allocatable")) | {"conditions": ready},
    }


def _state(node: Object) -> str:
    """Tell whether a node takes pods: one that is not ready is down, one that is cordoned is drained."""
    conditions = node["status"]["conditions"]
    if conditions and not any(c.get("status") == "True" for c in conditions):
        return DOWN
    return DRAINED if node["spec"].get("unschedulable") else UP


def _deleted_pod(pod: Mapping[str, Any], at: float | None) -> Object:
    """Return the row of a deleted pod, with when it ended; empty where nobody knows."""
    stamp = "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = pod["metadata"]
    notes = {**_dict(about.get("annotations")), GONE: stamp}
    return {**pod, "metadata": {**about, "annotations": notes}}


def _killed(events: Iterable[Object]) -> dict[str, float]:
    """Return when pods were killed, by uid, as far as events of it are still there."""
    times: dict[str, float] = {}
    for event in events:
        uid = _dict(event.get("involvedObject")).get("uid")
        stamp = event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp")
        try:
            at = datetime.fromisoformat(str(stamp)).timestamp()
        except ValueError:
            continue
        if isinstance(uid, str):
            times[uid] = max(at, times.get(uid, 0.0))
    return times


def _only(value: object, keys: Iterable[str]) -> Object:
    return {key: value[key] for key in keys if value.get(key) is not None} if isinstance(value, dict) else {}


def _dict(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Object]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
