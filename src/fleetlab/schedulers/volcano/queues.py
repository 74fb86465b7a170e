"""What a queue deserves, holds and may hold: the plugins proportion and capacity.

With proportion the weights divide the cluster, by water-filling: what one queue does not ask for, or may not have, is
divided among the others. With capacity each queue states what it deserves; with enableHierarchy queues are a tree, and
a queue's limit also holds for all below it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetlab.schedulers.gangs.pod_groups import LEAST, Amounts, add, beyond, minus, wanted, within
from fleetlab.schedulers.gangs.tasks import Job
from fleetlab.schedulers.kubernetes.config import CPU, MEMORY
from fleetlab.schedulers.volcano.config import ROOT, Volcano, VolcanoQueue


@dataclass
class QueueState:
    """A queue in a cycle."""

    queue: VolcanoQueue
    allocated: dict[str, float] = field(default_factory=dict)  # held by its pods, or promised to them
    request: dict[str, float] = field(default_factory=dict)  # and what those that wait ask for
    elastic: dict[str, float] = field(default_factory=dict)  # held over what its groups need at least
    inqueue: dict[str, float] = field(default_factory=dict)  # what admitted groups will still need
    deserved: dict[str, float] = field(default_factory=dict)
    limit: dict[str, float] = field(default_factory=dict)  # capability, less what is guaranteed to others
    ancestors: tuple[str, ...] = ()  # from the root down
    is_leaf: bool = True

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.queue.name

    def allows(self, asked: Amounts, up_to: Amounts, freed: Amounts | None = None) -> bool:
        """Return whether it stays within a bound, in what is asked for, once some of what it holds is given back."""
        held = minus(self.allocated, freed) if freed else self.allocated
        return within(add(held, asked), up_to, wanted(asked))

    def admits(self, least: Amounts) -> bool:
        """Return whether a group that needs this much may be admitted under its limit."""
        held = minus(add(least, self.allocated, self.inqueue), self.elastic)
        return within(held, self.limit, wanted(least))


def share_of(allocated: Amounts, deserved: Amounts) -> float:
    """The largest part of what is deserved that is held; of what is not deserved at all, any is all of it."""
    return max((_ratio(allocated.get(name, 0), amount) for name, amount in deserved.items()), default=0.0)


def _ratio(held: float, of: float) -> float:
    return held / of if of else float(held > 0)


def capacity_share(state: QueueState) -> float:
    """As `share_of`; a queue that deserves nothing comes after all that are below what they deserve."""
    return share_of(state.allocated, state.deserved) if any(wanted(state.deserved)) else 1.0


def parts_of(job: Job, *, whole: bool) -> tuple[Amounts, ...]:
    """What of a group counts in its queue: what it holds, asks for, will still need, holds over its least, and needs.

    Of an admitted group capacity counts all that it needs until it runs (`whole`), proportion and overcommit the rest.
    """
    least = job.group.min_resources or {}
    held = job.allocated
    runs = bool(held) and job.ready >= job.group.min_member
    coming: Amounts = {}
    if job.admitted and job.group.min_resources is not None:
        coming = least if whole and not runs else beyond(least, held)
    overcommit: Amounts = {}
    if job.admitted:
        overcommit = beyond(least, held) if job.ready >= job.group.min_member else least
    return held, job.asks, coming, beyond(held, least), overcommit


def queue_states(site: Volcano, sums: Mapping[str, tuple[Amounts, ...]], total: Amounts) -> dict[str, QueueState]:
    """Every queue with what it deserves, holds and may hold; `sums` are those of `parts_of`."""
    capacity = site.plugin("capacity")
    states = {
        queue.name: QueueState(queue) for queue in _with_root(site, hierarchy=bool(capacity and capacity.hierarchy))
    }
    if capacity and capacity.hierarchy:
        _join(states)
    for queue, (held, asks, coming, elastic, _) in sums.items():
        for name in (*states[queue].ancestors, queue) if queue in states else ():
            one = states[name]
            one.allocated, one.request = add(one.allocated, held), add(one.request, asks)
            one.inqueue, one.elastic = add(one.inqueue, coming), add(one.elastic, elastic)
    if capacity is None:
        _flat_limits(states, total)
        proportion(states, total)
    elif capacity.hierarchy:
        _tree_limits(states, total)
    else:
        _flat_limits(states, total)
        for state in states.values():
            capped = {n: min(a, state.limit.get(n, math.inf)) for n, a in state.queue.deserved.items()}
            state.deserved = _at_least(capped, state.queue.guarantee)
    return states


def _with_root(site: Volcano, *, hierarchy: bool) -> Sequence[VolcanoQueue]:
    has_root = any(queue.name == ROOT for queue in site.queues)
    return (*site.queues, VolcanoQueue(ROOT)) if hierarchy and not has_root else site.queues


def _join(states: Mapping[str, QueueState]) -> None:
    for state in states.values():
        path: list[str] = []
        one = state
        while one.name != ROOT:
            path.insert(0, one.queue.parent or ROOT)
            one = states[path[0]]
        state.ancestors = tuple(path)
        for name in path[-1:]:
            states[name].is_leaf = False


def _flat_limits(states: Mapping[str, QueueState], total: Amounts) -> None:
    guaranteed = add(*(state.queue.guarantee for state in states.values()))
    for state in states.values():
        state.limit = _limited(add(beyond(total, guaranteed), state.queue.guarantee), state.queue.capability)


def _limited(free: Amounts, capability: Amounts) -> dict[str, float]:
    """Capped by a capability, in which what is not named, or no CPU and memory, is no limit."""
    named = {n: a for n, a in capability.items() if a > 0 or n not in (CPU, MEMORY)}
    return {name: min(amount, named.get(name, math.inf)) for name, amount in free.items()}


def _tree_limits(states: Mapping[str, QueueState], total: Amounts) -> None:
    """Limits from the root down: below a queue nobody has more than it, or than what it leaves to the guaranteed."""
    root = states[ROOT]
    root.limit = {name: root.queue.capability.get(name, math.inf) for name in {*total, CPU, MEMORY}}
    root.limit |= {name: amount for name, amount in root.queue.capability.items() if amount > 0}
    bounds = {ROOT: root.limit}
    for state in sorted(states.values(), key=lambda one: len(one.ancestors)):
        below = [one for one in states.values() if one.ancestors[-1:] == (state.name,)]
        guaranteed = add(*(one.queue.guarantee for one in below))
        for one in below:
            own = {n: a for n, a in one.queue.capability.items() if a > 0 or n not in (CPU, MEMORY)}
            bounds[one.name] = {**bounds[state.name], **own}
            free = add(beyond(state.limit, guaranteed), one.queue.guarantee)
            one.limit = {name: min(amount, bounds[one.name].get(name, math.inf)) for name, amount in free.items()}
            one.deserved = _at_least(one.queue.deserved, one.queue.guarantee)
    root.deserved = add(*(one.deserved for one in states.values() if one.ancestors == (ROOT,)))


def _at_least(one: Amounts, other: Amounts) -> dict[str, float]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def proportion(states: Mapping[str, QueueState], total: Amounts) -> None:
    """Divide the cluster by weight among queues that ask for something, until it is divided or all have enough."""
    remaining = dict(total)
    open_ = [state for state in states.values() if any(state.request.values())]
    while open_ and (weights := sum(state.queue.weight for state in open_)):
        gained: dict[str, float] = {}
        for state in list(open_):
            before = state.deserved
            state.deserved = _raised(state, remaining, state.queue.weight / weights)
            gained = add(gained, minus(state.deserved, before))
            if within(state.request, state.deserved) or _same(state.deserved, before):
                open_.remove(state)
        rest = {name: max(0.0, amount - gained.get(name, 0)) for name, amount in remaining.items()}
        if not any(amount >= LEAST for amount in rest.values()) or _same(rest, remaining):
            return
        remaining = rest


def _raised(state: QueueState, remaining: Amounts, part: float) -> dict[str, float]:
    raised = add(state.deserved, {name: amount * part for name, amount in remaining.items()})
    capped = {
        name: min(amount, state.limit.get(name, math.inf), state.request.get(name, 0.0))
        for name, amount in raised.items()
    }
    return _at_least(capped, state.queue.guarantee)


def _same(one: Amounts, other: Amounts) -> bool:
    return all(one.get(name, 0) == other.get(name, 0) for name in {**one, **other})
