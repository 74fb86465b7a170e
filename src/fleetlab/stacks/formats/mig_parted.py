"""mig-parted: named MIG layouts.

Structure: `api/spec/v1` of mig-parted 0.15 (`Spec`, `MigConfigSpec`), which rejects unknown keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fleetlab.sharing.modes import Share
from fleetlab.stacks import gpu_models
from fleetlab.stacks.formats.format import Document, Stack, cannot, dig, listed, mapped, unread
from fleetlab.stacks.quantities import whole
from fleetlab.stacks.spec import Spec, by_size
from fleetlab.stacks.yaml_writer import dump

OFF = "all-disabled"


def hold(spec: Spec) -> Spec:
    """Keeps a layout, its name and its GPU model; or that MIG is off."""
    if spec.mode in ("time-slicing", "mps"):
        cannot("mig-parted", f"it partitions GPUs, and the mode is {spec.mode}", "--to device-plugin or gpu-operator")
    if spec.mode == "exclusive":
        return Spec("exclusive", (Share(),))
    if spec.name == OFF:
        cannot("mig-parted", f"the layout name {OFF} is reserved for MIG off", "another name")
    return replace(Spec("mig", layout=spec.layout), gpu=spec.gpu, name=spec.name)


def config(spec: Spec) -> Document:
    """The file content, for mig-parted or for a ConfigMap."""
    configs: dict[str, Any] = {OFF: [{"devices": "all", "mig-enabled": False}]}
    if spec.mode == "mig":
        ids = {"device-filter": list(spec.model.ids)} if spec.model else {}
        configs[spec.name] = [ids | {"devices": "all", "mig-enabled": True, "mig-devices": spec.counts}]
    return {"version": "v1", "mig-configs": configs}


def write(spec: Spec) -> str:
    """Write a file for `nvidia-mig-parted apply -f FILE -c NAME`."""
    name = spec.name if spec.mode == "mig" else OFF
    return dump(config(spec), about=[f"mig-parted 0.15; nvidia-mig-parted apply -f FILE -c {name}"])


def read(documents: Sequence[Document]) -> Spec:
    """Read the first layout with MIG on."""
    return parsed(next(one for one in documents if "mig-configs" in one))


def parsed(document: Document) -> Spec:
    """Read one file."""
    for name, entries in mapped(document.get("mig-configs")).items():
        on = [e for e in listed(entries) if isinstance(e, dict) and e.get("mig-enabled") is True]
        if on:
            return _layout(str(name), on)
    return Spec("exclusive", (Share(),))


def _layout(name: str, entries: list[dict[str, Any]]) -> Spec:
    if len(entries) > 1:
        unread(f"`{name}` partitions GPUs in {len(entries)} ways", "a spec has one layout; keep one entry")
    devices = mapped(dig(entries, 0, "mig-devices"))
    counts = {str(profile): whole(n) for profile, n in devices.items()}
    if not counts or None in counts.values():
        unread(f"`{name}` has no instances", "mig-devices maps profiles to counts")
    layout = [profile for profile, n in counts.items() for _ in range(min(n or 0, 8))]
    ids = dig(entries, 0, "device-filter")
    model = gpu_models.by_ids(frozenset(map(str, [ids] if isinstance(ids, str) else listed(ids))))
    return Spec("mig", layout=by_size(layout), gpu=model.name if model else None, name=name)


STACK = Stack(
    "mig-parted",
    hold=hold,
    write=write,
    mine=lambda documents: any("mig-configs" in one for one in documents),
    read=read,
    why={
        "turns": "it partitions GPUs; time slicing on an instance is a setting of the device plugin",
        "gpu": "with MIG off no GPU model is named",
        "name": "with MIG off there is no layout to name",
        "namespace": "the file is not a Kubernetes object",
        "image": "it configures a node, not a pod",
        "queue": "not in this format",
        "node": "a node selects it by its label nvidia.com/mig.config",
    },
)
