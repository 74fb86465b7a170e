"""What Volcano is configured with: queues, actions, and tiers of plugins with their arguments.

Followed: volcano-sh/volcano between v1.14 and v1.15 (commit c8627e8), its Queue of scheduling.volcano.sh/v1beta1 and
the ConfigMap volcano-scheduler-configmap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar

from fleetlab.core.names import lookup
from fleetlab.core.pod_groups import Amounts, check_tree
from fleetlab.core.records import from_values, to_values

ACTIONS = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
PLUGINS = ("binpack", "capacity", "conformance", "drf", "gang", "nodeorder", "overcommit", "predicates", "priority",
           "proportion", "sla")  # fmt: skip
# What Volcano has and the simulation leaves out; a site that uses it is told so.
OTHER_ACTIONS = ("gangpreempt", "gangreclaim", "shuffle")
OTHER_PLUGINS = ("capacity-card", "cdp", "deviceshare", "extender", "network-topology-aware", "nodegroup", "numaaware",
                 "pdb", "rescheduling", "resource-strategy-fit", "resourcequota", "task-topology", "tdm",
                 "usage")  # fmt: skip
# Where a plugin takes part, unless its configuration says `enable…: false`.
POINTS = ("jobOrder", "jobReady", "jobPipelined", "taskOrder", "preemptable", "reclaimable", "preemptive", "queueOrder",
          "predicate", "nodeOrder", "jobEnqueued", "jobStarving", "overused", "allocatable")  # fmt: skip
DEQUEUE = ("traverse", "fifo", "priorityFIFO")
ROOT = "root"


@dataclass(frozen=True)
class VolcanoQueue:
    """A queue; what it does not name in `capability` has no limit."""

    name: str
    weight: int = 1
    capability: Amounts = field(default_factory=dict)
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    reclaimable: bool = True
    parent: str = ""
    priority: int = 0
    is_open: bool = True
    dequeue: str = "traverse"  # whether a job that does not fit holds up those behind it


@dataclass(frozen=True)
class Plugin:
    """A plugin of a tier, what it is told, and where it takes no part."""

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()
    hierarchy: bool = False  # enableHierarchy: queues are a tree

    def takes_part(self, point: str) -> bool:
        """Return whether it is asked at an extension point."""
        return point not in self.disabled

    def number(self, key: str, otherwise: float) -> float:
        """An argument that is a number."""
        value = self.arguments.get(key, otherwise)
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return otherwise  # as Volcano: what cannot be read is as if it were not there


DEFAULT_TIERS = (
    (Plugin("priority"), Plugin("gang", disabled=frozenset({"preemptable"})), Plugin("conformance")),
    (
        Plugin("overcommit"),
        Plugin("drf", disabled=frozenset({"preemptable"})),
        Plugin("predicates"),
        Plugin("proportion"),
        Plugin("nodeorder"),
    ),
)


@dataclass(frozen=True)
class Volcano:
    """A site's queues and its scheduler configuration; the default is that of Volcano's Helm chart."""

    kind: ClassVar[str] = "volcano"
    title: ClassVar[str] = "Volcano"
    apart: ClassVar[bool] = False  # the instances of a job are a gang
    whole_gpus: ClassVar[bool] = True

    queues: tuple[VolcanoQueue, ...] = (VolcanoQueue("default"),)
    actions: tuple[str, ...] = ("enqueue", "allocate", "backfill")
    tiers: tuple[tuple[Plugin, ...], ...] = DEFAULT_TIERS

    def __post_init__(self) -> None:
        for action in self.actions:
            lookup("action of Volcano", action, [*ACTIONS, *OTHER_ACTIONS])
        for plugin in self.plugins:
            lookup("plugin of Volcano", plugin.name, [*PLUGINS, *OTHER_PLUGINS])
        for queue in self.queues:
            lookup("dequeue strategy", queue.dequeue, DEQUEUE)
        check_tree({queue.name: queue.parent for queue in self.queues}, len(self.queues), root=ROOT)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Volcano:
        """Build one from plain tables, as `to_values` gives them."""
        plain = dict(values)
        tiers = plain.pop("tiers", None)
        found = from_values(cls, plain, "configuration of Volcano")
        if tiers is None:
            return found
        return replace(found, tiers=tuple(tuple(_plugin_of(one) for one in tier) for tier in tiers))

    def to_values(self) -> dict[str, Any]:
        """Return plain tables of what differs from the defaults."""
        values = to_values(self)
        if "tiers" in values:
            values["tiers"] = [[_plugin_values(one) for one in tier] for tier in self.tiers]
        return values

    @property
    def left_out(self) -> tuple[str, ...]:
        """Actions and plugins that it has and the simulation leaves out."""
        actions = [one for one in self.actions if one in OTHER_ACTIONS]
        return (*actions, *(one.name for one in self.plugins if one.name in OTHER_PLUGINS))

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """All plugins, in order of their tiers."""
        return tuple(chain.from_iterable(self.tiers))

    def plugin(self, name: str) -> Plugin | None:
        """A plugin, if it is configured."""
        return next((one for one in self.plugins if one.name == name), None)


def _plugin_values(plugin: Plugin) -> dict[str, Any]:
    return to_values(plugin) | ({"disabled": sorted(plugin.disabled)} if plugin.disabled else {})


def _plugin_of(values: Mapping[str, Any]) -> Plugin:
    found = from_values(Plugin, values, "plugin of Volcano")
    return replace(found, disabled=frozenset(found.disabled))
