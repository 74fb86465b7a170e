"""Priorities of pods that do not say one, as the API server resolves them by PriorityClass when a pod is created."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleetlab.core.admission import SYSTEM_CLASSES
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, display, fields, members, words
from fleetlab.traces.kubernetes.pod_specs import Spec
from fleetlab.traces.kubernetes.pods import Pod

FIELDS = ("apiVersion", "kind", "metadata", "value", "globalDefault", "preemptionPolicy", "description")
POLICIES = ("PreemptLowerPriority", "Never")


@dataclass(frozen=True)
class PriorityClass:
    """A class of pods: their priority, and whether they evict others."""

    name: str
    value: int
    default: bool = False  # of pods that name no class
    preempts: bool = True


def priority_class(item: Object) -> PriorityClass:
    """Read one PriorityClass; Malformed says what is wrong with it."""
    fields(item, "PriorityClass", FIELDS)
    name = words(members(item.get("metadata"), "metadata").get("name"), "metadata.name")
    if not name:
        msg = "no `metadata.name`"
        raise MalformedObject(msg)
    value, policy = item.get("value"), words(item.get("preemptionPolicy"), "preemptionPolicy") or POLICIES[0]
    if not isinstance(value, int) or isinstance(value, bool):
        msg = "no `value`"
        raise MalformedObject(msg)
    if not -(2**31) <= value < 2**31:
        msg = f"`value` does not fit 32 bits: {value}"
        raise MalformedObject(msg)
    if policy not in POLICIES:
        msg = f"`preemptionPolicy` is neither {' nor '.join(POLICIES)}: {policy[:80]}"
        raise MalformedObject(msg)
    if not isinstance(item.get("globalDefault") or False, bool):
        msg = f"`globalDefault` is neither true nor false: {display(item.get('globalDefault'))}"
        raise MalformedObject(msg)
    return PriorityClass(name, value, item.get("globalDefault") is True, policy != "Never")


class Priorities:
    """The classes of a cluster, and how many pods name one that it does not have."""

    def __init__(self, classes: Iterable[PriorityClass]) -> None:
        system = [PriorityClass(name, value) for name, value in SYSTEM_CLASSES.items()]
        self.classes = {one.name: one for one in (*system, *classes)}
        # Where several are the default, the API server takes the lowest.
        defaults = [one for one in self.classes.values() if one.default]
        self._default = min(defaults, key=lambda one: one.value, default=PriorityClass("", 0))
        self.unknown: dict[str, int] = {}

    def resolve(self, pod: Pod, spec: Spec) -> tuple[Pod, Spec]:
        """Return a pod with its priority; one that says it was given it at its creation, and keeps it."""
        if pod.priority is not None:
            return pod, spec
        scheduled, created = spec
        name = created.priority_class
        one = self.classes.get(name) if name else self._default
        if one is None:
            self.unknown[name] = self.unknown.get(name, 0) + 1
            return replace(pod, priority=0), spec
        scheduled = replace(scheduled, priority=one.value, preempts=scheduled.preempts and one.preempts)
        return replace(pod, priority=one.value), (scheduled, replace(created, priority_class=one.name))

    def notes(self) -> list[str]:
        """What to say of pods whose class is not known."""
        named = ", ".join(f"{name} ({count:,} pods)" for name, count in sorted(self.unknown.items())[:10])
        return [f"PriorityClasses that pods name, and that are not in the list: {named}: priority 0"][: len(named)]
