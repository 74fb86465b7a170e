"""KAI: pods that request a part of a GPU by annotations, placed by KAI's scheduler.

Annotations: KAI's documentation of GPU sharing and of NvFractions (0.18 and later); `gpu-fraction` is the older form.
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
FRACTION, MEMORY = "gpu-fraction", "gpu-memory"  # the older form: a part of the memory, or MiB
PREFIX, LIMIT, REQUEST, COMPUTE = (
    "nvidia.com/container.",
    ".gpu-memory.limit",
    ".gpu-memory.request",
    ".gpu-compute.mode",
)
WAYS = {"time-slicing": "time-slicing", "mps": "sm-sharing"}
FINE = 10_000  # fractions have four digits, enough for 100 tenants


def hold(spec: Spec) -> Spec:
    """Keeps memory limits if all tenants have one, and the compute mode; otherwise their number."""
    plain = replace(spec, gpu=None, interval="default", turns=1)
    if spec.mode in ("exclusive", "mig"):
        return plain
    if len(spec.tenants) < 2:
        cannot("kai", "a single tenant that shares a GPU", "two tenants, or exclusive")
    if all(share.memory_mib for share in spec.tenants):
        return replace(plain, tenants=tuple(Share(None, share.memory_mib) for share in spec.tenants))
    # Without memory limits only the older form is left, and it has no compute mode.
    return replace(plain, mode="time-slicing", tenants=(Share(),) * len(spec.tenants))


def write(spec: Spec) -> str:
    """Write one pod per tenant or instance."""
    about = ["KAI"]
    if spec.mode in WAYS:
        about = ["KAI; a pod is placed by its annotations, and must not request nvidia.com/gpu as well"]
    if spec.mode in WAYS and spec.tenants[0].memory_mib:
        about.append("NvFractions: KAI 0.18 or later, Helm global.gpuSharingMode=NvFractions")
    elif spec.mode in WAYS:
        about.append("a fraction affects placement only: nothing prevents a pod from using more memory")
    return dump(*_pods(spec), about=about)


def _pods(spec: Spec) -> list[Document]:
    labels, above = {QUEUE: spec.queue}, {"schedulerName": SCHEDULER}
    whole_ones = {"exclusive": ["nvidia.com/gpu"], "mig": [resource_of(p) for p in spec.layout]}
    if spec.mode in whole_ones:
        limits = [{name: 1} for name in whole_ones[spec.mode]]
        return [pods.pod(spec, n, labels=labels, above=above, limits=one) for n, one in enumerate(limits)]
    return [
        _part(pods.pod(spec, n, labels=labels, above=above, annotations=_annotations(spec, share)))
        for n, share in enumerate(spec.tenants)
    ]


def _part(pod: Document) -> Document:
    """A pod that requests by annotations only: KAI rejects one that also requests a whole GPU."""
    for container in pod["spec"]["containers"]:
        del container["resources"]
    return pod


def _annotations(spec: Spec, share: Share) -> dict[str, str]:
    if share.memory_mib is None:
        return {FRACTION: str(FINE // len(spec.tenants) / FINE)}
    me = PREFIX + pods.CONTAINER
    amount_ = f"{share.memory_mib}Mi"
    return {me + REQUEST: amount_, me + LIMIT: amount_, me + COMPUTE: WAYS[spec.mode]}


def takes(one: pods.PodTemplate) -> bool:
    """Whether this pod belongs to KAI."""
    mine = {FRACTION, MEMORY, "gpu-fraction-num-devices", "gpu-fraction-container-name"}
    annotated = any(key.startswith(PREFIX) or key in mine for key in one.annotations)
    return annotated or QUEUE in one.labels or dig(one.pod, "spec", "schedulerName") == SCHEDULER


def read(documents: Sequence[Document]) -> Spec:
    """Read the annotations of each pod."""
    tenants = [one for one in pods.pod_templates(documents) if takes(one)]
    words = pods.words(documents)
    if isinstance(queue := tenants[0].labels.get(QUEUE), str):
        words |= {"queue": queue}
    parts = [profile_of(key) for one in tenants for key in one.limits if key.startswith(MIG)]
    if parts:
        return Spec("mig", layout=by_size(parts), **words)
    if all("nvidia.com/gpu" in one.limits for one in tenants):
        return Spec("exclusive", (Share(),), **words)
    limits = [_limit(one) for one in tenants for _ in range(one.count)]
    if all(limits):
        modes = {_mode(one) for one in tenants}
        if len(modes) > 1:
            unread(f"two compute modes: {', '.join(sorted(modes))}", "pods of two modes never share a GPU")
        return Spec(modes.pop(), tuple(Share(None, limit) for limit in limits), **words)
    return Spec("time-slicing", (Share(),) * max(2, _count(tenants)), **words)


def _limit(one: pods.PodTemplate) -> int | None:
    for key, value in one.annotations.items():
        if key.startswith(PREFIX) and key.endswith(LIMIT):
            mib = amount(value)
            return None if mib is None else mib // 2**20
    return whole(one.annotations.get(MEMORY))


def _mode(one: pods.PodTemplate) -> str:
    modes = [value for key, value in one.annotations.items() if key.startswith(PREFIX) and key.endswith(COMPUTE)]
    return "mps" if modes == ["sm-sharing"] else "time-slicing"


def _count(found: list[pods.PodTemplate]) -> int:
    """How many fit on a GPU if all have the same fraction; otherwise the number of pods."""
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
    mine=lambda documents: any(takes(one) for one in pods.pod_templates(documents)),
    read=read,
    why={
        "mode": "without memory_mib only gpu-fraction is left, which has no compute mode",
        "memory": "limits are written only if all tenants have one; otherwise only a fraction",
        "percent": "shares of the SMs are not supported (proposed for 0.20)",
        "priority": "there is no counterpart of MPS' priority",
        "interval": "the time-slice length is not set",
        "turns": "MIG instances are requested whole",
        "gpu": "a pod is placed on any GPU with enough memory",
    },
)
