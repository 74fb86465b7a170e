"""Traps of the device plugin's file.

Source: `api/config/v1` and `cmd/mps-control-daemon` of k8s-device-plugin 0.20.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetlab.stacks.formats.device_plugin import CLIENTS, looks_so, most_clients
from fleetlab.stacks.formats.format import Document, dig, listed, mapped
from fleetlab.stacks.gpu_models import GpuModel
from fleetlab.stacks.quantities import whole
from fleetlab.stacks.rules.finding import Finding, at, place

KEYS = {"version", "flags", "resources", "sharing", "imex", "health"}
WAYS = ("timeSlicing", "mps")
ENTRY = {"name", "replicas", "rename", "devices"}
ASKED = {"renameByDefault", "failRequestsGreaterThanOne", "resources"}
POLICIES = ("packed", "distributed")


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """All traps of each such file."""
    for number, one in enumerate(documents):
        if looks_so(one):
            yield from file(one, gpu, place(number, len(documents)))


def file(document: Document, gpu: GpuModel | None, base: str = "") -> Iterator[Finding]:
    """One file, by itself or in a ConfigMap."""
    yield from _frame(document, base)
    sharing = mapped(document.get("sharing"))
    if both := [way for way in WAYS if listed(dig(sharing, way, "resources"))]:
        if len(both) == 2:
            what = "timeSlicing and mps both: the plugin takes MPS, and does not say so"
            yield Finding("DP05", "warning", at(base, "sharing"), what, "leave out the one that is not meant")
        for way in both:
            yield from _way(mapped(sharing[way]), way, at(base, "sharing", way), document, gpu)
    for way in sorted(set(sharing) - set(WAYS)):
        what = f"unknown key `{way}`: it is silently ignored"
        yield Finding("DP11", "warning", at(base, "sharing", way), what, "there are timeSlicing and mps")


def _frame(document: Document, base: str) -> Iterator[Finding]:
    version = document.get("version", "v1")
    if version not in ("v1", ""):
        yield Finding("DP02", "error", at(base, "version"), f"unknown version: {version}", "version: v1")
    for key in sorted(set(document) - KEYS):
        what = f"unknown key `{key}`: it is silently ignored"
        yield Finding("DP11", "warning", at(base, key), what, f"there are {', '.join(sorted(KEYS))}")
    if dig(document, "resources", "gpus") or dig(document, "resources", "mig"):
        what = "own names for resources are ignored with a warning in the plugin's log"
        yield Finding("DP12", "warning", at(base, "resources"), what, "leave it out")
    policy = dig(document, "flags", "plugin", "sharedDevicesAllocationPolicy")
    if policy is not None and policy not in POLICIES:
        where = at(base, "flags.plugin.sharedDevicesAllocationPolicy")
        yield Finding("DP14", "error", where, f"no such policy: {policy}", "packed or distributed (0.20 or later)")


def _way(asked: dict[str, Any], way: str, base: str, document: Document, gpu: GpuModel | None) -> Iterator[Finding]:
    if "failRequestsGreaterThanOne" not in asked:
        meant = "true" if way == "mps" else "false: a pod that asks for 2 gets no more than one that asks for 1"
        what = f"failRequestsGreaterThanOne is not set; for {way} the default is {meant}"
        yield Finding("DP08", "warning", base, what, "failRequestsGreaterThanOne: true")
    if asked.get("renameByDefault") is not True:
        what = "shared GPUs keep the name nvidia.com/gpu: a pod that requests a whole GPU silently gets a share"
        yield Finding("DP15", "warning", base, what, "renameByDefault: true, and pods ask for nvidia.com/gpu.shared")
    for key in sorted(set(asked) - ASKED):
        what = f"unknown key `{key}`: it is silently ignored"
        yield Finding("DP11", "warning", at(base, key), what, f"there are {', '.join(sorted(ASKED))}")
    if way == "mps":
        what = "the plugin's MPS daemon sets the GPU to EXCLUSIVE_PROCESS: processes outside MPS cannot use it"
        yield Finding(
            "DP13", "note", base, what, "do not use it on a GPU with other users; MPS does not need this mode"
        )
    for number, entry in enumerate(listed(asked.get("resources"))):
        yield from _entry(mapped(entry), way, at(base, "resources", number), document, gpu)


def _entry(entry: dict[str, Any], way: str, base: str, document: Document, gpu: GpuModel | None) -> Iterator[Finding]:
    if not isinstance(entry.get("name"), str):
        yield Finding("DP10", "error", base, "a resource without a name", "name: nvidia.com/gpu")
    for key in ("rename", "devices"):
        if key in entry:
            code = "DP03" if key == "rename" else "DP04"
            what = f"`{key}` is read and then ignored, with a warning in the plugin's log"
            yield Finding(code, "warning", at(base, key), what, "omit it: all GPUs of a node are shared alike")
    for key in sorted(set(entry) - ENTRY):
        yield Finding("DP11", "warning", at(base, key), f"unknown key `{key}`: silently ignored", "leave it out")
    replicas = whole(entry.get("replicas"))
    if replicas is None or isinstance(entry.get("replicas"), str) or replicas < 2:
        text = "no replicas" if "replicas" not in entry else f"replicas: {entry['replicas']}"
        do = "2 or more, as a number; without the entry a GPU is not shared"
        yield Finding("DP01", "error", at(base, "replicas"), f"{text}: the plugin rejects the whole file", do)
    elif way == "mps":
        yield from _mps(entry, replicas, base, document, gpu)


def _mps(
    entry: dict[str, Any], replicas: int, base: str, document: Document, gpu: GpuModel | None
) -> Iterator[Finding]:
    name = str(entry.get("name", "")).removeprefix("nvidia.com/")
    if name.startswith("mig-") or dig(document, "flags", "migStrategy") == "single":
        what = "MPS on MIG devices: the plugin rejects it"
        yield Finding("DP06", "error", at(base, "name"), what, "timeSlicing on instances, or MPS on whole GPUs")
    if 100 % replicas:
        lost = 100 - 100 // replicas * replicas
        what = f"each client gets 100/{replicas} = {100 // replicas} % of the SMs, rounded down: {lost} % are unused"
        yield Finding("DP07", "warning", at(base, "replicas"), what, "a divisor of 100")
    most = CLIENTS if gpu is None else most_clients(gpu.capability)
    if replicas > most:
        of = "any GPU" if gpu is None else f"a {gpu.name}, which it counts to those before Volta"
        what = f"{replicas} clients, and the plugin allows {most} on {of if most < CLIENTS else 'any card'}"
        yield Finding("DP09", "error", at(base, "replicas"), what, f"at most {most}")
    elif gpu is None and replicas > most_clients((7, 0)):
        what = f"{replicas} clients are refused on a V100, where the plugin allows {most_clients((7, 0))}"
        yield Finding("DP09", "note", at(base, "replicas"), what, "--model says which GPU it is for")
