"""Traps of mig-parted's file.

Source: `api/spec/v1` and the shipped configurations of mig-parted 0.15.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetlab.stacks.formats.format import Document, listed, mapped
from fleetlab.stacks.gpu_models import BY_NAME, Model, by_ids
from fleetlab.stacks.quantities import whole
from fleetlab.stacks.rules.finding import Finding, at, place
from fleetlab.stacks.spec import PROFILE, VALUE, cuts_with, refused

ENTRY = ("device-filter", "devices", "mig-enabled", "mig-devices")
SXM, NVL = "0X233510DE", "0X233B10DE"


def check(documents: Sequence[Document], card: Model | None) -> Iterator[Finding]:
    """All traps of each such file."""
    for number, one in enumerate(documents):
        if "mig-configs" in one:
            yield from file(one, card, place(number, len(documents)))


def file(document: Document, card: Model | None, base: str = "") -> Iterator[Finding]:
    """One file, by itself or in a ConfigMap."""
    if document.get("version") != "v1":
        said = f"unknown version: {document['version']}" if "version" in document else "no version"
        yield Finding("MG01", "error", at(base, "version"), f"{said}: mig-parted refuses the file", "version: v1")
    for key in sorted(set(document) - {"version", "mig-configs"}):
        what = f"unknown key `{key}`: mig-parted refuses the file"
        yield Finding("MG02", "error", at(base, key), what, "there are version and mig-configs")
    for name, entries in mapped(document.get("mig-configs")).items():
        where = at(base, "mig-configs", name)
        if not VALUE.fullmatch(name):
            what = f"`{name}` cannot be a node's label, by which a layout is chosen"
            do = f"{name.replace('+', '.')}: a name has .me where a profile has +me"
            yield Finding("MG07", "error", where, what, do)
        if not listed(entries):
            yield Finding(
                "MG11", "error", where, "a layout without entries", "- devices: all, and what to do with them"
            )
        for number, entry in enumerate(listed(entries)):
            yield from _entry(mapped(entry), at(where, number), card)


def _entry(entry: dict[str, Any], base: str, card: Model | None) -> Iterator[Finding]:
    for key in sorted(set(entry) - set(ENTRY)):
        what = f"unknown key `{key}`: mig-parted refuses the file"
        yield Finding("MG02", "error", at(base, key), what, f"there are {', '.join(ENTRY)}")
    devices = entry.get("devices")
    numbers = isinstance(devices, list) and all(isinstance(d, int) and not isinstance(d, bool) for d in devices)
    if devices != "all" and not numbers:
        said = "no devices" if devices is None else f"devices: {devices}"
        yield Finding("MG03", "error", at(base, "devices"), said, "devices: all, or a list of numbers")
    enabled, instances = entry.get("mig-enabled"), entry.get("mig-devices")
    if not isinstance(enabled, bool):
        said = "no mig-enabled" if enabled is None else f"mig-enabled: {enabled}"
        yield Finding("MG13", "error", at(base, "mig-enabled"), said, "true or false")
    if enabled is True and instances is None:
        do = "the instances, or {} for a card that is ready to be cut"
        yield Finding("MG04", "error", base, "mig-enabled without mig-devices: refused", do)
    if enabled is False and instances:
        what = "instances on a card that is not to be cut: refused"
        yield Finding("MG05", "error", at(base, "mig-devices"), what, "mig-enabled: true, or no mig-devices")
    yield from _filter(entry.get("device-filter"), at(base, "device-filter"))
    yield from _layout(mapped(instances), entry.get("device-filter"), base, card)


def _ids(found: object) -> frozenset[str]:
    return frozenset(str(i).upper() for i in ([found] if isinstance(found, str) else listed(found)))


def _filter(found: object, where: str) -> Iterator[Finding]:
    ids = _ids(found)
    for there, missing, name in ((SXM, NVL, "H200 NVL, 0x233B10DE"), (NVL, SXM, "H200 (SXM), 0x233510DE")):
        if there in ids and missing not in ids:
            what = f"the {name}, is left out: there the entry does nothing"
            yield Finding("MG08", "warning", where, what, 'device-filter: ["0x233510DE", "0x233B10DE"]')


def _layout(devices: dict[str, Any], filtered: object, base: str, card: Model | None) -> Iterator[Finding]:
    wanted: list[str] = []
    for profile, count in devices.items():
        where, n = at(base, "mig-devices", profile), whole(count)
        if profile.endswith(".me"):
            do = f'"{profile.removesuffix(".me")}+me"'
            yield Finding("MG06", "error", where, "a profile has +me; .me is for names of layouts", do)
        elif not PROFILE.fullmatch(profile):
            yield Finding(
                "MG10", "note", where, f"a profile that we do not know: {profile}", "see `nvidia-smi mig -lgip`"
            )
        elif n is None or isinstance(count, str) or n < 0:
            yield Finding("MG10", "error", where, f"not a number of instances: {count}", "a whole number")
        else:
            wanted += [profile] * min(n, 16)
    model = card or by_ids(_ids(filtered))
    if wanted and len(set(wanted)) == len(devices):
        yield from _possible(wanted, model, at(base, "mig-devices"))


def _possible(wanted: list[str], model: Model | None, where: str) -> Iterator[Finding]:
    cuts = cuts_with(wanted, model.name if model else None)
    if not cuts:
        on = f"the card {model.name}" if model else "no card that we know"
        what = f"{', '.join(dict.fromkeys(wanted))}: not profiles of {on}" if model else f"profiles of {on}"
        severity = "error" if model else "note"
        yield Finding(
            "MG09", severity, where, what, f"cards that we know: {', '.join(n for n in BY_NAME if BY_NAME[n].cut)}"
        )
        return
    if why := refused(cuts, wanted):
        yield Finding("MG09", "error", where, str(why), why.hint or "fewer instances")
