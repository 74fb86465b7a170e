"""The GPU operator: ConfigMaps with files for the device plugin and for mig-parted, and commands to activate them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.modes import Share
from fleetlab.stacks.formats import device_plugin, mig_parted
from fleetlab.stacks.formats.format import Document, Stack, mapped, unread
from fleetlab.stacks.spec import Spec
from fleetlab.stacks.yaml_reader import documents as yaml_documents
from fleetlab.stacks.yaml_writer import dump

HOME = "gpu-operator"  # the namespace in NVIDIA's guide; the operator reads ConfigMaps of its own namespace
KEY, MIG_KEY = "any", "config.yaml"  # the operator expects the second key


def hold(spec: Spec) -> Spec:
    """Keeps what the device plugin or mig-parted keeps, time slicing on instances, and the namespace."""
    elsewhere = spec.namespace != Spec("exclusive", (Share(),)).namespace
    words: dict[str, Any] = {"name": spec.name, "namespace": spec.namespace if elsewhere else HOME}
    if spec.mode != "mig":
        return replace(device_plugin.hold(spec), **words)
    return replace(mig_parted.hold(spec), turns=spec.turns, **words)


def write(spec: Spec) -> str:
    """Write ConfigMaps for `kubectl apply`, with the commands that activate them."""
    maps: list[Document] = []
    patch: Document = {}
    steps: list[str] = []
    if spec.mode == "mig":
        maps.append(_map(spec, f"{spec.name}-mig", MIG_KEY, dump(mig_parted.config(spec))))
        patch |= {"mig": {"strategy": "mixed"}, "migManager": {"config": {"name": f"{spec.name}-mig"}}}
        steps.append(f"kubectl label node NODE nvidia.com/mig.config={spec.name}")
    if spec.mode != "mig" or spec.turns > 1:
        maps.append(_map(spec, spec.name, KEY, dump(device_plugin.config(spec))))
        patch |= {"devicePlugin": {"config": {"name": spec.name, "default": KEY}}}
        steps.append(
            f"kubectl label node NODE nvidia.com/device-plugin.config={KEY}  # or per node, instead of the default"
        )
    patch_json = json.dumps({"spec": patch}, separators=(",", ":"))
    about = [
        f"GPU operator; the namespace must be the operator's: {HOME}, unless it is installed elsewhere",
        f"kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge -p '{patch_json}'",
        *steps,
        f"a pod requests {device_plugin.asked_for(spec)}",
    ]
    return dump(*maps, about=about)


def _map(spec: Spec, name: str, key: str, text: str) -> Document:
    about = {"name": name, "namespace": spec.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {key: text}}


def inside(document: Document) -> Iterator[tuple[str, Document]]:
    """Files of the device plugin or of mig-parted in a ConfigMap, with their keys."""
    if document.get("kind") != "ConfigMap":
        return
    for key, text in mapped(document.get("data")).items():
        if isinstance(text, str) and ("sharing" in text or "mig-configs" in text or "migStrategy" in text):
            try:
                inner = yaml_documents(text, f"data.{key}")
            except BenchError:
                continue
            yield from ((key, one) for one in inner if device_plugin.looks_so(one) or "mig-configs" in one)


def mine(documents: Sequence[Document]) -> bool:
    """Whether a ConfigMap contains such a file."""
    return any(True for one in documents for _ in inside(one))


def read(documents: Sequence[Document]) -> Spec:
    """Read both files, if there are both."""
    inner = [(document, one) for document in documents for _, one in inside(document)]
    cuts = [(outside, mig_parted.parsed(one)) for outside, one in inner if "mig-configs" in one]
    plugins = [(outside, device_plugin.parsed(one)) for outside, one in inner if "mig-configs" not in one]
    if len(cuts) > 1 or len(plugins) > 1:
        unread(f"{len(inner)} configurations", "a spec is one; keep the one that the node uses")
    if cuts and cuts[0][1].mode == "mig":
        outside, spec = cuts[0]
        turns = plugins[0][1].turns if plugins else 1
        return replace(spec, turns=turns, **_words(outside, keep=spec.name))
    outside, spec = plugins[0] if plugins else cuts[0]
    return replace(spec, **_words(outside))


def _words(outside: Document, keep: str = "") -> dict[str, Any]:
    about = mapped(outside.get("metadata"))
    name, namespace = keep or about.get("name"), about.get("namespace")
    names = {"name": name} if isinstance(name, str) else {}
    return names | ({"namespace": namespace} if isinstance(namespace, str) else {})


STACK = Stack(
    "gpu-operator",
    hold=hold,
    write=write,
    mine=mine,
    read=read,
    why={
        **device_plugin.STACK.why,
        "gpu": "it applies to every GPU of the labeled nodes",
        "namespace": "the operator reads only its own namespace; set it if it is another",
    },
)
