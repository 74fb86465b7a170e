"""Traps of pods: those of Kubernetes itself, of HAMi, and of Volcano; and of quotas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetlab.stacks import pods
from fleetlab.stacks.formats import hami, volcano
from fleetlab.stacks.formats.format import Document, dig, listed, mapped
from fleetlab.stacks.gpu_models import Model
from fleetlab.stacks.quantities import exact, whole
from fleetlab.stacks.rules.finding import Finding, at, place

OURS = ("nvidia.com/", "volcano.sh/")
MODES = ("hami-core", "mig")
SOFT = "a limit on cores holds on average only: it is checked about every 120 ms, and bursts go beyond it"


def check(documents: Sequence[Document], card: Model | None) -> Iterator[Finding]:
    """Every pod, and every quota."""
    for number, document in enumerate(documents):
        if document.get("kind") == "ResourceQuota":
            yield from _quota(document, place(number, len(documents)))
    for one in pods.found(documents):
        yield from _words(one)
        yield from _requests(one)
        yield from _pieces(one)
        if volcano.takes(one):
            yield from _volcano(one)
        elif hami.takes(one):
            yield from _hami(one, card)


def _quota(document: Document, base: str) -> Iterator[Finding]:
    for key in mapped(dig(document, "spec", "hard")):
        name = key.removeprefix("limits.")
        if name.startswith(OURS):
            what = "a quota of an extended resource is of requests only: this one is refused"
            yield Finding("RQ01", "error", at(base, "spec.hard", key), what, f"requests.{name}")


def _words(one: pods.Found) -> Iterator[Finding]:
    for kind in ("annotations", "labels"):
        for key, value in mapped(dig(one.pod, "metadata", kind)).items():
            if not isinstance(value, str):
                where = at(one.where, "metadata", kind, key)
                yield Finding("K802", "error", where, f"not a word, but {value}: refused", f'in quotes: "{value}"')


def _requests(one: pods.Found) -> Iterator[Finding]:
    for number, container in enumerate(one.containers):
        limits = mapped(dig(container, "resources", "limits"))
        for key, value in mapped(dig(container, "resources", "requests")).items():
            if key.startswith(OURS) and limits.get(key) != value:
                where = at(one.where, "spec.containers", number, "resources.requests", key)
                what = "an extended resource is asked for under limits; a request must be the same: refused"
                yield Finding("K801", "error", where, what, f"limits: {{{key}: {value}}}")


def _each(one: pods.Found) -> Iterator[tuple[str, str, Any]]:
    """Where, what and how much each container asks for."""
    for number, container in enumerate(one.containers):
        for key, value in mapped(dig(container, "resources", "limits")).items():
            yield at(one.where, "spec.containers", number, "resources.limits", key), key, value


def _pieces(one: pods.Found) -> Iterator[Finding]:
    for where, key, value in _each(one):
        found = exact(value)
        if key.startswith(OURS) and value is not None and (found is None or found < 0 or found.denominator != 1):
            what = f"{value}: an extended resource is counted in whole pieces, none below 0: refused"
            way = "a whole number; for a part of a card, a way to share it (docs/share-emit.md)"
            yield Finding("K803", "error", where, what, way)


def _amounts(one: pods.Found, prefix: str, memory: str, cores: str) -> Iterator[Finding]:
    for where, key, value in _each(one):
        if key == memory and whole(value) is None:
            what = f"{value}: the unit is MiB, and a suffix is taken as so many pieces"
            yield Finding(f"{prefix}05", "error", where, what, "MiB as a whole number, as in 20000")
        if key == cores and not 0 <= (found := -1 if whole(value) is None else whole(value) or 0) <= 100:
            yield Finding(f"{prefix}04", "error", where, f"not a percentage: {value}", "0 to 100")
        elif key == cores and found < 100:
            yield Finding(f"{prefix}01", "note", where, SOFT, "for a limit that holds, MPS or MIG")


def _hami(one: pods.Found, card: Model | None) -> Iterator[Finding]:
    yield from _amounts(one, "HM", hami.MEMORY, hami.CORES)
    limits, where = one.limits, at(one.where, "spec.containers")
    if hami.MEMORY in limits and hami.MEMORY_PART in limits:
        what = f"{hami.MEMORY} and {hami.MEMORY_PART} both"
        yield Finding("HM02", "error", where, what, "one of them")
    alone = whole(limits.get(hami.CORES)) == 100
    if not {hami.MEMORY, hami.MEMORY_PART} & set(limits) and not alone:
        what = "no memory asked for: the pod gets all of a card's, and nobody else gets on it"
        yield Finding("HM06", "warning", where, what, f"{hami.MEMORY}: MiB")
    if alone and whole(limits.get(hami.MEMORY_PART)) != 100:
        what = "100 % of the cores is a card of one's own: nobody shares it"
        yield Finding("HM03", "warning", where, what, "less than 100, or no gpucores")
    if any(key.startswith("nvidia.com/") and key.endswith(".shared") for key in limits):
        what = "HAMi's resources beside those of NVIDIA's device plugin: no node has both"
        yield Finding("HM09", "error", where, what, "nvidia.com/gpu: 1 beside nvidia.com/gpumem")
    if one.environment.get(hami.POLICY) == "disable":
        what = "GPU_CORE_UTILIZATION_POLICY: disable: gpucores is not held at all"
        yield Finding("HM08", "warning", where, what, "force, or default")
    if one.environment.get("CUDA_DISABLE_CONTROL", "").lower() in ("true", "1"):
        what = "CUDA_DISABLE_CONTROL: the library lets everything pass, and no limit is held"
        yield Finding("HM11", "warning", where, what, "leave it out")
    memory = whole(limits.get(hami.MEMORY))
    if card is not None and memory is not None and memory > card.memory_mib:
        what = f"{memory} MiB, and a {card.name} has {card.memory_mib}: the pod waits for ever"
        yield Finding("HM10", "error", where, what, "MiB of one card")
    yield from _hami_words(one)


def _hami_words(one: pods.Found) -> Iterator[Finding]:
    for key in ("hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy"):
        if (said := one.annotations.get(key)) not in (None, "binpack", "spread"):
            where = at(one.where, "metadata.annotations", key)
            yield Finding("HM07", "warning", where, f"not a policy that we know: {said}", "binpack or spread")
    if (mode := one.annotations.get(hami.MODE)) not in (None, *MODES):
        where = at(one.where, "metadata.annotations", hami.MODE)
        yield Finding("HM07", "warning", where, f"not a mode that we know: {mode}", ", ".join(MODES))


def _volcano(one: pods.Found) -> Iterator[Finding]:
    yield from _amounts(one, "VO", volcano.MEMORY, volcano.CORES)
    limits, where = one.limits, at(one.where, "spec.containers")
    scheduler = dig(one.pod, "spec", "schedulerName")
    if scheduler != volcano.SCHEDULER:
        what = f"scheduler {scheduler or 'not said'}: another than Volcano's adds up memory over cards, and misplaces"
        yield Finding("VO02", "error", at(one.where, "spec.schedulerName"), what, "schedulerName: volcano")
    if volcano.COUNT not in limits:
        what = "parts of a card without a number of cards: nothing is given"
        yield Finding("VO03", "error", where, what, f"{volcano.COUNT}: 1")
    if volcano.MEMORY not in limits and whole(limits.get(volcano.CORES)) != 100:
        what = "no memory asked for: the pod gets all of a card's, and nobody else gets on it"
        yield Finding("VO06", "warning", where, what, f"{volcano.MEMORY}: MiB")
    if mixed := sorted(key for key in limits if key.startswith("nvidia.com/")):
        what = f"Volcano's resources beside {', '.join(mixed)}: two device plugins, no node has both"
        yield Finding("VO07", "error", where, what, "only volcano.sh/…")
    for container in one.containers:
        if listed(dig(container, "resources", "claims")):
            yield Finding("VO08", "warning", where, "vGPUs and a claim in one container", "one of them")
