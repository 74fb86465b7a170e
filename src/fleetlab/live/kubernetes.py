"""Kubernetes, asked for its pods and nodes; a pod that is deleted is gone, so its last row is kept with the time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from fleetlab.live.commands import SourceError
from fleetlab.live.kube_api import Api, items
from fleetlab.live.kube_reasons import wait_reason
from fleetlab.live.rows import DOWN, DRAINED, ENDED, PRESENT, UNSEEN, UP, Poll, Row, mark_of
from fleetlab.live.sources import Missing
from fleetlab.traces.kubernetes.pod_groups import pod_group
from fleetlab.traces.kubernetes.pods import GONE

OVER = ("Succeeded", "Failed")
SPEC = ("nodeName", "priority", "priorityClassName", "schedulerName", "nodeSelector", "affinity", "tolerations",
        "overhead", "resources", "resourceClaims")  # fmt: skip
ABOUT = ("name", "namespace", "uid", "creationTimestamp", "labels", "ownerReferences", "deletionTimestamp")
LONGEST = 256  # characters of an annotation: what tells of scheduling is short, and others may hold secrets
CONDITION = ("type", "status", "reason", "lastTransitionTime")
WELL_SEEN = 3  # polls: a pod that vanishes between two of them, no further apart, ended halfway
KILLED = "involvedObject.kind=Pod,reason=Killing"

Object = dict[str, Any]


class KubernetesSource:
    """A Kubernetes cluster."""

    format: ClassVar[str] = "kubernetes"
    parts: ClassVar[tuple[str, ...]] = ("pods", "nodes")

    def __init__(self, api: Api, clock: Callable[[], float] = time.time) -> None:
        self._api, self._clock = api, clock

    def name(self) -> str:
        """Return the address of the API server, after it has answered."""
        self._api.get("/api/v1/nodes?limit=1")
        return self._api.server()

    def poll(self, begun: float, accounted: float) -> Poll:
        """List pods and nodes."""
        found = Poll(self._clock())
        found.accounted = found.at
        for part, look in (("pods", self._pods), ("nodes", self._nodes)):
            try:
                look(found)
            except SourceError as e:
                found.failures[part] = str(e)
        return found

    def _pods(self, found: Poll) -> None:
        rows = [_row(pod) for pod in items(self._api, "/api/v1/pods")]
        for row in rows:
            if row.key:
                found.add(row)
        found.listed = True

    def _nodes(self, found: Poll) -> None:
        nodes = [stripped_node(node) for node in items(self._api, "/api/v1/nodes")]
        found.nodes = json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": nodes})
        found.nodes_mark = mark_of(*({**node, "spec": {}} for node in nodes))
        found.states = {node["metadata"]["name"]: _state(node) for node in nodes}

    def resolve(self, found: Poll, missing: Mapping[str, Missing], every: float) -> None:
        """Say when deleted pods ended: when they were killed, or between two polls, or nobody knows."""
        if not missing:
            return
        killed: dict[str, float] = {}
        try:
            killed = _killed(items(self._api, "/api/v1/events", KILLED))
        except SourceError as e:
            found.failures["events"] = str(e)
        for key, job in missing.items():
            close = found.at - job.seen <= WELL_SEEN * max(every, 1.0)
            at = killed.get(key, (job.seen + found.at) / 2 if close else None)
            found.add(
                Row(key, UNSEEN if at is None else ENDED, _gone(job.data, at), seen=job.seen if at is None else None)
            )

    def site(self, folder: Path) -> None:
        """There is none: all that matters is in pods and nodes."""

    # -- for the reader ------------------------------------------------------------------------------------------------

    @staticmethod
    def job_names(row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return namespace and name, and those of its pod group: pods of one that ask for the same are one job."""
        about = row["metadata"]
        told = {**_dict(about.get("labels")), **_dict(about.get("annotations"))}
        names = filter(None, (about["name"], pod_group(told)))
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
    kept = stripped_pod(pod)
    about, spec, status = kept["metadata"], kept["spec"], kept["status"]
    waits = status.get("phase") == "Pending" and not spec.get("nodeName")
    reason = wait_reason(pod) if waits else ""
    rank = ENDED if status.get("phase") in OVER else PRESENT
    return Row(about.get("uid") or "", rank, kept, mark_of(spec, status, about.get("labels"), reason), reason)


def stripped_pod(pod: Object) -> Object:
    """Return what tells of scheduling: no environment, no commands, no volumes, no images."""
    about, spec, status = (_dict(pod.get(key)) for key in ("metadata", "spec", "status"))
    short = {k: v for k, v in _dict(about.get("annotations")).items() if isinstance(v, str) and len(v) <= LONGEST}
    over = status.get("phase") in OVER
    types = ("PodScheduled", "DisruptionTarget", "Ready") if over else ("PodScheduled", "DisruptionTarget")
    conditions = [_only(c, CONDITION) for c in _list(status.get("conditions")) if c.get("type") in types]
    kept: Object = {
        "kind": "Pod",
        "metadata": _only(about, ABOUT) | ({"annotations": short} if short else {}),
        "spec": _only(spec, SPEC)
        | {"containers": [_only(c, ("resources",)) for c in _list(spec.get("containers"))]}
        | {"initContainers": [_only(c, ("resources", "restartPolicy")) for c in _list(spec.get("initContainers"))]},
        "status": _only(status, ("phase", "startTime")) | {"conditions": conditions},
    }
    if over:
        ended = [_only(c, ("state",)) for c in _list(status.get("containerStatuses"))]
        kept["status"]["containerStatuses"] = [{"state": _ended(c.get("state"))} for c in ended]
    return kept


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


def _gone(pod: Mapping[str, Any], at: float | None) -> Object:
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
