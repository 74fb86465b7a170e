"""Volcano's vGPUs: pods that ask for a part of a card's memory and cores, placed by Volcano, held by HAMi's library.

Resources: documentation of volcano-vgpu-device-plugin; memory is MiB (times the plugin's factor, 1 by default).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetlab.sharing.modes import Share
from fleetlab.stacks import pods
from fleetlab.stacks.formats import hami
from fleetlab.stacks.formats.format import Document, Stack, cannot, unread
from fleetlab.stacks.quantities import whole
from fleetlab.stacks.spec import Spec
from fleetlab.stacks.yaml_writer import dump

COUNT, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
MODE, SCHEDULER, QUEUE = "volcano.sh/vgpu-mode", "volcano", "scheduling.volcano.sh/queue-name"
PLAIN = Spec("exclusive", (Share(),))


def hold(spec: Spec) -> Spec:
    """Memory and cores of each tenant; whoever runs takes turns."""
    mode = "exclusive" if spec.mode == "exclusive" else "time-slicing"
    tenants = hami.shares_with_memory(spec, "volcano")
    if mode == "time-slicing" and len(tenants) < 2:
        cannot("volcano", "a single tenant with limits is not told from one alone", "two tenants, or exclusive")
    return replace(spec, mode=mode, tenants=tenants, card=None, interval="default")


def write(spec: Spec) -> str:
    """A pod for each tenant."""
    about = [
        "Volcano with volcano-vgpu-device-plugin; the scheduler needs its plugin deviceshare, with",
        "deviceshare.VGPUEnable: true; memory is MiB and holds, cores are percent and are reached on average only",
    ]
    return dump(*(_pod(spec, number, share) for number, share in enumerate(spec.tenants)), about=about)


def _pod(spec: Spec, number: int, share: Share) -> Document:
    limits: dict[str, int] = {COUNT: 1}
    if spec.mode == "exclusive":
        limits |= {CORES: 100}
    else:
        limits |= {MEMORY: share.memory_mib or 0} | ({CORES: share.percent} if share.percent is not None else {})
    queue = {QUEUE: spec.queue} if spec.queue != PLAIN.queue else {}  # else Volcano takes its own default
    annotations = {MODE: "hami-core"} | queue
    return pods.pod(spec, number, limits=limits, annotations=annotations, above={"schedulerName": SCHEDULER})


def takes(one: pods.Found) -> bool:
    """Does this pod ask Volcano for a part of a card?"""
    return any(key.startswith("volcano.sh/vgpu-") for key in (*one.limits, *one.annotations))


def read(documents: Sequence[Document]) -> Spec:
    """What each pod asks for."""
    found = [one for one in pods.found(documents) if takes(one)]
    words = pods.words(documents)
    if isinstance(queue := found[0].annotations.get(QUEUE), str):
        words |= {"queue": queue}
    if len(found) == 1 and MEMORY not in found[0].limits and whole(found[0].limits.get(CORES)) == 100:
        return Spec("exclusive", (Share(),), **words)
    if any(one.annotations.get(MODE) == "mig" for one in found):
        unread("instances by memory", "a layout cannot be told from what a pod asks for")
    shares = [
        Share(whole(one.limits.get(CORES)), whole(one.limits.get(MEMORY))) for one in found for _ in range(one.count)
    ]
    return Spec("time-slicing", tuple(shares), **words)


STACK = Stack(
    "volcano",
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
    },
)
