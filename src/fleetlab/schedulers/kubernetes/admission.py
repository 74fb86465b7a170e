"""What the API server of Kubernetes admits: ResourceQuotas and LimitRanges of namespaces, and pods as they are created.

Amounts are whole numbers, of CPU in thousandths of a core, of all else in bytes or pieces; ratios are in thousandths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fleetlab.core.records import from_values, to_values

Amounts = Mapping[str, int]
IN, NOT_IN, EXISTS = "In", "NotIn", "Exists"
# What every cluster has; others are objects.
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(frozen=True)
class Scope:
    """Which pods a quota counts: Terminating, NotTerminating, BestEffort, NotBestEffort, or by PriorityClass."""

    name: str
    operator: str = EXISTS
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class NamespaceQuota:
    """A ResourceQuota: what the pods of a namespace may have together; more is refused at creation."""

    namespace: str
    name: str
    hard: Amounts = field(default_factory=dict)  # cpu, requests.memory, limits.cpu, requests.nvidia.com/gpu, pods …
    scopes: tuple[Scope, ...] = ()  # a pod is counted where all of them match


@dataclass(frozen=True)
class LimitItem:
    """Bounds of each container or of each pod, and what a container gets that does not say."""

    kind: str  # Container or Pod
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    default: Amounts = field(default_factory=dict)  # limits
    default_request: Amounts = field(default_factory=dict)
    ratio: Amounts = field(default_factory=dict)  # a limit over its request, at most


@dataclass(frozen=True)
class LimitRange:
    """The bounds of the pods of a namespace."""

    namespace: str
    name: str
    items: tuple[LimitItem, ...] = ()


@dataclass(frozen=True)
class Container:
    """What a container requests, and what limits it; one that is `init` runs before the others."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    init: bool = False


@dataclass(frozen=True)
class CreatedPod:
    """A pod as it is created."""

    namespace: str = "default"
    containers: tuple[Container, ...] = ()
    priority_class: str = ""
    deadline: bool = False  # activeDeadlineSeconds is set: it is Terminating
    annotations: Mapping[str, str] = field(default_factory=dict)  # of Kueue, on where its pods are to lie

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> CreatedPod:
        """Build one from plain tables."""
        return from_values(cls, values, "created pod")

    def to_values(self) -> dict[str, Any]:
        """Return plain tables."""
        return to_values(self)


@dataclass(frozen=True)
class Admission:
    """The quotas and bounds of a site's namespaces, and its priority classes by their value."""

    quotas: tuple[NamespaceQuota, ...] = ()
    limits: tuple[LimitRange, ...] = ()
    classes: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.quotas or self.limits)

    def class_of(self, priority: int) -> str:
        """Return the name of the class with a priority; none where no class has it."""
        named = {value: name for name, value in (SYSTEM_CLASSES | dict(self.classes)).items()}
        return named.get(priority, "")

    def over(self, site: Admission) -> Admission:
        """Return a site's rules with these applied: of one namespace and name they take its place, others stay."""
        return Admission(
            _applied(site.quotas, self.quotas),
            _applied(site.limits, self.limits),
            dict(site.classes) | dict(self.classes),
        )


Named = TypeVar("Named", NamespaceQuota, LimitRange)


def _applied(there: tuple[Named, ...], given: tuple[Named, ...]) -> tuple[Named, ...]:
    found: dict[tuple[str, str], Named] = {}
    for one in there + given:
        found[one.namespace, one.name] = one
    return tuple(found.values())
