"""What kube-scheduler knows: pods with what they ask of nodes, nodes, budgets, and its own configuration.

Amounts are whole numbers as the scheduler counts them: CPU in thousandths of a core, memory and storage in bytes, all
else in pieces. Defaults are those of Kubernetes 1.20.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fleetlab.core.records import from_values, to_values
from fleetlab.core.schedulers import ConfigChange, Feature, Scheduler, compare_settings
from fleetlab.core.schedulers import read_scheduler as read_any
from fleetlab.schedulers.kubernetes.admission import Admission

if TYPE_CHECKING:
    from fleetlab.core.cluster import Cluster
    from fleetlab.core.progress import Progress
    from fleetlab.core.scenario import Scenario
    from fleetlab.sim.schedule import Schedule
    from fleetlab.sim.world import World

OBJECTS = {"KubeSchedulerConfiguration", "ResourceQuota", "LimitRange"}  # that configure it
CPU, MEMORY, GPU = "cpu", "memory", "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
GRACE = 30.0  # terminationGracePeriodSeconds, by default
# What a container that asks for none is scored as, so that such pods do not all land on one node.
ASSUMED = {CPU: 100, MEMORY: 200 * 2**20}


@dataclass(frozen=True)
class Taint:
    """What keeps pods off a node that do not tolerate it."""

    key: str
    value: str
    effect: str  # NoSchedule, PreferNoSchedule, NoExecute

    @property
    def feature(self) -> str:
        """The taint as a feature of the node."""
        return f"taint:{self.key}={self.value}:{self.effect}"


@dataclass(frozen=True)
class Toleration:
    """What a pod tolerates; an empty key or effect is any."""

    key: str
    value: str | None  # None: any
    effect: str

    def covers(self, taint: Taint) -> bool:
        """Return whether a taint is tolerated."""
        return self.key in ("", taint.key) and self.effect in ("", taint.effect) and self.value in (None, taint.value)


@dataclass(frozen=True)
class Requirement:
    """One condition on labels: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet it; NotIn is also met where there is no such label."""
        value = labels.get(self.key)
        if self.operator in ("Gt", "Lt"):
            return self._compares(value)
        if self.operator in ("In", "NotIn"):
            return (value in self.values) == (self.operator == "In")
        return (value is not None) == (self.operator == "Exists")

    def _compares(self, value: str | None) -> bool:
        try:
            one, other = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return one > other if self.operator == "Gt" else one < other


@dataclass(frozen=True)
class Selector:
    """Conditions that labels must all meet; `fields` are conditions on the object's own name."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str = "") -> bool:
        """Return whether all conditions hold."""
        known = {"metadata.name": name}
        return all(one.holds(labels) for one in self.labels) and all(one.holds(known) for one in self.fields)

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)


@dataclass(frozen=True)
class SpreadConstraint:
    """How evenly the pods of a selector are to lie over the values of a label of nodes."""

    max_skew: int
    key: str
    firm: bool  # DoNotSchedule; else ScheduleAnyway
    selector: Selector
    min_domains: int = 1  # with fewer values, none counts as having any pods
    honors_affinity: bool = True  # nodeAffinityPolicy: nodes that the pod does not select are not looked at
    honors_taints: bool = False  # nodeTaintsPolicy: nor are those with taints that it does not tolerate
    own_nodes: bool = False  # pods on nodes that are not looked at never count, as in later releases
    anywhere: bool = False  # nodes without the label are scored too


# What spreads pods of a controller by default: `defaultingType: System`.
SYSTEM_SPREAD = (
    SpreadConstraint(3, HOSTNAME, firm=False, selector=Selector()),
    SpreadConstraint(5, "topology.kubernetes.io/zone", firm=False, selector=Selector()),
)
# A label of pods that a ReplicaSet, ReplicationController or StatefulSet made: its uid. These select their own pods.
CONTROLLER = "fleetlab/controller"
NAMESPACE_NAME = "kubernetes.io/metadata.name"  # a label that every namespace has


@dataclass(frozen=True)
class PodTerm:
    """Pods of a selector in some namespaces, on nodes with the same value of a label; no selector: none."""

    key: str
    selector: Selector | None
    namespaces: tuple[str, ...]
    namespace_selector: Selector | None = None  # and in namespaces of these names; with no conditions: in all

    def matches(self, pod: SchedulingPod) -> bool:
        """Return whether a pod is one of them."""
        return self.selector is not None and self._covers(pod.namespace) and self.selector.matches(pod.labels)

    def _covers(self, namespace: str) -> bool:
        chosen = self.namespace_selector
        return namespace in self.namespaces or (chosen is not None and chosen.matches({NAMESPACE_NAME: namespace}))


@dataclass(frozen=True)
class SchedulingPod:
    """A pod as the scheduler sees it."""

    name: str  # one of its own in the whole cluster: namespace/name
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    scored: Mapping[str, int] = field(default_factory=lambda: dict(ASSUMED))  # CPU and memory as they are scored
    required: tuple[Selector, ...] = ()  # of which a node must match one, if there are any
    selector: Selector = field(default_factory=Selector)  # and this one
    preferred: tuple[tuple[int, Selector], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    preempts: bool = True
    affinity: tuple[PodTerm, ...] = ()  # required: a pod that matches all of them must be near
    anti_affinity: tuple[PodTerm, ...] = ()  # required: none may be
    preferred_affinity: tuple[tuple[int, PodTerm], ...] = ()  # by weight; below 0: rather not
    grace: float = GRACE  # s that it takes to leave once it is evicted

    @property
    def looks_at_others(self) -> bool:
        """Whether where it fits depends on where other pods are."""
        return bool(self.spread or self.affinity or self.anti_affinity)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> SchedulingPod:
        """Build one from plain tables, as `to_values` gives them."""
        return from_values(cls, values, "pod")

    def to_values(self) -> dict[str, Any]:
        """Return plain tables of what differs from the defaults."""
        return to_values(self)


@dataclass(frozen=True)
class SchedulingNode:
    """A node as the scheduler sees it."""

    name: str
    allocatable: Mapping[str, int]  # with `pods`, how many it may run
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> SchedulingNode:
        """Build one from plain tables, as `to_values` gives them."""
        return from_values(cls, values, "node")

    def to_values(self) -> dict[str, Any]:
        """Return plain tables."""
        return {"allocatable": {}} | to_values(self)


@dataclass(frozen=True)
class DisruptionBudget:
    """How many pods of a selector may be evicted just now; and of how many the controller makes it so many.

    `at_least` pods must run, or `at_most` may be out: a number, or a percentage of those that there are to be.
    """

    namespace: str
    selector: Selector
    allowed: int
    at_least: str = ""
    at_most: str = ""

    def covers(self, pod: SchedulingPod) -> bool:
        """Return whether it is about a pod; one without a selector is about none."""
        return self.namespace == pod.namespace and bool(self.selector) and self.selector.matches(pod.labels)

    def allows(self, running: int, wanted: int) -> int:
        """How many may be evicted of those that run, where so many there are to be."""
        if not self.at_least and not self.at_most:
            return self.allowed
        if wanted <= 0:
            return 0
        needed = _share(self.at_least, wanted) if self.at_least else max(0, wanted - _share(self.at_most, wanted))
        return max(0, running - needed)


def _share(amount: str, of: int) -> int:
    """A number as it is, and a percentage rounded up, as the controller does."""
    return -(-int(amount[:-1]) * of // 100) if amount.endswith("%") else int(amount)


@dataclass(frozen=True)
class Shape:
    """The bent line of RequestedToCapacityRatio: (utilization 0 to 100, score 0 to 10)."""

    points: tuple[tuple[int, int], ...]

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Shape:
        """Build one from plain lists."""
        return cls(tuple((int(share), int(score)) for share, score in values["points"]))

    def to_values(self) -> dict[str, Any]:
        """Return plain lists."""
        return {"points": [list(point) for point in self.points]}


RESOURCES = {CPU: 1, MEMORY: 1}
FIRST, LATER = "1.20", "1.34"  # the releases whose rules are known
SCORES = {
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "InterPodAffinity": 1,
    "NodeResourcesLeastAllocated": 1,
    "NodeAffinity": 1,
    "NodePreferAvoidPods": 10_000,
    "PodTopologySpread": 2,
    "TaintToleration": 1,
    "SelectorSpread": 1,
}
LATER_SCORES = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
LEAST, MOST, RATIO = "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"
JOB_BACKOFF = {FIRST: (10.0, 360.0), LATER: (1.0, 60.0)}  # s: of the Job controller, once the API server refused


@dataclass(frozen=True)
class KubeScheduler(Scheduler):
    """A profile of kube-scheduler: the weights of its score plugins, what they are told, and its queues' times.

    With it, what else decides about pods of a site: what the API server admits, and budgets of disruption.
    """

    name: ClassVar[str] = "kubernetes"
    title: ClassVar[str] = "kube-scheduler"
    schedules: ClassVar[str] = "pods"  # one by one
    honors: ClassVar[frozenset[Feature]] = frozenset({Feature.NODE_EVENTS, Feature.CHECKPOINTS, Feature.RUNNING_JOBS})
    files: ClassVar[str] = "a KubeSchedulerConfiguration, ResourceQuotas or LimitRanges of Kubernetes"

    weights: Mapping[str, int] = field(default_factory=lambda: dict(SCORES))
    resources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by plugin; others: CPU 1, memory 1
    shape: Shape = field(default_factory=lambda: Shape(((0, 0), (100, 10))))
    percentage: int = 0  # of nodes to score; 0: by the number of nodes
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    hard_affinity: int = 1  # hardPodAffinityWeight: of a required term of another pod that matches
    release: str = FIRST  # whose scores these are
    strategy: str = LEAST  # of NodeResourcesFit, in later releases
    ignore_preferred: bool = False  # preferred terms of other pods, for a pod that has none itself
    added_required: tuple[Selector, ...] = ()  # addedAffinity: of which every node must match one, if there are any
    added_preferred: tuple[tuple[int, Selector], ...] = ()
    system_spread: bool = True  # pods of a controller without constraints get the system's; else the next ones
    default_spread: tuple[SpreadConstraint, ...] = ()
    admission: Admission = field(default_factory=Admission)
    budgets: tuple[DisruptionBudget, ...] = ()

    @classmethod
    def of_release(cls, release: str) -> KubeScheduler:
        """Return the default profile of a release."""
        return cls(weights=dict(LATER_SCORES), release=LATER) if release == LATER else cls()

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        """Whether a file has its configuration, or rules of namespaces."""
        from fleetlab.schedulers.kubernetes.reader.objects import kinds_in

        return not OBJECTS.isdisjoint(kinds_in(path))

    @classmethod
    def read(cls, path: Path) -> KubeScheduler:
        """Read a KubeSchedulerConfiguration, with rules of namespaces beside it or alone."""
        from fleetlab.schedulers.kubernetes.reader.scheduler_config import read_scheduler

        return read_scheduler(path)

    def at(self, own: Scheduler) -> KubeScheduler:
        """Return this profile at a site, with its quotas, limits and budgets; of rules alone, the site's profile."""
        if not isinstance(own, KubeScheduler):
            return self
        rules_alone = replace(self, admission=Admission(), budgets=()) == KubeScheduler() and bool(self.admission)
        base = own if rules_alone else self
        return replace(base, admission=self.admission.over(own.admission), budgets=self.budgets or own.budgets)

    def simulate(
        self, scenario: Scenario, world: World, *, progress: Progress | None = None, draws: int | None = None
    ) -> Schedule:
        """Simulate attempt by attempt; a job is a pod."""
        from fleetlab.schedulers.kubernetes.play import play
        from fleetlab.schedulers.kubernetes.specs import Specs

        s = scenario
        return play(
            world, self, s.cluster, specs=Specs.of(s), events=s.node_events, recovery=s.policy.recovery, seed=s.seed,
            until=s.until, progress=progress,
        )  # fmt: skip

    def settings(self) -> dict[str, Any]:
        """Return its settings, the weights of plugins also where they are the default."""
        return self.to_values() | {"weights": dict(self.weights)}

    def compare_config(self, entry: Path | str, cluster: Cluster) -> ConfigChange:
        """Read another configuration; what the file does not say stays as it is."""
        from fleetlab.schedulers.kubernetes.reader.scheduler_config import read_scheduler

        path = Path(entry)
        same = path.exists() and self.recognizes(path)
        return compare_settings(self, read_scheduler(path, own=self) if same else read_any(path), path.name)

    def adds_to(self, pod: SchedulingPod) -> SchedulingPod:
        """Return a pod with the affinity that the configuration adds to every one, and its constraints of spreading."""
        required = pod.required
        if self.added_required:
            required = tuple(
                Selector((*one.labels, *added.labels), (*one.fields, *added.fields))
                for one in (pod.required or (Selector(),))
                for added in self.added_required
                if added and (one or not pod.required)
            ) or (Selector(),)
        preferred = (*pod.preferred, *self.added_preferred)
        return replace(pod, required=required, preferred=preferred, spread=self._spread_of(pod))

    def _spread_of(self, pod: SchedulingPod) -> tuple[SpreadConstraint, ...]:
        """Return the constraints of a pod as the release reads them; without any, those of its controller's pods."""
        given, later = pod.spread, self.release == LATER
        if not given and CONTROLLER in pod.labels:
            mine = Selector((Requirement(CONTROLLER, "In", (pod.labels[CONTROLLER],)),))
            every = SYSTEM_SPREAD if self.system_spread else self.default_spread
            given = tuple(replace(one, selector=mine, anywhere=later and self.system_spread) for one in every)
        if later:
            return tuple(replace(one, own_nodes=True) for one in given)
        return tuple(replace(one, honors_affinity=True, honors_taints=False) for one in given)

    def nodes_to_find(self, nodes: int) -> int:
        """After how many nodes that fit the search ends."""
        if nodes < 100 or self.percentage >= 100:
            return nodes
        share = self.percentage if self.percentage > 0 else max(5, 50 - nodes // 125)
        return max(100, nodes * share // 100)
