"""Whom each plugin gives up: the rules of reclaim, between queues, and of preempt, within one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fleetlab.schedulers.gangs.pod_groups import LEAST, add, minus, wanted, within
from fleetlab.schedulers.gangs.tasks import Task
from fleetlab.schedulers.volcano.queues import QueueState, share_of

if TYPE_CHECKING:
    from fleetlab.schedulers.volcano.session import Session

Rule = Callable[["Session", Task, Sequence[Task]], list[Task]]
ALMOST = 1e-6  # shares this near are the same
SYSTEM = ("system-cluster-critical", "system-node-critical")


def gang(session: Session, task: Task, those: Sequence[Task]) -> list[Task]:
    """Pods over what their groups need at least."""
    ready_tasks: dict[str, int] = {}
    victims = []
    for one in those:
        ready = ready_tasks.setdefault(one.job.name, one.job.ready)
        if ready > one.job.group.min_member:
            ready_tasks[one.job.name] -= 1
            victims.append(one)
    return victims


def conformance(session: Session, task: Task, those: Sequence[Task]) -> list[Task]:
    """Pods that are not of the cluster itself."""
    return [one for one in those if one.pod.namespace != "kube-system"]


def priority(session: Session, task: Task, those: Sequence[Task]) -> list[Task]:
    """Pods of groups with a lower priority; within a group, pods with a lower one."""

    def is_lower(one: Task) -> bool:
        if one.job is task.job:
            return one.pod.priority < task.pod.priority
        return one.job.group.priority < task.job.group.priority

    return [one for one in those if is_lower(one)]


def drf(session: Session, task: Task, those: Sequence[Task]) -> list[Task]:
    """Pods of groups whose dominant share stays at least as large as that of the one that gains."""
    mine = share_of(add(task.job.charged, task.requests), session.total)
    held: dict[str, dict[str, float]] = {}
    victims = []
    for one in those:
        held[one.job.name] = minus(held.get(one.job.name) or one.job.charged, one.requests)
        theirs = share_of(held[one.job.name], session.total)
        if mine < theirs or abs(mine - theirs) <= ALMOST:
            victims.append(one)
    return victims


def proportion(session: Session, task: Task, those: Sequence[Task]) -> list[Task]:
    """Pods of queues over what they deserve, until they are no more."""
    held: dict[str, dict[str, float]] = {}
    victims = []
    for one in those:
        state = session.queues[one.job.group.queue]
        now = held.setdefault(state.name, dict(state.allocated))
        if not within(now, state.deserved):
            held[state.name] = minus(now, one.requests)
            victims.append(one)
    return victims


def capacity(session: Session, task: Task, those: Sequence[Task]) -> list[Task]:
    """Pods that hold what is asked for, of queues over what they deserve in what the pod holds; guarantees stay."""
    held: dict[str, dict[str, float]] = {}
    wanted_names = set(wanted(task.requests))
    victims = []
    for one in those:
        state = session.queues[one.job.group.queue]
        now = held.setdefault(state.name, dict(state.allocated))
        if not wanted_names & set(wanted(one.requests)):
            continue
        if not within(state.queue.guarantee, minus(now, one.requests)):
            continue
        if not _deserves(state, one) or _is_over(now, state, one):
            held[state.name] = minus(now, one.requests)
            victims.append(one)
    return victims


def _deserves(state: QueueState, task: Task) -> bool:
    return bool(set(wanted(task.requests)) & set(wanted(state.deserved)))


def _is_over(held: dict[str, float], state: QueueState, task: Task) -> bool:
    names = set(wanted(task.requests)) & state.deserved.keys()
    return any(state.deserved[n] >= LEAST and held.get(n, 0) - state.deserved[n] >= LEAST for n in names)


def capacity_may_reclaim(state: QueueState, task: Task) -> bool:
    """Whether a queue stays within its limit, and in one resource at least within what it deserves."""
    after = add(state.allocated, task.requests)
    names = wanted(task.requests)
    if not state.queue.is_open or not within(after, state.limit, names):
        return False
    return any(after[name] - state.deserved.get(name, 0) < LEAST for name in names)


RULES: dict[str, dict[str, Rule]] = {
    "reclaimable": {"gang": gang, "conformance": conformance, "proportion": proportion, "capacity": capacity},
    "preemptable": {"gang": gang, "conformance": conformance, "priority": priority, "drf": drf},
}
