"""KAI: pods that request a part of a GPU by annotations, placed by KAI's scheduler.

Annotations: KAI's documentation of GPU sharing and of NvFractions (0.18 and later); `gpu-fraction` is the older form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks.formats.device_plugin import MIG, profile_of, resource_of
from fleetlab.gpu.stacks.formats.format import (
    CONTAINER,
    Document,
    Finding,
    PodTemplate,
    amount,
    cannot,
    dig,
    pod,
    pod_settings,
    pod_templates,
    texts,
    unread,
    whole,
)
from fleetlab.gpu.stacks.spec import GpuModel, Spec, by_size
from fleetlab.gpu.stacks.yaml import dump

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
        return [pod(spec, n, labels=labels, above=above, limits=one) for n, one in enumerate(limits)]
    return [
        _part(pod(spec, n, labels=labels, above=above, annotations=_annotations(spec, share)))
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
    me = PREFIX + CONTAINER
    amount_ = f"{share.memory_mib}Mi"
    return {me + REQUEST: amount_, me + LIMIT: amount_, me + COMPUTE: WAYS[spec.mode]}


def takes(one: PodTemplate) -> bool:
    """Whether this pod belongs to KAI."""
    mine = {FRACTION, MEMORY, "gpu-fraction-num-devices", "gpu-fraction-container-name"}
    annotated = any(key.startswith(PREFIX) or key in mine for key in one.annotations)
    return annotated or QUEUE in one.labels or dig(one.pod, "spec", "schedulerName") == SCHEDULER


def read(documents: Sequence[Document]) -> Spec:
    """Read the annotations of each pod."""
    tenants = [one for one in pod_templates(documents) if takes(one)]
    settings = pod_settings(documents) | texts(queue=tenants[0].labels.get(QUEUE))
    parts = [profile_of(key) for one in tenants for key in one.limits if key.startswith(MIG)]
    if parts:
        return Spec("mig", layout=by_size(parts), **settings)
    if all("nvidia.com/gpu" in one.limits for one in tenants):
        return Spec("exclusive", (Share(),), **settings)
    limits = [_limit(one) for one in tenants for _ in range(one.count)]
    if all(limits):
        modes = {_mode(one) for one in tenants}
        if len(modes) > 1:
            unread(f"two compute modes: {', '.join(sorted(modes))}", "pods of two modes never share a GPU")
        return Spec(modes.pop(), tuple(Share(None, limit) for limit in limits), **settings)
    return Spec("time-slicing", (Share(),) * max(2, _count(tenants)), **settings)


def _limit(one: PodTemplate) -> int | None:
    for key, value in one.annotations.items():
        if key.startswith(PREFIX) and key.endswith(LIMIT):
            mib = amount(value)
            return None if mib is None else mib // 2**20
    return whole(one.annotations.get(MEMORY))


def _mode(one: PodTemplate) -> str:
    modes = [value for key, value in one.annotations.items() if key.startswith(PREFIX) and key.endswith(COMPUTE)]
    return "mps" if modes == ["sm-sharing"] else "time-slicing"


def _count(tenants: list[PodTemplate]) -> int:
    """How many fit on a GPU if all have the same fraction; otherwise the number of pods."""
    fractions = {str(one.annotations.get(FRACTION)) for one in tenants}
    part = _fraction(fractions.pop()) if len(fractions) == 1 else 0.0
    return int(1 / part + 1e-9) if 0.01 <= part < 1 else sum(one.count for one in tenants)


def _fraction(text: object) -> float:
    """A part of a GPU; 0 if it is no number."""
    try:
        return float(str(text))
    except ValueError:
        return 0.0


def mine(documents: Sequence[Document]) -> bool:
    """Whether a pod belongs to KAI."""
    return any(takes(one) for one in pod_templates(documents))


# --- rules for KAI's annotations -------------------------------------------------------------------------------------


RENAMED = {"kai.scheduler/gpu-compute-sharing-mode": "nvidia.com/container.NAME.gpu-compute.mode"}
OLD_LABEL = "runai/queue"
COMPUTE_MODES = ("time-slicing", "sm-sharing")


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check every pod of KAI."""
    for one in pod_templates(documents):
        if takes(one) or OLD_LABEL in one.labels or set(RENAMED) & set(one.annotations):
            scheduler = one.node.at("spec", "schedulerName")
            if scheduler.value != SCHEDULER:
                yield scheduler.trap("KA02", scheduler=scheduler.value or "not set")
            if QUEUE not in one.labels:
                yield one.node.at("metadata", "labels").trap("KA11" if OLD_LABEL in one.labels else "KA01")
            for key, now in RENAMED.items():
                if key in one.annotations:
                    yield one.node.at("metadata", "annotations", key).trap("KA05", now=now)
            annotations = one.node.at("metadata", "annotations")
            fraction, memory = annotations.at(FRACTION), annotations.at(MEMORY)
            older = [key for key in (FRACTION, MEMORY) if key in annotations]
            if (older or _named(one)) and "nvidia.com/gpu" in one.limits:
                yield one.node.at("spec", "containers").trap("KA04")
            if FRACTION in annotations and not 0 < _fraction(fraction.value) < 1:
                yield fraction.trap("KA03")
            if MEMORY in annotations and not whole(memory.value):
                yield memory.trap("KA12")
            if older:
                yield annotations.trap("KA08" if _named(one) else "KA09", older=", ".join(older))
            yield from _newer(one)


def _named(one: PodTemplate) -> list[str]:
    return [key for key in one.annotations if key.startswith(PREFIX)]


def _newer(one: PodTemplate) -> Iterator[Finding]:
    annotations, named = one.node.at("metadata", "annotations"), _named(one)
    init = [c for c in one.node.at("spec", "initContainers").as_list if isinstance(c, dict)]
    there = {str(container.get("name")) for container in (*one.containers, *init)}
    limits: dict[str, dict[str, int]] = {}
    for value in map(annotations.at, named):
        name, _, what = value.key.removeprefix(PREFIX).partition(".")
        if name not in there:
            yield value.trap("KA07", name=name, containers=", ".join(sorted(there)))
        if what == "gpu-compute.mode":
            if value.value not in COMPUTE_MODES:
                yield value.trap("KA06")
        elif what in ("gpu-memory.limit", "gpu-memory.request"):
            size = amount(value.value)
            if size is None or size < 2**20:
                yield value.trap("KA13")
            limits.setdefault(name, {})[what] = size or 0
        else:
            yield value.trap("KA14", name=what)
    for name, both in limits.items():
        if both.get("gpu-memory.request", 0) > both.get("gpu-memory.limit", 1 << 62):
            yield annotations.at(f"{PREFIX}{name}{REQUEST}").trap("KA10")
    if named:
        yield annotations.trap("KA15")
