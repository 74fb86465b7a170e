"""Dynamic resource allocation: a claim that several pods share, with NVIDIA's parameters.

Structure: `resource.k8s.io/v1` (Kubernetes 1.34 and later), and `resource.nvidia.com/v1beta1` `GpuConfig` and
`MigDeviceConfig` of NVIDIA's driver (`sharing.go`, `validate.go`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fleetlab.sharing.modes import Share
from fleetlab.stacks import pods
from fleetlab.stacks.formats.format import Document, Stack, dig, listed, mapped, unread
from fleetlab.stacks.quantities import amount, limit_mib, whole
from fleetlab.stacks.spec import INTERVALS, Spec, by_size
from fleetlab.stacks.yaml_writer import dump

API, PARAMETERS = "resource.k8s.io/v1", "resource.nvidia.com/v1beta1"
DRIVER, CARDS, PARTS = "gpu.nvidia.com", "gpu.nvidia.com", "mig.nvidia.com"
PROFILE = f"device.attributes['{DRIVER}'].profile == "
PERCENT, MEMORY, PRIORITY = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
)
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


def _opaque(requests: list[str], kind: str, sharing: Document) -> Document:
    parameters = {"apiVersion": PARAMETERS, "kind": kind, "sharing": sharing}
    return {"requests": requests, "opaque": {"driver": DRIVER, "parameters": parameters}}


def _shared(spec: Spec) -> Document:
    devices: Document = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CARDS}}]}
    sharing: Document = {"strategy": "MPS", "mpsConfig": _defaults(spec)}
    if spec.mode == "time-slicing":
        sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": spec.interval.capitalize()}}
    # Pods of one claim are time-sliced anyway; the explicit setting needs a feature gate that is off by default.
    if spec.mode == "mps" or spec.interval != "default":
        devices["config"] = [_opaque(["gpu"], "GpuConfig", sharing)]
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
            "exactly": {
                "deviceClassName": PARTS,
                "selectors": [{"cel": {"expression": f"{PROFILE}'{profile}'"}}],
            },
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
    return pods.pod(spec, number, environment=environment, above=above, claims=[claim or {"name": "gpu"}])


# --- reading ---------------------------------------------------------------------------------------------------------


def claims(documents: Sequence[Document]) -> list[tuple[int, Document, Document]]:
    """Number, claim or template, and its `devices`."""
    paths = {"ResourceClaim": ("spec", "devices"), "ResourceClaimTemplate": ("spec", "spec", "devices")}
    return [
        (number, one, mapped(dig(one, *paths[kind])))
        for number, one in enumerate(documents)
        if (kind := str(one.get("kind"))) in paths
    ]


def read(documents: Sequence[Document]) -> Spec:
    """Read one claim and the pods that share it."""
    claims_read = claims(documents)
    if len(claims_read) != 1:
        unread(f"{len(claims_read)} claims", "a spec is for one claim")
    _, claim, devices = claims_read[0]
    words = pods.words(documents)
    name, namespace = dig(claim, "metadata", "name"), dig(claim, "metadata", "namespace")
    words |= {"name": name} if isinstance(name, str) else {}
    words |= {"namespace": namespace} if isinstance(namespace, str) else {}
    tenants = list(pods.pod_templates(documents))
    count = sum(one.count * max(1, _takers(one)) for one in tenants)
    if dig(devices, "requests", 0, "exactly", "deviceClassName") == PARTS:
        layout = [profile_of(r) for r in listed(devices.get("requests"))]
        turns = max(1, count // len(layout))
        return Spec("mig", layout=by_size(layout), turns=turns, **words)
    sharing = _sharing(devices)
    if sharing is None and (claim.get("kind") == "ResourceClaimTemplate" or count < 2):
        return Spec("exclusive", (Share(),), **words)
    if sharing is not None and sharing.get("strategy") == "MPS":
        shares = [_share(one, mapped(sharing.get("mpsConfig"))) for one in tenants for _ in range(one.count)]
        return Spec("mps", tuple(shares) or (_default(mapped(sharing.get("mpsConfig"))),), **words)
    interval = str(dig(sharing, "timeSlicingConfig", "interval") or "Default").lower()
    if interval not in INTERVALS:
        unread(f"interval: {interval}", "one of Default, Short, Medium and Long")
    return Spec("time-slicing", (Share(),) * max(2, count), interval=interval, **words)


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


def _takers(one: pods.PodTemplate) -> int:
    return sum(1 for container in one.containers if listed(dig(container, "resources", "claims")))


def _default(config: dict[str, Any]) -> Share:
    limit = amount(config.get("defaultPinnedDeviceMemoryLimit"))
    percent = whole(config.get("defaultActiveThreadPercentage"))
    return Share(percent, None if limit is None else limit // 2**20)


def _share(one: pods.PodTemplate, config: dict[str, Any]) -> Share:
    default, told = _default(config), one.environment
    percent = whole(told.get(PERCENT)) if PERCENT in told else default.percent
    memory = limit_mib(told.get(MEMORY)) if MEMORY in told else default.memory_mib
    return Share(percent, memory, whole(told.get(PRIORITY)))


STACK = Stack(
    "dra",
    hold=hold,
    write=write,
    mine=lambda documents: bool(claims(documents)),
    read=read,
    why={
        "memory": "GpuConfig limits memory under MPS only",
        "percent": "GpuConfig limits SMs under MPS only",
        "gpu": "the claim accepts any GPU of its device class",
        "queue": "not in this format",
    },
)
