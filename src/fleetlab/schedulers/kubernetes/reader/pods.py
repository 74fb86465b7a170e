"""Pods: who made them, when, how they ended, and what their containers ask for, as written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from fleetlab.schedulers.kubernetes.config import Toleration
from fleetlab.schedulers.kubernetes.reader.nodes import MODELS, amounts
from fleetlab.schedulers.kubernetes.reader.objects import (
    MalformedObject,
    Object,
    elements,
    members,
    moment,
    quantity,
    whole,
    words,
)
from fleetlab.schedulers.kubernetes.reader.pod_groups import first_of, pod_group, pod_rank
from fleetlab.schedulers.kubernetes.reader.selectors import NodeRules, rules_of

STATUS = {
    "Succeeded": "completed",
    "Failed": "failed",
    "Running": "running",
    "Pending": "waiting",
    "Unknown": "running",
}
# The queue that a pod waits in: Kueue, Volcano, KAI and Run:ai.
QUEUES = ("kueue.x-k8s.io/queue-name", "scheduling.volcano.sh/queue-name", "kai.scheduler/queue", "runai/queue")
APPS = ("app.kubernetes.io/name", "app", "k8s-app")
MIRROR = "kubernetes.io/config.mirror"  # of a static pod: made when the kubelet first reached the API server
# Of a pod that was deleted before it ended, when that was, as `fleetlab watch` writes it; empty: nobody saw it.
GONE = "fleetlab/gone"
# Pods that hold a GPU in whole for those that share it, which ask for their parts themselves.
PLACEHOLDERS = ("kai-resource-reservation", "runai-reservation")
# What a Deployment and a CronJob append to the name of what they make: a hash of the template, the time of a run.
_APPENDED = {"ReplicaSet": re.compile(r"-[a-z0-9]{5,10}$"), "Job": re.compile(r"-\d{8,10}$")}
_OF_CONTAINER = re.compile(r"nvidia\.com/container\..+\.gpu-memory\.request")

Requests = dict[str, Fraction]


@dataclass(frozen=True)
class FractionalRequest:
    """A share of GPUs asked for by annotation, as KAI and Run:ai have it."""

    share: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)  # MiB
    devices: Fraction = Fraction(1)


@dataclass(frozen=True)
class Pod:
    """A pod as far as a trace goes; what it asks of GPUs depends on nodes, and stays as it was written until then."""

    key: str  # its uid
    name: str  # with its namespace
    namespace: str
    owner: str  # uid of what made it, or its own
    group: str | None
    app: str | None
    gang: str | None
    rank: str  # which pod of the gang it is, where that is said
    node: str
    priority: int | None  # None: as its class says
    submit: float
    start: float | None
    end: float | None
    status: str
    containers: tuple[Requests, ...]
    inits: tuple[tuple[Requests, bool], ...]  # and whether it stays: a sidecar
    besides: Requests  # overhead
    instead: Requests  # asked for by the pod as such
    fractions: FractionalRequest
    selects: tuple[tuple[str, str], ...]
    queue: str | None
    rules: NodeRules
    claims: tuple[tuple[str, str], ...]  # of devices: the template and the name of each

    def tolerating(self, more: Iterable[Toleration]) -> Pod:
        """Return the pod with more that it tolerates: what is given, and nodes set apart for what it requests.

        The latter is what the admission plugin ExtendedResourceToleration adds when a pod is created.
        """
        named = {name for one in self.containers for name, amount in one.items() if amount and "/" in name}
        own = (*self.rules.tolerations, *more, *(Toleration(name, None, "") for name in sorted(named)))
        return replace(self, rules=replace(self.rules, tolerations=tuple(dict.fromkeys(own))))


def pod_of(item: Object) -> Pod:
    """Read one pod; Malformed says what is wrong with it."""
    about = members(item.get("metadata"), "metadata")
    spec, status = members(item.get("spec"), "spec"), members(item.get("status"), "status")
    labels = members(about.get("labels"), "metadata.labels")
    notes = members(about.get("annotations"), "metadata.annotations")
    namespace, name = words(about.get("namespace"), "metadata.namespace"), words(about.get("name"), "metadata.name")
    if not name:
        raise MalformedObject(_NO_NAME)
    if namespace in PLACEHOLDERS:
        msg = f"a placeholder that reserves a GPU for pods counted separately: {namespace}/{name}"
        raise MalformedObject(msg)
    full = f"{namespace or 'default'}/{name}"
    key = words(about.get("uid"), "metadata.uid") or full
    owner = controller_of(about)
    return Pod(
        key=key,
        name=full,
        namespace=namespace or "default",
        owner=words(owner.get("uid"), "metadata.ownerReferences.uid") or key,
        group=recurring_name(owner) or None,
        app=first_of(labels, APPS) or None,
        gang=pod_group({**labels, **notes}) or None,
        rank=pod_rank({**labels, **notes}),
        node=words(spec.get("nodeName"), "spec.nodeName"),
        priority=_priority(spec),
        **_times(about, status, notes),
        containers=tuple(
            requests_of(c, "spec.containers") for c in elements(spec.get("containers"), "spec.containers")
        ),
        inits=tuple(_init(c) for c in elements(spec.get("initContainers"), "spec.initContainers")),
        besides=amounts(spec.get("overhead"), "spec.overhead"),
        instead=requests_of(spec, "spec") if spec.get("resources") is not None else {},
        fractions=_fractions(notes),
        selects=tuple(selects_of(spec)),
        queue=first_of({**labels, **notes}, QUEUES) or None,
        rules=rules_of(spec),
        claims=tuple(_claims(spec, status)),
    )


def _claims(spec: Object, status: Object) -> Iterable[tuple[str, str]]:
    """The template and the name of each claim of devices; releases before 1.31 had both under `source`."""
    where = "resourceClaims"
    made = [members(one, where) for one in elements(status.get("resourceClaimStatuses"), "resourceClaimStatuses")]
    names = {words(one.get("name"), where): words(one.get("resourceClaimName"), where) for one in made}
    for one in elements(spec.get(where), where):
        claim = members(one, where)
        source = members(claim.get("source"), where) or claim
        template, name = (words(source.get(key), where) for key in ("resourceClaimTemplateName", "resourceClaimName"))
        yield template, name or names.get(words(claim.get("name"), where), "")


_NO_NAME = "no `metadata.name`"


def _priority(spec: Object) -> int | None:
    if spec.get("priority") is None:
        return None
    return max(-(2**31), min(2**31 - 1, whole(spec["priority"], "spec.priority")))


def controller_of(about: Object) -> Object:
    """Return the reference to what made an object; empty: nothing did."""
    owners = [
        members(o, "metadata.ownerReferences")
        for o in elements(about.get("ownerReferences"), "metadata.ownerReferences")
    ]
    # A static pod's owner is its node, which says only where it runs.
    owners = [owner for owner in owners if owner.get("kind") != "Node"]
    return next((o for o in owners if o.get("controller") is True), owners[0] if owners else {})


def recurring_name(owner: Object) -> str:
    """What made it, by the name that stays from one time to the next."""
    kind, name = (words(owner.get(key), f"metadata.ownerReferences.{key}") for key in ("kind", "name"))
    return _APPENDED[kind].sub("", name) if kind in _APPENDED else name


# -- what it asks for ----------------------------------------------------------------------------------------------


def requests_of(holder: object, where: str) -> Requests:
    """Requests; what is only limited is requested as much, which is what the API server fills in."""
    resources = members(members(holder, where).get("resources"), f"{where}.resources")
    limits = amounts(resources.get("limits"), f"{where}.resources.limits")
    return limits | amounts(resources.get("requests"), f"{where}.resources.requests")


def _init(container: object) -> tuple[Requests, bool]:
    requests = requests_of(container, "spec.initContainers")
    return requests, members(container, "spec.initContainers").get("restartPolicy") == "Always"


def _fractions(notes: Object) -> FractionalRequest:
    def amount(key: str) -> Fraction:
        return quantity(notes[key], f"metadata.annotations.{key}") if notes.get(key) is not None else Fraction(0)

    by_container = sum((amount(key) for key in notes if _OF_CONTAINER.fullmatch(key)), Fraction(0))
    memory = amount("gpu-memory") + by_container / 2**20
    return FractionalRequest(amount("gpu-fraction"), memory, amount("gpu-fraction-num-devices") or Fraction(1))


def selects_of(spec: Object) -> Iterable[tuple[str, str]]:
    """The labels that name a GPU's model, among those that a node must have one of."""
    wanted = members(spec.get("nodeSelector"), "spec.nodeSelector")
    for key in MODELS:
        if wanted.get(key):
            yield key, words(wanted[key], f"spec.nodeSelector.{key}")
    where = "spec.affinity"
    for step in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        spec = members(spec.get(step), where)
    for term in elements(spec.get("nodeSelectorTerms"), where):
        for choice in elements(members(term, where).get("matchExpressions"), where):
            choice = members(choice, where)
            if choice.get("operator") == "In" and choice.get("key") in MODELS:
                yield from ((choice["key"], words(v, where)) for v in elements(choice.get("values"), where))


# -- when, and how it ended ----------------------------------------------------------------------------------------


def _times(about: Object, status: Object, notes: Object) -> dict[str, Any]:
    submit = moment(about.get("creationTimestamp"), "metadata.creationTimestamp")
    if submit is None:
        msg = "no `metadata.creationTimestamp`"
        raise MalformedObject(msg)
    start, end, state = _start(status), _end(status), _status(status)
    if state == "waiting" and start is not None:
        state = "running"  # it pulls its images, and holds its node
    if MIRROR in notes and start is not None:
        submit = min(submit, start)
    end = end if state not in ("running", "waiting") else None
    if GONE in notes and state in ("running", "waiting"):
        state, end = "cancelled", moment(notes[GONE], f"metadata.annotations.{GONE}")
        end = None if end is None else max(end, start or submit)  # times of the API are whole seconds
    _in_order("scheduled before it was created", submit, start)
    _in_order("ended before it started", start, end)
    _in_order("ended before it was created", submit, end)
    return {"submit": submit, "start": start, "end": end, "status": state}


def _in_order(wrong: str, soon: float | None, late: float | None) -> None:
    if soon is not None and late is not None and late < soon:
        msg = f"{wrong}: by {soon - late:,.0f} s"
        raise MalformedObject(msg)


def _conditions(status: Object) -> dict[str, Object]:
    where = "status.conditions"
    listed = [members(c, where) for c in elements(status.get("conditions"), where)]
    return {words(c.get("type"), f"{where}.type"): c for c in listed}


def _start(status: Object) -> float | None:
    """From when on it held its node: when it was bound to it, or else when the kubelet took it up."""
    bound = _conditions(status).get("PodScheduled", {})
    if bound.get("status") == "True" and bound.get("lastTransitionTime"):
        return moment(bound["lastTransitionTime"], "status.conditions.lastTransitionTime")
    return moment(status.get("startTime"), "status.startTime")


def _end(status: Object) -> float | None:
    """When its last container ended; or else when it stopped being ready for good."""
    where = "status.containerStatuses"
    ends = []
    for container in elements(status.get("containerStatuses"), where):
        state = members(members(container, where).get("state"), f"{where}.state")
        gone = members(state.get("terminated"), f"{where}.state.terminated")
        ends.append(moment(gone.get("finishedAt"), f"{where}.state.terminated.finishedAt"))
    if known := [end for end in ends if end is not None]:
        return max(known)
    ready = _conditions(status).get("Ready", {})
    gone_at = ready.get("lastTransitionTime") if ready.get("status") == "False" else None
    return moment(gone_at, "status.conditions.lastTransitionTime")


def _status(status: Object) -> str:
    phase = words(status.get("phase"), "status.phase")
    if phase not in STATUS:
        msg = f"unknown phase: {phase[:80] or 'nothing'}"
        raise MalformedObject(msg)
    pushed = _conditions(status).get("DisruptionTarget", {}).get("reason") == "PreemptionByScheduler"
    return "cancelled" if phase == "Failed" and pushed else STATUS[phase]
