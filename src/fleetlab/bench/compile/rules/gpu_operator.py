"""Traps of ConfigMaps for the GPU operator, and of the files inside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleetlab.bench.compile.models import Model
from fleetlab.bench.compile.rules import device_plugin, mig_parted
from fleetlab.bench.compile.rules._finding import Finding, at, place
from fleetlab.bench.compile.stacks._stack import Document, dig, mapped
from fleetlab.bench.compile.stacks.gpu_operator import MIG_KEY, inside
from fleetlab.bench.compile.yaml_in import documents as yaml_documents
from fleetlab.bench.errors import BenchError


def check(documents: Sequence[Document], card: Model | None) -> Iterator[Finding]:
    """The maps, and what is in them."""
    for number, one in enumerate(documents):
        if one.get("kind") == "ConfigMap":
            yield from _map(one, card, place(number, len(documents)))


def _map(document: Document, card: Model | None, base: str) -> Iterator[Finding]:
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
                yield Finding("GO01", "error", where, str(e).removeprefix(f"{where}: "), e.hint or "mend it")
    for key, one in inside(document):
        where = at(base, "data", key)
        if "mig-configs" in one:
            if key != MIG_KEY:
                what = f"the operator looks for the key {MIG_KEY}, and finds `{key}`"
                yield Finding("GO02", "error", where, what, f"name the key {MIG_KEY}")
            yield from (replace(f, where=f"{where}: {f.where}") for f in mig_parted.file(one, card))
        else:
            yield from (replace(f, where=f"{where}: {f.where}") for f in device_plugin.file(one, card))
        if not isinstance(dig(document, "metadata", "namespace"), str):
            what = "no namespace: it lands in the one that kubectl stands in, and the operator looks in its own"
            yield Finding("GO03", "warning", at(base, "metadata"), what, "namespace: gpu-operator")
