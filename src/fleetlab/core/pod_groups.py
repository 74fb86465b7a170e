"""Pods that are scheduled together: what Volcano and KAI call a PodGroup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleetlab.core.errors import PolicyError
from fleetlab.core.kubernetes import SchedulingPod

# By resource, as the schedulers count: CPU in thousandths of a core, memory in bytes, all else in pieces.
Amounts = Mapping[str, float]


@dataclass(frozen=True)
class PodGroup:
    """A gang: no pod of it runs before `min_member` of them can."""

    name: str  # one of its own in the whole cluster: namespace/name
    queue: str
    pods: tuple[SchedulingPod, ...]
    min_member: int
    priority: int = 0
    created: float = 0.0
    min_resources: Amounts | None = None  # what it needs to be admitted (Volcano)
    waiting_time: float | None = None  # after which it is admitted at once (Volcano's sla)
    preemptible: bool = True  # whether it may run over its queue's quota, and be evicted for it (KAI)
    grace: float | None = None  # s that an evicted pod of it takes to leave; None: as of all others
    kept: frozenset[str] = frozenset()  # pods that may not be evicted (volcano.sh/preemptable: "false")


def check_tree(parents: Mapping[str, str], count: int, *, root: str = "") -> None:
    """Refuse queues of which two have one name, or of which a parent is missing or below itself."""
    if len(parents) < count:
        msg = "several queues have the same name"
        raise PolicyError(msg, hint="give each Queue a name of its own")
    for name in parents:
        path = [name]
        while (above := parents[path[-1]]) not in ("", root):
            if above not in parents:
                msg = f"queue {path[-1]} has a parent that is not there: {above}"
                raise PolicyError(msg, hint="list the parent as a Queue too, or leave it out")
            if above in path:
                msg = f"the parents of queue {name} run in a circle: {' under '.join([*path, above])}"
                raise PolicyError(msg, hint="a queue cannot be below itself")
            path.append(above)
