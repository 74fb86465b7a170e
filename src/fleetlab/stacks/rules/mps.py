"""Traps of MPS by environment: in a Compose file, and in a file of variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetlab.sharing.modes import APART
from fleetlab.stacks.formats import compose, env
from fleetlab.stacks.formats.format import Document, dig, listed, mapped
from fleetlab.stacks.gpu_models import Model
from fleetlab.stacks.quantities import limit_mib, whole
from fleetlab.stacks.rules.finding import Finding, at, place

KNOWN = {
    compose.PIPE,
    compose.LOG,
    compose.PERCENT,
    compose.MEMORY,
    compose.PRIORITY,
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
    "CUDA_MPS_SM_PARTITION",
}
LIMITS = (compose.PERCENT, compose.MEMORY, compose.PRIORITY)


def check(documents: Sequence[Document], card: Model | None) -> Iterator[Finding]:
    """Compose files and files of variables."""
    for number, one in enumerate(documents):
        if env.BLOCK in one:
            said = {str(k): str(v) for k, v in one[env.BLOCK].items()}
            yield from _variables(said, place(number, len(documents)), card)
        elif isinstance(one.get("services"), dict):
            yield from _compose(mapped(one["services"]), card)


def _variables(said: Mapping[str, str], base: str, card: Model | None) -> Iterator[Finding]:
    percent, priority = said.get(compose.PERCENT), said.get(compose.PRIORITY)
    if percent is not None and not 1 <= (whole(percent) or 0) <= 100:
        yield Finding("EN01", "error", at(base, compose.PERCENT), f"not a percentage: {percent}", "1 to 100")
    if priority not in (None, "0", "1"):
        what = f"not a priority: {priority}"
        yield Finding("EN04", "error", at(base, compose.PRIORITY), what, "0 is normal, 1 below normal")
    yield from _memory(said.get(compose.MEMORY), at(base, compose.MEMORY), card)
    limited = [key for key in LIMITS if key in said]
    if limited and compose.PIPE not in said:
        what = "limits without CUDA_MPS_PIPE_DIRECTORY: where no daemon is found they do nothing, and nobody says so"
        yield Finding("EN03", "warning", at(base, limited[0]), what, "the folder of the daemon, as it was started")
    if limited and said.get(compose.PIPE) == APART[compose.PIPE]:
        what = "limits, and a folder that is not there: no MPS, so no limits"
        yield Finding("EN06", "error", at(base, compose.PIPE), what, "the folder of the daemon, or no limits")
    if "CUDA_MPS_SM_PARTITION" in said:
        what = "static partitions need a control program of CUDA 13.1; an older one starts nothing, and exits with 0"
        yield Finding("EN05", "note", at(base, "CUDA_MPS_SM_PARTITION"), what, "ask it: `get_server_list`")
    for key in sorted(key for key in said if key.startswith("CUDA_MPS_") and key not in KNOWN):
        yield Finding("EN07", "warning", at(base, key), "not a variable that we know", "a slip?")


def _memory(limit: str | None, where: str, card: Model | None) -> Iterator[Finding]:
    if limit is None:
        return
    parts = [limit_mib(part) for part in limit.split(",")]
    if None in parts:
        do = "card=amount with G or M, as in 0=8G, several with commas"
        yield Finding("EN02", "error", where, f"not a limit: {limit}", do)
    elif card is not None and any((mib or 0) > card.memory_mib for mib in parts):
        yield Finding("EN02", "error", where, f"{limit}, and a {card.name} has {card.memory_mib} MiB", "less")


# --- Compose ---------------------------------------------------------------------------------------------------------


def _compose(services: dict[str, Any], card: Model | None) -> Iterator[Finding]:
    under = {name: s for name, s in services.items() if compose.client(s) or compose.daemon(s)}
    for name, service in services.items():
        base = at("services", name)
        said = compose.environment(service)
        if not compose.daemon(service):
            yield from _variables(said, at(base, "environment"), card)
        yield from _device(service, base)
        if name in under:
            yield from _client(service, said, base)
    yield from _together(under)


def _device(service: object, base: str) -> Iterator[Finding]:
    path = "deploy.resources.reservations.devices"
    for number, one in enumerate(listed(dig(service, *path.split(".")))):
        where = at(base, path, number)
        if not listed(dig(one, "capabilities")):
            yield Finding("CO04", "error", where, "no capabilities: Compose refuses it", "capabilities: [gpu]")
        if dig(one, "count") is not None and dig(one, "device_ids") is not None:
            yield Finding("CO05", "error", where, "count and device_ids both: Compose refuses it", "one of them")


def _client(service: object, said: Mapping[str, str], base: str) -> Iterator[Finding]:
    if dig(service, "ipc") != "host":
        what = "without the host's IPC a client does not reach MPS' server"
        yield Finding("CO01", "error", base, what, "ipc: host")
    pipe = said.get(compose.PIPE)
    targets = [_target(v) for v in listed(dig(service, "volumes"))]
    if pipe is not None and not any(t and (pipe == t or pipe.startswith(t.rstrip("/") + "/")) for t in targets):
        what = f"{pipe} is in no volume: the folder is the container's own, and MPS is not in it"
        yield Finding("CO02", "error", at(base, "volumes"), what, "one volume for the daemon and all clients")
    if not devices_of(service):
        what = "no card is asked for"
        yield Finding("CO06", "error", base, what, "deploy.resources.reservations.devices with capabilities: [gpu]")


def devices_of(service: object) -> bool:
    """Has it a card, by whichever way?"""
    return bool(compose.devices(service)) or dig(service, "gpus") is not None or dig(service, "runtime") == "nvidia"


def _target(volume: object) -> str:
    if isinstance(volume, str):
        parts = volume.split(":")
        return parts[1] if len(parts) > 1 else parts[0]
    return str(dig(volume, "target") or "")


def _together(under: dict[str, Any]) -> Iterator[Finding]:
    if not under:
        return
    users = {str(dig(s, "user")).partition(":")[0] if dig(s, "user") is not None else "" for s in under.values()}
    if len(users) > 1:
        said = ", ".join(sorted(u or "not said" for u in users))
        what = f"services of several users ({said}): a server of MPS serves one, and the others wait until it ends"
        yield Finding("CO03", "error", "services", what, 'the same `user: "1000:1000"` for all')
    elif users == {""}:
        what = "no user is said: clients and daemon must be the same, and images differ"
        yield Finding("CO03", "warning", "services", what, 'the same `user: "1000:1000"` for all')
    if not any(compose.daemon(s) for s in under.values()):
        what = "no service runs MPS' daemon: it must run on the host, in the same folder, as the same user"
        yield Finding("CO07", "note", "services", what, "nvidia-cuda-mps-control -d")
