"""Rules for Kueue's quotas and its configuration.

Source: `apis/kueue/v1beta2` and `apis/config/v1beta2` of Kueue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetlab.stacks.formats.format import Document, dig, listed, mapped
from fleetlab.stacks.formats.kueue import BESIDES, CONFIG, GPU, TOTALS, configurations
from fleetlab.stacks.gpu_models import GpuModel
from fleetlab.stacks.rules.finding import Finding, at, place


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check queues and the configuration."""
    for where, one in configurations(documents):
        yield from _configuration(one, where)
    for number, one in enumerate(documents):
        if one.get("kind") == "ClusterQueue":
            yield from _queue(one, place(number, len(documents)))


def _configuration(document: Document, base: str) -> Iterator[Finding]:
    if document.get("apiVersion") != CONFIG:
        what = f"{document.get('apiVersion')}: multiplyBy may be unknown to it"
        yield Finding("KU01", "warning", at(base, "apiVersion"), what, CONFIG)
    covered: set[str] = set()
    for number, rule in enumerate(listed(dig(document, "resources", "transformations"))):
        where, name = at(base, "resources.transformations", number), str(dig(rule, "input"))
        if name in covered:
            yield Finding("KU03", "error", at(where, "input"), f"`{name}` appears twice: rejected", "one rule each")
        covered.add(name)
        if (said := dig(rule, "strategy")) not in (None, "Replace", "Retain"):
            yield Finding("KU02", "error", at(where, "strategy"), f"no such strategy: {said}", "Replace or Retain")
        if name in TOTALS and dig(rule, "multiplyBy") != GPU:
            what = f"`{name}` is per GPU: a pod with two GPUs is counted as one"
            yield Finding("KU06", "warning", where, what, f"multiplyBy: {GPU}")


def _queue(document: Document, base: str) -> Iterator[Finding]:
    if "namespaceSelector" not in mapped(document.get("spec")):
        what = "no namespaceSelector: the queue matches no namespace, and nothing is admitted"
        yield Finding("KU04", "error", at(base, "spec"), what, "namespaceSelector: {} for all")
    groups = listed(dig(document, "spec", "resourceGroups"))
    all_covered = [name for group in groups for name in listed(dig(group, "coveredResources"))]
    if all_covered and (missing := [name for name in BESIDES if name not in all_covered]):
        what = f"{' and '.join(missing)} not covered: a pod that requests it is never admitted"
        do = "cover it, even with a large quota; or quotaCheckStrategy: IgnoreUndeclared (Kueue 0.18, behind a gate)"
        yield Finding("KU08", "warning", at(base, "spec.resourceGroups"), what, do)
    for number, group in enumerate(groups):
        where, covered = at(base, "spec.resourceGroups", number), listed(dig(group, "coveredResources"))
        for k, flavor in enumerate(listed(dig(group, "flavors"))):
            names = [dig(resource, "name") for resource in listed(dig(flavor, "resources"))]
            if names != covered:
                what = f"{', '.join(map(str, names))}: not coveredResources in that order: rejected"
                yield Finding("KU05", "error", at(where, "flavors", k, "resources"), what, ", ".join(map(str, covered)))
        if wrong := [str(name) for name in covered if str(name).startswith("requests.")]:
            what = f"{', '.join(wrong)}: a name of ResourceQuota, which no pod requests"
            yield Finding("KU07", "error", at(where, "coveredResources"), what, "without `requests.`")
