"""What a site's objects rule besides its scheduler: quotas and bounds of namespaces, priority classes and budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from math import ceil

from fleetlab.core.schedulers import Scheduler
from fleetlab.schedulers.kubernetes.admission import (
    EXISTS,
    SYSTEM_CLASSES,
    Admission,
    Container,
    CreatedPod,
    LimitItem,
    LimitRange,
    NamespaceQuota,
    Scope,
)
from fleetlab.schedulers.kubernetes.config import CPU, FIRST, LATER, DisruptionBudget, KubeScheduler, SchedulingPod
from fleetlab.schedulers.kubernetes.reader.nodes import amounts
from fleetlab.schedulers.kubernetes.reader.objects import (
    MalformedObject,
    Object,
    display,
    elements,
    fields,
    members,
    words,
)
from fleetlab.schedulers.kubernetes.reader.pod_specs import Spec
from fleetlab.schedulers.kubernetes.reader.pods import Pod
from fleetlab.schedulers.kubernetes.reader.scheduling import disruption_budget
from fleetlab.schedulers.kueue.workload import POD_SET

# -- priorities of pods that do not say one, as the API server resolves them by PriorityClass when a pod ---------------

FIELDS = ("apiVersion", "kind", "metadata", "value", "globalDefault", "preemptionPolicy", "description")
POLICIES = ("PreemptLowerPriority", "Never")


@dataclass(frozen=True)
class PriorityClass:
    """A class of pods: their priority, and whether they evict others."""

    name: str
    value: int
    default: bool = False  # of pods that name no class
    preempts: bool = True


def priority_class(item: Object) -> PriorityClass:
    """Read one PriorityClass; Malformed says what is wrong with it."""
    fields(item, "PriorityClass", FIELDS)
    name = words(members(item.get("metadata"), "metadata").get("name"), "metadata.name")
    if not name:
        msg = "no `metadata.name`"
        raise MalformedObject(msg)
    value, policy = item.get("value"), words(item.get("preemptionPolicy"), "preemptionPolicy") or POLICIES[0]
    if not isinstance(value, int) or isinstance(value, bool):
        msg = "no `value`"
        raise MalformedObject(msg)
    if not -(2**31) <= value < 2**31:
        msg = f"`value` does not fit 32 bits: {value}"
        raise MalformedObject(msg)
    if policy not in POLICIES:
        msg = f"`preemptionPolicy` is neither {' nor '.join(POLICIES)}: {policy[:80]}"
        raise MalformedObject(msg)
    if not isinstance(item.get("globalDefault") or False, bool):
        msg = f"`globalDefault` is neither true nor false: {display(item.get('globalDefault'))}"
        raise MalformedObject(msg)
    return PriorityClass(name, value, item.get("globalDefault") is True, policy != "Never")


class Priorities:
    """The classes of a cluster, and how many pods name one that it does not have."""

    def __init__(self, classes: Iterable[PriorityClass]) -> None:
        system = [PriorityClass(name, value) for name, value in SYSTEM_CLASSES.items()]
        self.classes = {one.name: one for one in (*system, *classes)}
        # Where several are the default, the API server takes the lowest.
        defaults = [one for one in self.classes.values() if one.default]
        self._default = min(defaults, key=lambda one: one.value, default=PriorityClass("", 0))
        self.unknown: dict[str, int] = {}

    def resolve(self, pod: Pod, spec: Spec) -> tuple[Pod, Spec]:
        """Return a pod with its priority; one that says it was given it at its creation, and keeps it."""
        if pod.priority is not None:
            return pod, spec
        scheduled, created = spec
        name = created.priority_class
        one = self.classes.get(name) if name else self._default
        if one is None:
            self.unknown[name] = self.unknown.get(name, 0) + 1
            return replace(pod, priority=0), spec
        scheduled = replace(scheduled, priority=one.value, preempts=scheduled.preempts and one.preempts)
        return replace(pod, priority=one.value), (scheduled, replace(created, priority_class=one.name))

    def notes(self) -> list[str]:
        """What to say of pods whose class is not known."""
        named = ", ".join(f"{name} ({count:,} pods)" for name, count in sorted(self.unknown.items())[:10])
        return [f"PriorityClasses that pods name, and that are not in the list: {named}: priority 0"][: len(named)]


# -- resourceQuotas and LimitRanges, and pods as they were created -----------------------------------------------------

CPUS = (CPU, "requests.cpu", "limits.cpu")
SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass")
# What a quota may count, beside resources whose name has a domain, and hugepages.
COUNTED = (
    *CPUS, *(f"{of}{name}" for name in ("memory", "ephemeral-storage") for of in ("", "requests.", "limits.")),
    "requests.storage", "pods", "services", "services.nodeports", "services.loadbalancers", "configmaps", "secrets",
    "persistentvolumeclaims", "replicationcontrollers", "resourcequotas",
)  # fmt: skip
ADMISSION_KINDS = ("Container", "Pod", "PersistentVolumeClaim")  # of items of a LimitRange; others have a domain
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


def _spec(item: Object, known: Iterable[str]) -> Object:
    """What a rule says; the API server writes one that holds nobody with an empty spec, but never without any."""
    if item.get("spec") is None:
        msg = "no `spec`"
        raise MalformedObject(msg)
    return fields(item["spec"], "spec", known)


def namespace_quota(item: Object) -> NamespaceQuota:
    """Read one ResourceQuota; Malformed says what is wrong with it."""
    spec = _spec(item, ("hard", "scopes", "scopeSelector"))
    hard = counted(amounts(spec.get("hard"), "spec.hard"))
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
    listed = elements(_spec(item, ("limits",)).get("limits"), "spec.limits")
    items = [_item(fields(one, "spec.limits", (*BOUNDS, RATIO, "type"))) for one in listed]
    return LimitRange(*_about(item), tuple(one for one in items if one.kind in ("Container", "Pod")))


def _item(one: Object) -> LimitItem:
    least, request, default, most = (counted(amounts(one.get(key), f"spec.limits.{key}")) for key in BOUNDS)
    ratio = amounts(one.get(RATIO), f"spec.limits.{RATIO}")
    kind = words(one.get("type"), "spec.limits.type")
    if kind not in ADMISSION_KINDS and "/" not in kind:
        msg = f"`spec.limits.type` is none of {', '.join(ADMISSION_KINDS)}: {kind[:80] or 'nothing'}"
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


TABLE = "rules"
KINDS = "ResourceQuotas, LimitRanges and PodDisruptionBudgets"
READERS: dict[str, Callable[[Object], object]] = {
    "ResourceQuota": namespace_quota,
    "LimitRange": limit_range,
    "PriorityClass": priority_class,
    "PodDisruptionBudget": disruption_budget,
}
Stored = tuple[object, str, int]


@dataclass
class SiteRules:
    """The objects by kind and name, of which the last counts, each with its file and line."""

    objects: dict[tuple[str, str], Stored] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.objects)

    def store(self, item: Object, name: str, file: str = "", line: int = 0) -> Stored | None:
        """Take an object; return the one of the same name that it supersedes."""
        kind = words(item.get("kind"), "kind")
        key, one = (kind, name), READERS[kind](item)
        before = self.objects.pop(key, None)
        self.objects[key] = (one, file, line)
        return before

    @property
    def admission(self) -> Admission:
        """What the API server admits."""
        every = [one for one, _, _ in self.objects.values()]
        return Admission(
            tuple(one for one in every if isinstance(one, NamespaceQuota)),
            tuple(one for one in every if isinstance(one, LimitRange)),
            {one.name: one.value for one in self.classes},
        )

    @property
    def classes(self) -> list[PriorityClass]:
        """The priority classes."""
        return [one for one, _, _ in self.objects.values() if isinstance(one, PriorityClass)]

    @property
    def budgets(self) -> tuple[DisruptionBudget, ...]:
        """The budgets of disruption."""
        return tuple(one for one, _, _ in self.objects.values() if isinstance(one, DisruptionBudget))

    def on(self, profile: KubeScheduler) -> KubeScheduler:
        """Return a profile with these rules applied to its own."""
        rules = self.admission.over(profile.admission)
        return replace(profile, admission=rules, budgets=self.budgets or profile.budgets)

    def site(
        self, own: Scheduler | None, pods: Iterable[SchedulingPod], *, later: bool
    ) -> tuple[Scheduler | None, list[str]]:
        """Return the site's scheduler with these rules, and what to say of them; `later`: it is younger than 1.22."""
        if isinstance(own, KubeScheduler):
            return self.on(own), []
        covered = any(budget.covers(pod) for budget in self.budgets for pod in pods) if self.budgets else False
        if not self.admission and not covered:
            return own, []
        if own is not None:
            return own, [f"{KINDS} count under kube-scheduler alone, not under {own.title}: left out"]
        release = LATER if later else FIRST
        note = (
            f"the cluster has {KINDS.replace(' and', ' or')}: it is simulated by kube-scheduler with the default "
            f"profile of {release}, unless another scheduler is asked for"
        )
        return self.on(KubeScheduler.of_release(release)), [note]
