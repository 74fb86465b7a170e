"""Tenants as pods: written one pod each, read from pods and from whatever makes pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlab.stacks.formats.format import Document, dig, listed, mapped
from fleetlab.stacks.quantities import whole
from fleetlab.stacks.spec import MOST, Spec

CONTAINER = "main"
# Kinds that make pods: where the pod's template lies, and how many of it there are.
TEMPLATES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Pod": ((), ()),
    "Deployment": (("spec", "template"), ("spec", "replicas")),
    "StatefulSet": (("spec", "template"), ("spec", "replicas")),
    "ReplicaSet": (("spec", "template"), ("spec", "replicas")),
    "Job": (("spec", "template"), ("spec", "parallelism")),
    "DaemonSet": (("spec", "template"), ()),
}


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod of a file, or the template of some: where it stands, and how many there are."""

    pod: Document
    where: str
    count: int

    @property
    def annotations(self) -> dict[str, Any]:
        """Of the pod."""
        return mapped(dig(self.pod, "metadata", "annotations"))

    @property
    def labels(self) -> dict[str, Any]:
        """Of the pod."""
        return mapped(dig(self.pod, "metadata", "labels"))

    @property
    def containers(self) -> list[dict[str, Any]]:
        """Of the pod, those that are mappings."""
        return [one for one in listed(dig(self.pod, "spec", "containers")) if isinstance(one, dict)]

    @property
    def limits(self) -> dict[str, Any]:
        """Of all containers together: the first that asks for a resource."""
        each = [mapped(dig(one, "resources", "limits")) for one in self.containers]
        return {key: value for one in reversed(each) for key, value in one.items()}

    @property
    def environment(self) -> dict[str, str]:
        """Names and values said outright."""
        entries = [e for one in self.containers for e in listed(one.get("env")) if isinstance(e, dict)]
        return {str(e["name"]): str(e["value"]) for e in entries if "name" in e and "value" in e}


def pod(
    spec: Spec,
    number: int,
    *,
    limits: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    above: Mapping[str, Any] | None = None,
    claims: Sequence[Mapping[str, str]] = (),
) -> Document:
    """The pod of one tenant; `above` are settings of the pod as a whole."""
    container: Document = {"name": CONTAINER, "image": spec.image}
    if environment:
        container["env"] = [{"name": key, "value": value} for key, value in environment.items()]
    container["resources"] = {"limits": dict(limits)} if limits else {"claims": [dict(c) for c in claims]}
    about: Document = {"name": f"{spec.name}-{number}", "namespace": spec.namespace}
    about |= {"labels": dict(labels)} if labels else {}
    about |= {"annotations": dict(annotations)} if annotations else {}
    inside: Document = dict(above or {})
    inside |= {"nodeSelector": dict(spec.node)} if spec.node else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": inside | {"containers": [container]}}


def pod_templates(documents: Sequence[Document]) -> Iterator[PodTemplate]:
    """Every pod of a file, and every template of pods."""
    for number, document in enumerate(documents):
        if isinstance(kind := document.get("kind"), str) and kind in TEMPLATES:
            to_pod, to_count = TEMPLATES[kind]
            one = dig(document, *to_pod)
            if isinstance(one, dict):
                count = whole(dig(document, *to_count)) if to_count else 1
                at = ".".join((f"[{number}]" if len(documents) > 1 else "", *to_pod)).strip(".")
                # One more than a spec may have says as much as a billion, and takes no memory.
                yield PodTemplate(one, at, 1 if count is None else min(count, MOST + 1))


def words(documents: Sequence[Document]) -> dict[str, Any]:
    """Name, namespace, image and node labels, as the first pod has them."""
    for one in pod_templates(documents):
        values: dict[str, Any] = {}
        name = dig(one.pod, "metadata", "name")
        values |= {"name": _base(name)} if isinstance(name, str) else {}
        values |= {"namespace": ns} if isinstance(ns := dig(one.pod, "metadata", "namespace"), str) else {}
        values |= {"image": image} if isinstance(image := dig(one.containers, 0, "image"), str) else {}
        node = mapped(dig(one.pod, "spec", "nodeSelector"))
        return values | {"node": tuple(sorted((str(k), str(v)) for k, v in node.items()))}
    return {}


def _base(name: str) -> str:
    """`shared-gpu` of `shared-gpu-3`."""
    head, _, tail = name.rpartition("-")
    return head if head and tail.isdigit() else name
