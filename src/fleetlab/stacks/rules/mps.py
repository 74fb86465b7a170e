"""Rules for MPS by environment: in a Compose file, and in a file of variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetlab.sharing.modes import NO_MPS
from fleetlab.stacks.formats import compose, env
from fleetlab.stacks.formats.format import Document, dig, listed, mapped
from fleetlab.stacks.gpu_models import GpuModel
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


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check Compose files and files of variables."""
    for number, one in enumerate(documents):
        if env.BLOCK in one:
            variables = {str(k): str(v) for k, v in one[env.BLOCK].items()}
            yield from _variables(variables, place(number, len(documents)), gpu)
        elif isinstance(one.get("services"), dict):
            yield from _compose(mapped(one["services"]), gpu)


def _variables(said: Mapping[str, str], base: str, gpu: GpuModel | None) -> Iterator[Finding]:
    percent, priority = said.get(compose.PERCENT), said.get(compose.PRIORITY)
    if percent is not None and not 1 <= (whole(percent) or 0) <= 100:
        yield Finding("EN01", "error", at(base, compose.PERCENT), f"not a percentage: {percent}", "1 to 100")
    if priority not in (None, "0", "1"):
        what = f"not a priority: {priority}"
        yield Finding("EN04", "error", at(base, compose.PRIORITY), what, "0 is normal, 1 below normal")
    yield from _memory(said.get(compose.MEMORY), at(base, compose.MEMORY), gpu)
    limited = [key for key in LIMITS if key in said]
    if limited and compose.PIPE not in said:
        what = "limits without CUDA_MPS_PIPE_DIRECTORY: if no daemon is found they have no effect, without an error"
        yield Finding("EN03", "warning", at(base, limited[0]), what, "the pipe directory of the daemon")
    if limited and said.get(compose.PIPE) == NO_MPS[compose.PIPE]:
        what = "limits, but a pipe directory that does not exist: no MPS, so no limits"
        yield Finding("EN06", "error", at(base, compose.PIPE), what, "the pipe directory of the daemon, or no limits")
    if "CUDA_MPS_SM_PARTITION" in said:
        what = "static partitions need a control program of CUDA 13.1; older ones start nothing, and exit with 0"
        yield Finding("EN05", "note", at(base, "CUDA_MPS_SM_PARTITION"), what, "check it: `get_server_list`")
    for key in sorted(key for key in said if key.startswith("CUDA_MPS_") and key not in KNOWN):
        yield Finding("EN07", "warning", at(base, key), "unknown variable", "a typo?")


def _memory(limit: str | None, where: str, gpu: GpuModel | None) -> Iterator[Finding]:
    if limit is None:
        return
    parts = [limit_mib(part) for part in limit.split(",")]
    if None in parts:
        do = "device=amount with G or M, as in 0=8G, several separated by commas"
        yield Finding("EN02", "error", where, f"not a limit: {limit}", do)
    elif gpu is not None and any((mib or 0) > gpu.memory_mib for mib in parts):
        yield Finding("EN02", "error", where, f"{limit}, but {gpu.name} has {gpu.memory_mib} MiB", "less")


# --- Compose ---------------------------------------------------------------------------------------------------------


def _compose(services: dict[str, Any], gpu: GpuModel | None) -> Iterator[Finding]:
    under = {name: s for name, s in services.items() if compose.client(s) or compose.daemon(s)}
    for name, service in services.items():
        base = at("services", name)
        variables = compose.environment(service)
        if not compose.daemon(service):
            yield from _variables(variables, at(base, "environment"), gpu)
        yield from _device(service, base)
        if name in under:
            yield from _client(service, variables, base)
    yield from _together(under)


def _device(service: object, base: str) -> Iterator[Finding]:
    path = "deploy.resources.reservations.devices"
    for number, one in enumerate(listed(dig(service, *path.split(".")))):
        where = at(base, path, number)
        if not listed(dig(one, "capabilities")):
            yield Finding("CO04", "error", where, "no capabilities: Compose rejects it", "capabilities: [gpu]")
        if dig(one, "count") is not None and dig(one, "device_ids") is not None:
            yield Finding("CO05", "error", where, "count and device_ids both: Compose rejects it", "one of them")


def _client(service: object, said: Mapping[str, str], base: str) -> Iterator[Finding]:
    if dig(service, "ipc") != "host":
        what = "without the host's IPC a client cannot reach the MPS server"
        yield Finding("CO01", "error", base, what, "ipc: host")
    pipe = said.get(compose.PIPE)
    targets = [_target(v) for v in listed(dig(service, "volumes"))]
    if pipe is not None and not any(t and (pipe == t or pipe.startswith(t.rstrip("/") + "/")) for t in targets):
        what = f"{pipe} is in no volume: the directory is the container's own, without MPS"
        yield Finding("CO02", "error", at(base, "volumes"), what, "one volume for the daemon and all clients")
    if not devices_of(service):
        what = "no GPU is requested"
        yield Finding("CO06", "error", base, what, "deploy.resources.reservations.devices with capabilities: [gpu]")


def devices_of(service: object) -> bool:
    """Whether it has a GPU, by any means."""
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
        listed_users = ", ".join(sorted(u or "not set" for u in users))
        what = f"services of several users ({listed_users}): an MPS server serves one user at a time, others wait"
        yield Finding("CO03", "error", "services", what, 'the same `user: "1000:1000"` for all')
    elif users == {""}:
        what = "no user is set: clients and daemon must have the same, and images differ"
        yield Finding("CO03", "warning", "services", what, 'the same `user: "1000:1000"` for all')
    if not any(compose.daemon(s) for s in under.values()):
        what = "no service runs the MPS daemon: it must run on the host, in the same directory, as the same user"
        yield Finding("CO07", "note", "services", what, "nvidia-cuda-mps-control -d")
