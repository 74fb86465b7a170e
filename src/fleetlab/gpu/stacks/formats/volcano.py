"""Volcano's vGPUs: pods that request a part of a GPU's memory and cores, placed by Volcano, enforced by HAMi's library.

Resources: documentation of volcano-vgpu-device-plugin; memory is MiB (times the plugin's factor, 1 by default).
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks.formats import hami
from fleetlab.gpu.stacks.formats.format import (
    Document,
    PodTemplate,
    pod,
    pod_settings,
    pod_templates,
    texts,
    unread,
    whole,
)
from fleetlab.gpu.stacks.spec import Spec
from fleetlab.gpu.stacks.yaml import dump

COUNT, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
MODE, SCHEDULER, QUEUE = "volcano.sh/vgpu-mode", "volcano", "scheduling.volcano.sh/queue-name"
PLAIN = Spec("exclusive", (Share(),))


def hold(spec: Spec) -> Spec:
    """Keeps memory and cores of each tenant; the mode becomes time slicing."""
    return hami.time_sliced(spec, "volcano")


def write(spec: Spec) -> str:
    """Write one pod per tenant."""
    about = [
        "Volcano with volcano-vgpu-device-plugin; the scheduler needs its plugin deviceshare, with",
        "deviceshare.VGPUEnable: true; memory is in MiB and enforced, cores are in percent and enforced on average",
    ]
    return dump(*(_pod(spec, number, share) for number, share in enumerate(spec.tenants)), about=about)


def _pod(spec: Spec, number: int, share: Share) -> Document:
    limits: dict[str, int] = {COUNT: 1}
    if spec.mode == "exclusive":
        limits |= {CORES: 100}
    else:
        limits |= {MEMORY: share.memory_mib or 0} | ({CORES: share.percent} if share.percent is not None else {})
    queue = {QUEUE: spec.queue} if spec.queue != PLAIN.queue else {}  # otherwise Volcano's default
    annotations = {MODE: "hami-core"} | queue
    return pod(spec, number, limits=limits, annotations=annotations, above={"schedulerName": SCHEDULER})


def takes(one: PodTemplate) -> bool:
    """Whether this pod requests a part of a GPU from Volcano."""
    return any(key.startswith("volcano.sh/vgpu-") for key in (*one.limits, *one.annotations))


def read(documents: Sequence[Document]) -> Spec:
    """Read the requests of each pod."""
    tenants = [one for one in pod_templates(documents) if takes(one)]
    settings = pod_settings(documents) | texts(queue=tenants[0].annotations.get(QUEUE))
    if len(tenants) == 1 and MEMORY not in tenants[0].limits and whole(tenants[0].limits.get(CORES)) == 100:
        return Spec("exclusive", (Share(),), **settings)
    if any(one.annotations.get(MODE) == "mig" for one in tenants):
        unread("MIG instances by memory", "a layout does not follow from the requests of a pod")
    return Spec("time-slicing", hami.shares(tenants, CORES, MEMORY), **settings)


def mine(documents: Sequence[Document]) -> bool:
    """Whether a pod requests a part of a GPU from Volcano."""
    return any(takes(one) for one in pod_templates(documents))
