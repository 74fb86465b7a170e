"""Fair shares: what is deserved first, then what is left, by priority and weight and by usage in the past."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetlab.schedulers.gangs.pod_groups import Amounts, add
from fleetlab.schedulers.gangs.tasks import Job, Task
from fleetlab.schedulers.kai.config import UNLIMITED, Kai, KaiQueue
from fleetlab.schedulers.kubernetes.config import CPU, GPU, MEMORY

RESOURCES = (CPU, MEMORY, GPU)
NO_SHARE = 1000.0  # how a resource counts that a queue holds and has no share of


@dataclass
class Share:
    """A queue's part of one resource."""

    deserved: float = 0.0
    limit: float = UNLIMITED
    weight: float = 0.0
    allocated: float = 0.0
    fixed: float = 0.0  # of that, by groups that are not preemptible
    request: float = 0.0
    usage: float = 0.0  # of the cluster, in the past
    fair: float = 0.0

    @property
    def requestable(self) -> float:
        """What it asks for, as far as it may have it."""
        return self.request if self.limit == UNLIMITED else min(self.limit, self.request)

    @property
    def allocatable(self) -> float:
        """What it may hold without being over its share."""
        if self.deserved == UNLIMITED:
            return self.limit
        most = max(self.deserved, self.fair)
        return most if self.limit == UNLIMITED else min(self.limit, most)

    @property
    def is_satisfied(self) -> bool:
        """Whether it needs no more, or may have no more."""
        return self.request <= self.fair or (UNLIMITED != self.limit <= self.fair)


@dataclass
class QueueState:
    """A queue in a cycle."""

    queue: KaiQueue
    shares: dict[str, Share] = field(default_factory=lambda: {name: Share() for name in RESOURCES})
    ancestors: tuple[str, ...] = ()  # from the top down

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.queue.name

    def copy(self) -> QueueState:
        """As it is now."""
        return QueueState(self.queue, {name: replace(share) for name, share in self.shares.items()}, self.ancestors)

    def amounts(self, what: str) -> dict[str, float]:
        """One property of all its shares: allocated, fair, deserved, fixed, allocatable."""
        return {name: getattr(share, what) for name, share in self.shares.items()}


def at_most(one: Amounts, other: Amounts) -> bool:
    """Return whether no resource is more than another's; -1 is without bound."""
    return all(_bound(one.get(name, 0.0)) <= _bound(other.get(name, 0.0)) for name in RESOURCES)


def _bound(amount: float) -> float:
    return math.inf if amount == UNLIMITED else amount


# -- the division of one resource --------------------------------------------------------------------------------------


def divide(total: float, k_value: float, resource: str, queues: Sequence[QueueState]) -> float:
    """Set the fair share of one resource for queues next to each other; what is left over is returned."""
    remaining = total
    for state in queues:
        share = state.shares[resource]
        deserved = total if share.deserved == UNLIMITED else share.deserved
        share.fair += (given := min(deserved, share.requestable))
        remaining -= given
    return divide_over_quota(remaining, k_value, resource, queues) if remaining > 0 else 0.0


def divide_over_quota(total: float, k_value: float, resource: str, queues: Sequence[QueueState]) -> float:
    """Divide what is left: all of one priority before the next; then the rests of rounding, one each."""
    left = total
    rests: list[dict[str, float]] = []
    for priority in sorted({state.queue.priority for state in queues}, reverse=True):
        those = [state for state in queues if state.queue.priority == priority]
        left, rest = _by_weight(left, k_value, resource, those)
        rests.append(rest)
    by_name = {state.name: state for state in queues}
    for rest in rests:
        for name in sorted(rest, key=lambda one: (-rest[one], by_name[one].queue.created, one)):
            given = min(1.0, left)
            by_name[name].shares[resource].fair += given
            left -= given
    return left


def _by_weight(
    total: float, k_value: float, resource: str, queues: Sequence[QueueState]
) -> tuple[float, dict[str, float]]:
    """Give by weight, in whole units, until all have enough; the fractions that rounding left are returned."""
    left = total
    rest: dict[str, float] = {}
    while True:
        weights = _weights(k_value, resource, queues)
        in_round, again = left, False
        if not sum(weights.values()):
            return left, rest
        for state in queues:
            share = state.shares[resource]
            if left == 0 or state.name not in weights or not share.weight:
                continue
            wanted = max(0.0, share.requestable - share.fair)
            fair = in_round * weights[state.name] / sum(weights.values())
            given = wanted if wanted <= fair else math.floor(fair)
            rest.pop(state.name, None)
            if wanted > fair > given:
                rest[state.name] = fair - given
            share.fair += given
            left -= given
            again = again or (given > 0 and wanted < fair)
        if not again or left == 0:
            return left, rest


def _weights(k_value: float, resource: str, queues: Sequence[QueueState]) -> dict[str, float]:
    """The weight of each queue that needs more, less what it used in the past, as `kValue` makes it count."""
    shares = {state.name: state.shares[resource] for state in queues}
    total = sum(share.weight for share in shares.values() if share.requestable > share.fair)
    if not total:
        return {}
    own = {name: share.weight / total for name, share in shares.items() if not share.is_satisfied}
    return {name: max(0.0, w + k_value * (w - shares[name].usage)) for name, w in own.items()}


# -- the tree ----------------------------------------------------------------------------------------------------------


def parts_of(job: Job) -> tuple[Amounts, ...]:
    """What of a group counts in its queue: what it holds, that of it that is not preemptible, and what it asks for."""
    return job.charged, {} if job.group.preemptible else job.charged, job.asks


def queue_states(
    site: Kai, sums: Mapping[str, tuple[Amounts, ...]], total: Amounts, usage: Mapping[str, Amounts]
) -> dict[str, QueueState]:
    """Every queue with what it holds and asks for, and its fair share of what the queue above it has."""
    states = {queue.name: QueueState(queue) for queue in site.queues}
    for state in states.values():
        path: list[str] = []
        while above := (states[path[0]] if path else state).queue.parent:
            path.insert(0, above)
        state.ancestors = tuple(path)
        for name, share in state.shares.items():
            quota = state.queue.quota(name)
            share.deserved, share.limit, share.weight = quota.deserved, quota.limit, quota.weight
            share.usage = usage.get(state.name, {}).get(name, 0.0)
    for queue, (amounts_held, fixed, asks) in sums.items():
        for state in line(states, queue) if queue in states else ():
            for name, share in state.shares.items():
                share.allocated += amounts_held.get(name, 0)
                share.fixed += fixed.get(name, 0)
                share.request += asks.get(name, 0)
    _set_fair_shares(states, "", total, site.k_value)
    return states


def charge(states: Mapping[str, QueueState], task: Task, sign: int) -> None:
    """Count a pod in its queue and all above."""
    amounts = [(name, sign * amount) for name, amount in task.requests.items() if name in RESOURCES]
    for state in line(states, task.job.group.queue):
        for name, amount in amounts:
            state.shares[name].allocated += amount
            if not task.job.group.preemptible:
                state.shares[name].fixed += amount


def line(states: Mapping[str, QueueState], name: str) -> list[QueueState]:
    """A queue and all above it, from the top down."""
    return [states[one] for one in (*states[name].ancestors, name)]


def _set_fair_shares(states: Mapping[str, QueueState], above: str, total: Amounts, k_value: float) -> None:
    below = [state for state in states.values() if state.queue.parent == above]
    for resource in RESOURCES:
        divide(total.get(resource, 0.0), k_value, resource, below)
    for state in below:
        _set_fair_shares(states, state.name, state.amounts("fair"), k_value)


# -- what queues used in the past, as a part of what the cluster had: half of it counts after each ---------------------


@dataclass
class Usage:
    """Who held what from when on; told at every change, asked at any time."""

    site: Kai
    total: Amounts
    spans: list[tuple[float, float, Mapping[str, Amounts]]] = field(default_factory=list)  # from, to, by queue
    _since: float | None = None
    _held: Mapping[str, Amounts] = field(default_factory=dict)

    def note(self, now: float, sums: Mapping[str, Amounts]) -> None:
        """Note what groups of each queue hold from now on; a queue holds what those below it do."""
        if self._since is not None and now > self._since:
            self.spans.append((self._since, now, self._held))
        self.spans = [span for span in self.spans if span[1] > now - self.site.window]
        parents = {queue.name: queue.parent for queue in self.site.queues}
        amounts_held: dict[str, dict[str, float]] = {}
        for queue, amounts in sums.items():
            name = queue if queue in parents else ""
            while name:
                amounts_held[name] = add(amounts_held.get(name, {}), amounts)
                name = parents[name]
        self._since, self._held = now, amounts_held

    def at(self, now: float) -> dict[str, dict[str, float]]:
        """By queue and resource: what was used, as a part of what the cluster had in the same time."""
        begin = now - self.site.window
        spans = self.spans if self._since is None else [*self.spans, (self._since, now, self._held)]
        weights = [(self._weight(max(a, begin), b, now), amounts_held) for a, b, amounts_held in spans if b > begin]
        # The time before the first note counts too: the cluster was there, and nobody used it.
        whole = self._weight(begin, now, now)
        totals: dict[str, dict[str, float]] = {}
        for weight, amounts_held in weights:
            for queue, amounts in amounts_held.items():
                mine = totals.setdefault(queue, dict.fromkeys(RESOURCES, 0.0))
                for name in RESOURCES:
                    if self.total.get(name):
                        mine[name] += amounts.get(name, 0.0) * weight / (whole * self.total[name])
        return totals

    def _weight(self, begin: float, end: float, now: float) -> float:
        """Seconds from one time to another, the past ones counting less."""
        half = self.site.half_life
        if not half:
            return end - begin
        rate = math.log(2) / half
        return (math.exp(-rate * (now - end)) - math.exp(-rate * (now - begin))) / rate
