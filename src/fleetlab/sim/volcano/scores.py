"""How nodes are ranked: the plugins binpack and nodeorder."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleetlab.core.kubernetes import CPU, MEMORY, KubeScheduler
from fleetlab.core.volcano import Plugin, Volcano
from fleetlab.sim.gangs.board import Board
from fleetlab.sim.gangs.tasks import Task
from fleetlab.sim.kubernetes.scores import PLUGINS
from fleetlab.sim.kubernetes.state import Ints

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
    asked = {name: amount for name, amount in task.requests.items() if amount and name in by_name}
    score, weights = np.zeros(len(nodes)), sum(by_name[name] for name in asked)
    for name, amount in asked.items():
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
