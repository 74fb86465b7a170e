"""Which settings differ between two sites' Kueue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetlab.core.kueue import ClusterQueue, Cohort, Kueue
from fleetlab.traces.kubernetes.kueue_file import read_kueue
from fleetlab.traces.slurm.conf_change import Setting

QUOTA = (("nominal", "nominalQuota"), ("borrowing_limit", "borrowingLimit"), ("lending_limit", "lendingLimit"))


@dataclass(frozen=True)
class KueueChange:
    """A site with another file of Kueue's objects."""

    name: str
    kueue: Kueue
    settings: tuple[Setting, ...]
    notes: tuple[str, ...] = ()


def change_kueue(kueue: Kueue, path: Path | str) -> KueueChange:
    """Read another file, which takes the place of all objects."""
    other = read_kueue(Path(path))
    was, becomes = dict(_settings(kueue)), dict(_settings(other))
    names = [*was, *(name for name in becomes if name not in was)]
    changed = [
        Setting(name, was.get(name, "none"), becomes.get(name, "none"))
        for name in names
        if was.get(name) != becomes.get(name)
    ]
    return KueueChange(Path(path).name, other, tuple(changed))


def _settings(kueue: Kueue) -> Iterator[tuple[str, str]]:
    """Each setting by name, as text."""
    for queue in kueue.cluster_queues.values():
        yield from _of_queue(queue)
    for cohort in kueue.cohorts.values():
        yield f"Cohort {cohort.name}: parent", str(cohort.parent)
        yield from _quotas(f"Cohort {cohort.name}", cohort)
    for local in kueue.local_queues.values():
        yield f"LocalQueue {local.key}: clusterQueue", local.cluster_queue
        yield f"LocalQueue {local.key}: stopPolicy", local.stop_policy
    sharing = kueue.fair_sharing
    yield "fairSharing", ", ".join(sharing.strategies) if sharing.enable else "off"


def _of_queue(queue: ClusterQueue) -> Iterator[tuple[str, str]]:
    policies, borrow, flavors = queue.preemption, queue.preemption.borrow_within_cohort, queue.fungibility
    threshold = "" if borrow.max_priority_threshold is None else f" up to {borrow.max_priority_threshold}"
    fields = {
        "cohort": queue.cohort,
        "queueingStrategy": queue.strategy,
        "withinClusterQueue": policies.within_cluster_queue,
        "reclaimWithinCohort": policies.reclaim_within_cohort,
        "borrowWithinCohort": f"{borrow.policy}{threshold}",
        "whenCanBorrow": flavors.when_can_borrow,
        "whenCanPreempt": flavors.when_can_preempt,
        "preference": flavors.preference,
        "stopPolicy": queue.stop_policy,
    }
    yield from ((f"ClusterQueue {queue.name}: {name}", str(value)) for name, value in fields.items())
    yield from _quotas(f"ClusterQueue {queue.name}", queue)


def _quotas(title: str, node: ClusterQueue | Cohort) -> Iterable[tuple[str, str]]:
    yield f"{title}: fairSharing weight", f"{node.weight:g}"
    for group in node.groups:
        for (flavor, resource), quota in group.quotas():
            for field, name in QUOTA:
                value = getattr(quota, field)
                yield f"{title}: {name} of {resource} in {flavor}", "no limit" if value is None else f"{value:,}"
