"""The GPU operator: ConfigMaps with files for the device plugin and for mig-parted, and commands to activate them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks.formats import device_plugin, mig_parted
from fleetlab.gpu.stacks.formats.format import Document, Finding, Node, mapped, roots, texts, unread
from fleetlab.gpu.stacks.spec import GpuModel, Spec
from fleetlab.gpu.stacks.yaml import documents as yaml_documents
from fleetlab.gpu.stacks.yaml import dump

HOME = "gpu-operator"  # the namespace in NVIDIA's guide; the operator reads ConfigMaps of its own namespace
KEY, MIG_KEY = "any", "config.yaml"  # the operator expects the second key


def hold(spec: Spec) -> Spec:
    """Keeps what the device plugin or mig-parted keeps, time slicing on instances, and the namespace."""
    elsewhere = spec.namespace != Spec("exclusive", (Share(),)).namespace
    settings: dict[str, Any] = {"name": spec.name, "namespace": spec.namespace if elsewhere else HOME}
    if spec.mode != "mig":
        return replace(device_plugin.hold(spec), **settings)
    return replace(mig_parted.hold(spec), turns=spec.turns, **settings)


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
        f"a pod requests {device_plugin.resource_request(spec)}",
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
        return replace(spec, turns=turns, **_settings(outside, keep=spec.name))
    outside, spec = plugins[0] if plugins else cuts[0]
    return replace(spec, **_settings(outside))


def _settings(outside: Document, keep: str = "") -> dict[str, Any]:
    about = mapped(outside.get("metadata"))
    return texts(name=keep or about.get("name"), namespace=about.get("namespace"))


# --- rules for ConfigMaps of the GPU operator, and for the files inside them -----------------------------------------


HOMES = (HOME, "nvidia-gpu-operator")  # the second on OpenShift


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check the ConfigMaps and their contents."""
    for one in roots(documents):
        if one.at("kind").value == "ConfigMap":
            yield from _check_map(one, gpu)


def _check_map(document: Node, gpu: GpuModel | None) -> Iterator[Finding]:
    for key, text in document.at("data").as_map.items():
        place = document.at("data", key)
        if not isinstance(text, str):
            yield place.trap("GO01", type=type(text).__name__)
        elif "sharing" in text or "mig-configs" in text:
            try:
                yaml_documents(text, place.where)
            except BenchError as e:
                why = str(e).removeprefix(f"{place.where}: ")
                yield place.trap("GO01.yaml", why=why, do=e.hint or "correct it")
    inner = list(inside(document.as_map))
    for key, one in inner:
        place = document.at("data", key)
        if "mig-configs" in one and key != MIG_KEY:
            yield place.trap("GO02", expected=MIG_KEY)
        rules = mig_parted.file if "mig-configs" in one else device_plugin.file
        yield from (replace(f, where=f"{place.where}: {f.where}") for f in rules(Node(one), gpu))
    if inner:
        # The operator reads ConfigMaps of its own namespace; which one that is, a file cannot show
        namespace = document.at("metadata", "namespace")
        if not isinstance(namespace.value, str):
            yield document.at("metadata").trap("GO03.missing", home=HOME)
        elif namespace.value == "default":
            yield namespace.trap("GO03.default", home=HOME)
        elif namespace.value not in HOMES:
            yield namespace.trap("GO03", homes=" or ".join(HOMES))
