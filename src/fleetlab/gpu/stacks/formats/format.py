"""The interface of a format: how a spec is written, recognized and read, amounts, and findings of the linter.

Amounts are Kubernetes' (`20Gi`, `500M`, `4`) and MPS' (`8G`, `35942M`), as whole numbers.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any, NoReturn, Protocol

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.stacks.spec import MOST, Spec

SUFFIX = {"": Fraction(1)}
SUFFIX |= {sign: Fraction(1000) ** n for n, sign in enumerate("num kMGTPE", -3) if sign != " "}
SUFFIX |= {f"{sign}i": Fraction(1024) ** n for n, sign in enumerate("KMGTPE", 1)}
AMOUNT = re.compile(r"([+-]?\d{1,18}(?:\.\d{0,18})?)(?:[eE]([+-]?\d{1,2})|([A-Za-z]{0,2}))")
LIMIT = re.compile(r"(\d{1,9})=(\d{1,12})([GM])")


def exact(value: object) -> Fraction | None:
    """An amount as Kubernetes reads it, to the last digit; None where it is none.

    >>> str(exact("500m")), str(exact(-1.5)), str(exact("1e3")), exact("4 GB")
    ('1/2', '-3/2', '1000', None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = AMOUNT.fullmatch(str(value))
    if match is None or (match[3] or "") not in SUFFIX:
        return None
    return Fraction(match[1]) * (Fraction(10) ** int(match[2]) if match[2] else SUFFIX[match[3] or ""])


def amount(value: object) -> int | None:
    """Bytes, or pieces; None where it is no amount. What is less than one is rounded up, as Kubernetes does.

    >>> amount("20Gi") // 2**20, amount(4), amount("4 GB")
    (20480, 4, None)
    """
    value_exact = exact(value)
    return None if value_exact is None or value_exact < 0 else math.ceil(value_exact)


def whole(value: object) -> int | None:
    """A whole number without a unit, written as number or word; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,12}", value) else None


def limit_mib(value: object) -> int | None:
    """MiB of MPS' limit for the first GPU.

    >>> limit_mib("0=8G"), limit_mib("0=35942M")
    (8192, 35942)
    """
    match = LIMIT.fullmatch(str(value))
    return None if match is None else int(match[2]) * (1024 if match[3] == "G" else 1)


# --- findings of the linter ------------------------------------------------------------------------------------------


SEVERITIES = ("error", "warning", "note")  # in `traps.toml` stands what each means


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding."""

    code: str
    severity: str
    where: str
    what: str
    do: str


@cache
def traps() -> dict[str, dict[str, str]]:
    """The traps that the linter knows, by code and form."""
    return tomllib.loads(files("fleetlab.gpu.stacks").joinpath("traps.toml").read_text("utf-8"))


class Node:
    """A value of a document, and where it stands; what is not there, or is of another type, has no parts.

    >>> container = Node({"spec": {"containers": [{"name": "main"}]}}).at("spec", "containers", 0)
    >>> container.where, container.at("name").value, container.at("env", 0).value
    ('spec.containers[0]', 'main', None)
    """

    __slots__ = ("_key", "value", "where")

    def __init__(self, value: object, where: str = "", key: object = "") -> None:
        self.value, self.where, self._key = value, where, key

    def at(self, *path: str | int) -> Node:
        """What stands at a path."""
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        return Node(dig(self.value, *path), (self.where + steps).removeprefix("."), path[-1])

    @property
    def as_map(self) -> dict[str, Any]:
        """The value, if it is a mapping."""
        return mapped(self.value)

    @property
    def as_list(self) -> list[Any]:
        """The value, if it is a list."""
        return listed(self.value)

    @property
    def entries(self) -> list[Node]:
        """The entries of a mapping."""
        return [self.at(key) for key in self.as_map]

    @property
    def items(self) -> list[Node]:
        """The items of a list."""
        return [self.at(k) for k in range(len(self.as_list))]

    def __contains__(self, key: str) -> bool:
        return key in self.as_map

    @property
    def key(self) -> str:
        """The last step to it."""
        return str(self._key)

    def trap(self, form: str, **facts: object) -> Finding:
        """A finding at this place."""
        one, values = traps()[form], {"value": self.value, "key": self._key} | facts
        texts = (one[part].format(**values) for part in ("what", "do"))
        return Finding(form.partition(".")[0], one["severity"], self.where or "the document", *texts)

    def unknown(self, form: str, allowed: Sequence[str]) -> Iterator[Finding]:
        """A finding for each key that is not allowed."""
        for key in sorted(set(self.as_map) - set(allowed)):
            yield self.at(key).trap(form, allowed=", ".join(allowed))


def roots(documents: Sequence[Document]) -> list[Node]:
    """The documents of a file; if there are several, their places begin with their number."""
    return [Node(one, f"[{number}]" if len(documents) > 1 else "") for number, one in enumerate(documents)]


# --- the interface of a format ---------------------------------------------------------------------------------------


Document = dict[str, Any]


class Stack(Protocol):
    """One format: a module with these functions.

    Law: what is kept survives a round trip, `read(write(hold(spec))) == hold(spec)`, and `hold` is idempotent. Why a
    part of a spec is not kept, and how weakly a guarantee, is in `stacks.toml`.
    """

    def hold(self, spec: Spec) -> Spec:
        """The part of a spec that the format keeps."""

    def write(self, spec: Spec) -> str:
        """The file of a kept spec."""

    def mine(self, documents: Sequence[Document]) -> bool:
        """Whether documents are of this format."""

    def read(self, documents: Sequence[Document]) -> Spec:
        """The spec that documents amount to."""


@cache
def about_stack(stack: str) -> dict[str, Any]:
    """Why a stack does not keep a part of a spec; under `weaker`, guarantees that it keeps less strongly."""
    return dict(tomllib.loads(files("fleetlab.gpu.stacks").joinpath("stacks.toml").read_text("utf-8"))[stack])


def cannot(stack: str, what: str, hint: str) -> NoReturn:
    """Raise an error for a spec that a stack cannot express at all."""
    raise BenchError(f"{stack} cannot express it: {what}", hint=hint)


def unread(what: str, hint: str | None = None) -> NoReturn:
    """Raise an error for a file that cannot be read as a spec."""
    raise BenchError(f"cannot be read as a spec: {what}", hint=hint)


def dig(value: object, *path: str | int) -> Any:  # noqa: ANN401
    """Return the value at a path; None if the path does not exist, whatever the types.

    >>> dig({"spec": {"containers": [{"name": "main"}]}}, "spec", "containers", 0, "name")
    'main'
    """
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def listed(value: object) -> list[Any]:
    """The value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def texts(**values: object) -> dict[str, Any]:
    """The values that are texts: what a file does not say is left to the defaults of a spec."""
    return {key: value for key, value in values.items() if isinstance(value, str)}


def mapped(value: object) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


# --- tenants as pods: written one pod each, read from pods and from whatever makes pods ------------------------------


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
    def node(self) -> Node:
        """The pod, at its place."""
        return Node(self.pod, self.where)

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


def pod_settings(documents: Sequence[Document]) -> dict[str, Any]:
    """Name, namespace, image and node labels, as the first pod has them."""
    for one in pod_templates(documents):
        about = mapped(dig(one.pod, "metadata"))
        values = texts(name=about.get("name"), namespace=about.get("namespace"), image=dig(one.containers, 0, "image"))
        if "name" in values:  # `shared-gpu` of `shared-gpu-3`
            values["name"] = re.sub(r"(?<=.)-\d+\Z", "", values["name"])
        node = mapped(dig(one.pod, "spec", "nodeSelector"))
        return {**values, "node": tuple(sorted((str(k), str(v)) for k, v in node.items()))}
    return {}
