"""What a site's objects rule besides its scheduler: quotas and bounds of namespaces, priority classes and budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from fleetlab.core.admission import Admission, LimitRange, NamespaceQuota
from fleetlab.core.kubernetes import FIRST, LATER, DisruptionBudget, KubeScheduler, SchedulingPod
from fleetlab.core.schedulers import Scheduler
from fleetlab.traces.kubernetes.admission import limit_range, namespace_quota
from fleetlab.traces.kubernetes.objects import Object, words
from fleetlab.traces.kubernetes.priorities import PriorityClass, priority_class
from fleetlab.traces.kubernetes.scheduling import disruption_budget

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
