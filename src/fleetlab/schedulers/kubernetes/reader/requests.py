"""What a pod's containers ask for together, as the scheduler adds it up, in the words of a workload."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

from fleetlab.schedulers.kubernetes.reader.nodes import (
    KNOWN,
    MIG,
    MOST_GPUS,
    SHARED,
    Fleet,
    GpuRequest,
    NodeGpus,
    by_memory,
    gpu_request,
    limited,
)
from fleetlab.schedulers.kubernetes.reader.pods import FractionalRequest, Pod, Requests

NONE = Fraction(0)


def demand(pod: Pod, fleet: Fleet) -> dict[str, Any]:
    """What a pod holds, in the words of a workload; the last two say what had to be decided on the way."""
    names = {name for part in (*pod.containers, *(i for i, _ in pod.inits)) for name in part}
    card = fleet.card(pod.node, shared=SHARED in names)
    total = _together(pod, card)
    gpu = _annotated(pod.fractions, card) + _summed(total)
    milli = ceil(gpu.milli)
    gpus = max(-(-milli // 1000), _gpus_by_memory(gpu, card))
    many = gpu.milli >= 1000 or gpus > 1
    return {
        "cpu_milli": limited("cpu", ceil(total.get("cpu", NONE) * 1000)),
        "memory_mib": limited("memory", ceil(total.get("memory", NONE) / 2**20)),
        "disk_mib": limited("ephemeral-storage", ceil(total.get("ephemeral-storage", NONE) / 2**20)),
        "rdma_milli": limited("rdma", ceil(total.get("rdma", NONE) * 1000)),
        "gpu_milli": 1000 * limited("gpus", gpus, MOST_GPUS) if many else milli,
        # Of each GPU, where there are several.
        "gpu_memory_mib": limited("gpu memory", ceil(gpu.memory / gpus)) if gpus else 0,
        "gpu_types": tuple(fleet.types(pod.selects)) if milli else (),
        "rounded": gpu.rounded or (many and gpu.milli != 1000 * gpus),
        "unsized": gpu.unsized,
    }


def _summed(total: Requests) -> GpuRequest:
    flags = (bool(total.get(name)) for name in ("unsized", "rounded"))
    return GpuRequest(total.get("gpu", NONE), total.get("gpu_memory", NONE), *flags)


def _gpus_by_memory(gpu: GpuRequest, card: NodeGpus) -> int:
    """How many GPUs the memory alone takes: small shares of two containers may have more of it than one GPU."""
    return ceil(gpu.memory / card.memory) if card.memory else 0


def _annotated(fractions: FractionalRequest, card: NodeGpus) -> GpuRequest:
    if fractions.memory and not fractions.share:
        return by_memory(fractions.memory, card).of_each(fractions.devices)
    return GpuRequest(fractions.share * 1000).of_each(fractions.devices)


def _together(pod: Pod, card: NodeGpus) -> Requests:
    """The scheduler's sum: containers run side by side, before them one initialiser after the other, sidecars stay."""
    staying: Requests = {}
    peak: Requests = {}
    for requests, stays in pod.inits:
        own = _added(_plain(requests, card), staying)
        peak = {name: max(own.get(name, NONE), peak.get(name, NONE)) for name in {*own, *peak}}
        staying = own if stays else staying
    side_by_side = staying
    for requests in pod.containers:
        side_by_side = _added(side_by_side, _plain(requests, card))
    names = {*peak, *side_by_side}
    most = {n: max(peak.get(n, NONE), side_by_side.get(n, NONE)) for n in names}
    return _added(most | {n: v for n, v in _plain(pod.instead, card).items() if n in ("cpu", "memory")}, pod.besides)


def _plain(requests: Requests, card: NodeGpus) -> Requests:
    """Requests with GPUs of every make as one kind."""
    gpu = gpu_request(requests, card)
    plain = {name: requests[name] for name in ("cpu", "memory", "ephemeral-storage") if name in requests}
    rdma = sum((n for name, n in requests.items() if name.startswith("rdma/")), NONE)
    extra = {"gpu": gpu.milli, "gpu_memory": gpu.memory, "rdma": rdma}
    extra |= {"unsized": Fraction(gpu.unsized), "rounded": Fraction(gpu.rounded)}
    return plain | {name: n for name, n in extra.items() if n}


def _added(one: Requests, other: Requests) -> Requests:
    return {name: one.get(name, NONE) + other.get(name, NONE) for name in {*one, *other}}


def unknown_resources(pod: Pod) -> set[str]:
    """What a pod asks for that is none of the resources known here: a GPU by another name, or no GPU at all."""
    parts = (*pod.containers, *(init for init, _ in pod.inits))
    extended = {name for part in parts for name, n in part.items() if n and "/" in name}
    return {n for n in extended if n not in KNOWN and not MIG.fullmatch(n) and not n.startswith("rdma/")}
