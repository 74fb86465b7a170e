"""mig-parted: named MIG layouts.

Structure: `api/spec/v1` of mig-parted 0.15 (`Spec`, `MigConfigSpec`), which rejects unknown keys.
Rules follow it and the configurations that it ships.
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
from fleetlab.gpu.stacks.spec import BY_NAME, PROFILE, VALUE, GpuModel, Spec, by_ids, by_size, gpus_with, layout_error
from fleetlab.gpu.stacks.yaml import dump

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
    model = by_ids(frozenset(map(str, [ids] if isinstance(ids, str) else listed(ids))))
    return Spec("mig", layout=by_size(layout), gpu=model.name if model else None, name=name)


def mine(documents: Sequence[Document]) -> bool:
    """Whether there are named layouts."""
    return any("mig-configs" in one for one in documents)


# --- rules for mig-parted's file -------------------------------------------------------------------------------------


ENTRY = ("device-filter", "devices", "mig-enabled", "mig-devices")
SXM, NVL = "0X233510DE", "0X233B10DE"


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check each such file."""
    for one in roots(documents):
        if "mig-configs" in one:
            yield from file(one, gpu)


def file(document: Node, gpu: GpuModel | None) -> Iterator[Finding]:
    """Check one file, by itself or in a ConfigMap."""
    version = document.at("version")
    if version.value != "v1":
        yield version.trap("MG01" if "version" in document else "MG01.missing")
    yield from document.unknown("MG02", ("version", "mig-configs"))
    for entries in document.at("mig-configs").entries:
        if not VALUE.fullmatch(entries.key):
            yield entries.trap("MG07", label=entries.key.replace("+", "."))
        if not entries.as_list:
            yield entries.trap("MG11")
        for entry in entries.items:
            yield from entry.unknown("MG02.entry", ENTRY)
            chosen, enabled, instances = (entry.at(key) for key in ("devices", "mig-enabled", "mig-devices"))
            numbers = all(isinstance(d, int) and not isinstance(d, bool) for d in chosen.as_list)
            if chosen.value != "all" and not (isinstance(chosen.value, list) and numbers):
                yield chosen.trap("MG03.missing" if chosen.value is None else "MG03")
            if not isinstance(enabled.value, bool):
                yield enabled.trap("MG13.missing" if enabled.value is None else "MG13")
            if enabled.value is True and instances.value is None:
                yield entry.trap("MG04")
            if enabled.value is False and instances.value:
                yield instances.trap("MG05")
            of = entry.at("device-filter")
            for there, missing, name in ((SXM, NVL, "H200 NVL, 0x233B10DE"), (NVL, SXM, "H200 (SXM), 0x233510DE")):
                if there in _ids(of) and missing not in _ids(of):
                    yield of.trap("MG08", name=name)
            yield from _check_layout(instances, gpu or by_ids(_ids(of)))


def _ids(of: Node) -> frozenset[str]:
    return frozenset(str(i).upper() for i in ([of.value] if isinstance(of.value, str) else of.as_list))


def _check_layout(instances: Node, model: GpuModel | None) -> Iterator[Finding]:
    wanted: list[str] = []
    for count in instances.entries:
        profile, n = count.key, whole(count.value)
        if profile.endswith(".me"):
            yield count.trap("MG06", base=profile.removesuffix(".me"))
        elif not PROFILE.fullmatch(profile):
            yield count.trap("MG10.profile")
        elif n is None or isinstance(count.value, str) or n < 0:
            yield count.trap("MG10")
        else:
            wanted += [profile] * min(n, 16)
    if wanted and len(set(wanted)) == len(instances.as_map):
        cuts = gpus_with(wanted, model.name if model else None)
        if not cuts:
            models = ", ".join(name for name in BY_NAME if BY_NAME[name].cut)
            about = {"profiles": ", ".join(dict.fromkeys(wanted)), "model": model and model.name, "models": models}
            yield instances.trap("MG09.model" if model else "MG09.unknown", **about)
        elif why := layout_error(cuts, wanted):
            yield instances.trap("MG09", why=why, do=why.hint or "fewer instances")
