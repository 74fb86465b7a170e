"""Compose: one service per tenant, and one for the MPS daemon.

Structure: the Compose specification (`services`, `deploy.resources.reservations.devices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fleetlab.gpu.sharing.modes import CONTROL, NO_MPS, Share
from fleetlab.gpu.stacks.formats.format import Document, dig, limit_mib, listed, mapped, unread, whole
from fleetlab.gpu.stacks.spec import Spec, by_size
from fleetlab.gpu.stacks.yaml import dump

DAEMON, VOLUME, HOME, USER = "mps", "mps", "/mps", "1000:1000"
PIPE, LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
PERCENT, MEMORY, PRIORITY = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
)
PROFILE = "fleetlab.mig-profile"
# A tmpfs owned by that user: a directory that Docker creates belongs to root, and MPS could not write into it.
FOLDER = {"driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": "uid=1000,gid=1000,mode=0700"}}


def hold(spec: Spec) -> Spec:
    """Keeps all MPS limits (by environment); in other modes the number of tenants."""
    plain = Spec("exclusive", (Share(),))
    part = replace(spec, gpu=None, interval="default", turns=1, namespace=plain.namespace, queue=plain.queue, node=())
    return part if spec.mode in ("mps", "mig") else replace(part, tenants=(Share(),) * len(spec.tenants))


def write(spec: Spec) -> str:
    """Write a file for `docker compose up`, on the first GPU of a machine."""
    about = ["Compose; the first GPU of this machine: change device_ids for another"]
    services: dict[str, Any] = {}
    if spec.mode == "mps":
        about.append(
            "all services share the host's IPC, one directory and one user: otherwise clients do not find MPS,"
        )
        about.append("and a client that does not find it is time-sliced with the others")
        start = f"mkdir -p {HOME}/pipe {HOME}/log && exec {CONTROL} -f"
        services[DAEMON] = _service(spec, {"command": ["sh", "-c", start]} | _under_mps(Share()), ["0"])
    if spec.mode == "mig":
        for number, profile in enumerate(spec.layout):
            labelled = {"labels": {PROFILE: profile}}
            services[f"{spec.name}-{number}"] = _service(spec, labelled, [f"0:{number}"])
    for number, share in enumerate(spec.tenants):
        more = _under_mps(share) | {"depends_on": [DAEMON]} if spec.mode == "mps" else {"environment": dict(NO_MPS)}
        services[f"{spec.name}-{number}"] = _service(spec, more, ["0"])
    volumes: Document = {"volumes": {VOLUME: FOLDER}} if spec.mode == "mps" else {}
    return dump({"services": services} | volumes, about=about)


def _under_mps(share: Share) -> Document:
    folders = {PIPE: f"{HOME}/pipe", LOG: f"{HOME}/log"}
    return {"user": USER, "ipc": "host", "environment": folders | share.environment(), "volumes": [f"{VOLUME}:{HOME}"]}


def _service(spec: Spec, more: Document, ids: list[str]) -> Document:
    device = {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}
    return {"image": spec.image} | more | {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


# --- reading ---------------------------------------------------------------------------------------------------------


def environment(service: object) -> dict[str, str]:
    """Environment of a service, written as a mapping or as a list."""
    entries = dig(service, "environment")
    if isinstance(entries, list):
        return {key: value for key, _, value in (str(line).partition("=") for line in entries)}
    return {str(key): str(value) for key, value in mapped(entries).items()}


def devices(service: object) -> list[dict[str, Any]]:
    """GPU reservations of a service."""
    reserved = listed(dig(service, "deploy", "resources", "reservations", "devices"))
    return [one for one in reserved if isinstance(one, dict) and "gpu" in listed(one.get("capabilities"))]


def daemon(service: object) -> bool:
    """Whether the service runs the MPS daemon."""
    command = dig(service, "command") or dig(service, "entrypoint") or ""
    return CONTROL in (" ".join(map(str, command)) if isinstance(command, list) else str(command))


def client(service: object) -> bool:
    """Whether the service is an MPS client."""
    variables = environment(service)
    return any(key.startswith("CUDA_MPS_") for key in variables) and variables.get(PIPE) != NO_MPS[PIPE]


def read(documents: Sequence[Document]) -> Spec:
    """The services with a GPU, without the MPS daemon."""
    services = mapped(next(one for one in documents if "services" in one)["services"])
    tenants = {str(name): s for name, s in services.items() if devices(s) and not daemon(s)}
    if not tenants:
        unread("no service with a GPU", "deploy.resources.reservations.devices with capabilities [gpu]")
    name, first = next(iter(tenants.items()))
    settings: dict[str, Any] = {"name": name.rpartition("-")[0] if name.rpartition("-")[2].isdigit() else name}
    settings |= {"image": image} if isinstance(image := dig(first, "image"), str) else {}
    ids = [str(i) for s in tenants.values() for d in devices(s) for i in listed(d.get("device_ids"))]
    if any(":" in i or i.startswith("MIG-") for i in ids):
        layout = [str(dig(s, "labels", PROFILE) or "") for s in tenants.values()]
        if not all(layout):
            unread("MIG devices by index", f"a label {PROFILE} gives the profile of each")
        return Spec("mig", layout=by_size(layout), **settings)
    if any(client(s) for s in tenants.values()):
        return Spec("mps", tuple(share_of(environment(s)) for s in tenants.values()), **settings)
    return Spec("time-slicing" if len(tenants) > 1 else "exclusive", (Share(),) * len(tenants), **settings)


def share_of(variables: dict[str, str]) -> Share:
    """The limits that an environment sets."""
    return Share(whole(variables.get(PERCENT)), limit_mib(variables.get(MEMORY)), whole(variables.get(PRIORITY)))


def mine(documents: Sequence[Document]) -> bool:
    """Whether there are services."""
    return any(isinstance(one.get("services"), dict) for one in documents)
