"""Pods, nodes and budgets as kube-scheduler sees them, from what `kubectl get … -o json` prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import ceil

from fleetlab.schedulers.kubernetes.config import (
    ASSUMED,
    CONTROLLER,
    CPU,
    GRACE,
    NAMESPACE_NAME,
    DisruptionBudget,
    PodTerm,
    Requirement,
    SchedulingNode,
    SchedulingPod,
    Selector,
    SpreadConstraint,
    Taint,
)
from fleetlab.schedulers.kubernetes.reader.nodes import amounts, texts
from fleetlab.schedulers.kubernetes.reader.objects import (
    MalformedObject,
    Object,
    display,
    elements,
    fields,
    members,
    whole,
    words,
)
from fleetlab.schedulers.kubernetes.reader.pods import Requests, requests_of
from fleetlab.schedulers.kubernetes.reader.selectors import choices_of, tolerations_of

Amounts = dict[str, int]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AMOUNTS = ("minAvailable", "maxUnavailable")  # of a PodDisruptionBudget
CONTROLLERS = ("ReplicaSet", "ReplicationController", "StatefulSet")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def scheduling_pod(item: Object) -> SchedulingPod:
    """Read one pod; Malformed says what is wrong with it."""
    about, spec = members(item.get("metadata"), "metadata"), members(item.get("spec"), "spec")
    containers = [requests_of(c, "spec.containers") for c in elements(spec.get("containers"), "spec.containers")]
    before = [
        requests_of(c, "spec.initContainers") for c in elements(spec.get("initContainers"), "spec.initContainers")
    ]
    extra = _counted(amounts(spec.get("overhead"), "spec.overhead"))
    wishes = members(spec.get("affinity"), "spec.affinity")
    affinity = members(wishes.get("nodeAffinity"), "spec.affinity.nodeAffinity")
    wanted = texts(spec.get("nodeSelector"), "spec.nodeSelector")
    namespace = words(about.get("namespace"), "metadata.namespace") or "default"
    return SchedulingPod(
        name=f"{namespace}/{words(about.get('name'), 'metadata.name')}",
        namespace=namespace,
        labels=texts(about.get("labels"), "metadata.labels") | _controller(about),
        priority=whole(spec.get("priority"), "spec.priority"),
        requests=_together([_counted(c) for c in containers], [_counted(c) for c in before], extra),
        scored=_together([_scored(c) for c in containers], [_scored(c) for c in before], _only(extra, ASSUMED)),
        required=tuple(node_requirements(affinity)),
        selector=Selector(tuple(Requirement(key, "In", (value,)) for key, value in wanted.items())),
        preferred=tuple(node_preferences(affinity)),
        tolerations=tuple(tolerations_of(spec)),
        spread=tuple(_spread(spec, texts(about.get("labels"), "metadata.labels"))),
        preempts=spec.get("preemptionPolicy") != "Never",
        affinity=tuple(_near(wishes, "podAffinity", namespace)),
        anti_affinity=tuple(_near(wishes, "podAntiAffinity", namespace)),
        preferred_affinity=(
            *_rather_near(wishes, "podAffinity", namespace),
            *((-weight, term) for weight, term in _rather_near(wishes, "podAntiAffinity", namespace)),
        ),
        grace=_grace(spec),
    )


def _controller(about: Object) -> dict[str, str]:
    """What made a pod, as a label, if that selects its pods."""
    where = "metadata.ownerReferences"
    owners = [members(one, where) for one in elements(about.get("ownerReferences"), where)]
    mine = [one for one in owners if one.get("controller") is True and one.get("kind") in CONTROLLERS]
    return {CONTROLLER: words(mine[0].get("uid"), f"{where}.uid")} if mine else {}


def _grace(spec: Object) -> float:
    """How long it may take to leave; the API server takes a negative time for one second."""
    key = "terminationGracePeriodSeconds"
    if spec.get(key) is None:
        return GRACE
    seconds = whole(spec[key], f"spec.{key}")
    return float(seconds) if seconds >= 0 else 1.0


def _near(wishes: Object, kind: str, namespace: str) -> Iterable[PodTerm]:
    where = f"spec.affinity.{kind}"
    for item in elements(members(wishes.get(kind), where).get(REQUIRED), where):
        yield _pod_term(members(item, where), where, namespace)


def _rather_near(wishes: Object, kind: str, namespace: str) -> Iterable[tuple[int, PodTerm]]:
    where = f"spec.affinity.{kind}"
    for item in elements(members(wishes.get(kind), where).get(PREFERRED), where):
        one = members(item, where)
        term = _pod_term(members(one.get("podAffinityTerm"), where), where, namespace)
        yield whole(one.get("weight"), f"{where}.weight"), term


def _pod_term(term: Object, where: str, namespace: str) -> PodTerm:
    named = tuple(
        words(name, f"{where}.namespaces") for name in elements(term.get("namespaces"), f"{where}.namespaces")
    )
    selector = None if term.get("labelSelector") is None else label_selector(term.get("labelSelector"), where)
    chosen = _namespaces(term, where)
    if chosen is None and not named:
        named = (namespace,)
    return PodTerm(words(term.get("topologyKey"), f"{where}.topologyKey"), selector, named, chosen)


def _namespaces(term: Object, where: str) -> Selector | None:
    """Which namespaces are chosen by their labels: all, or by their names; None: by labels that no list of pods has."""
    if term.get("namespaceSelector") is None:
        return None
    chosen = label_selector(term["namespaceSelector"], f"{where}.namespaceSelector")
    return chosen if all(one.key == NAMESPACE_NAME for one in chosen.labels) else None


def unread_namespaces(item: Object) -> bool:
    """Whether a pod chooses the namespaces of others by labels that are not read: its own then counts."""
    wishes = members(members(item.get("spec"), "spec").get("affinity"), "spec.affinity")
    terms: list[Object] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        where = f"spec.affinity.{kind}"
        given = members(wishes.get(kind), where)
        terms += [members(one, where) for one in elements(given.get(REQUIRED), where)]
        preferred = [members(one, where) for one in elements(given.get(PREFERRED), where)]
        terms += [members(one.get("podAffinityTerm"), where) for one in preferred]
    return any(term.get("namespaceSelector") is not None and _namespaces(term, "affinity") is None for term in terms)


def _counted(requests: Requests) -> Amounts:
    return {name: ceil(amount * 1000) if name == CPU else ceil(amount) for name, amount in requests.items()}


def _scored(requests: Requests) -> Amounts:
    return ASSUMED | _only(_counted(requests), ASSUMED)


def _only(counted: Amounts, names: Iterable[str]) -> Amounts:
    return {name: counted[name] for name in names if name in counted}


def _together(containers: list[Amounts], before: list[Amounts], extra: Amounts) -> Amounts:
    """What runs side by side adds up; of what runs before, one after the other, the largest counts."""
    names = {name for part in (*containers, *before, extra) for name in part}
    return {
        name: max([sum(c.get(name, 0) for c in containers), *(c.get(name, 0) for c in before)]) + extra.get(name, 0)
        for name in sorted(names)
    }


def node_requirements(affinity: Object) -> Iterable[Selector]:
    """Read the terms of a node affinity of which a node must match one."""
    where = "spec.affinity.nodeAffinity"
    terms = members(affinity.get(REQUIRED), where).get("nodeSelectorTerms")
    yield from (_term(members(term, where)) for term in elements(terms, where))


def node_preferences(affinity: Object) -> Iterable[tuple[int, Selector]]:
    """Read the terms of a node affinity that are preferred, by weight."""
    where = "spec.affinity.nodeAffinity"
    for item in elements(affinity.get(PREFERRED), where):
        one = members(item, where)
        yield whole(one.get("weight"), f"{where}.weight"), _term(members(one.get("preference"), where))


def _term(term: Object) -> Selector:
    of = {name: choices_of({name: term.get(name)}) for name in ("matchExpressions", "matchFields")}
    parts = (tuple(Requirement(k, o, tuple(v)) for k, o, v in of[name]) for name in of)
    return Selector(*parts)


def _spread(spec: Object, labels: Mapping[str, str]) -> Iterable[SpreadConstraint]:
    where = "spec.topologySpreadConstraints"
    for item in elements(spec.get("topologySpreadConstraints"), where):
        one = members(item, where)
        chosen = label_selector(one.get("labelSelector"), where)
        keys = [words(key, f"{where}.matchLabelKeys") for key in elements(one.get("matchLabelKeys"), where)]
        same = [Requirement(key, "In", (labels[key],)) for key in keys if key in labels]
        yield SpreadConstraint(
            whole(one.get("maxSkew"), f"{where}.maxSkew"),
            words(one.get("topologyKey"), f"{where}.topologyKey"),
            one.get("whenUnsatisfiable") == "DoNotSchedule",
            Selector((*chosen.labels, *same)),
            *domains_of(one, where),
        )


def domains_of(constraint: Object, where: str) -> tuple[int, bool, bool]:
    """Read what a constraint says of its domains: how few count as none, and which nodes it looks at."""
    return (
        whole(constraint.get("minDomains"), f"{where}.minDomains") or 1,
        _policy(constraint, where, "nodeAffinityPolicy", otherwise="Honor"),
        _policy(constraint, where, "nodeTaintsPolicy", otherwise="Ignore"),
    )


def _policy(constraint: Object, where: str, key: str, *, otherwise: str) -> bool:
    """Whether a constraint honors what its pod says of nodes."""
    said = words(constraint.get(key), f"{where}.{key}") or otherwise
    if said not in ("Honor", "Ignore"):
        msg = f"`{where}.{key}` is neither Honor nor Ignore: {said[:80]}"
        raise MalformedObject(msg)
    return said == "Honor"


def label_selector(value: object, where: str) -> Selector:
    """Read a selector of pods."""
    given = members(value, where)
    exact = [Requirement(k, "In", (v,)) for k, v in sorted(texts(given.get("matchLabels"), where).items())]
    others = [Requirement(k, o, tuple(v)) for k, o, v in choices_of(given)]
    return Selector((*exact, *others))


def scheduling_node(item: Object) -> SchedulingNode:
    """Read one node; Malformed says what is wrong with it."""
    about, spec = members(item.get("metadata"), "metadata"), members(item.get("spec"), "spec")
    status, where = members(item.get("status"), "status"), "spec.taints"
    taints = [members(taint, where) for taint in elements(spec.get("taints"), where)]
    return SchedulingNode(
        words(about.get("name"), "metadata.name"),
        _counted(amounts(status.get("allocatable"), "status.allocatable")),
        texts(about.get("labels"), "metadata.labels"),
        tuple(Taint(*(words(t.get(name), f"{where}.{name}") for name in ("key", "value", "effect"))) for t in taints),
        spec.get("unschedulable") is True,
    )


def disruption_budget(item: Object) -> DisruptionBudget:
    """Read one PodDisruptionBudget."""
    about, status = members(item.get("metadata"), "metadata"), members(item.get("status"), "status")
    spec = fields(item.get("spec"), "spec", (*AMOUNTS, "selector", "unhealthyPodEvictionPolicy"))
    if all(spec.get(key) is not None for key in AMOUNTS):
        msg = f"`spec.{AMOUNTS[0]}` and `spec.{AMOUNTS[1]}` exclude each other"
        raise MalformedObject(msg)
    selector = label_selector(spec.get("selector"), "spec.selector")
    if not selector and spec.get("selector") is not None and item.get("apiVersion") == "policy/v1":
        selector = Selector((Requirement("", "DoesNotExist"),))  # all pods; before policy/v1, none
    return DisruptionBudget(
        words(about.get("namespace"), "metadata.namespace") or "default",
        selector,
        whole(status.get("disruptionsAllowed"), "status.disruptionsAllowed"),
        *(_pods_or_share(spec.get(key), f"spec.{key}") for key in AMOUNTS),
    )


def _pods_or_share(value: object, where: str) -> str:
    """A number of pods or a percentage, as text; empty where there is none."""
    text = "" if value is None else str(value)
    if isinstance(value, bool) or not re.fullmatch(r"(\d{1,9}%?)?", text):
        msg = f"`{where}` is neither a number nor a percentage: {display(value)}"
        raise MalformedObject(msg)
    if text.endswith("%") and int(text[:-1]) > 100:
        msg = f"`{where}` is more than 100%: {text}"
        raise MalformedObject(msg)
    return text
