"""Rules for ConfigMaps of the GPU operator, and for the files inside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleetlab.devices.errors import BenchError
from fleetlab.stacks.formats.format import Document, dig, mapped
from fleetlab.stacks.formats.gpu_operator import HOME, MIG_KEY, inside
from fleetlab.stacks.gpu_models import GpuModel
from fleetlab.stacks.rules import device_plugin, mig_parted
from fleetlab.stacks.rules.finding import Finding, at, place
from fleetlab.stacks.yaml_reader import documents as yaml_documents

HOMES = (HOME, "nvidia-gpu-operator")  # the second on OpenShift


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check the ConfigMaps and their contents."""
    for number, one in enumerate(documents):
        if one.get("kind") == "ConfigMap":
            yield from _map(one, gpu, place(number, len(documents)))


def _map(document: Document, gpu: GpuModel | None, base: str) -> Iterator[Finding]:
    for key, text in mapped(document.get("data")).items():
        where = at(base, "data", key)
        if not isinstance(text, str):
            yield Finding(
                "GO01", "error", where, f"not text, but {type(text).__name__}", f"{key}: | and the file below"
            )
        elif "sharing" in text or "mig-configs" in text:
            try:
                yaml_documents(text, where)
            except BenchError as e:
                yield Finding("GO01", "error", where, str(e).removeprefix(f"{where}: "), e.hint or "correct it")
    for key, one in inside(document):
        where = at(base, "data", key)
        if "mig-configs" in one:
            if key != MIG_KEY:
                what = f"the operator expects the key {MIG_KEY}, not `{key}`"
                yield Finding("GO02", "error", where, what, f"name the key {MIG_KEY}")
            yield from (replace(f, where=f"{where}: {f.where}") for f in mig_parted.file(one, gpu))
        else:
            yield from (replace(f, where=f"{where}: {f.where}") for f in device_plugin.file(one, gpu))
    if any(True for _ in inside(document)):
        yield from _home(dig(document, "metadata", "namespace"), at(base, "metadata"))


def _home(namespace: object, where: str) -> Iterator[Finding]:
    """The operator reads ConfigMaps of its own namespace; which one that is, a file cannot show."""
    if not isinstance(namespace, str):
        what = "no namespace: it is created in the current one, and the operator reads only its own"
        yield Finding("GO03", "warning", where, what, f"namespace: {HOME}")
    elif namespace == "default":
        what = "namespace default: the operator reads only its own, which is rarely this one"
        yield Finding("GO03", "warning", at(where, "namespace"), what, f"namespace: {HOME}")
    elif namespace not in HOMES:
        what = f"namespace {namespace}: the operator reads only its own, by default {' or '.join(HOMES)}"
        yield Finding("GO03", "note", at(where, "namespace"), what, "check where it runs: kubectl get pods -A")
