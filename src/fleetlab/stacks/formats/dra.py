"""Dynamic resource allocation: a claim that several pods share, with NVIDIA's own words inside.

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
    """All that MPS has; of time slicing the number of tenants and the length of a turn; instances by profile."""
    tenants = spec.tenants if spec.mode == "mps" else (Share(),) * len(spec.tenants)
    return replace(spec, tenants=tenants, card=None, queue=Spec("exclusive", (Share(),)).queue)


def write(spec: Spec) -> str:
    """A claim, and a pod for each tenant that takes part in it."""
    claim = {"exclusive": _whole_card, "mig": _instances}.get(spec.mode, _shared)(spec)
    about = ["NVIDIA's DRA driver 0.5, Kubernetes 1.34 or later"]
    gate = GATES.get(spec.mode)
    if gate and (spec.mode == "mps" or spec.interval != "default"):
        about.append(f"needs the driver's feature gate {gate} (alpha, off by default): Helm featureGates.{gate}=true")
    if spec.mode == "mps":
        about.append("the driver's MPS daemon sets the card to EXCLUSIVE_PROCESS; not with DynamicMIG or shares")
    if spec.interval != "default":
        about.append("the length of a turn is set for the whole card, by the driver, as root")
    return dump(claim, *_pods(spec), about=about)


def _claim(spec: Spec, devices: Document, kind: str = "ResourceClaim") -> Document:
    inner = {"devices": devices}
    about = {"name": spec.name, "namespace": spec.namespace}
    outer = {"spec": inner} if kind == "ResourceClaimTemplate" else inner
    return {"apiVersion": API, "kind": kind, "metadata": about, "spec": outer}


def _whole_card(spec: Spec) -> Document:
    asked = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CARDS}}]}
    return _claim(spec, asked, "ResourceClaimTemplate")


def _opaque(requests: list[str], kind: str, sharing: Document) -> Document:
    parameters = {"apiVersion": PARAMETERS, "kind": kind, "sharing": sharing}
    return {"requests": requests, "opaque": {"driver": DRIVER, "parameters": parameters}}


def _shared(spec: Spec) -> Document:
    asked: Document = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CARDS}}]}
    sharing: Document = {"strategy": "MPS", "mpsConfig": _defaults(spec)}
    if spec.mode == "time-slicing":
        sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": spec.interval.capitalize()}}
    # Pods of one claim take turns anyway; to say so would need a feature gate that is off by default.
    if spec.mode == "mps" or spec.interval != "default":
        asked["config"] = [_opaque(["gpu"], "GpuConfig", sharing)]
    return _claim(spec, asked)


def _defaults(spec: Spec) -> Document:
    """What the daemon gives each client: the most that anybody has; a pod's environment can only tighten it."""
    told: Document = {}
    percents = [share.percent for share in spec.tenants]
    memories = [share.memory_mib for share in spec.tenants]
    if None not in percents:
        told["defaultActiveThreadPercentage"] = max(p for p in percents if p is not None)
    if None not in memories:
        told["defaultPinnedDeviceMemoryLimit"] = f"{max(m for m in memories if m is not None)}Mi"
    return told


def _instances(spec: Spec) -> Document:
    asked = [
        {
            "name": f"mig-{number}",
            "exactly": {
                "deviceClassName": PARTS,
                "selectors": [{"cel": {"expression": f"{PROFILE}'{profile}'"}}],
            },
        }
        for number, profile in enumerate(spec.layout)
    ]
    names = [str(one["name"]) for one in asked]
    devices: Document = {"requests": asked}
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
    """What a pod must say itself: where it has less than the daemon gives."""
    told = share.environment()
    if defaults.get("defaultActiveThreadPercentage") == share.percent:
        told.pop(PERCENT, None)
    if defaults.get("defaultPinnedDeviceMemoryLimit") == f"{share.memory_mib}Mi":
        told.pop(MEMORY, None)
    return told


def _pod(
    spec: Spec, number: int, environment: dict[str, str] | None = None, claim: dict[str, str] | None = None
) -> Document:
    key = "resourceClaimTemplateName" if spec.mode == "exclusive" else "resourceClaimName"
    above = {"resourceClaims": [{"name": "gpu", key: spec.name}]}
    return pods.pod(spec, number, environment=environment, above=above, claims=[claim or {"name": "gpu"}])


# --- and back --------------------------------------------------------------------------------------------------------


def claims(documents: Sequence[Document]) -> list[tuple[int, Document, Document]]:
    """Number, claim or template, and its `devices`."""
    paths = {"ResourceClaim": ("spec", "devices"), "ResourceClaimTemplate": ("spec", "spec", "devices")}
    return [
        (number, one, mapped(dig(one, *paths[kind])))
        for number, one in enumerate(documents)
        if (kind := str(one.get("kind"))) in paths
    ]


def read(documents: Sequence[Document]) -> Spec:
    """One claim and the pods that share it."""
    found = claims(documents)
    if len(found) != 1:
        unread(f"{len(found)} claims", "a spec is of one")
    _, claim, devices = found[0]
    words = pods.words(documents)
    name, namespace = dig(claim, "metadata", "name"), dig(claim, "metadata", "namespace")
    words |= {"name": name} if isinstance(name, str) else {}
    words |= {"namespace": namespace} if isinstance(namespace, str) else {}
    tenants = list(pods.found(documents))
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
        unread(f"interval: {interval}", "there are Default, Short, Medium and Long")
    return Spec("time-slicing", (Share(),) * max(2, count), interval=interval, **words)


def profile_of(request: object) -> str:
    """The profile that a request selects."""
    expression = str(dig(request, "exactly", "selectors", 0, "cel", "expression") or "")
    if not expression.startswith(PROFILE):
        unread(f"a selector: `{expression}`", f"a spec knows {PROFILE}'1g.18gb'")
    return expression.removeprefix(PROFILE).strip("'\" ")


def _sharing(devices: Document) -> dict[str, Any] | None:
    for config in listed(devices.get("config")):
        found = dig(config, "opaque", "parameters", "sharing")
        if isinstance(found, dict):
            return found
    return None


def _takers(one: pods.Found) -> int:
    return sum(1 for container in one.containers if listed(dig(container, "resources", "claims")))


def _default(config: dict[str, Any]) -> Share:
    limit = amount(config.get("defaultPinnedDeviceMemoryLimit"))
    percent = whole(config.get("defaultActiveThreadPercentage"))
    return Share(percent, None if limit is None else limit // 2**20)


def _share(one: pods.Found, config: dict[str, Any]) -> Share:
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
        "card": "the claim takes any card of its class",
        "queue": "it has no queues",
    },
)
