"""Nodes of a Kubernetes cluster: what each has to give, and what its labels say of its GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from fleetlab.core.kubernetes import Taint
from fleetlab.traces.kubernetes.gpus import (
    ALIYUN_MEMORY,
    MIG,
    NVIDIA,
    PROFILE,
    SHARED,
    WHOLE,
    NodeGpus,
    slices_of,
)
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, elements, members, words
from fleetlab.traces.kubernetes.quantity import quantity

# Labels that name the model of a GPU, on nodes and in what pods select.
MODELS = (
    "nvidia.com/gpu.product", "gpu.nvidia.com/model", "gpu.nvidia.com/class", "cloud.google.com/gke-accelerator",
    "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name", "aliyun.accelerator/nvidia_name",
    "karpenter.k8s.aws/instance-gpu-name", "k8s.amazonaws.com/accelerator", "accelerator",
)  # fmt: skip
POOLS = (
    "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool", "node.kubernetes.io/instance-type",
)  # fmt: skip
REGISTERS = ("hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register")
MOST_GPUS = 100_000
MOST = 10**15  # of anything else


@dataclass(frozen=True)
class Node:
    """A node as a row of a cluster, and its GPUs as its pods see them."""

    name: str
    pool: str
    gpu_type: str | None
    gpus: int
    cpu_milli: int
    memory_mib: int
    disk_mib: int
    rdma_milli: int
    card: NodeGpus
    models: frozenset[tuple[str, str]]  # labels that name the model
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    out: bool  # cordoned, or not ready: no new pod goes there


def node_of(item: Object) -> Node:
    """Read one node; Malformed says what is wrong with it."""
    about = members(item.get("metadata"), "metadata")
    labels = texts(about.get("labels"), "metadata.labels")
    status = members(item.get("status"), "status")
    has = amounts(status.get("allocatable") or status.get("capacity"), "status.allocatable")
    name = words(about.get("name"), "metadata.name")
    if not name:
        msg = "no `metadata.name`"
        raise MalformedObject(msg)
    gpus, card = _gpus(labels, texts(about.get("annotations"), "metadata.annotations"), has)
    model = next((labels[key] for key in MODELS if labels.get(key)), None)
    gpu_type = model_of(model or _vendor(has)) if gpus else None
    return Node(
        name=name,
        pool=next((labels[key] for key in POOLS if labels.get(key)), gpu_type or "CPU"),
        gpu_type=gpu_type,
        gpus=gpus,
        cpu_milli=limited("cpu", floor(has.get("cpu", 0) * 1000)),
        memory_mib=limited("memory", floor(has.get("memory", 0) / 2**20)),
        disk_mib=limited("ephemeral-storage", floor(has.get("ephemeral-storage", 0) / 2**20)),
        rdma_milli=limited("rdma", floor(sum(v for k, v in has.items() if k.startswith("rdma/")) * 1000)),
        card=card,
        labels=labels,
        taints=tuple(_taints(members(item.get("spec"), "spec"))),
        models=frozenset((key, labels[key]) for key in MODELS if labels.get(key)),
        out=members(item.get("spec"), "spec").get("unschedulable") is True or not _ready(status),
    )


def _taints(spec: Object) -> Iterable[Taint]:
    """The taints that keep pods off for good; those that Kubernetes itself sets come and go."""
    where = "spec.taints"
    for item in elements(spec.get("taints"), where):
        taint = members(item, where)
        key, value, effect = (words(taint.get(name), f"{where}.{name}") for name in ("key", "value", "effect"))
        if effect in ("NoSchedule", "NoExecute") and not passes(key):
            yield Taint(key, value, effect)


def passes(taint: str) -> bool:
    """Whether a taint, by its key, is one that Kubernetes sets and takes away itself."""
    return taint.startswith("node.kubernetes.io/")


def kubelet_version(item: Object) -> tuple[int, int]:
    """The release of a node's kubelet; zeros where it does not tell."""
    info = members(members(item.get("status"), "status").get("nodeInfo"), "status.nodeInfo")
    found = re.match(r"v(\d{1,3})\.(\d{1,3})\b", words(info.get("kubeletVersion"), "status.nodeInfo.kubeletVersion"))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _ready(status: Object) -> bool:
    conditions = [members(c, "status.conditions") for c in elements(status.get("conditions"), "status.conditions")]
    return all(c.get("status") == "True" for c in conditions if c.get("type") == "Ready")


def amounts(value: object, where: str) -> dict[str, Fraction]:
    """Quantities by the resource they are of."""
    return {name: quantity(amount, f"{where}.{name}") for name, amount in members(value, where).items()}


def limited(name: str, amount: int, most: int = MOST) -> int:
    """An amount that a column can hold, or Malformed."""
    if amount > most:
        msg = f"`{name}` is more than any node has: {str(amount)[:80]}"
        raise MalformedObject(msg)
    return amount


def model_of(label: str) -> str:
    """A GPU's model without what the device plugin hangs on to it: `Tesla-T4-SHARED`, `…-40GB-MIG-1g.5gb`."""
    return label.removesuffix("-SHARED").split("-MIG-")[0]


def texts(value: object, where: str) -> dict[str, str]:
    """Texts by their keys."""
    return {key: words(text, f"{where}.{key}") for key, text in members(value, where).items()}


def _vendor(has: Mapping[str, Fraction]) -> str:
    return next((name.split(".")[0] for name in ("amd.com/gpu",) if has.get(name)), "GPU").upper()


def _gpus(labels: Mapping[str, str], notes: Mapping[str, str], has: Mapping[str, Fraction]) -> tuple[int, NodeGpus]:
    """How many GPUs there are, whatever they are advertised as, and what is known of each."""
    product = next((labels[key] for key in MODELS if labels.get(key)), "")
    profile = labels.get("cloud.google.com/gke-gpu-partition-size") or product.partition("-MIG-")[2]
    profile = profile.removesuffix("-SHARED")
    profile = profile if PROFILE.fullmatch(profile) else ""
    registered = [gpu for key in REGISTERS for gpu in _registered(notes.get(key, ""))]
    replicas = _replicas(labels, has)
    count = len(registered) or _count(labels, has, profile, replicas)
    memory = next((m for m in registered if m), 0) or _memory(labels, has, count)
    memory *= _fit(profile, labels) if profile else 1  # there the label tells the memory of a slice
    card = NodeGpus(memory or None, replicas, profile or None, product)
    return limited("gpus", count, MOST_GPUS), card


def _replicas(labels: Mapping[str, str], has: Mapping[str, Fraction]) -> int:
    """Into how many shares each GPU is cut; the label alone does not tell, as it is also set where nothing is."""
    replicas, count = _number(labels, "nvidia.com/gpu.replicas"), _number(labels, "nvidia.com/gpu.count")
    strategy = labels.get("nvidia.com/gpu.sharing-strategy") or labels.get("cloud.google.com/gke-gpu-sharing-strategy")
    replicas = replicas or _number(labels, "cloud.google.com/gke-max-shared-clients-per-gpu")
    is_shared = strategy not in (None, "none") or SHARED in has or has.get(NVIDIA) == count * replicas
    return replicas if replicas > 1 and is_shared and strategy != "none" else 1


def _count(labels: Mapping[str, str], has: Mapping[str, Fraction], profile: str, replicas: int) -> int:
    advertised = has.get(NVIDIA, Fraction(0)) + has.get(SHARED, Fraction(0))
    if profile:
        return ceil(advertised / _fit(profile, labels))
    cut = sum(n * _part(mig[1], labels) / (replicas if mig[5] else 1) for name, n in has.items()
              if (mig := MIG.fullmatch(name)))  # fmt: skip
    other = sum(has.get(name, Fraction(0)) for name in WHOLE)
    count = ceil(advertised / replicas) + ceil(cut) + ceil(other)
    # MIG slices may leave a part of a GPU out, and then the label knows better.
    unsure = cut or (not count and NVIDIA not in has)
    return max(count, _number(labels, "nvidia.com/gpu.count") if unsure else 0)


def _fit(profile: str, labels: Mapping[str, str]) -> int:
    """How many slices of a profile fit on one GPU."""
    return max(1, floor(1 / _part(profile, labels)))


def _part(profile: str, labels: Mapping[str, str]) -> Fraction:
    """How much of a GPU a MIG slice is."""
    form = PROFILE.fullmatch(profile)
    return Fraction(int(form[2]) if form else 1, slices_of(profile, labels.get(MODELS[0], "")))


def _memory(labels: Mapping[str, str], has: Mapping[str, Fraction], count: int) -> int:
    if size := _number(labels, "nvidia.com/gpu.memory"):
        return size
    each = has.get(ALIYUN_MEMORY, Fraction(0)) / max(1, count)
    return int(each * 1024 if each < 1000 else each)


def _number(labels: Mapping[str, str], key: str) -> int:
    text = labels.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _registered(text: str) -> list[int]:
    """The memory of each GPU that HAMi or Volcano wrote down: JSON, or before that `id,10,32768,100,…:` for each."""
    try:
        listed: Any = json.loads(text) if text.startswith("[") else None
    except (ValueError, RecursionError):
        return []
    if isinstance(listed, list):
        sizes = [gpu.get("devmem") if isinstance(gpu, dict) else None for gpu in listed]
        return [size if isinstance(size, int) and 0 < size < MOST else 0 for size in sizes]
    return [_number({"": part.split(",")[2]}, "") for part in text.split(":") if part.count(",") > 3]


class Fleet:
    """All nodes, and what they have in common: all that can be said of a pod that is on none of them."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.taints = frozenset(taint for node in self.nodes.values() for taint in node.taints)
        with_gpus = [node for node in self.nodes.values() if node.gpus]
        cut = {node.card.replicas for node in with_gpus if (node.card.replicas or 1) > 1}
        memories = {node.card.memory for node in with_gpus}
        self._any = NodeGpus(memories.pop() if len(memories) == 1 else None)
        self._shared = NodeGpus(self._any.memory, cut.pop() if len(cut) == 1 else None)
        self._types: dict[tuple[str, str], set[str]] = {}
        for node in with_gpus:
            for label in node.models:
                self._types.setdefault(label, set()).add(node.gpu_type or "GPU")

    def card(self, node: str, *, shared: bool) -> NodeGpus:
        """What is known of the GPUs of a node, or of a pod's that is on none."""
        known = self.nodes.get(node)
        return known.card if known and known.gpus else self._shared if shared else self._any

    def types(self, chosen: Iterable[tuple[str, str]]) -> list[str]:
        """Types of GPU by the labels that a pod selects nodes with, as the nodes that have them are called."""
        return sorted({name for label in chosen for name in self._types.get(label, {model_of(label[1])})})
