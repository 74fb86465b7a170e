"""What Kueue is told: quotas of ClusterQueues and Cohorts by flavor, policies, and workloads that wait for admission.

Amounts are whole numbers as Kueue counts them: CPU in thousandths of a core, memory and storage in bytes, all else in
pieces. Names and defaults are those of Kueue's API, v1beta1 and v1beta2; the rules are those of release 0.15.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fleetlab.core.errors import PolicyError
from fleetlab.core.records import from_values, to_values
from fleetlab.core.schedulers import ConfigChange, Feature, QueueQuota, Scheduler, SettingChange, compare_settings
from fleetlab.schedulers.kubernetes.config import KubeScheduler, Taint, Toleration

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core.cluster import Cluster
    from fleetlab.core.progress import Progress
    from fleetlab.core.scenario import Scenario
    from fleetlab.sim.schedule import Schedule
    from fleetlab.sim.world import World


# -- quota as Kueue has it: by resource, in flavors that are tried in order --------------------------------------------

FlavorResource = tuple[str, str]  # a flavor and a resource
Amounts = Mapping[FlavorResource, int]


@dataclass(frozen=True)
class ResourceQuota:
    """What there is of a resource in a flavor; a limit that is None does not limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True)
class ResourceGroup:
    """Resources that are assigned one flavor together, and their flavors in the order in which they are tried."""

    covered: tuple[str, ...]
    flavors: Mapping[str, Mapping[str, ResourceQuota]]  # quotas by resource, by flavor

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> ResourceGroup:
        """Build one from plain tables."""
        flavors = {
            flavor: {name: from_values(ResourceQuota, quota, "quota") for name, quota in resources.items()}
            for flavor, resources in values["flavors"].items()
        }
        return cls(tuple(values["covered"]), flavors)

    def to_values(self) -> dict[str, Any]:
        """Return plain tables."""
        flavors = {
            flavor: {name: to_values(quota) for name, quota in resources.items()}
            for flavor, resources in self.flavors.items()
        }
        return {"covered": list(self.covered), "flavors": flavors}

    def quotas(self) -> Iterator[tuple[FlavorResource, ResourceQuota]]:
        """Each quota of the group."""
        for flavor, resources in self.flavors.items():
            for resource, quota in resources.items():
                yield (flavor, resource), quota


RELEASE = "0.15"
PODS = "pods"  # a resource that counts pods, where a ClusterQueue covers it
NEVER, ANY = "Never", "Any"
LOWER, LOWER_OR_NEWER = "LowerPriority", "LowerOrNewerEqualPriority"
STRICT, BEST_EFFORT = "StrictFIFO", "BestEffortFIFO"
MAY_STOP, TRY_NEXT = "MayStopSearch", "TryNextFlavor"
FINAL_SHARE, INITIAL_SHARE = "LessThanOrEqualToFinalShare", "LessThanInitialShare"


@dataclass(frozen=True)
class BorrowWithinCohort:
    """Whom a workload may preempt in the cohort while its own ClusterQueue borrows."""

    policy: str = NEVER  # Never, LowerPriority
    max_priority_threshold: int | None = None


@dataclass(frozen=True)
class PreemptionPolicies:
    """Whom the workloads of a ClusterQueue may preempt."""

    within_cluster_queue: str = NEVER  # Never, LowerPriority, LowerOrNewerEqualPriority
    reclaim_within_cohort: str = NEVER  # also: Any
    borrow_within_cohort: BorrowWithinCohort = field(default_factory=BorrowWithinCohort)

    @property
    def depends_on_time(self) -> bool:
        """Whether it matters who came first."""
        return LOWER_OR_NEWER in (self.within_cluster_queue, self.reclaim_within_cohort)

    @property
    def borrows_and_preempts(self) -> bool:
        """Whether others in the cohort may be preempted while borrowing."""
        return self.borrow_within_cohort.policy != NEVER


@dataclass(frozen=True)
class FlavorFungibility:
    """Whether the next flavor is tried where this one would do only by borrowing, or by preempting."""

    when_can_borrow: str = MAY_STOP  # v1beta1: Borrow
    when_can_preempt: str = TRY_NEXT  # or MayStopSearch; v1beta1: Preempt
    preference: str = "BorrowingOverPreemption"  # or PreemptionOverBorrowing


@dataclass(frozen=True)
class Cohort:
    """A node of the tree of those who share quota; it may have quota of its own."""

    name: str
    parent: str | None = None
    groups: tuple[ResourceGroup, ...] = ()
    weight: float = 1.0  # fairSharing


@dataclass(frozen=True)
class ClusterQueue:
    """Quota by flavor, and the policies by which workloads are admitted into it."""

    name: str
    groups: tuple[ResourceGroup, ...] = ()
    cohort: str | None = None
    strategy: str = BEST_EFFORT
    preemption: PreemptionPolicies = field(default_factory=PreemptionPolicies)
    fungibility: FlavorFungibility = field(default_factory=FlavorFungibility)
    weight: float = 1.0  # fairSharing
    stop_policy: str = "None"  # Hold: admits none; HoldAndDrain: evicts too
    admission_checks: tuple[str, ...] = ()

    def group_of(self, resource: str) -> ResourceGroup | None:
        """The group that covers a resource."""
        return next((group for group in self.groups if resource in group.covered), None)


@dataclass(frozen=True)
class LocalQueue:
    """A queue of a namespace, which leads to a ClusterQueue."""

    namespace: str
    name: str
    cluster_queue: str
    stop_policy: str = "None"

    @property
    def key(self) -> str:
        """The queue with its namespace."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class ResourceFlavor:
    """A kind of node: its labels and taints, and the topology on which pods are placed, if on any."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str | None = None


@dataclass(frozen=True)
class Topology:
    """The labels of nodes that name their place, the widest level first."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True)
class WorkloadPriorityClass:
    """A priority by name, apart from that of pods."""

    name: str
    value: int


@dataclass(frozen=True)
class AdmissionCheck:
    """What must agree, besides quota, before a workload is admitted."""

    name: str
    controller: str


@dataclass(frozen=True)
class FairSharing:
    """Whether quota that is borrowed is shared by weight, and when one preempts for that."""

    enable: bool = False
    strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE)
    # A ClusterQueue within its nominal quota preempts whatever the shares are: a feature gate of releases after 0.15.
    preempt_within_nominal: bool = True


@dataclass(frozen=True)
class Kueue(Scheduler):
    """The objects of a site; build one with `Kueue.of`, which checks them."""

    name: ClassVar[str] = "kueue"
    title: ClassVar[str] = "Kueue"
    schedules: ClassVar[str] = "pods"
    honors: ClassVar[frozenset[Feature]] = frozenset(
        {Feature.GANGS, Feature.NODE_EVENTS, Feature.CHECKPOINTS, Feature.RUNNING_JOBS}
    )
    has_defaults: ClassVar[bool] = False
    files: ClassVar[str] = "ClusterQueues of Kueue"

    cluster_queues: Mapping[str, ClusterQueue] = field(default_factory=dict)
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    local_queues: Mapping[str, LocalQueue] = field(default_factory=dict)  # by namespace/name
    topologies: Mapping[str, Topology] = field(default_factory=dict)
    priorities: Mapping[str, WorkloadPriorityClass] = field(default_factory=dict)
    checks: Mapping[str, AdmissionCheck] = field(default_factory=dict)
    fair_sharing: FairSharing = field(default_factory=FairSharing)
    pods: KubeScheduler = field(default_factory=KubeScheduler)  # which places the pods of what is admitted

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Kueue:
        """Build one from plain tables, as `to_values` gives them."""
        lists = {place: kind for kind, place in _PLACES.items()}
        objects: list[object] = []
        for place, kind in lists.items():
            objects += [from_values(kind, one, kind.__name__) for one in values.get(place, ())]
        sharing = from_values(FairSharing, values.get("fair_sharing", {}), "fair sharing")
        return cls.of(*objects, sharing, KubeScheduler.from_values(values.get("pods", {})))

    def to_values(self) -> dict[str, Any]:
        """Return plain tables."""
        named = {place: [to_values(one) for one in getattr(self, place).values()] for place in _PLACES.values()}
        own = {"fair_sharing": to_values(self.fair_sharing), "pods": self.pods.to_values()}
        return {name: value for name, value in {**named, **own}.items() if value}

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        """Whether a file has a ClusterQueue."""
        from fleetlab.schedulers.kubernetes.reader.objects import kinds_in

        return "ClusterQueue" in kinds_in(path)

    @classmethod
    def read(cls, path: Path) -> Kueue:
        """Read a file of Kueue's objects; a KubeSchedulerConfiguration in it places the pods."""
        from fleetlab.schedulers.kubernetes.reader.kueue import read_kueue

        return read_kueue(path)

    def simulate(
        self, scenario: Scenario, world: World, *, progress: Progress | None = None, draws: int | None = None
    ) -> Schedule:
        """Simulate admission, and pods that kube-scheduler places."""
        from fleetlab.schedulers.kubernetes.specs import Specs
        from fleetlab.schedulers.kueue.play import play

        s = scenario
        return play(
            world, self, s.cluster, specs=Specs.of(s), events=s.node_events, recovery=s.policy.recovery, seed=s.seed,
            until=s.until, progress=progress,
        )  # fmt: skip

    def notes(self, scenario: Scenario, cluster: Cluster) -> list[str]:
        """Return topologies that do not hold, queues that nobody uses, and quota that is not there."""
        from fleetlab.schedulers.gangs.config import oversold, unused
        from fleetlab.schedulers.kueue.submissions import queues_of, topology_notes

        groups = [group for queue in self.cluster_queues.values() for group in queue.groups]
        groups += [group for cohort in self.cohorts.values() for group in cohort.groups]
        quotas = [quotas for group in groups for quotas in group.flavors.values()]
        amounts = [one.nominal for some in quotas for name, one in some.items() if name.endswith("/gpu")]
        return [
            *topology_notes(self, scenario),
            *unused("ClusterQueue", list(self.cluster_queues), queues_of(self, scenario.workload.frame)),
            *oversold("nominalQuota", amounts, cluster.gpus),
        ]

    def explain_job(self, scenario: Scenario, world: World, job: int) -> tuple[str, ...]:
        """Return how far Kueue came with a job in the log, and which quota was missing there."""
        from fleetlab.schedulers.kueue.pending import explain_job

        return explain_job(self, scenario, world, job)

    def teams(self, frame: pl.DataFrame) -> pl.Series:
        """Return the ClusterQueue that each job comes to."""
        import polars as pl

        from fleetlab.schedulers.kueue.submissions import queues_of

        return pl.Series("team", queues_of(self, frame), dtype=pl.String).fill_null("none")

    def compare_config(self, entry: Path | str, cluster: Cluster) -> ConfigChange:
        """Read another file of objects, which are applied to these."""
        from fleetlab.schedulers.kubernetes.reader.kueue import read_kueue

        return compare_settings(self, read_kueue(Path(entry), self), Path(entry).name)

    def settings(self) -> dict[str, Any]:
        """Return each setting of its objects by name, as text."""
        from fleetlab.schedulers.kubernetes.reader.kueue import settings_of

        return dict(settings_of(self))

    def quotas(self) -> tuple[QueueQuota, ...]:
        """Return each quota of each ClusterQueue and Cohort."""
        from fleetlab.schedulers.kueue.settings import quotas

        return tuple(quotas(self))

    def what_ifs(self, jobs: pl.DataFrame | None = None) -> tuple[SettingChange, ...]:
        """Return changes of the quota, limits and policies of the ClusterQueue that waits most."""
        from fleetlab.schedulers.kueue.settings import what_ifs

        return () if jobs is None else tuple(what_ifs(self, jobs))

    def replace_quotas(self, edits: Sequence[QueueQuota]) -> Kueue:
        """Return it with other quotas, limits or weights."""
        from fleetlab.schedulers.kueue.settings import with_quotas

        return with_quotas(self, edits)

    @classmethod
    def of(cls, *objects: object) -> Kueue:
        """Gather objects, of which the last of a name counts; PolicyError where they do not fit together."""
        found: dict[str, dict[str, object]] = {name: {} for name in _PLACES.values()}
        settings: dict[str, Any] = {}
        for one in objects:
            if isinstance(one, FairSharing | KubeScheduler):
                settings["fair_sharing" if isinstance(one, FairSharing) else "pods"] = one
            else:
                found[_PLACES[type(one)]][_identity(one)[1]] = one
        made = cls(**found, **settings)  # type: ignore[arg-type]
        made.check()
        return made

    def objects(self) -> list[object]:
        """Its objects, and what configures it besides."""
        listed = [one for place in _PLACES.values() for one in getattr(self, place).values()]
        return [*listed, self.fair_sharing, self.pods]

    def applied(self, objects: Iterable[object], deleted: Iterable[object] = ()) -> Kueue:
        """Return it with objects in the place of those of the same name, or without some; PolicyError if none is so."""
        gone = {_identity(one) for one in deleted}
        own = [_identity(one) for one in self.objects()]
        if missing := [f"{kind.__name__} {name}" for kind, name in gone if (kind, name) not in own]:
            msg = f"cannot delete what the site does not have: {', '.join(missing)}"
            raise PolicyError(msg, hint="`$patch: delete` stands beside the kind and name of an object of the site")
        return Kueue.of(*(one for one in self.objects() if _identity(one) not in gone), *objects)

    def check(self) -> None:
        """Raise where a queue leads nowhere, or the cohorts go in a circle."""
        for queue in self.local_queues.values():
            if queue.cluster_queue not in self.cluster_queues:
                msg = f"LocalQueue {queue.key}: no such ClusterQueue: {queue.cluster_queue}"
                raise PolicyError(msg, hint=_known(self.cluster_queues))
        for cohort in self.cohorts:
            self._check_parents(cohort)
        for each in self.cluster_queues.values():
            self._check_groups(each)

    def _check_parents(self, name: str) -> None:
        seen = [name]
        while (above := self.cohorts[seen[-1]].parent if seen[-1] in self.cohorts else None) is not None:
            if above in seen:
                msg = f"cohorts in a circle: {' → '.join([*seen, above])}"
                raise PolicyError(msg, hint="the parents of a Cohort must end at one without a parent")
            seen.append(above)

    def _check_groups(self, queue: ClusterQueue) -> None:
        covered = [resource for group in queue.groups for resource in group.covered]
        if twice := sorted({name for name in covered if covered.count(name) > 1}):
            msg = f"ClusterQueue {queue.name}: in two resource groups: {', '.join(twice)}"
            raise PolicyError(msg, hint="a resource belongs to one group")
        named = {flavor for group in queue.groups for flavor in group.flavors}
        if self.flavors and (missing := sorted(named - set(self.flavors))):
            msg = f"ClusterQueue {queue.name}: no such ResourceFlavor: {', '.join(missing)}"
            raise PolicyError(msg, hint=_known(self.flavors))

    def parent_of(self, name: str) -> str | None:
        """The cohort above a cohort; one that is only named has none."""
        return self.cohorts[name].parent if name in self.cohorts else None

    def flavor(self, name: str) -> ResourceFlavor:
        """A flavor; where no flavors are listed, one without labels and taints."""
        return self.flavors.get(name) or ResourceFlavor(name)


_PLACES: dict[type, str] = {
    ClusterQueue: "cluster_queues",
    Cohort: "cohorts",
    ResourceFlavor: "flavors",
    LocalQueue: "local_queues",
    Topology: "topologies",
    WorkloadPriorityClass: "priorities",
    AdmissionCheck: "checks",
}


def _identity(one: object) -> tuple[type, str]:
    return type(one), str(getattr(one, "key", None) or getattr(one, "name", ""))


def _known(names: Mapping[str, object]) -> str:
    return f"there are: {', '.join(sorted(names)[:10]) or 'none'}"
