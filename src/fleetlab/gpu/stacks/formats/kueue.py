"""Kueue: quotas over the resources of other stacks; it admits pods and enforces nothing once they run.

Structure: `kueue.x-k8s.io/v1beta2` (ResourceFlavor, ClusterQueue, LocalQueue), and for HAMi's resources the
`transformations` of `config.kueue.x-k8s.io/v1beta2` `Configuration`.
Rules follow `apis/kueue/v1beta2` and `apis/config/v1beta2`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks.formats.device_plugin import MIG, profile_of, resource_of
from fleetlab.gpu.stacks.formats.format import (
    Document,
    Finding,
    Node,
    cannot,
    dig,
    listed,
    mapped,
    roots,
    texts,
    unread,
    whole,
)
from fleetlab.gpu.stacks.spec import MOST, GpuModel, Spec, by_size
from fleetlab.gpu.stacks.yaml import documents as yaml_documents
from fleetlab.gpu.stacks.yaml import dump

API, CONFIG = "kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v1beta2"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
TOTALS = {"nvidia.com/gpumem": "nvidia.com/total-gpumem", "nvidia.com/gpucores": "nvidia.com/total-gpucores"}
STRATEGY = "nvidia.com/gpu.sharing-strategy"  # a node label of NVIDIA's feature discovery
STRATEGIES = {"exclusive": "none", "time-slicing": "time-slicing", "mps": "mps"}
FILE = "controller_manager_config.yaml"
# A pod that requests a resource that its queue does not cover is never admitted, and almost every pod requests these.
BESIDES: dict[str, int | str] = {"cpu": 100_000, "memory": "100000Gi"}  # more than any cluster has per GPU


def _even(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(v for v in values if v is not None) // len(values)


def hold(spec: Spec) -> Spec:
    """Keeps the quota of each resource; of HAMi's limits only the sum, so an even share."""
    plain = replace(spec, gpu=None, interval="default", turns=1, image=Spec("exclusive", (Share(),)).image)
    if spec.mode in ("exclusive", "mig"):
        return plain
    if len(spec.tenants) < 2:
        cannot("kueue", "a single tenant that shares a GPU", "two tenants, or exclusive")
    even = Share()
    if spec.mode == "time-slicing":
        percent = _even([share.percent for share in spec.tenants])
        even = Share(percent, _even([share.memory_mib for share in spec.tenants]))
    return replace(plain, tenants=(even,) * len(spec.tenants))


def quotas(spec: Spec) -> dict[str, int]:
    """Resources, and the quota of each on one GPU."""
    if spec.mode == "exclusive":
        return {GPU: 1}
    if spec.mode == "mig":
        return {resource_of(profile): n for profile, n in spec.counts.items()}
    count, share = len(spec.tenants), spec.tenants[0]
    totals = {"nvidia.com/total-gpumem": share.memory_mib, "nvidia.com/total-gpucores": share.percent}
    quota = {name: count * each for name, each in totals.items() if each is not None}
    return {GPU if quota else SHARED: count} | quota


def write(spec: Spec) -> str:
    """Write the queue and its quota on one GPU; for HAMi's limits also the transformations."""
    quota = quotas(spec)
    flavor: Document = {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": spec.name}}
    strategy = {STRATEGY: STRATEGIES[spec.mode]} if spec.mode in STRATEGIES else {}
    hami = any(total in quota for total in TOTALS.values())
    if labels := dict(spec.node) | ({} if hami else strategy):
        flavor["spec"] = {"nodeLabels": labels}
    offered = [{"name": name, "nominalQuota": n} for name, n in (BESIDES | quota).items()]
    group = {"coveredResources": [*BESIDES, *quota], "flavors": [{"name": spec.name, "resources": offered}]}
    queue = {
        "apiVersion": API,
        "kind": "ClusterQueue",
        "metadata": {"name": spec.name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }
    local = {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": {"name": spec.queue, "namespace": spec.namespace},
        "spec": {"clusterQueue": spec.name},
    }
    about = [
        "Kueue; the quota is that of one GPU: multiply it by the number of GPUs",
        "cpu and memory: placeholders, set your own; a pod that requests a resource without quota is never admitted",
    ]
    config = [_configuration(spec)] if hami else []
    if hami:
        about.append(f"merge `resources` of the ConfigMap into kueue-manager-config, key {FILE}, and restart Kueue")
    return dump(flavor, queue, local, *config, about=about)


def _configuration(spec: Spec) -> Document:
    rules = [
        {"input": each, "strategy": "Replace", "multiplyBy": GPU, "outputs": {total: "1"}}
        for each, total in TOTALS.items()
        if total in quotas(spec)
    ]
    inner = dump({"apiVersion": CONFIG, "kind": "Configuration", "resources": {"transformations": rules}})
    # Under its own name, so that applying it does not replace a cluster's configuration.
    about = {"name": f"{spec.name}-kueue", "namespace": spec.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {FILE: inner}}


# --- reading ---------------------------------------------------------------------------------------------------------


def configurations(documents: Sequence[Document]) -> Iterator[tuple[str, Document]]:
    """Kueue's configuration, by itself or in a ConfigMap, with its path."""
    for number, one in enumerate(documents):
        at = f"[{number}]" if len(documents) > 1 else ""
        if one.get("kind") == "Configuration" and "kueue" in str(one.get("apiVersion")):
            yield at, one
        elif one.get("kind") == "ConfigMap" and isinstance(text := dig(one, "data", FILE), str):
            try:
                inner = yaml_documents(text, FILE)
            except BenchError:
                continue
            yield from ((f"{at}.data.{FILE}".strip("."), two) for two in inner)


def mine(documents: Sequence[Document]) -> bool:
    """Whether there is an object or a configuration of Kueue."""
    ours = any(str(one.get("apiVersion", "")).startswith("kueue.x-k8s.io/") for one in documents)
    return ours or any(True for _ in configurations(documents))


def read(documents: Sequence[Document]) -> Spec:
    """Read the quota of the one queue."""
    queues = [one for one in documents if one.get("kind") == "ClusterQueue"]
    if len(queues) != 1:
        unread(f"{len(queues)} cluster queues", "a spec is the quota of one")
    groups = listed(dig(queues[0], "spec", "resourceGroups"))
    entries = [e for group in groups for e in listed(dig(group, "flavors", 0, "resources"))]
    quota = {str(dig(e, "name")): whole(dig(e, "nominalQuota")) for e in entries}
    flavor = next((one for one in documents if one.get("kind") == "ResourceFlavor"), {})
    labels = {str(k): str(v) for k, v in mapped(dig(flavor, "spec", "nodeLabels")).items()}
    strategy = labels.pop(STRATEGY, None)
    settings = _settings(documents, queues[0]) | {"node": tuple(sorted(labels.items()))}
    if parts := {profile_of(name): n or 0 for name, n in quota.items() if name.startswith(MIG)}:
        return Spec("mig", layout=by_size([p for p, n in parts.items() for _ in range(min(n, 8))]), **settings)
    count = quota.get(SHARED) or quota.get(GPU)
    if not count:
        unread(f"a quota of {', '.join(quota) or 'nothing'}", f"a spec needs {GPU} or {SHARED}")
    totals = [quota.get("nvidia.com/total-gpucores"), quota.get("nvidia.com/total-gpumem")]
    if SHARED not in quota and totals == [None, None]:
        return Spec("exclusive", (Share(),), **settings)
    mode = "mps" if strategy == "mps" else "time-slicing"
    return Spec(mode, (Share(*(t if t is None else t // count for t in totals)),) * min(count, MOST + 1), **settings)


def _settings(documents: Sequence[Document], queue: Document) -> dict[str, Any]:
    names = texts(name=dig(queue, "metadata", "name"))
    for one in documents:
        if one.get("kind") == "LocalQueue":
            about = mapped(one.get("metadata"))
            names |= texts(queue=about.get("name"), namespace=about.get("namespace"))
    return names


# --- rules for Kueue's quotas and its configuration ------------------------------------------------------------------


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check queues and the configuration."""
    for where, one in configurations(documents):
        yield from _check_configuration(Node(one, where))
    for queue in roots(documents):
        if queue.at("kind").value == "ClusterQueue":
            if "namespaceSelector" not in queue.at("spec"):
                yield queue.at("spec").trap("KU04")
            groups = queue.at("spec", "resourceGroups")
            all_covered = [name for group in groups.as_list for name in listed(dig(group, "coveredResources"))]
            if all_covered and (missing := [name for name in BESIDES if name not in all_covered]):
                yield groups.trap("KU08", names=" and ".join(missing))
            for group in groups.items:
                covered = group.at("coveredResources")
                for flavor in group.at("flavors").items:
                    names = [dig(resource, "name") for resource in flavor.at("resources").as_list]
                    if names != covered.as_list:
                        facts = {"names": ", ".join(map(str, names)), "covered": ", ".join(map(str, covered.as_list))}
                        yield flavor.at("resources").trap("KU05", **facts)
                if wrong := [str(name) for name in covered.as_list if str(name).startswith("requests.")]:
                    yield covered.trap("KU07", names=", ".join(wrong))


def _check_configuration(document: Node) -> Iterator[Finding]:
    version = document.at("apiVersion")
    if version.value != CONFIG:
        yield version.trap("KU01", version=version.value, api=CONFIG)
    covered: set[str] = set()
    for rule in document.at("resources", "transformations").items:
        name, strategy = str(rule.at("input").value), rule.at("strategy")
        if name in covered:
            yield rule.at("input").trap("KU03", name=name)
        covered.add(name)
        if strategy.value not in (None, "Replace", "Retain"):
            yield strategy.trap("KU02")
        if name in TOTALS and rule.at("multiplyBy").value != GPU:
            yield rule.trap("KU06", name=name)
