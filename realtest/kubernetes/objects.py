"""Nodes and pods of a run as the API server takes them, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

Object = dict[str, Any]
RUN_TIME = "fleetlab/run-seconds"  # the annotation that says how long a pod runs
GPU = "nvidia.com/gpu"
GIB = 2**30
ZONES = ("a", "b", "c")
MODELS = ("A100-SXM4-80GB", "H100-SXM5-80GB")
APPS = 12
RATE = 20.0  # pods a second
RUN_S = 5.9  # with the mean of 1.73 GPUs and so many pods, 40 nodes are 0.85 full
# (GPUs, CPU cores, GiB), and how many of ten nodes are so.
SHAPES = (((8, 64, 512), 6), ((4, 48, 256), 3), ((0, 32, 128), 1))
GPUS = {0: 15, 1: 45, 2: 22, 4: 15, 8: 3}


@dataclass(frozen=True)
class Load:
    """What a run submits: what each pod has besides its requests, the priority classes, and budgets by app."""

    pod: Callable[[random.Random, Object], None] = lambda drawn, pod: None
    classes: dict[str, int] = field(default_factory=dict)
    budgets: dict[str, int] = field(default_factory=dict)  # app: how many of its pods may be evicted
    controllers: dict[str, str] = field(default_factory=dict)  # app: the kind that makes its pods
    tainted: bool = False
    gpus: dict[int, int] = field(default_factory=lambda: dict(GPUS))
    run_s: float = RUN_S


def nodes_of(count: int, load: Load) -> list[Object]:
    """Nodes of three shapes, in three zones, of two models of GPU; some tainted."""
    shapes = [shape for shape, share in SHAPES for _ in range(share)]
    return [_node(k, shapes[k * 7 % len(shapes)], load) for k in range(count)]


def _node(number: int, shape: tuple[int, int, int], load: Load) -> Object:
    name = f"node-{number:03}"
    gpus, cores, gib = shape
    has = {"cpu": f"{cores * 1000 - 170}m", "memory": f"{gib * 1024 - 831}Mi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": ZONES[number % 3]}
    labels["pool"] = "reserved" if number % 4 == 1 else "shared"
    if gpus:
        has[GPU] = str(gpus)
        labels["nvidia.com/gpu.product"] = MODELS[number // 3 % 2]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {},
        "status": {"capacity": has, "allocatable": has, "conditions": [ready]},
    }  # fmt: skip
    if load.tainted:
        node["spec"] = {"taints": _taints(number)}
    return node


def _taints(number: int) -> list[Object]:
    taints = []
    if number % 5 == 2:
        taints.append({"key": "dedicated", "value": "training", "effect": "NoSchedule"})
    if number % 3 == 0:
        taints.append({"key": "spot", "value": "true", "effect": "PreferNoSchedule"})
    if number % 7 == 0:
        taints.append({"key": "old-driver", "effect": "PreferNoSchedule"})
    return taints


def pods_of(count: int, seed: int, load: Load, rate: float = RATE) -> list[Object]:
    """Pods in the order in which they come; at a lower rate they run the longer."""
    drawn = random.Random(seed)
    stretched = replace(load, run_s=load.run_s * RATE / rate)
    return [_pod(k, drawn, stretched) for k in range(count)]


def _pod(number: int, drawn: random.Random, load: Load) -> Object:
    gpus = drawn.choices(list(load.gpus), list(load.gpus.values()))[0]
    requests: Object = {GPU: str(gpus)} if gpus else {}
    if drawn.random() < 0.9:  # the others ask for no CPU, and are scored as if they did
        requests["cpu"] = f"{max(1, gpus) * drawn.choice((250, 500, 1333, 2000, 3750))}m"
    if drawn.random() < 0.9:
        requests["memory"] = f"{max(1, gpus) * drawn.choice((700, 1024, 4096, 10_000))}Mi"
    limits = {GPU: requests[GPU]} if gpus else {}
    main: Object = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": limits}}
    run = min(10 * load.run_s, drawn.expovariate(1 / load.run_s) + 0.3)
    pod: Object = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": f"pod-{number:05}", "labels": {"app": f"app-{drawn.randrange(APPS):02}"},
                     "annotations": {RUN_TIME: f"{run:.2f}"}},
        "spec": {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1},
    }  # fmt: skip
    if drawn.random() < 0.1:  # its larger need while it begins counts
        more = {"requests": {"cpu": "6", "memory": "12Gi"}}
        pod["spec"]["initContainers"] = [{"name": "prepare", "image": "none", "resources": more}]
    if kind := load.controllers.get(pod["metadata"]["labels"]["app"]):
        name = pod["metadata"]["labels"]["app"]
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
    load.pod(drawn, pod)
    return pod


def controller_of(app: str, kind: str) -> Object:
    """A controller that selects the pods of an app, and makes none."""
    labels = {"app": app}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec: Object = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = app
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": app}, "spec": spec}
