"""Compose: a service for each tenant, and under MPS one for its daemon.

Structure: the Compose specification (`services`, `deploy.resources.reservations.devices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fleetlab.sharing.modes import APART, CONTROL, Share
from fleetlab.stacks.formats.format import Document, Stack, dig, listed, mapped, unread
from fleetlab.stacks.quantities import limit_mib, whole
from fleetlab.stacks.spec import Spec, by_size
from fleetlab.stacks.yaml_writer import dump

DAEMON, VOLUME, HOME, USER = "mps", "mps", "/mps", "1000:1000"
PIPE, LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
PERCENT, MEMORY, PRIORITY = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
)
PROFILE = "fleetlab.mig-profile"
# In memory, and of that user: a folder that Docker makes by itself is root's, and MPS could not write into it.
FOLDER = {"driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": "uid=1000,gid=1000,mode=0700"}}


def hold(spec: Spec) -> Spec:
    """All that MPS has, by each tenant's environment; of other modes the number of tenants."""
    plain = Spec("exclusive", (Share(),))
    kept = replace(spec, card=None, interval="default", turns=1, namespace=plain.namespace, queue=plain.queue, node=())
    return kept if spec.mode in ("mps", "mig") else replace(kept, tenants=(Share(),) * len(spec.tenants))


def write(spec: Spec) -> str:
    """For `docker compose up`, on the first card of a machine."""
    about = ["Compose; the first card of this machine: change device_ids for another"]
    services: dict[str, Any] = {}
    if spec.mode == "mps":
        about.append("all services share the IPC of the host, one folder and one user: without that MPS is not found,")
        about.append("and whoever does not find it takes turns with those who do")
        start = f"mkdir -p {HOME}/pipe {HOME}/log && exec {CONTROL} -f"
        services[DAEMON] = _service(spec, {"command": ["sh", "-c", start]} | _under_mps(Share()), ["0"])
    if spec.mode == "mig":
        for number, profile in enumerate(spec.layout):
            labelled = {"labels": {PROFILE: profile}}
            services[f"{spec.name}-{number}"] = _service(spec, labelled, [f"0:{number}"])
    for number, share in enumerate(spec.tenants):
        more = _under_mps(share) | {"depends_on": [DAEMON]} if spec.mode == "mps" else {"environment": dict(APART)}
        services[f"{spec.name}-{number}"] = _service(spec, more, ["0"])
    volumes: Document = {"volumes": {VOLUME: FOLDER}} if spec.mode == "mps" else {}
    return dump({"services": services} | volumes, about=about)


def _under_mps(share: Share) -> Document:
    folders = {PIPE: f"{HOME}/pipe", LOG: f"{HOME}/log"}
    return {
        "user": USER,
        "ipc": "host",
        "environment": folders | share.environment(),
        "volumes": [f"{VOLUME}:{HOME}"],
    }


def _service(spec: Spec, more: Document, ids: list[str]) -> Document:
    device = {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}
    return {"image": spec.image} | more | {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


# --- and back --------------------------------------------------------------------------------------------------------


def environment(service: object) -> dict[str, str]:
    """Of a service, written as a mapping or as a list."""
    found = dig(service, "environment")
    if isinstance(found, list):
        return {key: value for key, _, value in (str(line).partition("=") for line in found)}
    return {str(key): str(value) for key, value in mapped(found).items()}


def devices(service: object) -> list[dict[str, Any]]:
    """The reservations of a service that are for GPUs."""
    found = listed(dig(service, "deploy", "resources", "reservations", "devices"))
    return [one for one in found if isinstance(one, dict) and "gpu" in listed(one.get("capabilities"))]


def daemon(service: object) -> bool:
    """Is it the one that runs MPS?"""
    words = dig(service, "command") or dig(service, "entrypoint") or ""
    return CONTROL in (" ".join(map(str, words)) if isinstance(words, list) else str(words))


def client(service: object) -> bool:
    """Is it to come under MPS?"""
    said = environment(service)
    return any(key.startswith("CUDA_MPS_") for key in said) and said.get(PIPE) != APART[PIPE]


def read(documents: Sequence[Document]) -> Spec:
    """The services with a card, but for MPS' daemon."""
    services = mapped(next(one for one in documents if "services" in one)["services"])
    found = {str(name): s for name, s in services.items() if devices(s) and not daemon(s)}
    if not found:
        unread("no service with a card", "deploy.resources.reservations.devices with capabilities [gpu]")
    name, first = next(iter(found.items()))
    words: dict[str, Any] = {"name": name.rpartition("-")[0] if name.rpartition("-")[2].isdigit() else name}
    words |= {"image": image} if isinstance(image := dig(first, "image"), str) else {}
    ids = [str(i) for s in found.values() for d in devices(s) for i in listed(d.get("device_ids"))]
    if any(":" in i or i.startswith("MIG-") for i in ids):
        layout = [str(dig(s, "labels", PROFILE) or "") for s in found.values()]
        if not all(layout):
            unread("MIG instances by number", f"a label {PROFILE} says of which profile each is")
        return Spec("mig", layout=by_size(layout), **words)
    if any(client(s) for s in found.values()):
        return Spec("mps", tuple(share_of(environment(s)) for s in found.values()), **words)
    return Spec("time-slicing" if len(found) > 1 else "exclusive", (Share(),) * len(found), **words)


def share_of(said: dict[str, str]) -> Share:
    """The limits that an environment sets."""
    return Share(whole(said.get(PERCENT)), limit_mib(said.get(MEMORY)), whole(said.get(PRIORITY)))


STACK = Stack(
    "compose",
    hold=hold,
    write=write,
    mine=lambda documents: any(isinstance(one.get("services"), dict) for one in documents),
    read=read,
    why={
        "memory": "only MPS has a limit that an environment can set",
        "percent": "only MPS has a limit that an environment can set",
        "interval": "the length of a turn is not set",
        "turns": "each instance has one service",
        "card": "it takes the first card of the machine",
        "namespace": "Compose has no namespaces",
        "queue": "Compose has no queues",
        "node": "Compose is of one machine",
    },
)
