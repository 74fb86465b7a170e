"""Whose turn it is: the order of queues, of groups in a queue, of pods in a group, and of victims."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key, partial
from typing import TYPE_CHECKING

from fleetlab.schedulers.gangs.tasks import Job, Task
from fleetlab.schedulers.volcano.queues import QueueState, capacity_share, share_of

if TYPE_CHECKING:
    from fleetlab.schedulers.volcano.session import Session


def sorted_queues(session: Session, names: Sequence[str]) -> list[str]:
    """Queues in order of their turn."""
    return sorted(names, key=cmp_to_key(partial(compare_queues, session)))


def first_queue(session: Session, names: Iterable[str]) -> str:
    """The queue whose turn it is."""
    return min(names, key=cmp_to_key(partial(compare_queues, session)))


def compare_queues(session: Session, left: str, right: str) -> int:
    """By priority, then by share of what they deserve, then by name."""
    one, other = session.queues[left], session.queues[right]
    for plugin in session.at("queueOrder"):
        if plugin.name in ("proportion", "capacity"):
            if one.queue.priority != other.queue.priority:
                return other.queue.priority - one.queue.priority
            if plugin.name == "proportion":
                difference = _sign(_share(session, one) - _share(session, other))
            else:
                difference = _compare_shares(session, one, other)
            if difference:
                return difference
    return -1 if left < right else int(left != right)


def _share(session: Session, state: QueueState) -> float:
    if state.name not in session.shares:
        session.shares[state.name] = share_of(state.allocated, state.deserved)
    return session.shares[state.name]


def _compare_shares(session: Session, one: QueueState, other: QueueState) -> int:
    """Leaves by the queues above them that are next to each other; equal shares: who deserves something first."""
    if session.tree():
        if one.is_leaf != other.is_leaf:
            return -1 if one.is_leaf else 1
        level = common_level(one, other)
        one, other = (session.queues[(*s.ancestors, s.name)[min(level + 1, len(s.ancestors))]] for s in (one, other))
    difference = _sign(_capacity_share(session, one) - _capacity_share(session, other))
    return difference or int(any(other.deserved.values())) - int(any(one.deserved.values()))


def _capacity_share(session: Session, state: QueueState) -> float:
    key = f"{state.name}/capacity"
    if key not in session.shares:
        session.shares[key] = capacity_share(state)
    return session.shares[key]


def sorted_jobs(session: Session, jobs: Sequence[Job]) -> list[Job]:
    """Groups of a queue in order of their turn."""
    return sorted(jobs, key=partial(turn, session))


def turn(session: Session, job: Job) -> tuple[float | str, ...]:
    """What groups are ordered by: the plugins, in order of their tiers, then age, then name."""
    ranks = [_JOB_RANKS[p.name](session, job) for p in session.at("jobOrder") if p.name in _JOB_RANKS]
    return (*ranks, job.group.created, job.name)


def deadline(session: Session, job: Job) -> float | None:
    """When sla admits a group at the latest."""
    plugin = session.site.plugin("sla")
    wait = job.group.waiting_time
    if wait is None and plugin is not None:
        wait = duration(plugin.arguments.get("sla-waiting-time"))
    return None if wait is None else job.group.created + wait


def dominant_share(session: Session, job: Job) -> float:
    """The largest part of the cluster that a group holds of any resource."""
    return share_of(job.charged, session.total)


def sorted_tasks(session: Session, tasks: Sequence[Task]) -> list[Task]:
    """Pods of a group in order of their turn: by priority, with that plugin, then by name."""
    ranked = any(plugin.name == "priority" for plugin in session.at("taskOrder"))
    return sorted(tasks, key=lambda task: (-task.pod.priority if ranked else 0, task.pod.name))


def sorted_victims(session: Session, those: Sequence[Task], task: Task) -> list[Task]:
    """Victims in the order they go: the reverse of the order of queues, groups and pods."""
    queue = task.job.group.queue

    def compare(left: Task, right: Task) -> int:
        if left.job is right.job:
            return -1 if sorted_tasks(session, [left, right])[0] is right else 1
        one, other = left.job.group.queue, right.job.group.queue
        if one != other:
            nearer = _level(session, other, queue) - _level(session, one, queue) if session.tree() else 0
            return nearer or -compare_queues(session, one, other)
        return 1 if turn(session, left.job) < turn(session, right.job) else -1

    return sorted(those, key=cmp_to_key(compare))


def _level(session: Session, one: str, other: str) -> int:
    return common_level(session.queues[one], session.queues[other])


def common_level(one: QueueState, other: QueueState) -> int:
    """How far down two queues have the same queues above them."""
    level = 0
    for k, (mine, yours) in enumerate(zip(one.ancestors, other.ancestors, strict=False)):
        if mine != yours:
            break
        level = k
    return level


def duration(value: object) -> float | None:
    """Seconds of what Go writes as a duration, 1h2m3s; None for what is none, or not above zero."""
    scale = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
    if not isinstance(value, str) or not re.fullmatch(r"(\d+(\.\d+)?(h|ms|us|µs|ns|m|s))+", value):
        return None
    seconds = sum(float(n) * scale[unit] for n, _, unit in re.findall(r"(\d+(\.\d+)?)(h|ms|us|µs|ns|m|s)", value))
    return seconds if seconds > 0 else None


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _by_deadline(session: Session, job: Job) -> float:
    due = deadline(session, job)
    return math.inf if due is None else due


# The lowest rank goes first: by priority, those that are not complete, by dominant share, by when they must start.
_JOB_RANKS: dict[str, Callable[[Session, Job], float]] = {
    "priority": lambda session, job: -job.group.priority,
    "gang": lambda session, job: float(not job.is_waiting and job.ready >= job.needed),
    "drf": lambda session, job: 0.0 if job.is_waiting else dominant_share(session, job),
    "sla": _by_deadline,
}
