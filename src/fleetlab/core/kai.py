"""What KAI is configured with: a tree of queues with quotas, limits and weights, and how usage in the past counts.

Followed: kai-scheduler/KAI-Scheduler (before: NVIDIA/KAI-Scheduler) at commit 521a99a, its Queue of
scheduling.run.ai/v2 and its SchedulingShard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fleetlab.core.errors import PolicyError
from fleetlab.core.names import lookup
from fleetlab.core.pod_groups import check_tree
from fleetlab.core.records import from_values, to_values

GPU = "nvidia.com/gpu"
ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
UNLIMITED = -1.0
NON_PREEMPTIBLE = 100  # from this priority on a group is not preemptible, unless it says so


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
class Kai:
    """A site's queues and its scheduler's settings; the default queues are those of KAI's quick start."""

    kind: ClassVar[str] = "kai"
    title: ClassVar[str] = "KAI"
    apart: ClassVar[bool] = False  # the instances of a job are a gang
    whole_gpus: ClassVar[bool] = True

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
        check_tree({queue.name: queue.parent for queue in self.queues}, len(self.queues))
        if self.saturation_multiplier < 1:
            msg = f"the saturation multiplier is below 1: {self.saturation_multiplier:g}"
            raise PolicyError(msg, hint="below 1, two queues could reclaim from each other for ever")

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Kai:
        """Build one from plain tables, as `to_values` gives them."""
        plain = dict(values)
        queues = plain.pop("queues", None)
        found = from_values(cls, plain, "configuration of KAI")
        return found if queues is None else replace(found, queues=tuple(_queue_of(one) for one in queues))

    def to_values(self) -> dict[str, Any]:
        """Return plain tables of what differs from the defaults."""
        return to_values(self)


def _queue_of(values: Mapping[str, Any]) -> KaiQueue:
    found = from_values(KaiQueue, values, "queue of KAI")
    quotas = {name: from_values(Quota, one, "quota") for name, one in values.get("quotas", {}).items()}
    return replace(found, quotas=quotas)
