"""Devices by dynamic resource allocation (DRA): GPUs that a pod's claims request, and that nodes' slices offer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from fleetlab.schedulers.kubernetes.reader.nodes import MOST_GPUS, Node, limited, model_of
from fleetlab.schedulers.kubernetes.reader.objects import Object, elements, members, quantity, whole, words
from fleetlab.schedulers.kubernetes.reader.pods import Pod

KINDS = ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
TABLE = "device claims and slices"
GPU_CLASS = re.compile(r"\bgpu\b")  # gpu.nvidia.com, gpu.amd.com, gpu-h100; not mig.nvidia.com


@dataclass(frozen=True)
class NodeDevices:
    """GPUs that a slice offers on its node."""

    node: str
    count: int
    product: str
    memory: int  # MiB


@dataclass
class Devices:
    """The claims, their templates and the slices of a list, by namespace/name."""

    stored: dict[tuple[str, str], tuple[int | NodeDevices | None, str, int]] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)  # claims by name that a pod is charged for

    def store(self, item: Object, kind: str, name: str, at: tuple[str, int]) -> tuple[object, str, int] | None:
        """Take an object; return the one of the same name that it supersedes."""
        spec = members(item.get("spec"), "spec")
        before = self.stored.pop((kind, name), None)
        own = members(spec.get("spec"), "spec.spec") if kind == "ResourceClaimTemplate" else spec
        self.stored[kind, name] = _slice(spec) if kind == "ResourceSlice" else _gpus(own), *at
        return before

    def charge(self, pod: Pod) -> Pod:
        """Return a pod with the GPUs that its claims request; one that several pods share counts for the first."""
        gpus, unknown = 0, []
        for template, claim in pod.claims:
            keys = [(kind, f"{pod.namespace}/{name}") for kind, name in zip(KINDS, (claim, template), strict=False)]
            amount = next((self.stored[key][0] for key in reversed(keys) if key in self.stored), None)
            if not isinstance(amount, int):
                unknown.append((template, claim))
            elif template or keys[0][1] not in self._shared:
                gpus += amount
                self._shared.update([] if template else [keys[0][1]])
        more = {"gpu": pod.besides.get("gpu", Fraction(0)) + 1000 * gpus} if gpus else {}
        return replace(pod, besides=pod.besides | more, claims=tuple(unknown))

    def offer(self, node: Node) -> Node:
        """Return a node with the GPUs of its slices, where no device plugin tells of any."""
        slices = [one for one, _, _ in self.stored.values() if isinstance(one, NodeDevices) and one.node == node.name]
        gpus = sum(one.count for one in slices)
        if node.gpus or not gpus:
            return node
        product = next((one.product for one in slices if one.product), "GPU")
        card = replace(node.card, product=product, memory=max(one.memory for one in slices) or None)
        model = model_of(next((value for _, value in sorted(node.models)), product))
        pool = model if node.pool == "CPU" else node.pool
        return replace(node, gpus=limited("gpus", gpus, MOST_GPUS), gpu_type=model, pool=pool, card=card)


def _gpus(spec: Object) -> int | None:
    """How many GPUs a claim requests; None: that cannot be said. Of alternatives, those of the first."""
    where, total = "spec.devices.requests", 0
    for one in elements(members(spec.get("devices"), "spec.devices").get("requests"), where):
        request = members(one, where)  # v1beta1 has no `exactly`
        choices = elements(request.get("firstAvailable"), where)
        exact = members(choices[0] if choices else request.get("exactly") or request, where)
        if exact.get("adminAccess") is True:
            continue
        if exact.get("allocationMode") == "All" or not GPU_CLASS.search(words(exact.get("deviceClassName"), where)):
            return None
        total += 1 if exact.get("count") is None else whole(exact["count"], f"{where}.count")
    return total


def _slice(spec: Object) -> NodeDevices:
    products, memories = [], [0]
    for about in _devices(spec) if GPU_CLASS.search(words(spec.get("driver"), "spec.driver")) else ():
        attributes = members(about.get("attributes"), "spec.devices.attributes")
        kind, product = (
            words(members(attributes.get(key), key).get("string"), f"spec.devices.attributes.{key}")
            for key in ("type", "productName")
        )
        if kind in ("", "gpu"):  # the other devices are parts of these
            products.append(product.replace(" ", "-"))
            capacity = members(members(about.get("capacity"), "spec.devices.capacity").get("memory"), "memory")
            memories.append(int(quantity(capacity.get("value", 0), "spec.devices.capacity.memory") / 2**20))
    return NodeDevices(words(spec.get("nodeName"), "spec.nodeName"), len(products), max(products, default=""),
                       max(memories))  # fmt: skip


def _devices(spec: Object) -> Iterator[Object]:
    """What a slice says of each device; v1beta1 has it under `basic`."""
    for one in elements(spec.get("devices"), "spec.devices"):
        device = members(one, "spec.devices")
        yield members(device.get("basic"), "spec.devices.basic") or device
