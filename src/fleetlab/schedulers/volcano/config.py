"""What Volcano is configured with: queues, actions, and tiers of plugins with their arguments.

Followed: volcano-sh/volcano between v1.14 and v1.15 (commit c8627e8), its Queue of scheduling.volcano.sh/v1beta1 and
the ConfigMap volcano-scheduler-configmap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from fleetlab.core.names import clip, lookup
from fleetlab.core.records import from_values, to_values
from fleetlab.core.schedulers import QueueQuota
from fleetlab.schedulers.gangs.config import GangScheduler, oversold, unused
from fleetlab.schedulers.gangs.pod_groups import Amounts, PodGroup
from fleetlab.schedulers.kubernetes.config import CPU, GPU, SchedulingNode

if TYPE_CHECKING:
    from fleetlab.core.cluster import Cluster
    from fleetlab.core.scenario import Scenario
    from fleetlab.schedulers.gangs.loop import Loop

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
AMOUNTS = ("capability", "deserved", "guarantee")  # of a queue


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
class Volcano(GangScheduler):
    """A site's queues and its scheduler configuration; the default is that of Volcano's Helm chart."""

    name: ClassVar[str] = "volcano"
    title: ClassVar[str] = "Volcano"
    files: ClassVar[str] = "Queues of Volcano"

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
        self.check_tree(root=ROOT)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Volcano:
        """Build one from plain tables, as `to_values` gives them."""
        plain = dict(values)
        tiers = plain.pop("tiers", None)
        config = from_values(cls, plain, "configuration of Volcano")
        if tiers is None:
            return config
        return replace(config, tiers=tuple(tuple(_plugin_of(one) for one in tier) for tier in tiers))

    def to_values(self) -> dict[str, Any]:
        """Return plain tables of what differs from the defaults."""
        values = to_values(self)
        if "tiers" in values:
            values["tiers"] = [[_plugin_values(one) for one in tier] for tier in self.tiers]
        return values

    def loop(self, nodes: Sequence[SchedulingNode], seed: int) -> Loop:
        """Return a simulation that has not begun."""
        from fleetlab.schedulers.volcano.play import loop_of

        return loop_of(nodes, self, seed)

    def refusals(self, total: Amounts) -> Callable[[PodGroup], str]:
        """Return what says why a group can never start."""
        from fleetlab.schedulers.volcano.play import StaticRefusals

        return StaticRefusals(self, total).reason

    def limited_gpus(self) -> dict[str, float]:
        """Return the most GPUs that each queue may hold."""
        return {queue.name: queue.capability.get(GPU, -1) for queue in self.queues}

    def quotas(self) -> tuple[QueueQuota, ...]:
        """Return what each queue has of the resources that any of them names, and of GPUs."""
        named = {name for queue in self.queues for kind in AMOUNTS for name in getattr(queue, kind)}
        return tuple(
            QueueQuota(queue.name, queue.parent, "", resource, _shown(queue, resource))
            for queue in self.queues
            for resource in (GPU, *sorted(named - {GPU}))
        )

    def replace_quotas(self, edits: Sequence[QueueQuota]) -> Volcano:
        """Return it with other weights or amounts."""
        queues = {queue.name: queue for queue in self.queues}
        for edit in edits:
            queue, unit = queues[edit.queue], 1000.0 if edit.resource == CPU else 1.0
            for kind, amount in edit.amounts.items():
                if kind == "weight":
                    queue = replace(queue, weight=max(1, round(amount or 1)))
                    continue
                others = {name: value for name, value in getattr(queue, kind).items() if name != edit.resource}
                mine = {} if amount is None else {edit.resource: amount * unit}
                amounts: dict[str, Any] = {kind: others | mine}
                queue = replace(queue, **amounts)
            queues[edit.queue] = queue
        return replace(self, queues=tuple(queues.values()))

    def notes(self, scenario: Scenario, cluster: Cluster) -> list[str]:
        """Return what is left out or without effect, queues that nobody uses, and quota that is not there."""
        left_out = [f"not simulated, though the configuration names it: {', '.join(self.left_out)}"]
        with_deserved = clip(", ".join(queue.name for queue in self.queues if queue.deserved))
        without_effect = (
            f"`deserved` of {with_deserved} is without effect: Volcano's plugin capacity alone reads it, and the "
            "configuration does not name that (a file of Queues alone has Volcano's default plugins)"
        )
        return [
            *(left_out if self.left_out else ()),
            *([without_effect] if with_deserved and self.plugin("capacity") is None else ()),
            *unused("Queue", self.leaves, self.queues_of(scenario.workload.frame)),
            *oversold(*self._granted(), cluster.gpus),
        ]

    def _granted(self) -> tuple[str, Sequence[float]]:
        """What queues are granted of GPUs, by its name; of a tree, what the top has."""
        capacity = self.plugin("capacity")
        if capacity is None:
            return "guarantee", [queue.guarantee.get(GPU, 0) for queue in self.queues]
        top = [queue for queue in self.queues if not capacity.hierarchy or queue.parent in ("", ROOT)]
        return "deserved", [queue.deserved.get(GPU, 0) for queue in top if queue.name != ROOT]

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


def _shown(queue: VolcanoQueue, resource: str) -> dict[str, float | None]:
    unit = 1000.0 if resource == CPU else 1.0
    amounts = {kind: getattr(queue, kind).get(resource) for kind in AMOUNTS}
    return {"weight": queue.weight} | {k: None if v is None else v / unit for k, v in amounts.items()}


def _plugin_values(plugin: Plugin) -> dict[str, Any]:
    return to_values(plugin) | ({"disabled": sorted(plugin.disabled)} if plugin.disabled else {})


def _plugin_of(values: Mapping[str, Any]) -> Plugin:
    plugin = from_values(Plugin, values, "plugin of Volcano")
    return replace(plugin, disabled=frozenset(plugin.disabled))
