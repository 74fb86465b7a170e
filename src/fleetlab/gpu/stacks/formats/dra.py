"""Dynamic resource allocation: a claim that several pods share, with NVIDIA's parameters.

Structure: `resource.k8s.io/v1` (Kubernetes 1.34 and later), and `resource.nvidia.com/v1beta1` `GpuConfig` and
`MigDeviceConfig` of NVIDIA's driver (`sharing.go`, `validate.go`).
Rules for claims and for the driver's Helm values follow `sharing.go`, `validate.go` and `featuregates.go` (0.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks.formats.compose import MEMORY, PERCENT, PRIORITY
from fleetlab.gpu.stacks.formats.format import (
    Document,
    Finding,
    Node,
    PodTemplate,
    amount,
    dig,
    limit_mib,
    listed,
    mapped,
    pod,
    pod_settings,
    pod_templates,
    roots,
    texts,
    unread,
    whole,
)
from fleetlab.gpu.stacks.spec import INTERVALS, GpuModel, Spec, by_size
from fleetlab.gpu.stacks.yaml import dump

API, PARAMETERS = "resource.k8s.io/v1", "resource.nvidia.com/v1beta1"
DRIVER, CARDS, PARTS = "gpu.nvidia.com", "gpu.nvidia.com", "mig.nvidia.com"
PROFILE = f"device.attributes['{DRIVER}'].profile == "
GATES = {"time-slicing": "TimeSlicingSettings", "mps": "MPSSupport"}


def hold(spec: Spec) -> Spec:
    """Keeps all MPS limits; of time slicing the number of tenants and the interval; MIG devices by profile."""
    tenants = spec.tenants if spec.mode == "mps" else (Share(),) * len(spec.tenants)
    return replace(spec, tenants=tenants, gpu=None, queue=Spec("exclusive", (Share(),)).queue)


def write(spec: Spec) -> str:
    """Write a claim, and one pod per tenant that uses it."""
    claim = {"exclusive": _whole_card, "mig": _instances}.get(spec.mode, _shared)(spec)
    about = ["NVIDIA's DRA driver 0.5, Kubernetes 1.34 or later"]
    gate = GATES.get(spec.mode)
    if gate and (spec.mode == "mps" or spec.interval != "default"):
        about.append(f"needs the driver's feature gate {gate} (alpha, off by default): Helm featureGates.{gate}=true")
    if spec.mode == "mps":
        about.append("the driver's MPS daemon sets the GPU to EXCLUSIVE_PROCESS; not with DynamicMIG or shares")
    if spec.interval != "default":
        about.append("the driver sets the time-slice length for the whole GPU, as root")
    return dump(claim, *_pods(spec), about=about)


def _claim(spec: Spec, devices: Document, kind: str = "ResourceClaim") -> Document:
    inner = {"devices": devices}
    about = {"name": spec.name, "namespace": spec.namespace}
    outer = {"spec": inner} if kind == "ResourceClaimTemplate" else inner
    return {"apiVersion": API, "kind": kind, "metadata": about, "spec": outer}


def _whole_card(spec: Spec) -> Document:
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CARDS}}]}
    return _claim(spec, devices, "ResourceClaimTemplate")


def _shared(spec: Spec) -> Document:
    devices: Document = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CARDS}}]}
    sharing: Document = {"strategy": "MPS", "mpsConfig": _defaults(spec)}
    if spec.mode == "time-slicing":
        sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": spec.interval.capitalize()}}
    # Pods of one claim are time-sliced anyway; the explicit setting needs a feature gate that is off by default.
    if spec.mode == "mps" or spec.interval != "default":
        parameters = {"apiVersion": PARAMETERS, "kind": "GpuConfig", "sharing": sharing}
        devices["config"] = [{"requests": ["gpu"], "opaque": {"driver": DRIVER, "parameters": parameters}}]
    return _claim(spec, devices)


def _defaults(spec: Spec) -> Document:
    """Limits of the daemon: the largest of all tenants; the environment of a pod can only tighten them."""
    settings: Document = {}
    percents = [share.percent for share in spec.tenants]
    memories = [share.memory_mib for share in spec.tenants]
    if None not in percents:
        settings["defaultActiveThreadPercentage"] = max(p for p in percents if p is not None)
    if None not in memories:
        settings["defaultPinnedDeviceMemoryLimit"] = f"{max(m for m in memories if m is not None)}Mi"
    return settings


def _instances(spec: Spec) -> Document:
    requests = [
        {
            "name": f"mig-{number}",
            "exactly": {"deviceClassName": PARTS, "selectors": [{"cel": {"expression": f"{PROFILE}'{profile}'"}}]},
        }
        for number, profile in enumerate(spec.layout)
    ]
    names = [str(one["name"]) for one in requests]
    devices: Document = {"requests": requests}
    if len(names) > 1:
        devices["constraints"] = [{"requests": names, "matchAttribute": f"{DRIVER}/parentUUID"}]
    return _claim(spec, devices)


def _pods(spec: Spec) -> list[Document]:
    if spec.mode == "mig":
        wanted = [{"name": "gpu", "request": f"mig-{n}"} for n in range(len(spec.layout)) for _ in range(spec.turns)]
        return [_pod(spec, number, claim=claim) for number, claim in enumerate(wanted)]
    defaults = _defaults(spec)
    return [_pod(spec, number, tightened(share, defaults)) for number, share in enumerate(spec.tenants)]


def tightened(share: Share, defaults: Document) -> dict[str, str]:
    """Environment of a pod whose limits are below the daemon's."""
    variables = share.environment()
    if defaults.get("defaultActiveThreadPercentage") == share.percent:
        variables.pop(PERCENT, None)
    if defaults.get("defaultPinnedDeviceMemoryLimit") == f"{share.memory_mib}Mi":
        variables.pop(MEMORY, None)
    return variables


def _pod(
    spec: Spec, number: int, environment: dict[str, str] | None = None, claim: dict[str, str] | None = None
) -> Document:
    key = "resourceClaimTemplateName" if spec.mode == "exclusive" else "resourceClaimName"
    above = {"resourceClaims": [{"name": "gpu", key: spec.name}]}
    return pod(spec, number, environment=environment, above=above, claims=[claim or {"name": "gpu"}])


# --- reading ---------------------------------------------------------------------------------------------------------


DEVICES = {"ResourceClaim": ("spec", "devices"), "ResourceClaimTemplate": ("spec", "spec", "devices")}


def claims(documents: Sequence[Document]) -> list[tuple[Document, Document]]:
    """Claims and templates, and the `devices` of each."""
    kinds = [(str(one.get("kind")), one) for one in documents]
    return [(one, mapped(dig(one, *DEVICES[kind]))) for kind, one in kinds if kind in DEVICES]


def read(documents: Sequence[Document]) -> Spec:
    """Read one claim and the pods that share it."""
    claims_read = claims(documents)
    if len(claims_read) != 1:
        unread(f"{len(claims_read)} claims", "a spec is for one claim")
    claim, devices = claims_read[0]
    about = mapped(claim.get("metadata"))
    settings = pod_settings(documents) | texts(name=about.get("name"), namespace=about.get("namespace"))
    tenants = list(pod_templates(documents))
    count = sum(one.count * max(1, _takers(one)) for one in tenants)
    if dig(devices, "requests", 0, "exactly", "deviceClassName") == PARTS:
        layout = [profile_of(r) for r in listed(devices.get("requests"))]
        turns = max(1, count // len(layout))
        return Spec("mig", layout=by_size(layout), turns=turns, **settings)
    sharing = _sharing(devices)
    if sharing is None and (claim.get("kind") == "ResourceClaimTemplate" or count < 2):
        return Spec("exclusive", (Share(),), **settings)
    if sharing is not None and sharing.get("strategy") == "MPS":
        shares = [_share(one, mapped(sharing.get("mpsConfig"))) for one in tenants for _ in range(one.count)]
        return Spec("mps", tuple(shares) or (_default(mapped(sharing.get("mpsConfig"))),), **settings)
    interval = str(dig(sharing, "timeSlicingConfig", "interval") or "Default").lower()
    if interval not in INTERVALS:
        unread(f"interval: {interval}", "one of Default, Short, Medium and Long")
    return Spec("time-slicing", (Share(),) * max(2, count), interval=interval, **settings)


def profile_of(request: object) -> str:
    """The MIG profile that a request selects."""
    expression = str(dig(request, "exactly", "selectors", 0, "cel", "expression") or "")
    if not expression.startswith(PROFILE):
        unread(f"a selector: `{expression}`", f"supported: {PROFILE}'1g.18gb'")
    return expression.removeprefix(PROFILE).strip("'\" ")


def _sharing(devices: Document) -> dict[str, Any] | None:
    for config in listed(devices.get("config")):
        sharing = dig(config, "opaque", "parameters", "sharing")
        if isinstance(sharing, dict):
            return sharing
    return None


def _takers(one: PodTemplate) -> int:
    return sum(1 for container in one.containers if listed(dig(container, "resources", "claims")))


def _default(config: dict[str, Any]) -> Share:
    limit = amount(config.get("defaultPinnedDeviceMemoryLimit"))
    percent = whole(config.get("defaultActiveThreadPercentage"))
    return Share(percent, None if limit is None else limit // 2**20)


def _share(one: PodTemplate, config: dict[str, Any]) -> Share:
    default, variables = _default(config), one.environment
    percent = whole(variables.get(PERCENT)) if PERCENT in variables else default.percent
    memory = limit_mib(variables.get(MEMORY)) if MEMORY in variables else default.memory_mib
    return Share(percent, memory, whole(variables.get(PRIORITY)))


def mine(documents: Sequence[Document]) -> bool:
    """Whether there is a claim."""
    return bool(claims(documents))


# --- rules for claims of NVIDIA's DRA driver, and for the driver's Helm values ---------------------------------------


INTERVAL_NAMES = ("Default", "Short", "Medium", "Long")
KINDS = ("GpuConfig", "MigDeviceConfig", "VfioDeviceConfig")
NEEDED_GATES = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}
SHARES = "consumableShares"


def check(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check claims, and the feature gates that they need."""
    values = [one for one in roots(documents) if is_values(one.as_map)]
    for one in values:
        if _gate(one, "MPSSupport") and _gate(one, "DynamicMIG"):
            yield one.at("featureGates").trap("DR08")
        if _gate(one, "MPSSupport") and _shares(one):
            yield one.at(SHARES).trap("DR09.values")
    for claim in roots(documents):
        if (kind := str(claim.at("kind").value)) in DEVICES:
            devices = claim.at(*DEVICES[kind])
            yield from _check_claim(claim, devices)
            for config in devices.at("config").items:
                yield from _check_parameters(config, devices, values)
            yield from _alone(claim, devices, documents)


def is_values(document: Document) -> bool:
    """Whether it is the driver's Helm values."""
    named = set(mapped(document.get("featureGates"))) & {*NEEDED_GATES.values(), "DynamicMIG", "ConsumableShares"}
    return "kind" not in document and (bool(named) or SHARES in document)


def _gate(values: Node, name: str) -> bool:
    return values.at("featureGates", name).value is True


def _shares(values: Node) -> bool:
    return values.at(SHARES).value not in (None, "disabled", "", False)


def _check_claim(claim: Node, devices: Node) -> Iterator[Finding]:
    version = str(claim.at("apiVersion").value)
    if version != API:
        yield claim.at("apiVersion").trap("DR10", version=version, api=API)
    requests = devices.at("requests").items
    for request in requests:
        if version == API and "exactly" not in request and "firstAvailable" not in request:
            yield request.trap("DR10.exactly")
    names = [request.at("name").value for request in requests]
    for config in devices.at("config").items:
        for name in config.at("requests").as_list:
            if str(name).partition("/")[0] not in names:
                yield config.at("requests").trap("DR14", name=name, names=names)


def _check_parameters(config: Node, devices: Node, values: Sequence[Node]) -> Iterator[Finding]:
    """NVIDIA's parameters of a claim, for the requests that they apply to."""
    parameters = config.at("opaque", "parameters")
    if config.at("opaque", "driver").value != DRIVER or not isinstance(parameters.value, dict):
        return
    classes = {str(r.at("name").value): r.at("exactly", "deviceClassName").value for r in devices.at("requests").items}
    names = [str(name).partition("/")[0] for name in config.at("requests").as_list] or list(classes)
    kind, parts = parameters.at("kind"), any(classes.get(name) == PARTS for name in names)
    if parameters.at("apiVersion").value != PARAMETERS:
        yield parameters.at("apiVersion").trap("DR02.api", api=PARAMETERS)
    if kind.value not in KINDS:
        yield kind.trap("DR02.kind")
    if kind.value == ("GpuConfig" if parts else "MigDeviceConfig"):
        yield kind.trap("DR01.whole" if parts else "DR01.part")
    yield from _check_sharing(parameters.at("sharing"), str(kind.value), values)


def _check_sharing(sharing: Node, kind: str, values: Sequence[Node]) -> Iterator[Finding]:
    strategy = sharing.at("strategy")
    if strategy.value is None:
        return
    if str(strategy.value) not in NEEDED_GATES:
        yield strategy.trap("DR04")
        return
    other = "mpsConfig" if strategy.value == "TimeSlicing" else "timeSlicingConfig"
    if other in sharing:
        yield sharing.at(other).trap("DR05", strategy=strategy.value)
    elif kind == "MigDeviceConfig" and "timeSlicingConfig" in sharing:
        yield sharing.at("timeSlicingConfig").trap("DR05.instance")
    interval = sharing.at("timeSlicingConfig", "interval")
    if interval.value not in (None, *INTERVAL_NAMES):
        yield interval.trap("DR03", allowed=", ".join(INTERVAL_NAMES))
    elif interval.value not in (None, "Default"):
        yield interval.trap("DR13")
    if strategy.value == "MPS":
        yield strategy.trap("DR15")
        yield from _mps(sharing.at("mpsConfig"))
    gate = NEEDED_GATES[str(strategy.value)]
    if not values:
        yield strategy.trap("DR07.unseen", gate=gate)
    elif not any(_gate(one, gate) for one in values):
        yield strategy.trap("DR07", gate=gate)
    if strategy.value == "MPS" and any(_shares(one) for one in values):
        yield strategy.trap("DR09")


def _mps(config: Node) -> Iterator[Finding]:
    percent = config.at("defaultActiveThreadPercentage")
    if percent.value is not None and not (type(percent.value) is int and 0 <= percent.value <= 100):
        yield percent.trap("DR06")
    for limit in (config.at("defaultPinnedDeviceMemoryLimit"), *config.at("defaultPerDevicePinnedMemoryLimit").entries):
        size = amount(limit.value)
        if limit.value is not None and (size is None or size < 2**20):
            yield limit.trap("DR12")


def _alone(claim: Node, devices: Node, documents: Sequence[Document]) -> Iterator[Finding]:
    if claim.at("kind").value != "ResourceClaimTemplate" or not devices.at("config").as_list:
        return
    name = claim.at("metadata", "name").value
    users = [
        one
        for one in pod_templates(documents)
        if any(dig(c, "resourceClaimTemplateName") == name for c in one.node.at("spec", "resourceClaims").as_list)
    ]
    if users and all(len(one.containers) < 2 for one in users):
        yield claim.at("kind").trap("DR11")
