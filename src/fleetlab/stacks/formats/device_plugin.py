"""NVIDIA's device plugin: a file of replicas.

Structure: `api/config/v1` of k8s-device-plugin 0.20 (`Config`, `ReplicatedResources`, `ReplicatedResource`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fleetlab.sharing.modes import Share
from fleetlab.stacks.formats.format import Document, Stack, cannot, dig, listed, mapped, unread
from fleetlab.stacks.quantities import whole
from fleetlab.stacks.spec import MOST, Spec, by_size
from fleetlab.stacks.yaml_writer import dump

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-"
CLIENTS, CLIENTS_BEFORE = 48, 16  # of one MPS server; the plugin counts the V100 (7.0) to those before
SINCE = (7, 5)


def most_clients(capability: tuple[int, int]) -> int:
    """How many replicas the plugin allows under MPS."""
    return CLIENTS if capability >= SINCE else CLIENTS_BEFORE


def resource_of(profile: str) -> str:
    """The name under which instances of a profile are asked for; a plus cannot stand in one.

    >>> resource_of("1g.18gb+me")
    'nvidia.com/mig-1g.18gb.me'
    """
    return MIG + profile.replace("+", ".")


def profile_of(resource: str) -> str:
    """And back."""
    found = resource.removeprefix("nvidia.com/").removeprefix("mig-")
    return found.removesuffix(".me") + "+me" if found.endswith(".me") else found


def hold(spec: Spec) -> Spec:
    """The number of tenants; under MPS an even share of the SMs; of a layout, which profiles are shared by turns."""
    blank = Spec(spec.mode, spec.tenants, spec.layout, spec.turns)
    if spec.mode == "mig":
        if spec.turns < 2:
            cannot("device-plugin", "it shares cards and does not cut them", "--to mig-parted or gpu-operator")
        return replace(blank, layout=tuple(dict.fromkeys(spec.layout)))
    if spec.mode == "exclusive":
        return blank
    count = len(spec.tenants)
    if count < 2:
        cannot("device-plugin", "fewer than 2 replicas", "one tenant alone is exclusive")
    if spec.mode == "time-slicing":
        return replace(blank, tenants=(Share(),) * count)
    most = CLIENTS if spec.model is None else most_clients(spec.model.capability)
    if count > most:
        what = f"{count} replicas under MPS on the card {spec.card or 'of any kind'}, and the plugin allows {most}"
        cannot("device-plugin", what, "fewer tenants, or time-slicing")
    return replace(blank, tenants=(Share(100 // count),) * count)


def config(spec: Spec) -> Document:
    """The file as it is, for the plugin or for a ConfigMap around it."""
    strategy = "mixed" if spec.mode == "mig" else "none"
    told: Document = {"version": "v1", "flags": {"migStrategy": strategy}}
    if spec.mode == "exclusive":
        return told
    names, replicas = [GPU], len(spec.tenants)
    if spec.mode == "mig":
        names, replicas = [resource_of(profile) for profile in spec.counts], spec.turns
    way = "mps" if spec.mode == "mps" else "timeSlicing"
    resources = [{"name": name, "replicas": replicas} for name in names]
    # Both are said, because what is left out means one thing for time slicing and another for MPS.
    asked: dict[str, Any] = {"renameByDefault": True, "failRequestsGreaterThanOne": True, "resources": resources}
    return told | {"sharing": {way: asked}}


def write(spec: Spec) -> str:
    """For `--config-file`, or for Helm's `--set-file config.map.config=FILE`."""
    about = ["NVIDIA device plugin 0.20; Helm: --set-file config.map.config=FILE"]
    if spec.mode == "mps":
        about.append("the plugin's MPS daemon sets the card to EXCLUSIVE_PROCESS, and gives each client an even part")
    if spec.mode != "exclusive":
        about.append(f"a pod asks for {asked_for(spec)}")
    return dump(config(spec), about=about)


def asked_for(spec: Spec) -> str:
    """What a pod writes under limits."""
    names = [resource_of(profile) for profile in spec.counts] or [GPU]
    shared = spec.mode != "exclusive" and (spec.mode != "mig" or spec.turns > 1)
    return " or ".join(f"{name}.shared: 1" if shared else f"{name}: 1" for name in names)


def looks_so(document: Document) -> bool:
    """Is it such a file?"""
    return "kind" not in document and ("sharing" in document or isinstance(dig(document, "flags", "migStrategy"), str))


def read(documents: Sequence[Document]) -> Spec:
    """What the plugin would do with it."""
    return parsed(next(one for one in documents if looks_so(one)))


def parsed(document: Document) -> Spec:
    """One file."""
    sharing = mapped(document.get("sharing"))
    way = next((w for w in ("mps", "timeSlicing") if listed(dig(sharing, w, "resources"))), None)  # MPS goes first
    if way is None:
        return Spec("exclusive", (Share(),))
    found = [r for r in listed(dig(sharing, way, "resources")) if isinstance(r, dict)]
    names = [str(r.get("name", "")).removeprefix("nvidia.com/") for r in found]
    counts = [whole(r.get("replicas")) for r in found]
    if None in counts or len(set(counts)) != 1:
        unread(f"replicas: {counts}", "a spec has one number for all")
    count = counts[0] or 0
    if all(name.startswith("mig-") for name in names):
        if way == "mps":
            unread("MPS on MIG instances", "the plugin refuses it")
        return Spec("mig", layout=by_size([profile_of(name) for name in names]), turns=count)
    if names != ["gpu"]:
        unread(f"resources: {', '.join(names)}", "a spec is of whole cards or of MIG instances, not of both")
    if count < 2:
        unread(f"{count} replicas", "the plugin refuses fewer than 2")
    share = Share(100 // count) if way == "mps" and count <= 100 else Share()
    return Spec("mps" if way == "mps" else "time-slicing", (share,) * min(count, MOST + 1))


STACK = Stack(
    "device-plugin",
    hold=hold,
    write=write,
    mine=lambda documents: any(looks_so(one) for one in documents),
    read=read,
    why={
        "memory": "the file has no place for it: time slicing has no limit, and under MPS each gets total/replicas",
        "percent": "time slicing has no limit on SMs, and under MPS each gets 100/replicas, rounded down",
        "priority": "the file has no place for it",
        "layout": "it names profiles; how many there are of each is what the card was cut into",
        "interval": "the plugin never sets the length of a turn",
        "card": "it applies to every card of a node",
        "name": "the file has no name",
        "namespace": "the file has no name",
        "image": "it is of a node, not of a pod",
        "queue": "the plugin has no queues",
        "node": "a node takes it by its label nvidia.com/device-plugin.config",
    },
)
