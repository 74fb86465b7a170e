"""What KAI is configured with: a tree of queues with quotas, limits and weights, and how usage in the past counts.

Followed: kai-scheduler/KAI-Scheduler (before: NVIDIA/KAI-Scheduler) at commit 521a99a, its Queue of
scheduling.run.ai/v2 and its SchedulingShard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from fleetlab.core.errors import PolicyError
from fleetlab.core.names import lookup
from fleetlab.core.records import from_values
from fleetlab.core.schedulers import QueueQuota
from fleetlab.schedulers.gangs.config import GangScheduler, oversold, unused
from fleetlab.schedulers.kubernetes.config import CPU, GPU, MEMORY

if TYPE_CHECKING:
    from fleetlab.core.cluster import Cluster
    from fleetlab.core.scenario import Scenario
    from fleetlab.schedulers.gangs.loop import Loop
    from fleetlab.schedulers.gangs.pod_groups import Amounts, PodGroup
    from fleetlab.schedulers.kubernetes.config import SchedulingNode

ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
UNLIMITED = -1.0
AMOUNTS = ("quota", "limit", "overQuotaWeight")


@dataclass(frozen=True)
class Quota:
    """A queue's part of one resource; -1 is without bound."""

    deserved: float = UNLIMITED  # `quota`: what it is given first
    limit: float = UNLIMITED
    weight: float = 1.0  # `overQuotaWeight`: how what is left is divided


@dataclass(frozen=True)
class KaiQueue:
    """A queue; groups wait in those that have none below."""

    name: str
    parent: str = ""
    priority: int = 100
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # by resource: cpu, memory, nvidia.com/gpu
    created: float = 0.0
    preempt_min_runtime: float | None = None  # seconds before its groups may be preempted; None: as the queue above
    reclaim_min_runtime: float | None = None  # seconds before others may reclaim from its groups

    def quota(self, resource: str) -> Quota:
        """Its part of a resource."""
        return self.quotas.get(resource, Quota())


@dataclass(frozen=True)
class Kai(GangScheduler):
    """A site's queues and its scheduler's settings; the default queues are those of KAI's quick start."""

    name: ClassVar[str] = "kai"
    title: ClassVar[str] = "KAI"
    files: ClassVar[str] = "Queues of KAI"

    queues: tuple[KaiQueue, ...] = (
        KaiQueue("default-parent-queue", quotas=dict.fromkeys(("cpu", "memory", GPU), Quota(0.0))),
        KaiQueue("default-queue", "default-parent-queue", quotas=dict.fromkeys(("cpu", "memory", GPU), Quota(0.0))),
    )
    actions: tuple[str, ...] = ACTIONS
    k_value: float = 0.0  # how much usage in the past counts
    half_life: float | None = None  # seconds after which usage counts half
    window: float = 7 * 86400.0  # seconds that usage is counted for
    saturation_multiplier: float = 1.0
    preempt_min_runtime: float = 0.0  # where no queue says otherwise
    reclaim_min_runtime: float = 0.0
    consolidation_preemptees: int = 16  # groups that consolidation looks at, and one more; -1: all, 0: it moves none
    consolidating_reclaim: bool = True  # whether a victim that finds another place is no victim

    def __post_init__(self) -> None:
        for action in self.actions:
            lookup("action of KAI", action, ACTIONS)
        self.check_tree()
        if self.saturation_multiplier < 1:
            msg = f"the saturation multiplier is below 1: {self.saturation_multiplier:g}"
            raise PolicyError(msg, hint="below 1, two queues could reclaim from each other for ever")

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Kai:
        """Build one from plain tables, as `to_values` gives them."""
        plain = dict(values)
        queues = plain.pop("queues", None)
        config = from_values(cls, plain, "configuration of KAI")
        return config if queues is None else replace(config, queues=tuple(_queue_of(one) for one in queues))

    def loop(self, nodes: Sequence[SchedulingNode], seed: int) -> Loop:
        """Return a simulation that has not begun."""
        from fleetlab.schedulers.kai.play import loop_of

        return loop_of(nodes, self, seed)

    def refusals(self, total: Amounts) -> Callable[[PodGroup], str]:
        """Return what says why a group can never start."""
        from fleetlab.schedulers.kai.play import StaticRefusals

        return StaticRefusals(self).reason

    def limited_gpus(self) -> dict[str, float]:
        """Return the most GPUs that each queue may hold."""
        return {queue.name: queue.quota(GPU).limit for queue in self.queues}

    def quotas(self) -> tuple[QueueQuota, ...]:
        """Return the part of each queue of each resource."""
        return tuple(
            QueueQuota(
                queue.name, queue.parent, "", resource, _shown(queue.quota(resource), 1000 * (resource == CPU) or 1)
            )
            for queue in self.queues
            for resource in (GPU, CPU, MEMORY)
        )

    def replace_quotas(self, edits: Sequence[QueueQuota]) -> Kai:
        """Return it with other quotas, limits or weights."""
        queues = {queue.name: queue for queue in self.queues}
        for edit in edits:
            queue, unit = queues[edit.queue], 1000 * (edit.resource == CPU) or 1
            amounts = _shown(queue.quota(edit.resource), unit) | dict(edit.amounts)
            deserved, limit, weight = (amounts[name] for name in AMOUNTS)
            part = Quota(_counted(deserved, unit), _counted(limit, unit), 1.0 if weight is None else float(weight))
            queues[edit.queue] = replace(queue, quotas={**queue.quotas, edit.resource: part})
        return replace(self, queues=tuple(queues.values()))

    def notes(self, scenario: Scenario, cluster: Cluster) -> list[str]:
        """Return queues that nobody uses, and quota that is not there."""
        quotas = [queue.quota(GPU).deserved for queue in self.queues if not queue.parent]
        return [
            *unused("Queue", self.leaves, self.queues_of(scenario.workload.frame)),
            *oversold("quota", quotas, cluster.gpus),
        ]


def _shown(quota: Quota, unit: float) -> dict[str, float | None]:
    bounds = (None if amount == UNLIMITED else amount / unit for amount in (quota.deserved, quota.limit))
    return dict(zip(AMOUNTS, (*bounds, quota.weight), strict=True))


def _counted(amount: float | None, unit: float) -> float:
    return UNLIMITED if amount is None else amount * unit


def _queue_of(values: Mapping[str, Any]) -> KaiQueue:
    queue = from_values(KaiQueue, values, "queue of KAI")
    quotas = {name: from_values(Quota, one, "quota") for name, one in values.get("quotas", {}).items()}
    return replace(queue, quotas=quotas)
