"""KAI: pods that say their part of a card in annotations, placed by KAI's scheduler.

Annotations: KAI's documentation of GPU sharing and of NvFractions (0.18 and later); `gpu-fraction` is the older way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetlab.sharing.modes import Share
from fleetlab.stacks import pods
from fleetlab.stacks.formats.device_plugin import MIG, profile_of, resource_of
from fleetlab.stacks.formats.format import Document, Stack, cannot, dig, unread
from fleetlab.stacks.quantities import amount, whole
from fleetlab.stacks.spec import Spec, by_size
from fleetlab.stacks.yaml_writer import dump

QUEUE, SCHEDULER = "kai.scheduler/queue", "kai-scheduler"
FRACTION, MEMORY = "gpu-fraction", "gpu-memory"  # the older way: a part of the memory, or MiB
PREFIX, LIMIT, REQUEST, COMPUTE = (
    "nvidia.com/container.",
    ".gpu-memory.limit",
    ".gpu-memory.request",
    ".gpu-compute.mode",
)
WAYS = {"time-slicing": "time-slicing", "mps": "sm-sharing"}
FINE = 10_000  # fractions have four digits: up to 100 tenants can be told from their number


def hold(spec: Spec) -> Spec:
    """Memory of each tenant where all have a limit, and how they compute; else their number."""
    plain = replace(spec, card=None, interval="default", turns=1)
    if spec.mode in ("exclusive", "mig"):
        return plain
    if len(spec.tenants) < 2:
        cannot("kai", "a single tenant that shares", "two tenants, or exclusive")
    if all(share.memory_mib for share in spec.tenants):
        return replace(plain, tenants=tuple(Share(None, share.memory_mib) for share in spec.tenants))
    # Without memory there is only the older way, and that has no compute mode.
    return replace(plain, mode="time-slicing", tenants=(Share(),) * len(spec.tenants))


def write(spec: Spec) -> str:
    """A pod for each tenant or instance."""
    about = ["KAI"]
    if spec.mode in WAYS:
        about = ["KAI; a pod is placed by its annotations, and must not ask for nvidia.com/gpu as well"]
    if spec.mode in WAYS and spec.tenants[0].memory_mib:
        about.append("NvFractions: KAI 0.18 or later, Helm global.gpuSharingMode=NvFractions")
    elif spec.mode in WAYS:
        about.append("a fraction is kept by placement only: nothing stops a pod from taking more memory")
    return dump(*_pods(spec), about=about)


def _pods(spec: Spec) -> list[Document]:
    labels, above = {QUEUE: spec.queue}, {"schedulerName": SCHEDULER}
    whole_ones = {"exclusive": ["nvidia.com/gpu"], "mig": [resource_of(p) for p in spec.layout]}
    if spec.mode in whole_ones:
        asked = [{name: 1} for name in whole_ones[spec.mode]]
        return [pods.pod(spec, n, labels=labels, above=above, limits=one) for n, one in enumerate(asked)]
    return [
        _part(pods.pod(spec, n, labels=labels, above=above, annotations=_said(spec, share)))
        for n, share in enumerate(spec.tenants)
    ]


def _part(pod: Document) -> Document:
    """A pod that asks by annotations alone: KAI refuses one that asks for a whole card besides."""
    for container in pod["spec"]["containers"]:
        del container["resources"]
    return pod


def _said(spec: Spec, share: Share) -> dict[str, str]:
    if share.memory_mib is None:
        return {FRACTION: str(FINE // len(spec.tenants) / FINE)}
    me = PREFIX + pods.CONTAINER
    amount_ = f"{share.memory_mib}Mi"
    return {me + REQUEST: amount_, me + LIMIT: amount_, me + COMPUTE: WAYS[spec.mode]}


def takes(one: pods.Found) -> bool:
    """Is this pod KAI's?"""
    mine = {FRACTION, MEMORY, "gpu-fraction-num-devices", "gpu-fraction-container-name"}
    said = any(key.startswith(PREFIX) or key in mine for key in one.annotations)
    return said or QUEUE in one.labels or dig(one.pod, "spec", "schedulerName") == SCHEDULER


def read(documents: Sequence[Document]) -> Spec:
    """What each pod says."""
    found = [one for one in pods.found(documents) if takes(one)]
    words = pods.words(documents)
    if isinstance(queue := found[0].labels.get(QUEUE), str):
        words |= {"queue": queue}
    parts = [profile_of(key) for one in found for key in one.limits if key.startswith(MIG)]
    if parts:
        return Spec("mig", layout=by_size(parts), **words)
    if all("nvidia.com/gpu" in one.limits for one in found):
        return Spec("exclusive", (Share(),), **words)
    limits = [_limit(one) for one in found for _ in range(one.count)]
    if all(limits):
        modes = {_mode(one) for one in found}
        if len(modes) > 1:
            unread(f"two compute modes: {', '.join(sorted(modes))}", "pods of two modes never share a card")
        return Spec(modes.pop(), tuple(Share(None, limit) for limit in limits), **words)
    return Spec("time-slicing", (Share(),) * max(2, _count(found)), **words)


def _limit(one: pods.Found) -> int | None:
    for key, value in one.annotations.items():
        if key.startswith(PREFIX) and key.endswith(LIMIT):
            found = amount(value)
            return None if found is None else found // 2**20
    return whole(one.annotations.get(MEMORY))


def _mode(one: pods.Found) -> str:
    said = [value for key, value in one.annotations.items() if key.startswith(PREFIX) and key.endswith(COMPUTE)]
    return "mps" if said == ["sm-sharing"] else "time-slicing"


def _count(found: list[pods.Found]) -> int:
    """As many as fit on a card, where all have the same fraction; else as many as there are pods."""
    fractions = {str(one.annotations.get(FRACTION)) for one in found}
    try:
        part = float(fractions.pop()) if len(fractions) == 1 else 0.0
    except ValueError:
        part = 0.0
    return int(1 / part + 1e-9) if 0.01 <= part < 1 else sum(one.count for one in found)


STACK = Stack(
    "kai",
    hold=hold,
    write=write,
    mine=lambda documents: any(takes(one) for one in pods.found(documents)),
    read=read,
    why={
        "mode": "without memory_mib only gpu-fraction is left, and that has no compute mode",
        "memory": "a limit is said where all tenants have one; else only a fraction is",
        "percent": "parts of the SMs cannot be said (proposed for 0.20)",
        "priority": "MPS' priority has no counterpart",
        "interval": "the length of a turn is not set",
        "turns": "instances are asked for whole",
        "card": "a pod takes any card with room",
    },
)
