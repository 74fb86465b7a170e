"""HAMi: pods that ask for a part of a card's memory and cores, held to it by a library that is loaded before CUDA.

Resources and annotations: HAMi's documentation; amounts of memory are MiB, of cores percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetlab.sharing.modes import Share
from fleetlab.stacks import pods
from fleetlab.stacks.formats.format import Document, Stack, cannot, unread
from fleetlab.stacks.quantities import whole
from fleetlab.stacks.spec import Spec
from fleetlab.stacks.yaml_writer import dump

COUNT, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
MEMORY_PART = "nvidia.com/gpumem-percentage"
MODE, POLICY = "nvidia.com/vgpu-mode", "GPU_CORE_UTILIZATION_POLICY"


def shares_with_memory(spec: Spec, stack: str) -> tuple[Share, ...]:
    """Whoever is placed by memory must ask for some: an even part of the card, where the spec says none."""
    if spec.mode == "mig":
        what = "it makes instances by itself, by the memory that a pod asks for; a layout cannot be given"
        cannot(stack, what, "--to mig-parted, gpu-operator or dra")
    if spec.mode == "exclusive":
        return spec.tenants
    if spec.model is None and any(share.memory_mib is None for share in spec.tenants):
        what = "it places pods by memory, and there is a tenant without a limit"
        cannot(stack, what, "memory_mib for each tenant, or the card, for an even part of it")
    even = spec.model.memory_mib // len(spec.tenants) if spec.model else None
    # All of the cores would be a card of one's own, and not one without a limit.
    free = [None if share.percent == 100 else share.percent for share in spec.tenants]
    return tuple(Share(p, share.memory_mib or even) for p, share in zip(free, spec.tenants, strict=True))


def hold(spec: Spec) -> Spec:
    """Memory and cores of each tenant; whoever runs takes turns."""
    mode = "exclusive" if spec.mode == "exclusive" else "time-slicing"
    tenants = shares_with_memory(spec, "hami")
    if mode == "time-slicing" and len(tenants) < 2:
        cannot("hami", "a single tenant with limits is not told from one alone", "two tenants, or exclusive")
    plain = Spec("exclusive", (Share(),))
    return replace(spec, mode=mode, tenants=tenants, card=None, interval="default", queue=plain.queue)


def write(spec: Spec) -> str:
    """A pod for each tenant."""
    about = ["HAMi; nvidia.com/gpumem is MiB and holds, nvidia.com/gpucores is percent and is reached on average only"]
    return dump(*(_pod(spec, number, share) for number, share in enumerate(spec.tenants)), about=about)


def _pod(spec: Spec, number: int, share: Share) -> Document:
    if spec.mode == "exclusive":
        return pods.pod(spec, number, limits={COUNT: 1, MEMORY_PART: 100, CORES: 100})
    limits = {COUNT: 1, MEMORY: share.memory_mib} | ({CORES: share.percent} if share.percent is not None else {})
    force = {POLICY: "force"} if share.percent is not None else {}  # else the limit rests while nobody else is there
    annotations = {"hami.io/gpu-scheduler-policy": "binpack", MODE: "hami-core"}
    return pods.pod(spec, number, limits=limits, annotations=annotations, environment=force)


def takes(one: pods.Found) -> bool:
    """Does this pod ask HAMi for something?"""
    return bool({MEMORY, CORES, MEMORY_PART} & set(one.limits)) or MODE in one.annotations


def read(documents: Sequence[Document]) -> Spec:
    """What each pod asks for."""
    words = pods.words(documents)
    found = [one for one in pods.found(documents) if takes(one)]
    if len(found) == 1 and whole(found[0].limits.get(MEMORY_PART)) == 100 and whole(found[0].limits.get(CORES)) == 100:
        return Spec("exclusive", (Share(),), **words)
    if any(one.annotations.get(MODE) == "mig" for one in found):
        unread("instances by memory", "a layout cannot be told from what a pod asks for")
    if any(MEMORY_PART in one.limits for one in found):
        unread(f"{MEMORY_PART}: a part of a card that is not named", f"say {MEMORY} in MiB")
    shares = [
        Share(whole(one.limits.get(CORES)), whole(one.limits.get(MEMORY))) for one in found for _ in range(one.count)
    ]
    return Spec("time-slicing", tuple(shares), **words)


STACK = Stack(
    "hami",
    hold=hold,
    write=write,
    mine=lambda documents: any(takes(one) for one in pods.found(documents)),
    read=read,
    why={
        "mode": "whoever runs takes turns; there is no MPS under hami-core",
        "memory": "pods are placed by memory: without a limit, each gets an even part",
        "percent": "100 % of the cores would be a card of one's own: it is left out, and so there is no limit",
        "priority": "MPS' priority has no counterpart",
        "interval": "the length of a turn is not set",
        "card": "a pod takes any card with room",
        "queue": "it has no queues",
    },
)
