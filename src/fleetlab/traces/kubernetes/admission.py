"""ResourceQuotas and LimitRanges, and pods as they were created."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from math import ceil

from fleetlab.core.admission import EXISTS, Container, CreatedPod, LimitItem, LimitRange, NamespaceQuota, Scope
from fleetlab.core.kubernetes import CPU
from fleetlab.core.kueue_workload import POD_SET
from fleetlab.traces.kubernetes.nodes import amounts
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, elements, fields, members, words

CPUS = (CPU, "requests.cpu", "limits.cpu")
SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass")
# What a quota may count, beside resources whose name has a domain, and hugepages.
COUNTED = (
    *CPUS, *(f"{of}{name}" for name in ("memory", "ephemeral-storage") for of in ("", "requests.", "limits.")),
    "requests.storage", "pods", "services", "services.nodeports", "services.loadbalancers", "configmaps", "secrets",
    "persistentvolumeclaims", "replicationcontrollers", "resourcequotas",
)  # fmt: skip
KINDS = ("Container", "Pod", "PersistentVolumeClaim")  # of items of a LimitRange; others have a domain
RATIO = "maxLimitRequestRatio"
BOUNDS = ("min", "defaultRequest", "default", "max")  # of which none may be above one that follows
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def counted(given: dict[str, Fraction]) -> dict[str, int]:
    """Quantities as the API server compares them: CPU in thousandths of a core."""
    return {name: ceil(amount * 1000) if name in CPUS else ceil(amount) for name, amount in given.items()}


def _about(item: Object) -> tuple[str, str]:
    about = members(item.get("metadata"), "metadata")
    namespace, name = (words(about.get(key), f"metadata.{key}") for key in ("namespace", "name"))
    if not name:
        msg = "no `metadata.name`"
        raise MalformedObject(msg)
    return namespace or "default", name


def namespace_quota(item: Object) -> NamespaceQuota:
    """Read one ResourceQuota; Malformed says what is wrong with it."""
    spec = fields(item.get("spec"), "spec", ("hard", "scopes", "scopeSelector"))
    if spec.get("hard") is None:
        msg = "no `spec.hard`"
        raise MalformedObject(msg)
    hard = counted(amounts(spec["hard"], "spec.hard"))
    for name in hard:
        if "/" not in name and name not in COUNTED and not name.removeprefix("requests.").startswith("hugepages-"):
            msg = f"a quota counts no `{name[:80]}`: there are {', '.join(COUNTED)}, and resources with a domain"
            raise MalformedObject(msg)
    return NamespaceQuota(*_about(item), hard, tuple(_scopes(spec)))


def _scopes(spec: Object) -> Iterable[Scope]:
    for name in elements(spec.get("scopes"), "spec.scopes"):
        yield _known(Scope(words(name, "spec.scopes")))
    where = "spec.scopeSelector.matchExpressions"
    chosen = members(spec.get("scopeSelector"), "spec.scopeSelector").get("matchExpressions")
    for item in elements(chosen, where):
        one = members(item, where)
        name, operator = (words(one.get(key), f"{where}.{key}") for key in ("scopeName", "operator"))
        values = tuple(words(value, f"{where}.values") for value in elements(one.get("values"), f"{where}.values"))
        yield _known(Scope(name, operator or EXISTS, values))


def _known(scope: Scope) -> Scope:
    if scope.name not in SCOPES or scope.operator not in OPERATORS:
        msg = f"a scope that is not modeled: {scope.name} {scope.operator}"
        raise MalformedObject(msg)
    return scope


def limit_range(item: Object) -> LimitRange:
    """Read one LimitRange; of items about volumes nothing is kept."""
    spec = fields(item.get("spec"), "spec", ("limits",))
    if spec.get("limits") is None:
        msg = "no `spec.limits`"
        raise MalformedObject(msg)
    listed = elements(spec["limits"], "spec.limits")
    items = [_item(fields(one, "spec.limits", (*BOUNDS, RATIO, "type"))) for one in listed]
    return LimitRange(*_about(item), tuple(one for one in items if one.kind in ("Container", "Pod")))


def _item(one: Object) -> LimitItem:
    least, request, default, most = (counted(amounts(one.get(key), f"spec.limits.{key}")) for key in BOUNDS)
    ratio = amounts(one.get(RATIO), f"spec.limits.{RATIO}")
    kind = words(one.get("type"), "spec.limits.type")
    if kind not in KINDS and "/" not in kind:
        msg = f"`spec.limits.type` is none of {', '.join(KINDS)}: {kind[:80] or 'nothing'}"
        raise MalformedObject(msg)
    _in_order((least, request, default, most))
    if kind == "Container":  # what the API server writes into the object itself
        default = most | default
        request = least | default | request
    return LimitItem(kind, least, most, default, request, {name: ceil(share * 1000) for name, share in ratio.items()})


def _in_order(bounds: Sequence[dict[str, int]]) -> None:
    """Refuse bounds that no container could meet, as the API server does."""
    for (lower, small), (upper, large) in combinations(zip(BOUNDS, bounds, strict=True), 2):
        if above := [name for name in small if name in large and small[name] > large[name]]:
            msg = f"`spec.limits.{lower}` is above `spec.limits.{upper}`: {', '.join(above)[:80]}"
            raise MalformedObject(msg)


def created_pod(item: Object) -> CreatedPod:
    """Read a pod as it was created; what is only limited is requested as much."""
    about, spec = members(item.get("metadata"), "metadata"), members(item.get("spec"), "spec")
    given = members(about.get("annotations"), "metadata.annotations")
    notes = {key: words(text, f"metadata.annotations.{key}") for key, text in given.items() if key.startswith(POD_SET)}
    return CreatedPod(
        words(about.get("namespace"), "metadata.namespace") or "default",
        (*_containers(spec, "containers"), *_containers(spec, "initContainers")),
        words(spec.get("priorityClassName"), "spec.priorityClassName"),
        spec.get("activeDeadlineSeconds") is not None,
        notes,
    )


def _containers(spec: Object, key: str) -> Iterable[Container]:
    where = f"spec.{key}"
    for item in elements(spec.get(key), where):
        one = members(item, where)
        resources = members(one.get("resources"), f"{where}.resources")
        limits, requests = (
            counted(amounts(resources.get(what), f"{where}.resources.{what}")) for what in ("limits", "requests")
        )
        # A sidecar stays beside the others, though it begins before them.
        before = key == "initContainers" and one.get("restartPolicy") != "Always"
        yield Container(limits | requests, limits, before)
