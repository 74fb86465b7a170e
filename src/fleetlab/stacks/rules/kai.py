"""Rules for KAI's annotations.

Source: KAI's documentation of GPU sharing and NvFractions (0.18).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetlab.stacks import pods
from fleetlab.stacks.formats import kai
from fleetlab.stacks.formats.format import Document, dig, listed
from fleetlab.stacks.gpu_models import GpuModel
from fleetlab.stacks.quantities import amount, whole
from fleetlab.stacks.rules.finding import Finding, at

RENAMED = {"kai.scheduler/gpu-compute-sharing-mode": "nvidia.com/container.NAME.gpu-compute.mode"}
OLD_LABEL = "runai/queue"
COMPUTE = ("time-slicing", "sm-sharing")


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check every pod of KAI."""
    for one in pods.pod_templates(documents):
        if kai.takes(one) or OLD_LABEL in one.labels or set(RENAMED) & set(one.annotations):
            yield from _pod(one)
            yield from _older(one)
            yield from _newer(one)


def _pod(one: pods.PodTemplate) -> Iterator[Finding]:
    scheduler = dig(one.pod, "spec", "schedulerName")
    if scheduler != kai.SCHEDULER:
        what = f"scheduler {scheduler or 'not set'}: other schedulers ignore the annotations"
        yield Finding("KA02", "error", at(one.where, "spec.schedulerName"), what, f"schedulerName: {kai.SCHEDULER}")
    if kai.QUEUE not in one.labels:
        old = OLD_LABEL in one.labels
        what = f"{OLD_LABEL}: an outdated label" if old else "no queue: the pod is not scheduled"
        yield Finding("KA11" if old else "KA01", "error", at(one.where, "metadata.labels"), what, f"{kai.QUEUE}: QUEUE")
    for key, now in RENAMED.items():
        if key in one.annotations:
            where = at(one.where, "metadata.annotations", key)
            yield Finding("KA05", "error", where, "a name that was changed before its release", now)


def _part(one: pods.PodTemplate) -> bool:
    return kai.FRACTION in one.annotations or kai.MEMORY in one.annotations or bool(_named(one))


def _named(one: pods.PodTemplate) -> list[str]:
    return [key for key in one.annotations if key.startswith(kai.PREFIX)]


def _older(one: pods.PodTemplate) -> Iterator[Finding]:
    base = at(one.where, "metadata.annotations")
    if _part(one) and "nvidia.com/gpu" in one.limits:
        what = "a part of a GPU and nvidia.com/gpu: KAI rejects the pod"
        yield Finding("KA04", "error", at(one.where, "spec.containers"), what, "only the annotations")
    if kai.FRACTION in one.annotations:
        try:
            part = float(str(one.annotations[kai.FRACTION]))
        except ValueError:
            part = 0.0
        if not 0 < part < 1:
            value = one.annotations[kai.FRACTION]
            do = 'above 0 and below 1, as in "0.5"; for a whole GPU, nvidia.com/gpu: 1'
            yield Finding("KA03", "error", at(base, kai.FRACTION), f"not a fraction: {value}", do)
    if kai.MEMORY in one.annotations and not whole(one.annotations[kai.MEMORY]):
        value = one.annotations[kai.MEMORY]
        yield Finding("KA12", "error", at(base, kai.MEMORY), f"not MiB: {value}", 'a whole number, as in "20000"')
    older = [key for key in (kai.FRACTION, kai.MEMORY) if key in one.annotations]
    if older and _named(one):
        what = f"{', '.join(older)} beside NvFractions, which have precedence: it is ignored"
        yield Finding("KA08", "warning", base, what, "one of them")
    elif older:
        what = "affects placement only: unless KAI runs with HamiCore, nothing prevents a pod from using more memory"
        yield Finding("KA09", "note", base, what, "NvFractions' limit (0.18 or later), MPS or MIG")


def _newer(one: pods.PodTemplate) -> Iterator[Finding]:
    base, named = at(one.where, "metadata.annotations"), _named(one)
    init = [c for c in listed(dig(one.pod, "spec", "initContainers")) if isinstance(c, dict)]
    there = {str(container.get("name")) for container in (*one.containers, *init)}
    limits: dict[str, dict[str, int]] = {}
    for key in named:
        name, _, what = key.removeprefix(kai.PREFIX).partition(".")
        if name not in there:
            do = f"the pod has {', '.join(sorted(there))}"
            yield Finding("KA07", "error", at(base, key), f"unknown container: `{name}`", do)
        value = one.annotations[key]
        if what == "gpu-compute.mode":
            if value not in COMPUTE:
                yield Finding("KA06", "error", at(base, key), f"no such mode: {value}", " or ".join(COMPUTE))
        elif what in ("gpu-memory.limit", "gpu-memory.request"):
            size = amount(value)
            if size is None or size < 2**20:
                yield Finding("KA13", "error", at(base, key), f"not an amount of memory: {value}", "as in 20Gi")
            limits.setdefault(name, {})[what] = size or 0
        else:
            yield Finding("KA14", "warning", at(base, key), f"unknown annotation: {what}", "a typo?")
    for name, both in limits.items():
        if both.get("gpu-memory.request", 0) > both.get("gpu-memory.limit", 1 << 62):
            where = at(base, f"{kai.PREFIX}{name}{kai.REQUEST}")
            yield Finding("KA10", "error", where, "a request above the limit", "at most the limit")
    if named:
        what = "NvFractions need KAI 0.18 or later in that mode; earlier versions ignore these annotations"
        yield Finding("KA15", "note", base, what, "Helm: global.gpuSharingMode=NvFractions; pin KAI's version")
