"""A cycle of Volcano: what its plugins answer at each extension point.

Plugins stand in tiers. Of those that name victims, the first tier that agrees on any decides; of those that order, the
first that sees a difference does; those that permit must all permit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from fleetlab.schedulers.gangs.board import Board
from fleetlab.schedulers.gangs.pod_groups import Amounts, add, minus, within
from fleetlab.schedulers.gangs.tasks import Job, Task
from fleetlab.schedulers.kubernetes.config import CPU, MEMORY, KubeScheduler
from fleetlab.schedulers.kubernetes.scores import PLUGINS
from fleetlab.schedulers.kubernetes.state import Ints
from fleetlab.schedulers.volcano import victims
from fleetlab.schedulers.volcano.config import Plugin, Volcano
from fleetlab.schedulers.volcano.orders import deadline
from fleetlab.schedulers.volcano.queues import QueueState, parts_of, queue_states

# -- how nodes are ranked: the plugins binpack and nodeorder -----------------------------------------------------------

Floats = npt.NDArray[np.float64]
HIGHEST = 100  # a node's score in one plugin of Kubernetes
# nodeorder asks the plugins of kube-scheduler: which, by what argument, and with what weight if none is given.
NODE_ORDER = {
    "NodeResourcesLeastAllocated": ("leastrequested.weight", 1),
    "NodeResourcesMostAllocated": ("mostrequested.weight", 0),
    "NodeResourcesBalancedAllocation": ("balancedresource.weight", 1),
    "NodeAffinity": ("nodeaffinity.weight", 2),
    "TaintToleration": ("tainttoleration.weight", 3),
    "PodTopologySpread": ("podtopologyspread.weight", 2),
}


def node_scores(board: Board, task: Task, nodes: Ints, site: Volcano) -> Floats:
    """The sum of all plugins' scores of some nodes."""
    total = np.zeros(len(nodes))
    for plugin in site.plugins:
        if plugin.takes_part("nodeOrder"):
            if plugin.name == "binpack":
                total += binpack(board, task, nodes, plugin)
            elif plugin.name == "nodeorder":
                total += node_order(board, task, nodes, plugin)
    return total


def binpack_weights(plugin: Plugin) -> tuple[float, dict[str, float]]:
    """The weight of binpack, and of each resource in it; less than none is read as 1."""
    listed = [name.strip() for name in str(plugin.arguments.get("binpack.resources", "")).split(",")]
    keys = {CPU: "binpack.cpu", MEMORY: "binpack.memory"}
    keys |= {name: f"binpack.resources.{name}" for name in listed if name}
    weights = {name: plugin.number(key, 1) for name, key in keys.items()}
    return plugin.number("binpack.weight", 1), {n: w if w >= 0 else 1.0 for n, w in weights.items()}


def binpack(board: Board, task: Task, nodes: Ints, plugin: Plugin) -> Floats:
    """The fullest node first: the mean of how full each resource would be; what does not fit adds nothing."""
    weight, by_name = binpack_weights(plugin)
    requested = {name: amount for name, amount in task.requests.items() if amount and name in by_name}
    score, weights = np.zeros(len(nodes)), sum(by_name[name] for name in requested)
    for name, amount in requested.items():
        has = board.cache.allocatable.get(name, np.zeros(len(board.cache.nodes), np.int64))[nodes]
        used = amount + (board.cache.requested[name][nodes] if name in board.cache.requested else 0)
        score += np.where(used <= has, used * by_name[name] / np.maximum(has, 1), 0.0)
    return score / (weights or 1) * HIGHEST * weight


def node_order(board: Board, task: Task, nodes: Ints, plugin: Plugin) -> Floats:
    """The scores of kube-scheduler's own plugins."""
    total = np.zeros(len(nodes))
    for name, (argument, default) in NODE_ORDER.items():
        if weight := plugin.number(argument, default):
            total += weight * PLUGINS[name](board.cache, task.pod, nodes, KubeScheduler())
    return total


class Session:
    """Queues, groups and nodes in one cycle."""

    def __init__(self, site: Volcano, board: Board, now: float = 0.0, draw: np.random.Generator | None = None) -> None:
        self.site, self.board, self.now = site, board, now
        self.total = board.total
        sums = board.sums(partial(parts_of, whole=site.plugin("capacity") is not None))
        self.queues = queue_states(site, sums, self.total)
        self.jobs = [job for job in board.jobs if job.group.queue in self.queues]
        self.coming = add(*(parts[-1] for queue, parts in sums.items() if queue in self.queues))
        self.shares: dict[str, float] = {}  # of what they deserve that queues hold, as far as it was asked for
        self._plugins: dict[str, tuple[Plugin, ...]] = {}
        self._idle: tuple[int, dict[str, float]] = (-1, {})
        self._draw = draw or np.random.default_rng(0)
        board.listeners.append(self._charge)

    def _charge(self, task: Task, sign: int) -> None:
        state = self.queues.get(task.job.group.queue)
        if state is not None:
            change = {name: sign * amount for name, amount in task.requests.items()}
            for name in (*state.ancestors, state.name):
                self.queues[name].allocated = add(self.queues[name].allocated, change)
            self.shares.clear()

    def waiting(self) -> list[Job]:
        """Groups with pods that wait."""
        return [job for job in self.board.waiting() if job.group.queue in self.queues]

    def at(self, point: str) -> tuple[Plugin, ...]:
        """Plugins that take part at a point."""
        if point not in self._plugins:
            self._plugins[point] = tuple(plugin for plugin in self.site.plugins if plugin.takes_part(point))
        return self._plugins[point]

    def tree(self) -> bool:
        """Whether queues are a tree."""
        capacity = self.site.plugin("capacity")
        return capacity is not None and capacity.hierarchy

    # -- queues ------------------------------------------------------------------------------------------------------

    def is_overused(self, name: str) -> bool:
        """Whether a queue holds all it deserves: proportion gives it nothing more."""
        state = self.queues[name]
        return any(p.name == "proportion" for p in self.at("overused")) and within(state.deserved, state.allocated)

    def is_allocatable(self, task: Task, freed: Amounts | None = None) -> bool:
        """Whether a pod's queue may take it, in place of others: what it deserves with proportion, else its limit."""
        state = self.queues[task.job.group.queue]
        for plugin in self.at("allocatable"):
            if plugin.name == "proportion" and not (
                state.queue.is_open and state.allows(task.requests, state.deserved, freed)
            ):
                return False
            if plugin.name == "capacity" and not (state.queue.is_open and self._below_limits(state, task, freed)):
                return False
        return True

    def _below_limits(self, state: QueueState, task: Task, freed: Amounts | None) -> bool:
        above = [self.queues[name] for name in (*state.ancestors, state.name)]
        return state.is_leaf and all(one.allows(task.requests, one.limit, freed) for one in above)

    def may_reclaim(self, task: Task) -> bool:
        """Whether a pod's queue may take from others for it."""
        state = self.queues[task.job.group.queue]
        for plugin in self.at("preemptive"):
            if plugin.name == "proportion" and not (
                state.queue.is_open and state.allows(task.requests, state.deserved)
            ):
                return False
            if plugin.name == "capacity" and not victims.capacity_may_reclaim(state, task):
                return False
        return True

    # -- groups ------------------------------------------------------------------------------------------------------

    def admits(self, job: Job) -> bool:
        """Whether a group may be admitted: each tier that has a say must not reject it, and one permit is enough."""
        for tier in self.site.tiers:
            votes = [self._vote(p, job) for p in tier if p.takes_part("jobEnqueued")]
            if -1 in votes:
                return False
            if 1 in votes:
                return True
        return True

    def _vote(self, plugin: Plugin, job: Job) -> int:
        least = job.group.min_resources or {}
        state = self.queues[job.group.queue]
        above = [self.queues[name] for name in (*state.ancestors, state.name)]
        if plugin.name == "sla":
            due = deadline(self, job)
            return int(due is not None and self.now >= due)
        if plugin.name == "overcommit":
            return 1 if within(add(self.coming, least), self._overcommitted(plugin)) else -1
        if plugin.name in ("proportion", "capacity"):
            is_open = state.queue.is_open and state.is_leaf
            return 1 if is_open and all(one.admits(least) for one in above) else -1
        return 0

    def _overcommitted(self, plugin: Plugin) -> dict[str, float]:
        """What overcommit takes for free: a multiple of the cluster, less what pods hold."""
        if self._idle[0] != self.board.moves:
            factor = max(1.0, plugin.number("overcommit-factor", 1.2))
            used = {name: float(array.sum()) for name, array in self.board.cache.requested.items()}
            idle = minus({name: amount * factor for name, amount in self.total.items()}, used)
            self._idle = self.board.moves, idle
        return self._idle[1]

    def admit(self, job: Job) -> None:
        """Admit a group, and count what it will need."""
        self.board.admit(job)
        least = job.group.min_resources or {}
        self.coming = add(self.coming, least)
        state = self.queues[job.group.queue]
        for name in (*state.ancestors, state.name):
            self.queues[name].inqueue = add(self.queues[name].inqueue, least)

    def is_valid(self, job: Job) -> bool:
        """Whether gang finds enough pods in a group."""
        return self.site.plugin("gang") is None or job.present >= job.group.min_member

    def is_ready(self, job: Job) -> bool:
        """Whether enough pods have a node for the group to start."""
        return not self._gang_at("jobReady") or job.ready >= job.needed

    def is_pipelined(self, job: Job) -> bool:
        """Whether enough pods have a node or are promised one; after its waiting time sla permits any."""
        for tier in self.site.tiers:
            votes = []
            for plugin in tier:
                if plugin.takes_part("jobPipelined") and plugin.name == "gang":
                    votes.append(1 if job.placed >= job.needed else -1)
                if plugin.takes_part("jobPipelined") and plugin.name == "sla":
                    votes.append(self._vote(plugin, job))
            if -1 in votes:
                return False
            if 1 in votes:
                return True
        return True

    def is_starving(self, job: Job) -> bool:
        """Whether a group needs more pods: gang counts those it needs at least, priority all."""
        for tier in self.site.tiers:
            answers = []
            for plugin in tier:
                if plugin.takes_part("jobStarving") and plugin.name == "gang":
                    answers.append(job.placed < job.group.min_member)
                if plugin.takes_part("jobStarving") and plugin.name == "priority":
                    answers.append(job.placed < len(job.tasks))
            if answers:
                return all(answers)
        return False

    def _gang_at(self, point: str) -> bool:
        return any(plugin.name == "gang" for plugin in self.at(point))

    # -- victims and nodes -------------------------------------------------------------------------------------------

    def evictable(self, point: str, task: Task, those: Sequence[Task]) -> list[Task]:
        """Whom the plugins give up for a pod; what all of a tier agree on, of the first tier that agrees on any."""
        rules = victims.RULES[point]
        for tier in self.site.tiers:
            agreed: list[Task] | None = None
            for plugin in tier:
                if plugin.takes_part(point) and plugin.name in rules:
                    named = rules[plugin.name](self, task, those)
                    agreed = [one for one in (those if agreed is None else agreed) if one in named]
                    if not agreed:
                        break
            if agreed:
                return agreed
        return []

    def givers(self, queue: str) -> list[str]:
        """Other queues that one may reclaim from; where all tiers ask proportion, those over what they deserve."""
        rules = victims.RULES["reclaimable"]
        tiers = [[p.name for p in tier if p.takes_part("reclaimable") and p.name in rules] for tier in self.site.tiers]
        by_share = all("proportion" in tier for tier in tiers if tier)
        return [
            name
            for name, state in self.queues.items()
            if name != queue and state.queue.reclaimable and not (by_share and within(state.allocated, state.deserved))
        ]

    def best_node(self, task: Task, nodes: Ints) -> int:
        """The node with the highest score; of several one is drawn."""
        if len(nodes) == 1:
            return int(nodes[0])
        scores = node_scores(self.board, task, nodes, self.site)
        best = nodes[scores == scores.max()]
        return int(best[0] if len(best) == 1 else self._draw.choice(best))

    def ranked_nodes(self, task: Task, nodes: Ints) -> list[int]:
        """Nodes from the highest score down."""
        scores = node_scores(self.board, task, nodes, self.site)
        return [int(node) for node in nodes[np.argsort(-scores, kind="stable")]]
