"""NVIDIA's device plugin: a configuration file with replicas.

Structure: `api/config/v1` of k8s-device-plugin 0.20 (`Config`, `ReplicatedResources`, `ReplicatedResource`).
Its traps are those of `api/config/v1` and `cmd/mps-control-daemon` of k8s-device-plugin 0.20.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks.formats.format import (
    Document,
    Finding,
    Node,
    cannot,
    dig,
    listed,
    mapped,
    roots,
    unread,
    whole,
)
from fleetlab.gpu.stacks.spec import MOST, GpuModel, Spec, by_size
from fleetlab.gpu.stacks.yaml import dump

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-"
CLIENTS, CLIENTS_BEFORE = 48, 16  # per MPS server; the plugin counts the V100 (7.0) among older GPUs
SINCE = (7, 5)


def most_clients(capability: tuple[int, int]) -> int:
    """Maximum number of replicas under MPS."""
    return CLIENTS if capability >= SINCE else CLIENTS_BEFORE


def resource_of(profile: str) -> str:
    """The resource name of a MIG profile; it cannot contain a plus sign.

    >>> resource_of("1g.18gb+me")
    'nvidia.com/mig-1g.18gb.me'
    """
    return MIG + profile.replace("+", ".")


def profile_of(resource: str) -> str:
    """The MIG profile of a resource name."""
    profile = resource.removeprefix("nvidia.com/").removeprefix("mig-")
    return profile.removesuffix(".me") + "+me" if profile.endswith(".me") else profile


def hold(spec: Spec) -> Spec:
    """Keeps the number of tenants; under MPS an even share of the SMs; of a layout, the time-sliced profiles."""
    blank = Spec(spec.mode, spec.tenants, spec.layout, spec.turns)
    if spec.mode == "mig":
        if spec.turns < 2:
            cannot("device-plugin", "it shares GPUs and does not partition them", "--to mig-parted or gpu-operator")
        return replace(blank, layout=tuple(dict.fromkeys(spec.layout)))
    if spec.mode == "exclusive":
        return blank
    count = len(spec.tenants)
    if count < 2:
        cannot("device-plugin", "fewer than 2 replicas", "a single tenant is mode exclusive")
    if spec.mode == "time-slicing":
        return replace(blank, tenants=(Share(),) * count)
    most = CLIENTS if spec.model is None else most_clients(spec.model.capability)
    if count > most:
        what = f"{count} replicas under MPS on {spec.gpu or 'any GPU'}, but the plugin allows {most}"
        cannot("device-plugin", what, "fewer tenants, or time-slicing")
    return replace(blank, tenants=(Share(100 // count),) * count)


def config(spec: Spec) -> Document:
    """The file content, for the plugin or for a ConfigMap."""
    strategy = "mixed" if spec.mode == "mig" else "none"
    document: Document = {"version": "v1", "flags": {"migStrategy": strategy}}
    if spec.mode == "exclusive":
        return document
    names, replicas = [GPU], len(spec.tenants)
    if spec.mode == "mig":
        names, replicas = [resource_of(profile) for profile in spec.counts], spec.turns
    way = "mps" if spec.mode == "mps" else "timeSlicing"
    resources = [{"name": name, "replicas": replicas} for name in names]
    # Both keys are written, because their defaults differ between time slicing and MPS.
    entry: dict[str, Any] = {"renameByDefault": True, "failRequestsGreaterThanOne": True, "resources": resources}
    return document | {"sharing": {way: entry}}


def write(spec: Spec) -> str:
    """Write a file for `--config-file`, or for Helm's `--set-file config.map.config=FILE`."""
    about = ["NVIDIA device plugin 0.20; Helm: --set-file config.map.config=FILE"]
    if spec.mode == "mps":
        about.append("the plugin's MPS daemon sets the GPU to EXCLUSIVE_PROCESS, and gives each client an even share")
    if spec.mode != "exclusive":
        about.append(f"a pod requests {resource_request(spec)}")
    return dump(config(spec), about=about)


def resource_request(spec: Spec) -> str:
    """The resource that a pod requests."""
    names = [resource_of(profile) for profile in spec.counts] or [GPU]
    shared = spec.mode != "exclusive" and (spec.mode != "mig" or spec.turns > 1)
    return " or ".join(f"{name}.shared: 1" if shared else f"{name}: 1" for name in names)


def looks_so(document: Document) -> bool:
    """Whether it is such a file."""
    return "kind" not in document and ("sharing" in document or isinstance(dig(document, "flags", "migStrategy"), str))


def read(documents: Sequence[Document]) -> Spec:
    """Read a file the way the plugin does."""
    return parsed(next(one for one in documents if looks_so(one)))


def parsed(document: Document) -> Spec:
    """Read one file."""
    sharing = mapped(document.get("sharing"))
    way = next((w for w in ("mps", "timeSlicing") if listed(dig(sharing, w, "resources"))), None)  # MPS has precedence
    if way is None:
        return Spec("exclusive", (Share(),))
    entries = [r for r in listed(dig(sharing, way, "resources")) if isinstance(r, dict)]
    names = [str(r.get("name", "")).removeprefix("nvidia.com/") for r in entries]
    counts = [whole(r.get("replicas")) for r in entries]
    if None in counts or len(set(counts)) != 1:
        unread(f"replicas: {counts}", "a spec has one number for all resources")
    count = counts[0] or 0
    if all(name.startswith("mig-") for name in names):
        if way == "mps":
            unread("MPS on MIG instances", "the plugin refuses it")
        return Spec("mig", layout=by_size([profile_of(name) for name in names]), turns=count)
    if names != ["gpu"]:
        unread(f"resources: {', '.join(names)}", "a spec is for whole GPUs or for MIG devices, not for both")
    if count < 2:
        unread(f"{count} replicas", "the plugin refuses fewer than 2")
    share = Share(100 // count) if way == "mps" and count <= 100 else Share()
    return Spec("mps" if way == "mps" else "time-slicing", (share,) * min(count, MOST + 1))


def mine(documents: Sequence[Document]) -> bool:
    """Whether there is such a file."""
    return any(looks_so(one) for one in documents)


# --- traps of the device plugin's file -------------------------------------------------------------------------------


KEYS = ("flags", "health", "imex", "resources", "sharing", "version")
WAYS = ("timeSlicing", "mps")
ENTRY = ("devices", "name", "rename", "replicas")
ASKED = ("failRequestsGreaterThanOne", "renameByDefault", "resources")
POLICIES = ("packed", "distributed")


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """All traps of each such file."""
    for one in roots(documents):
        if looks_so(one.as_map):
            yield from file(one, gpu)


def file(document: Node, gpu: GpuModel | None) -> Iterator[Finding]:
    """One file, by itself or in a ConfigMap."""
    if document.as_map.get("version", "v1") not in ("v1", ""):
        yield document.at("version").trap("DP02")
    yield from document.unknown("DP11", KEYS)
    if document.at("resources", "gpus").value or document.at("resources", "mig").value:
        yield document.at("resources").trap("DP12")
    policy = document.at("flags", "plugin", "sharedDevicesAllocationPolicy")
    if policy.value is not None and policy.value not in POLICIES:
        yield policy.trap("DP14")
    sharing = document.at("sharing")
    ways = [way for way in WAYS if sharing.at(way, "resources").as_list]
    if len(ways) == 2:
        yield sharing.trap("DP05")
    for way in ways:
        yield from _way(sharing.at(way), document, gpu)
    yield from sharing.unknown("DP11.way", WAYS)


def _way(asked: Node, document: Node, gpu: GpuModel | None) -> Iterator[Finding]:
    if "failRequestsGreaterThanOne" not in asked:
        yield asked.trap(f"DP08.{asked.key}")
    if asked.at("renameByDefault").value is not True:
        yield asked.trap("DP15")
    yield from asked.unknown("DP11", ASKED)
    if asked.key == "mps":
        yield asked.trap("DP13")
    for entry in asked.at("resources").items:
        if not isinstance(entry.at("name").value, str):
            yield entry.trap("DP10")
        for code, key in (("DP03", "rename"), ("DP04", "devices")):
            if key in entry:
                yield entry.at(key).trap(code)
        yield from entry.unknown("DP11.entry", ENTRY)
        replicas = entry.at("replicas")
        count = whole(replicas.value)
        if count is None or isinstance(replicas.value, str) or count < 2:
            yield replicas.trap("DP01" if "replicas" in entry else "DP01.missing")
        elif asked.key == "mps":
            yield from _mps(entry, count, document, gpu)


def _mps(entry: Node, count: int, document: Node, gpu: GpuModel | None) -> Iterator[Finding]:
    name, replicas = str(entry.as_map.get("name", "")).removeprefix("nvidia.com/"), entry.at("replicas")
    if name.startswith("mig-") or document.at("flags", "migStrategy").value == "single":
        yield entry.at("name").trap("DP06")
    if 100 % count:
        yield replicas.trap("DP07", share=100 // count, lost=100 % count)
    most = CLIENTS if gpu is None else most_clients(gpu.capability)
    if count > most:
        old = f"a {gpu.name}, which it counts to those before Volta" if gpu and most < CLIENTS else "any card"
        yield replicas.trap("DP09", most=most, on=old)
    elif gpu is None and count > most_clients((7, 0)):
        yield replicas.trap("DP09.V100", most=most_clients((7, 0)))
