"""Configurations of kube-scheduler 1.20, each with the nodes and pods that make its plugins matter."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from realtest.kubernetes.objects import GPU, MODELS, Load, Object

NODES = 40
REQUIRED, PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
ZONE, HOST, PRODUCT = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "nvidia.com/gpu.product"


@dataclass(frozen=True)
class Profile:
    """A configuration of the scheduler and the load it is tried with."""

    name: str
    summary: str
    score: dict[str, Any] = field(default_factory=dict)  # plugins.score: enabled, disabled
    arguments: dict[str, Any] = field(default_factory=dict)  # pluginConfig, by plugin
    nodes: int = NODES
    percentage: int = 100  # percentageOfNodesToScore; 0: the scheduler's own choice
    load: Load = field(default_factory=Load)
    seed: int = 1

    @property
    def configuration(self) -> dict[str, Any]:
        """The KubeSchedulerConfiguration of this profile."""
        given = [{"name": name, "args": words} for name, words in self.arguments.items()]
        one: dict[str, Any] = {"schedulerName": "default-scheduler", "pluginConfig": given}
        if self.score:
            one["plugins"] = {"score": self.score}
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
            "kind": "KubeSchedulerConfiguration",
            "percentageOfNodesToScore": self.percentage,
            "profiles": [one],
        }


def _instead(out: tuple[str, ...], **put: int) -> dict[str, Any]:
    return {
        "disabled": [{"name": name} for name in (*out, *put)],
        "enabled": [{"name": name, "weight": weight} for name, weight in put.items()],
    }


# -- what pods ask for besides resources -----------------------------------------------------------------------------


def _selective(drawn: random.Random, pod: Object) -> None:
    spec = pod["spec"]
    if drawn.random() < 0.15:
        spec["nodeSelector"] = {"pool": drawn.choice(("reserved", "shared"))}
    affinity: Object = {}
    if drawn.random() < 0.25:
        expression = drawn.choice((
            {"key": PRODUCT, "operator": "In", "values": [drawn.choice(MODELS)]},
            {"key": PRODUCT, "operator": "Exists"},
            {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["c"]},
        ))  # fmt: skip
        terms = [{"matchExpressions": [expression]}]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if drawn.random() < 0.5:
        liked = [
            {"weight": drawn.choice((10, 35, 100)), "preference": {"matchExpressions": [
                {"key": PRODUCT, "operator": "In", "values": [drawn.choice(MODELS)]}]}},
            {"weight": drawn.choice((7, 50)), "preference": {"matchExpressions": [
                {"key": ZONE, "operator": "In", "values": [drawn.choice("abc")]},
                {"key": "pool", "operator": "NotIn", "values": ["reserved"]}]}},
        ]  # fmt: skip
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = liked[: drawn.choice((1, 2))]
    if affinity:
        spec["affinity"] = {"nodeAffinity": affinity}
    tolerated = []
    if drawn.random() < 0.4:
        tolerated.append({"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"})
    if drawn.random() < 0.3:
        tolerated.append({"key": "spot", "operator": "Exists"})
    if tolerated:
        spec["tolerations"] = tolerated


def _spreading(drawn: random.Random, pod: Object) -> None:
    same = {"labelSelector": {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}}}
    constraints = []
    if drawn.random() < 0.5:
        firm = drawn.random() < 0.4
        constraints.append({"maxSkew": drawn.choice((1, 2, 3)), "topologyKey": ZONE, **same,
                            "whenUnsatisfiable": "DoNotSchedule" if firm else "ScheduleAnyway"})  # fmt: skip
    if drawn.random() < 0.6:
        constraints.append({"maxSkew": drawn.choice((1, 2)), "topologyKey": HOST, **same,
                            "whenUnsatisfiable": "ScheduleAnyway"})  # fmt: skip
    if drawn.random() < 0.2:
        constraints.append({"maxSkew": 2, "topologyKey": PRODUCT, **same, "whenUnsatisfiable": "ScheduleAnyway"})
    if constraints:
        pod["spec"]["topologySpreadConstraints"] = constraints
    if drawn.random() < 0.1:
        pod["spec"]["nodeSelector"] = {"pool": "shared"}


def _mixed(drawn: random.Random, pod: Object) -> None:
    _spreading(drawn, pod)
    _selective(drawn, pod)


def _neighborly(drawn: random.Random, pod: Object) -> None:
    """Near or far from pods of an app, on hosts and in zones; one in three, as such pods look at all others."""
    if drawn.random() > 0.35:
        return
    own = pod["metadata"]["labels"]["app"]
    other = f"app-{drawn.randrange(12):02}"
    near, far = {}, {}
    kind = drawn.choice(("spread", "apart", "together", "drawn", "shy"))
    if kind == "spread":
        far[REQUIRED] = [_beside(HOST, own)]
    elif kind == "apart":
        far[REQUIRED] = [_beside(ZONE, other)] if drawn.random() < 0.2 else [_beside(HOST, other, own)]
    elif kind == "together":
        near[REQUIRED] = [_beside(ZONE, own)]
    elif kind == "drawn":
        near[PREFERRED] = [{"weight": drawn.choice((10, 60, 100)), "podAffinityTerm": _beside(ZONE, own, other)}]
    else:
        far[PREFERRED] = [{"weight": drawn.choice((5, 50)), "podAffinityTerm": _beside(HOST, other)}]
        near[PREFERRED] = [{"weight": drawn.choice((5, 30)), "podAffinityTerm": _beside(PRODUCT, own)}]
    pod["spec"]["affinity"] = {"podAffinity": near, "podAntiAffinity": far}


def _beside(key: str, *apps: str) -> Object:
    expression = {"key": "app", "operator": "In", "values": list(apps)}
    return {"topologyKey": key, "labelSelector": {"matchExpressions": [expression]}}


CLASSES = {"batch": -10, "normal": 0, "patient-never": 100, "urgent": 100, "serving": 1000}

# By app; of the others any pod may be evicted.
BUDGETS = {"app-00": 0, "app-01": 0, "app-02": 1, "app-03": 0, "app-04": 2, "app-05": 0, "app-06": 1}


# By app; pods of the others were made by nobody.
CONTROLLERS = {f"app-{k:02}": "StatefulSet" if k % 3 == 0 else "ReplicaSet" for k in range(8)}


def _rarely_spreading(drawn: random.Random, pod: Object) -> None:
    if drawn.random() < 0.15:
        _spreading(drawn, pod)


def _ranked(drawn: random.Random, pod: Object) -> None:
    pod["spec"]["priorityClassName"] = drawn.choices(list(CLASSES), (30, 50, 3, 12, 5))[0]


# -- the profiles ----------------------------------------------------------------------------------------------------

_PACKING = [{"name": GPU, "weight": 5}, {"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
_SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 35, "score": 4}, {"utilization": 100, "score": 10}]
_LISTED = [
    {"maxSkew": 3, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"},
    {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"},
]
ALL = [
    Profile("default", "the default profile: LeastAllocated and BalancedAllocation"),
    Profile(
        "most",
        "MostAllocated by GPU (5), CPU and memory, instead of LeastAllocated",
        score=_instead(("NodeResourcesLeastAllocated",), NodeResourcesMostAllocated=3),
        arguments={"NodeResourcesMostAllocated": {"resources": _PACKING}},
        seed=2,
    ),
    Profile(
        "ratio",
        "RequestedToCapacityRatio with a bent shape, without LeastAllocated and BalancedAllocation",
        score=_instead(("NodeResourcesLeastAllocated", "NodeResourcesBalancedAllocation"), RequestedToCapacityRatio=2),
        arguments={
            "RequestedToCapacityRatio": {
                "shape": _SHAPE,
                "resources": [{"name": GPU, "weight": 3}, {"name": "cpu", "weight": 1}],
            }
        },
        seed=3,
    ),
    Profile(
        "affinity",
        "node selectors, required and preferred node affinity, taints of both kinds; other weights",
        score=_instead((), NodeAffinity=3, TaintToleration=2),
        load=Load(pod=_selective, tainted=True, run_s=4.0),
        seed=4,
    ),
    Profile(
        "spread",
        "topology spread over zones, hosts and GPU models, firm and preferred",
        load=Load(pod=_spreading),
        seed=5,
    ),
    Profile(
        "sampled",
        "160 nodes, of which the scheduler scores as many as it chooses by itself",
        nodes=160,
        percentage=0,
        load=Load(run_s=24.0),
        seed=6,
    ),
    Profile(
        "preempt",
        "five priority classes, one of which does not preempt, and budgets of disruption",
        load=Load(pod=_ranked, classes=CLASSES, budgets={"app-00": 0, "app-01": 1, "app-02": 2}, run_s=8.0),
        seed=7,
    ),
    Profile(
        "mix",
        "topology spread, node selectors, node affinity and taints in one; other weights",
        score=_instead((), NodeAffinity=3, TaintToleration=2),
        load=Load(pod=_mixed, tainted=True, run_s=4.0),
        seed=8,
    ),
    Profile(
        "neighbors",
        "affinity and anti-affinity between pods, on hosts, in zones and by GPU model; its weight is 3",
        score=_instead((), InterPodAffinity=3),
        load=Load(pod=_neighborly, run_s=4.5),
        seed=10,
    ),
    Profile(
        "budgets",
        "five priority classes, and budgets that allow no more disruption for half of the apps",
        load=Load(pod=_ranked, classes=CLASSES, budgets=BUDGETS, run_s=8.0),
        seed=9,
    ),
    Profile(
        "controllers",
        "pods of ReplicaSets and StatefulSets, spread by the default constraints of the system; some have their own",
        score=_instead((), PodTopologySpread=4),
        load=Load(pod=_rarely_spreading, controllers=CONTROLLERS),
        seed=11,
    ),
    Profile(
        "listed",
        "the same pods, spread by a list of default constraints, one of them firm",
        arguments={"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": _LISTED}},
        load=Load(pod=_rarely_spreading, controllers=CONTROLLERS),
        seed=12,
    ),
]
PROFILES = {profile.name: profile for profile in ALL}
