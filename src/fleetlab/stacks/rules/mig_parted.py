"""Rules for mig-parted's file.

Source: `api/spec/v1` and the shipped configurations of mig-parted 0.15.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetlab.stacks.formats.format import Document, listed, mapped
from fleetlab.stacks.gpu_models import BY_NAME, GpuModel, by_ids
from fleetlab.stacks.quantities import whole
from fleetlab.stacks.rules.finding import Finding, at, place
from fleetlab.stacks.spec import PROFILE, VALUE, gpus_with, layout_error

ENTRY = ("device-filter", "devices", "mig-enabled", "mig-devices")
SXM, NVL = "0X233510DE", "0X233B10DE"


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check each such file."""
    for number, one in enumerate(documents):
        if "mig-configs" in one:
            yield from file(one, gpu, place(number, len(documents)))


def file(document: Document, gpu: GpuModel | None, base: str = "") -> Iterator[Finding]:
    """Check one file, by itself or in a ConfigMap."""
    if document.get("version") != "v1":
        text = f"unknown version: {document['version']}" if "version" in document else "no version"
        yield Finding("MG01", "error", at(base, "version"), f"{text}: mig-parted rejects the file", "version: v1")
    for key in sorted(set(document) - {"version", "mig-configs"}):
        what = f"unknown key `{key}`: mig-parted rejects the file"
        yield Finding("MG02", "error", at(base, key), what, "allowed: version and mig-configs")
    for name, entries in mapped(document.get("mig-configs")).items():
        where = at(base, "mig-configs", name)
        if not VALUE.fullmatch(name):
            what = f"`{name}` is not a valid label value, by which a node selects a layout"
            do = f"{name.replace('+', '.')}: layout names have .me where profiles have +me"
            yield Finding("MG07", "error", where, what, do)
        if not listed(entries):
            yield Finding(
                "MG11", "error", where, "a layout without entries", "- devices: all, and what to do with them"
            )
        for number, entry in enumerate(listed(entries)):
            yield from _entry(mapped(entry), at(where, number), gpu)


def _entry(entry: dict[str, Any], base: str, gpu: GpuModel | None) -> Iterator[Finding]:
    for key in sorted(set(entry) - set(ENTRY)):
        what = f"unknown key `{key}`: mig-parted rejects the file"
        yield Finding("MG02", "error", at(base, key), what, f"there are {', '.join(ENTRY)}")
    devices = entry.get("devices")
    numbers = isinstance(devices, list) and all(isinstance(d, int) and not isinstance(d, bool) for d in devices)
    if devices != "all" and not numbers:
        text = "no devices" if devices is None else f"devices: {devices}"
        yield Finding("MG03", "error", at(base, "devices"), text, "devices: all, or a list of numbers")
    enabled, instances = entry.get("mig-enabled"), entry.get("mig-devices")
    if not isinstance(enabled, bool):
        text = "no mig-enabled" if enabled is None else f"mig-enabled: {enabled}"
        yield Finding("MG13", "error", at(base, "mig-enabled"), text, "true or false")
    if enabled is True and instances is None:
        do = "the instances, or {} for MIG mode without instances"
        yield Finding("MG04", "error", base, "mig-enabled without mig-devices: rejected", do)
    if enabled is False and instances:
        what = "instances on a GPU with MIG off: rejected"
        yield Finding("MG05", "error", at(base, "mig-devices"), what, "mig-enabled: true, or no mig-devices")
    yield from _filter(entry.get("device-filter"), at(base, "device-filter"))
    yield from _layout(mapped(instances), entry.get("device-filter"), base, gpu)


def _ids(found: object) -> frozenset[str]:
    return frozenset(str(i).upper() for i in ([found] if isinstance(found, str) else listed(found)))


def _filter(found: object, where: str) -> Iterator[Finding]:
    ids = _ids(found)
    for there, missing, name in ((SXM, NVL, "H200 NVL, 0x233B10DE"), (NVL, SXM, "H200 (SXM), 0x233510DE")):
        if there in ids and missing not in ids:
            what = f"the {name}, is missing: the entry does not apply to it"
            yield Finding("MG08", "warning", where, what, 'device-filter: ["0x233510DE", "0x233B10DE"]')


def _layout(devices: dict[str, Any], filtered: object, base: str, gpu: GpuModel | None) -> Iterator[Finding]:
    wanted: list[str] = []
    for profile, count in devices.items():
        where, n = at(base, "mig-devices", profile), whole(count)
        if profile.endswith(".me"):
            do = f'"{profile.removesuffix(".me")}+me"'
            yield Finding("MG06", "error", where, "a profile has +me; .me is for layout names", do)
        elif not PROFILE.fullmatch(profile):
            yield Finding("MG10", "note", where, f"unknown profile: {profile}", "see `nvidia-smi mig -lgip`")
        elif n is None or isinstance(count, str) or n < 0:
            yield Finding("MG10", "error", where, f"not a number of instances: {count}", "a whole number")
        else:
            wanted += [profile] * min(n, 16)
    model = gpu or by_ids(_ids(filtered))
    if wanted and len(set(wanted)) == len(devices):
        yield from _possible(wanted, model, at(base, "mig-devices"))


def _possible(wanted: list[str], model: GpuModel | None, where: str) -> Iterator[Finding]:
    cuts = gpus_with(wanted, model.name if model else None)
    if not cuts:
        on = f"{model.name}" if model else "no known GPU model"
        what = f"{', '.join(dict.fromkeys(wanted))}: not profiles of {on}" if model else f"profiles of {on}"
        severity = "error" if model else "note"
        yield Finding(
            "MG09", severity, where, what, f"known GPU models: {', '.join(n for n in BY_NAME if BY_NAME[n].cut)}"
        )
        return
    if why := layout_error(cuts, wanted):
        yield Finding("MG09", "error", where, str(why), why.hint or "fewer instances")
