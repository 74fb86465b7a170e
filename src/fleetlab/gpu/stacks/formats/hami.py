"""HAMi: pods that request a part of a GPU's memory and cores, enforced by a library that is loaded before CUDA.

Resources and annotations: HAMi's documentation; amounts of memory are MiB, of cores percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks.formats.format import (
    Document,
    PodTemplate,
    cannot,
    pod,
    pod_settings,
    pod_templates,
    unread,
    whole,
)
from fleetlab.gpu.stacks.spec import Spec
from fleetlab.gpu.stacks.yaml import dump

COUNT, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
MEMORY_PART = "nvidia.com/gpumem-percentage"
MODE, POLICY = "nvidia.com/vgpu-mode", "GPU_CORE_UTILIZATION_POLICY"


def shares_with_memory(spec: Spec, stack: str) -> tuple[Share, ...]:
    """Fill in memory limits, because pods are placed by memory: an even share of the GPU if the spec has none."""
    if spec.mode == "mig":
        what = "it creates MIG instances by itself from the requested memory; a layout cannot be given"
        cannot(stack, what, "--to mig-parted, gpu-operator or dra")
    if spec.mode == "exclusive":
        return spec.tenants
    if spec.model is None and any(share.memory_mib is None for share in spec.tenants):
        what = "it places pods by memory, and a tenant has no memory limit"
        cannot(stack, what, "memory_mib for each tenant, or gpu, for an even share")
    even = spec.model.memory_mib // len(spec.tenants) if spec.model else None
    # 100 % of the cores would be a whole GPU, not a shared one without a limit.
    free = [None if share.percent == 100 else share.percent for share in spec.tenants]
    return tuple(Share(p, share.memory_mib or even) for p, share in zip(free, spec.tenants, strict=True))


def time_sliced(spec: Spec, stack: str) -> Spec:
    """Keep memory and cores of each tenant; the mode becomes time slicing."""
    mode = "exclusive" if spec.mode == "exclusive" else "time-slicing"
    tenants = shares_with_memory(spec, stack)
    if mode == "time-slicing" and len(tenants) < 2:
        cannot(stack, "a single tenant with limits looks like one without", "two tenants, or exclusive")
    return replace(spec, mode=mode, tenants=tenants, gpu=None, interval="default")


def hold(spec: Spec) -> Spec:
    """Keeps memory and cores of each tenant; the mode becomes time slicing."""
    return replace(time_sliced(spec, "hami"), queue=Spec("exclusive", (Share(),)).queue)


def write(spec: Spec) -> str:
    """Write one pod per tenant."""
    about = [
        "HAMi; nvidia.com/gpumem is in MiB and enforced, nvidia.com/gpucores is in percent and enforced on average"
    ]
    return dump(*(_pod(spec, number, share) for number, share in enumerate(spec.tenants)), about=about)


def _pod(spec: Spec, number: int, share: Share) -> Document:
    if spec.mode == "exclusive":
        return pod(spec, number, limits={COUNT: 1, MEMORY_PART: 100, CORES: 100})
    limits = {COUNT: 1, MEMORY: share.memory_mib} | ({CORES: share.percent} if share.percent is not None else {})
    force = {POLICY: "force"} if share.percent is not None else {}  # otherwise not enforced while the GPU is idle
    annotations = {"hami.io/gpu-scheduler-policy": "binpack", MODE: "hami-core"}
    return pod(spec, number, limits=limits, annotations=annotations, environment=force)


def takes(one: PodTemplate) -> bool:
    """Whether this pod requests HAMi's resources."""
    return bool({MEMORY, CORES, MEMORY_PART} & set(one.limits)) or MODE in one.annotations


def read(documents: Sequence[Document]) -> Spec:
    """Read the requests of each pod."""
    settings = pod_settings(documents)
    tenants = [one for one in pod_templates(documents) if takes(one)]
    if (
        len(tenants) == 1
        and whole(tenants[0].limits.get(MEMORY_PART)) == 100
        and whole(tenants[0].limits.get(CORES)) == 100
    ):
        return Spec("exclusive", (Share(),), **settings)
    if any(one.annotations.get(MODE) == "mig" for one in tenants):
        unread("MIG instances by memory", "a layout does not follow from the requests of a pod")
    if any(MEMORY_PART in one.limits for one in tenants):
        unread(f"{MEMORY_PART}: a percentage of an unknown GPU", f"use {MEMORY} in MiB")
    return Spec("time-slicing", shares(tenants, CORES, MEMORY), **settings)


def shares(tenants: Sequence[PodTemplate], cores: str, memory: str) -> tuple[Share, ...]:
    """What each pod requests, by the names of the resources."""
    each = [Share(whole(one.limits.get(cores)), whole(one.limits.get(memory))) for one in tenants]
    return tuple(share for share, one in zip(each, tenants, strict=True) for _ in range(one.count))


def mine(documents: Sequence[Document]) -> bool:
    """Whether a pod requests HAMi's resources."""
    return any(takes(one) for one in pod_templates(documents))
