"""Rules for claims of NVIDIA's DRA driver, and for the driver's Helm values.

Source: `sharing.go`, `validate.go` and `featuregates.go` of the driver (0.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetlab.stacks import pods
from fleetlab.stacks.formats.dra import API, DRIVER, PARAMETERS, PARTS, claims
from fleetlab.stacks.formats.format import Document, dig, listed, mapped
from fleetlab.stacks.gpu_models import GpuModel
from fleetlab.stacks.quantities import amount
from fleetlab.stacks.rules.finding import Finding, at, place

KINDS = ("GpuConfig", "MigDeviceConfig", "VfioDeviceConfig")
INTERVALS = ("Default", "Short", "Medium", "Long")
GATES = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}
SHARES = "consumableShares"


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check claims, and the feature gates that they need."""
    values = [one for one in documents if is_values(one)]
    for number, one in enumerate(documents):
        if is_values(one):
            yield from _values(one, place(number, len(documents)))
    for number, claim, devices in claims(documents):
        base = place(number, len(documents))
        yield from _claim(claim, devices, base)
        for where, parameters in _parameters(claim, devices, base):
            yield from _sharing(parameters, where, values)
        yield from _alone(claim, devices, documents, base)


def is_values(document: Document) -> bool:
    """Whether it is the driver's Helm values."""
    named = set(mapped(document.get("featureGates"))) & {*GATES.values(), "DynamicMIG", "ConsumableShares"}
    return "kind" not in document and (bool(named) or SHARES in document)


def _gate(values: Document, name: str) -> bool:
    return dig(values, "featureGates", name) is True


def _shares(values: Document) -> bool:
    return values.get(SHARES) not in (None, "disabled", "", False)


def _values(values: Document, base: str) -> Iterator[Finding]:
    if not _gate(values, "MPSSupport"):
        return
    if _gate(values, "DynamicMIG"):
        what = "DynamicMIG and MPSSupport: the driver does not start"
        yield Finding("DR08", "error", at(base, "featureGates"), what, "one of them")
    if _shares(values):
        what = "consumable shares beside MPSSupport: every claim with MPS is refused"
        yield Finding("DR09", "warning", at(base, SHARES), what, "consumableShares: disabled, or no MPS")


def _claim(claim: Document, devices: Document, base: str) -> Iterator[Finding]:
    version = str(claim.get("apiVersion"))
    if version != API:
        what = f"{version}: an older API with another structure"
        yield Finding("DR10", "warning", at(base, "apiVersion"), what, f"{API}, with Kubernetes 1.34 or later")
    inner = "spec.spec.devices" if claim.get("kind") == "ResourceClaimTemplate" else "spec.devices"
    names = [dig(request, "name") for request in listed(devices.get("requests"))]
    for number, request in enumerate(listed(devices.get("requests"))):
        if version == API and not ({"exactly", "firstAvailable"} & set(mapped(request))):
            where = at(base, inner, "requests", number)
            do = "deviceClassName and selectors stand under `exactly`"
            yield Finding("DR10", "error", where, "a request without `exactly`: refused", do)
    for number, config in enumerate(listed(devices.get("config"))):
        for name in listed(dig(config, "requests")):
            if str(name).partition("/")[0] not in names:
                where = at(base, inner, "config", number, "requests")
                yield Finding("DR14", "error", where, f"unknown request: `{name}`", f"there are {names}")


def _parameters(claim: Document, devices: Document, base: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """NVIDIA's parameters in a claim, with the requests they apply to."""
    inner = "spec.spec.devices" if claim.get("kind") == "ResourceClaimTemplate" else "spec.devices"
    classes = {
        str(dig(request, "name")): str(dig(request, "exactly", "deviceClassName"))
        for request in listed(devices.get("requests"))
    }
    for number, config in enumerate(listed(devices.get("config"))):
        parameters = dig(config, "opaque", "parameters")
        if dig(config, "opaque", "driver") == DRIVER and isinstance(parameters, dict):
            names = [str(n).partition("/")[0] for n in listed(dig(config, "requests"))] or list(classes)
            parts = any(classes.get(name) == PARTS for name in names)
            yield at(base, inner, "config", number, "opaque.parameters"), parameters | {"__parts": parts}


def _sharing(parameters: dict[str, Any], base: str, values: Sequence[Document]) -> Iterator[Finding]:
    kind, sharing = parameters.get("kind"), mapped(parameters.get("sharing"))
    yield from _kind(parameters, base)
    strategy = sharing.get("strategy")
    if strategy is None:
        return
    if strategy not in GATES:
        yield Finding(
            "DR04", "error", at(base, "sharing.strategy"), f"no such strategy: {strategy}", "TimeSlicing or MPS"
        )
        return
    other = "mpsConfig" if strategy == "TimeSlicing" else "timeSlicingConfig"
    if other in sharing:
        what = f"{other} with the strategy {strategy}: refused"
        yield Finding("DR05", "error", at(base, "sharing", other), what, "leave it out, or change the strategy")
    elif kind == "MigDeviceConfig" and "timeSlicingConfig" in sharing:
        what = "an instance has no timeSlicingConfig: an unknown key, refused"
        yield Finding("DR05", "error", at(base, "sharing.timeSlicingConfig"), what, "leave it out")
    yield from _interval(dig(sharing, "timeSlicingConfig", "interval"), at(base, "sharing.timeSlicingConfig.interval"))
    yield from _mps(sharing, at(base, "sharing"))
    yield from _gates(str(strategy), base, values)


def _kind(parameters: dict[str, Any], base: str) -> Iterator[Finding]:
    kind, parts = parameters.get("kind"), parameters["__parts"]
    if parameters.get("apiVersion") != PARAMETERS:
        what = f"{parameters.get('apiVersion')}: not the API of the driver's parameters"
        yield Finding("DR02", "error", at(base, "apiVersion"), what, PARAMETERS)
    if kind not in KINDS:
        yield Finding("DR02", "error", at(base, "kind"), f"no such kind: {kind}", "GpuConfig or MigDeviceConfig")
    if parts and kind == "GpuConfig":
        what = "GpuConfig for a MIG device: it is not applied, mostly without an error"
        yield Finding("DR01", "error", at(base, "kind"), what, "kind: MigDeviceConfig")
    if not parts and kind == "MigDeviceConfig":
        what = "MigDeviceConfig for a whole GPU: it is not applied, mostly without an error"
        yield Finding("DR01", "error", at(base, "kind"), what, "kind: GpuConfig")


def _interval(interval: object, where: str) -> Iterator[Finding]:
    if interval is None or interval == "Default":
        return
    if interval not in INTERVALS:
        yield Finding("DR03", "error", where, f"no such interval: {interval}", ", ".join(INTERVALS))
        return
    what = "the driver sets the time-slice length for the whole GPU, as root: it affects all tenants"
    yield Finding("DR13", "note", where, what, "not on a GPU that others use")


def _mps(sharing: dict[str, Any], base: str) -> Iterator[Finding]:
    if sharing.get("strategy") != "MPS":
        return
    what = "the driver's MPS daemon sets the GPU to EXCLUSIVE_PROCESS: processes outside MPS cannot use it"
    yield Finding(
        "DR15",
        "note",
        at(base, "strategy"),
        what,
        "do not use it on a GPU with other users; MPS does not need this mode",
    )
    config = mapped(sharing.get("mpsConfig"))
    percent = config.get("defaultActiveThreadPercentage")
    if percent is not None and (isinstance(percent, bool) or not isinstance(percent, int) or not 0 <= percent <= 100):
        where = at(base, "mpsConfig.defaultActiveThreadPercentage")
        yield Finding("DR06", "error", where, f"not a percentage: {percent}", "a whole number from 0 to 100")
    limits = {"defaultPinnedDeviceMemoryLimit": config.get("defaultPinnedDeviceMemoryLimit")}
    each = mapped(config.get("defaultPerDevicePinnedMemoryLimit"))
    limits |= {f"defaultPerDevicePinnedMemoryLimit.{key}": value for key, value in each.items()}
    for key, value in limits.items():
        size = amount(value)
        if value is not None and (size is None or size < 2**20):
            do = "an amount with a unit, 1Mi or more, as in 20Gi"
            yield Finding("DR12", "error", at(base, "mpsConfig", key), f"too low, or not an amount: {value}", do)


def _gates(strategy: str, base: str, values: Sequence[Document]) -> Iterator[Finding]:
    gate = GATES[strategy]
    where = at(base, "sharing.strategy")
    if not values:
        what = f"needs the driver's feature gate {gate}, which is alpha and off by default"
        yield Finding("DR07", "note", where, what, f"Helm: featureGates.{gate}=true")
    elif not any(_gate(one, gate) for one in values):
        what = f"the feature gate {gate} is not on: the claim is refused when a pod starts"
        yield Finding("DR07", "error", where, what, f"featureGates: {{{gate}: true}}")
    if strategy == "MPS" and any(_shares(one) for one in values):
        what = "MPS on GPUs with consumable shares: the claim is refused"
        yield Finding("DR09", "error", where, what, "consumableShares: disabled, or no MPS")


def _alone(claim: Document, devices: Document, documents: Sequence[Document], base: str) -> Iterator[Finding]:
    if claim.get("kind") != "ResourceClaimTemplate" or not listed(devices.get("config")):
        return
    name = dig(claim, "metadata", "name")
    users = [
        one
        for one in pods.pod_templates(documents)
        if any(dig(c, "resourceClaimTemplateName") == name for c in listed(dig(one.pod, "spec", "resourceClaims")))
    ]
    if users and all(len(one.containers) < 2 for one in users):
        what = "each pod gets its own claim, and so its own GPU: a template is shared only by containers of one pod"
        yield Finding(
            "DR11", "warning", at(base, "kind"), what, "kind: ResourceClaim, and resourceClaimName in the pods"
        )
