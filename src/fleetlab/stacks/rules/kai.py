"""Traps of KAI's annotations.

Source: KAI's documentation of GPU sharing and NvFractions (0.18).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetlab.stacks import pods
from fleetlab.stacks.formats import kai
from fleetlab.stacks.formats.format import Document, dig, listed
from fleetlab.stacks.gpu_models import Model
from fleetlab.stacks.quantities import amount, whole
from fleetlab.stacks.rules.finding import Finding, at

RENAMED = {"kai.scheduler/gpu-compute-sharing-mode": "nvidia.com/container.NAME.gpu-compute.mode"}
OLD_LABEL = "runai/queue"
COMPUTE = ("time-slicing", "sm-sharing")


def check(documents: Sequence[Document], card: Model | None) -> Iterator[Finding]:
    """Every pod of KAI's."""
    for one in pods.found(documents):
        if kai.takes(one) or OLD_LABEL in one.labels or set(RENAMED) & set(one.annotations):
            yield from _pod(one)
            yield from _older(one)
            yield from _newer(one)


def _pod(one: pods.Found) -> Iterator[Finding]:
    said = dig(one.pod, "spec", "schedulerName")
    if said != kai.SCHEDULER:
        what = f"scheduler {said or 'not said'}: annotations mean nothing to another"
        yield Finding("KA02", "error", at(one.where, "spec.schedulerName"), what, f"schedulerName: {kai.SCHEDULER}")
    if kai.QUEUE not in one.labels:
        old = OLD_LABEL in one.labels
        what = f"{OLD_LABEL}: the label of old" if old else "no queue: the pod is not scheduled"
        yield Finding("KA11" if old else "KA01", "error", at(one.where, "metadata.labels"), what, f"{kai.QUEUE}: QUEUE")
    for key, now in RENAMED.items():
        if key in one.annotations:
            where = at(one.where, "metadata.annotations", key)
            yield Finding("KA05", "error", where, "a name that was given up before it was released", now)


def _part(one: pods.Found) -> bool:
    return kai.FRACTION in one.annotations or kai.MEMORY in one.annotations or bool(_named(one))


def _named(one: pods.Found) -> list[str]:
    return [key for key in one.annotations if key.startswith(kai.PREFIX)]


def _older(one: pods.Found) -> Iterator[Finding]:
    base = at(one.where, "metadata.annotations")
    if _part(one) and "nvidia.com/gpu" in one.limits:
        what = "a part of a card, and nvidia.com/gpu besides: KAI refuses the pod"
        yield Finding("KA04", "error", at(one.where, "spec.containers"), what, "only the annotations")
    if kai.FRACTION in one.annotations:
        try:
            part = float(str(one.annotations[kai.FRACTION]))
        except ValueError:
            part = 0.0
        if not 0 < part < 1:
            said = one.annotations[kai.FRACTION]
            do = 'above 0 and below 1, as in "0.5"; for a whole card, nvidia.com/gpu: 1'
            yield Finding("KA03", "error", at(base, kai.FRACTION), f"not a fraction: {said}", do)
    if kai.MEMORY in one.annotations and not whole(one.annotations[kai.MEMORY]):
        said = one.annotations[kai.MEMORY]
        yield Finding("KA12", "error", at(base, kai.MEMORY), f"not MiB: {said}", 'a whole number, as in "20000"')
    older = [key for key in (kai.FRACTION, kai.MEMORY) if key in one.annotations]
    if older and _named(one):
        what = f"{', '.join(older)} beside NvFractions: those win, and this is passed over"
        yield Finding("KA08", "warning", base, what, "one of them")
    elif older:
        what = "kept by placement only: unless KAI runs with HamiCore, nothing stops a pod from taking more memory"
        yield Finding("KA09", "note", base, what, "NvFractions' limit (0.18 or later), MPS or MIG")


def _newer(one: pods.Found) -> Iterator[Finding]:
    base, named = at(one.where, "metadata.annotations"), _named(one)
    init = [c for c in listed(dig(one.pod, "spec", "initContainers")) if isinstance(c, dict)]
    there = {str(container.get("name")) for container in (*one.containers, *init)}
    limits: dict[str, dict[str, int]] = {}
    for key in named:
        name, _, what = key.removeprefix(kai.PREFIX).partition(".")
        if name not in there:
            do = f"the pod has {', '.join(sorted(there))}"
            yield Finding("KA07", "error", at(base, key), f"no container by that name: `{name}`", do)
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
            yield Finding("KA14", "warning", at(base, key), f"not an annotation that we know: {what}", "a slip?")
    for name, both in limits.items():
        if both.get("gpu-memory.request", 0) > both.get("gpu-memory.limit", 1 << 62):
            where = at(base, f"{kai.PREFIX}{name}{kai.REQUEST}")
            yield Finding("KA10", "error", where, "a request above the limit", "at most the limit")
    if named:
        what = "NvFractions: read by KAI 0.18 and later, in that mode; before, these annotations mean nothing"
        yield Finding("KA15", "note", base, what, "Helm: global.gpuSharingMode=NvFractions; pin KAI's version")
