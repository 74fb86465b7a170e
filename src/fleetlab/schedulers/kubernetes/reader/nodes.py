"""Nodes of a Kubernetes cluster: what each has to give, and what its labels say of its GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from fleetlab.schedulers.kubernetes.config import Taint
from fleetlab.schedulers.kubernetes.reader.objects import MalformedObject, Object, elements, members, quantity, words

# -- GPUs as Kubernetes pods ask for them: whole, shared, sliced, or by share of cores or memory; all as ---------------
# A share asked for by memory alone is that part of a GPU's memory. MIG slices are rounded down: seven of 142 fit on a
# GPU and seven of 143 would not. A profile's size is in gigabytes, as its name says: in gibibytes the slices of a GPU
# would add up to more than it has.

WHOLE = (
    "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "aliyun.com/gpu", "aliyun.com/gpu-count",
)  # fmt: skip
SHARED = "nvidia.com/gpu.shared"
NVIDIA = "nvidia.com/gpu"
VOLCANO = "volcano.sh/vgpu-number"
# HAMi and Volcano: a number of GPUs, and of each so much memory, in MiB or percent, and so many percent of its cores.
OF_EACH = {
    NVIDIA: ("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),
    VOLCANO: ("volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-cores"),
}
ALIYUN_MEMORY, ALIYUN_CORES = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
KNOWN = {*WHOLE, SHARED, ALIYUN_MEMORY, ALIYUN_CORES, *OF_EACH, *(name for parts in OF_EACH.values() for name in parts)}

PROFILE = re.compile(r"(?:([1-7])c\.)?([1-7])g\.(\d{1,4})gb(?:[.+](?:me|gfx)(?:\.all)?)?")
MIG = re.compile(rf"nvidia\.com/mig-({PROFILE.pattern})(\.shared)?")
QUARTERED = ("A30", "RTX-PRO")  # their GPUs have four slices, all others seven
QUARTERS = {(1, 6), (2, 12), (4, 24)}  # and so these profiles tell, where no product is named


@dataclass(frozen=True)
class NodeGpus:
    """What is known of the GPUs that a pod runs on, or could."""

    memory: int | None = None  # MiB
    replicas: int | None = 1  # shares that each is advertised as; None if not known
    profile: str | None = None  # of MIG, where slices are advertised as GPUs
    product: str = ""


@dataclass(frozen=True)
class GpuRequest:
    """A demand for GPUs that can be added up."""

    milli: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)  # MiB
    unsized: bool = False  # the size of a share is not known: the whole GPU is counted
    rounded: bool = False  # shares of several GPUs: whole ones are counted

    def __add__(self, other: GpuRequest) -> GpuRequest:
        unsized, rounded = self.unsized or other.unsized, self.rounded or other.rounded
        return GpuRequest(self.milli + other.milli, self.memory + other.memory, unsized, rounded)

    def times(self, n: Fraction) -> GpuRequest:
        """That much, `n` times, wherever it fits."""
        return GpuRequest(self.milli * n, self.memory * n, self.unsized and n > 0, self.rounded and n > 0)

    def of_each(self, n: Fraction) -> GpuRequest:
        """That much of each of `n` GPUs: a workload knows shares of one only, so several are taken whole."""
        if n <= 1:
            return self.times(n)
        whole = Fraction(1000 * ceil(self.milli / 1000))
        return GpuRequest(whole * n, self.memory * n, self.unsized, self.rounded or whole != self.milli)


GPU = GpuRequest(Fraction(1000))


def gpu_request(requests: Mapping[str, Fraction], card: NodeGpus) -> GpuRequest:
    """What one container asks for in all."""
    total = GpuRequest()
    if not any("/" in name for name in requests):
        return total  # most ask for CPU and memory alone
    for name, n in requests.items():
        if name in WHOLE:
            total += GPU.times(n)
        elif name == SHARED:
            total += _replica(card).times(n)
        elif mig := MIG.fullmatch(name):
            total += slice_of(mig[1], card.product).times(n / (card.replicas or 1) if mig[5] else n)
    for name in OF_EACH:
        total += _virtual(requests, name, card)
    return total + _aliyun(requests, card)


def _replica(card: NodeGpus) -> GpuRequest:
    if card.replicas is None or card.replicas < 2:
        return GpuRequest(Fraction(1000), unsized=True)
    return GpuRequest(Fraction(max(1, 1000 // card.replicas)))


def _virtual(requests: Mapping[str, Fraction], name: str, card: NodeGpus) -> GpuRequest:
    memory, percent, cores = (requests.get(part, Fraction(0)) for part in OF_EACH[name])
    n = requests.get(name, Fraction(1 if memory or percent or cores else 0))
    if percent and card.memory:
        memory = percent * card.memory / 100
    if cores:
        return GpuRequest(min(cores * 10, Fraction(1000)), memory).of_each(n)
    if percent:
        return GpuRequest(min(percent * 10, Fraction(1000)), memory).of_each(n)
    return by_memory(memory, card).of_each(n) if memory else _advertised(card).times(n)


def _advertised(card: NodeGpus) -> GpuRequest:
    """One of what the device plugin calls a GPU: it may be a replica or a slice of one."""
    if card.profile:
        return slice_of(card.profile, card.product)
    return _replica(card) if (card.replicas or 1) > 1 else GPU


def _aliyun(requests: Mapping[str, Fraction], card: NodeGpus) -> GpuRequest:
    memory, cores = requests.get(ALIYUN_MEMORY, Fraction(0)), requests.get(ALIYUN_CORES, Fraction(0))
    memory *= 1024 if memory < 1000 else 1  # in GiB; clusters set up in MiB have larger numbers
    if cores:
        return GpuRequest(cores * 10, memory)
    return by_memory(memory, card) if memory else GpuRequest()


def by_memory(memory: Fraction, card: NodeGpus) -> GpuRequest:
    """A share of a GPU by its memory, in MiB; more than a GPU has is several of them."""
    if not card.memory:
        return GpuRequest(Fraction(1000), memory, unsized=True)
    return GpuRequest(max(Fraction(1), 1000 * memory / card.memory), memory)


def slice_of(profile: str, product: str) -> GpuRequest:
    """A MIG slice by its profile: `1g.5gb`, `3g.40gb`, or `1c.3g.40gb` for a part of its cores."""
    form = PROFILE.fullmatch(profile)
    if not form:
        return GpuRequest(Fraction(1000), unsized=True)
    cores, memory = int(form[1] or form[2]), int(form[3]) * 10**9 // 2**20
    slices = slices_of(profile, product)
    # The largest is the GPU itself, and its memory is whatever the GPU has.
    return GpuRequest(Fraction(1000 * cores // slices), Fraction(memory)) if cores < slices else GPU


def slices_of(profile: str, product: str) -> int:
    """How many compute slices the GPU has that a profile is cut from."""
    form = PROFILE.fullmatch(profile)
    quarter = form is not None and (int(form[2]), int(form[3])) in QUARTERS
    return 4 if quarter or any(name in product.upper() for name in QUARTERED) else 7


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
