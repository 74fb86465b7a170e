"""Rules for pods (Kubernetes itself, HAMi, Volcano) and for quotas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetlab.stacks import pods
from fleetlab.stacks.formats import hami, volcano
from fleetlab.stacks.formats.format import Document, dig, listed, mapped
from fleetlab.stacks.gpu_models import GpuModel
from fleetlab.stacks.quantities import exact, whole
from fleetlab.stacks.rules.finding import Finding, at, place

OURS = ("nvidia.com/", "volcano.sh/")
MODES = ("hami-core", "mig")
SOFT = "limits on cores are enforced on average: they are checked about every 120 ms, and bursts exceed them"


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check every pod and every quota."""
    for number, document in enumerate(documents):
        if document.get("kind") == "ResourceQuota":
            yield from _quota(document, place(number, len(documents)))
    for one in pods.pod_templates(documents):
        yield from _words(one)
        yield from _requests(one)
        yield from _pieces(one)
        if volcano.takes(one):
            yield from _volcano(one)
        elif hami.takes(one):
            yield from _hami(one, gpu)


def _quota(document: Document, base: str) -> Iterator[Finding]:
    for key in mapped(dig(document, "spec", "hard")):
        name = key.removeprefix("limits.")
        if name.startswith(OURS):
            what = "a quota of an extended resource must be on requests: this one is rejected"
            yield Finding("RQ01", "error", at(base, "spec.hard", key), what, f"requests.{name}")


def _words(one: pods.PodTemplate) -> Iterator[Finding]:
    for kind in ("annotations", "labels"):
        for key, value in mapped(dig(one.pod, "metadata", kind)).items():
            if not isinstance(value, str):
                where = at(one.where, "metadata", kind, key)
                yield Finding("K802", "error", where, f"not a string, but {value}: rejected", f'in quotes: "{value}"')


def _requests(one: pods.PodTemplate) -> Iterator[Finding]:
    for number, container in enumerate(one.containers):
        limits = mapped(dig(container, "resources", "limits"))
        for key, value in mapped(dig(container, "resources", "requests")).items():
            if key.startswith(OURS) and limits.get(key) != value:
                where = at(one.where, "spec.containers", number, "resources.requests", key)
                what = "an extended resource is requested under limits; a request must be equal: rejected"
                yield Finding("K801", "error", where, what, f"limits: {{{key}: {value}}}")


def _each(one: pods.PodTemplate) -> Iterator[tuple[str, str, Any]]:
    """Path, resource and amount of each container's requests."""
    for number, container in enumerate(one.containers):
        for key, value in mapped(dig(container, "resources", "limits")).items():
            yield at(one.where, "spec.containers", number, "resources.limits", key), key, value


def _pieces(one: pods.PodTemplate) -> Iterator[Finding]:
    for where, key, value in _each(one):
        amount = exact(value)
        if key.startswith(OURS) and value is not None and (amount is None or amount < 0 or amount.denominator != 1):
            what = f"{value}: an extended resource is a non-negative integer: rejected"
            way = "an integer; for a part of a GPU, a sharing mode (docs/share-emit.md)"
            yield Finding("K803", "error", where, what, way)


def _amounts(one: pods.PodTemplate, prefix: str, memory: str, cores: str) -> Iterator[Finding]:
    for where, key, value in _each(one):
        if key == memory and whole(value) is None:
            what = f"{value}: the unit is MiB, and a suffix multiplies the number"
            yield Finding(f"{prefix}05", "error", where, what, "MiB as a whole number, as in 20000")
        if key == cores and not 0 <= (found := -1 if whole(value) is None else whole(value) or 0) <= 100:
            yield Finding(f"{prefix}04", "error", where, f"not a percentage: {value}", "0 to 100")
        elif key == cores and found < 100:
            yield Finding(f"{prefix}01", "note", where, SOFT, "for a hard limit, MPS or MIG")


def _hami(one: pods.PodTemplate, gpu: GpuModel | None) -> Iterator[Finding]:
    yield from _amounts(one, "HM", hami.MEMORY, hami.CORES)
    limits, where = one.limits, at(one.where, "spec.containers")
    if hami.MEMORY in limits and hami.MEMORY_PART in limits:
        what = f"{hami.MEMORY} and {hami.MEMORY_PART} both"
        yield Finding("HM02", "error", where, what, "one of them")
    alone = whole(limits.get(hami.CORES)) == 100
    if not {hami.MEMORY, hami.MEMORY_PART} & set(limits) and not alone:
        what = "no memory requested: the pod gets all memory of a GPU, and no other pod can share it"
        yield Finding("HM06", "warning", where, what, f"{hami.MEMORY}: MiB")
    if alone and whole(limits.get(hami.MEMORY_PART)) != 100:
        what = "100 % of the cores is a whole GPU: no other pod can share it"
        yield Finding("HM03", "warning", where, what, "less than 100, or no gpucores")
    if any(key.startswith("nvidia.com/") and key.endswith(".shared") for key in limits):
        what = "HAMi's resources beside those of NVIDIA's device plugin: no node has both"
        yield Finding("HM09", "error", where, what, "nvidia.com/gpu: 1 beside nvidia.com/gpumem")
    if one.environment.get(hami.POLICY) == "disable":
        what = "GPU_CORE_UTILIZATION_POLICY: disable: gpucores is not enforced"
        yield Finding("HM08", "warning", where, what, "force, or default")
    if one.environment.get("CUDA_DISABLE_CONTROL", "").lower() in ("true", "1"):
        what = "CUDA_DISABLE_CONTROL: the library is disabled, and no limit is enforced"
        yield Finding("HM11", "warning", where, what, "leave it out")
    memory = whole(limits.get(hami.MEMORY))
    if gpu is not None and memory is not None and memory > gpu.memory_mib:
        what = f"{memory} MiB, but {gpu.name} has {gpu.memory_mib}: the pod stays pending"
        yield Finding("HM10", "error", where, what, "MiB of one GPU")
    yield from _hami_words(one)


def _hami_words(one: pods.PodTemplate) -> Iterator[Finding]:
    for key in ("hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy"):
        if (said := one.annotations.get(key)) not in (None, "binpack", "spread"):
            where = at(one.where, "metadata.annotations", key)
            yield Finding("HM07", "warning", where, f"unknown policy: {said}", "binpack or spread")
    if (mode := one.annotations.get(hami.MODE)) not in (None, *MODES):
        where = at(one.where, "metadata.annotations", hami.MODE)
        yield Finding("HM07", "warning", where, f"unknown mode: {mode}", ", ".join(MODES))


def _volcano(one: pods.PodTemplate) -> Iterator[Finding]:
    yield from _amounts(one, "VO", volcano.MEMORY, volcano.CORES)
    limits, where = one.limits, at(one.where, "spec.containers")
    scheduler = dig(one.pod, "spec", "schedulerName")
    if scheduler != volcano.SCHEDULER:
        what = f"scheduler {scheduler or 'not set'}: other schedulers sum memory over GPUs, and misplace pods"
        yield Finding("VO02", "error", at(one.where, "spec.schedulerName"), what, "schedulerName: volcano")
    if volcano.COUNT not in limits:
        what = "parts of a GPU without a number of GPUs: nothing is allocated"
        yield Finding("VO03", "error", where, what, f"{volcano.COUNT}: 1")
    if volcano.MEMORY not in limits and whole(limits.get(volcano.CORES)) != 100:
        what = "no memory requested: the pod gets all memory of a GPU, and no other pod can share it"
        yield Finding("VO06", "warning", where, what, f"{volcano.MEMORY}: MiB")
    if mixed := sorted(key for key in limits if key.startswith("nvidia.com/")):
        what = f"Volcano's resources beside {', '.join(mixed)}: two device plugins, no node has both"
        yield Finding("VO07", "error", where, what, "only volcano.sh/…")
    for container in one.containers:
        if listed(dig(container, "resources", "claims")):
            yield Finding("VO08", "warning", where, "vGPUs and a claim in one container", "one of them")
