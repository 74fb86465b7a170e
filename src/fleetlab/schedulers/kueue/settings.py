"""Quotas of Kueue's queues: as rows that one can read and edit, and what else they could be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, TypeVar

import polars as pl

from fleetlab.core.errors import PolicyError
from fleetlab.core.schedulers import QueueQuota, SettingChange
from fleetlab.schedulers.kubernetes.config import CPU
from fleetlab.schedulers.kueue.config import (
    ANY,
    LOWER,
    NEVER,
    TRY_NEXT,
    ClusterQueue,
    Cohort,
    Kueue,
    PreemptionPolicies,
    ResourceGroup,
    ResourceQuota,
)
from fleetlab.schedulers.kueue.submissions import queues_of

AMOUNTS = {"nominalQuota": "nominal", "borrowingLimit": "borrowing_limit", "lendingLimit": "lending_limit"}
WEIGHT = "weight"
Node = TypeVar("Node", ClusterQueue, Cohort)
COHORT = "Cohort "  # before the name of a cohort, which may be that of a ClusterQueue


def quotas(site: Kueue) -> Iterator[QueueQuota]:
    """Each quota of each ClusterQueue and Cohort."""
    for title, node, parent in _nodes(site):
        for group in node.groups:
            for (flavor, resource), quota in group.quotas():
                unit = 1000 if resource == CPU else 1
                amounts = {name: _shown(getattr(quota, field), unit) for name, field in AMOUNTS.items()}
                yield QueueQuota(title, parent or "", flavor, resource, {**amounts, WEIGHT: node.weight})


def _nodes(site: Kueue) -> Iterator[tuple[str, ClusterQueue | Cohort, str | None]]:
    yield from ((one.name, one, one.cohort) for one in site.cluster_queues.values())
    yield from ((f"{COHORT}{one.name}", one, one.parent) for one in site.cohorts.values())


def _shown(amount: int | None, unit: int) -> float | None:
    return None if amount is None else amount / unit


def with_quotas(site: Kueue, edits: Sequence[QueueQuota]) -> Kueue:
    """Return a site with other amounts."""
    queues, cohorts = dict(site.cluster_queues), dict(site.cohorts)
    for edit in edits:
        name = edit.queue.removeprefix(COHORT)
        if edit.queue in queues:
            queues[edit.queue] = _edited(queues[edit.queue], edit)
        else:
            cohorts[name] = _edited(cohorts[name], edit)
    return replace(site, cluster_queues=queues, cohorts=cohorts)


def _edited(node: Node, edit: QueueQuota) -> Node:
    weight = edit.amounts.get(WEIGHT, node.weight)
    unit = 1000 if edit.resource == CPU else 1
    given = {AMOUNTS[name]: amount for name, amount in edit.amounts.items() if name != WEIGHT}
    if None in (weight, given.get("nominal", 0)):
        msg = f"{'weight' if weight is None else 'nominalQuota'} of {edit.queue} needs a number"
        raise PolicyError(msg, hint="a limit may be None: it does not limit")
    amounts: dict[str, Any] = {name: None if amount is None else round(amount * unit) for name, amount in given.items()}

    def quota_of(flavor: str, resource: str, quota: ResourceQuota) -> ResourceQuota:
        return replace(quota, **amounts) if (flavor, resource) == (edit.flavor, edit.resource) else quota

    groups = _with_each(node.groups, quota_of)
    return replace(node, groups=groups, weight=float(weight or 0))


def _with_each(
    groups: Sequence[ResourceGroup], quota_of: Callable[[str, str, ResourceQuota], ResourceQuota]
) -> tuple[ResourceGroup, ...]:
    """Return groups with other quotas."""
    return tuple(
        ResourceGroup(group.covered, {
            flavor: {name: quota_of(flavor, name, quota) for name, quota in resources.items()}
            for flavor, resources in group.flavors.items()
        })
        for group in groups
    )  # fmt: skip


# -- what a diagnosis tries --------------------------------------------------------------------------------------------

MORE = 0.25  # of the nominal quota


def what_ifs(site: Kueue, jobs: pl.DataFrame) -> Iterator[SettingChange]:
    """Each change of the ClusterQueue that waits most by which it may wait less, and who pays for it."""
    name = _waits_most(site, jobs)
    if name is None:
        return
    queue = site.cluster_queues[name]
    same = [one for one in site.cluster_queues.values() if queue.cohort is not None and one.cohort == queue.cohort]
    policies = queue.preemption
    within = LOWER if policies.within_cluster_queue == NEVER else policies.within_cluster_queue
    reclaims = PreemptionPolicies(within, ANY, policies.borrow_within_cohort)
    reverse = tuple(ResourceGroup(g.covered, dict(reversed(list(g.flavors.items())))) for g in queue.groups)
    lends = [
        replace(one, groups=_with_each(one.groups, lambda _, __, quota: replace(quota, lending_limit=None)))
        for one in same
        if one is not queue
    ]
    larger = _with_each(queue.groups, lambda _, __, q: replace(q, nominal=q.nominal + ceil(q.nominal * MORE)))
    unlimited = _with_each(queue.groups, lambda _, __, q: replace(q, borrowing_limit=None))
    rule = replace(queue.fungibility, when_can_borrow=TRY_NEXT)
    others = "the other queues of its cohort, which can borrow less"
    rows: list[tuple[str, str, str, str, list[ClusterQueue]]] = [
        ("nominal", f"25 % more quota for {name}", f"raise each nominalQuota of {name} by a quarter",
         f"nodes for it, or {others}", [replace(queue, groups=larger)]),
        ("borrowing", f"no borrowing limit of {name}", f"remove each borrowingLimit of {name}", others,
         [replace(queue, groups=unlimited)]),
        ("lending", f"no lending limits to {name}", f"remove each lendingLimit in cohort {queue.cohort}",
         "the owners of the quota, who wait until it is given back", lends),
        ("preemption", f"preemption by {name}",
         f"set reclaimWithinCohort of {name} to Any, withinClusterQueue to {within}",
         "whoever borrows its quota or has a lower priority, who runs again", [replace(queue, preemption=reclaims)]),
        ("flavors", f"flavors of {name} in reverse", f"reverse the flavors of {name}",
         "who uses the flavor that is tried first then", [replace(queue, groups=reverse)]),
        ("fungibility", f"next flavor before borrowing in {name}", f"set whenCanBorrow of {name} to {TRY_NEXT}",
         "who uses the next flavors", [replace(queue, fungibility=rule)]),
    ]  # fmt: skip
    for key, title, action, pays, edited in rows:
        queues = dict(site.cluster_queues) | {one.name: one for one in edited}
        yield SettingChange(key, title, action, pays, ("quota",), replace(site, cluster_queues=queues))
    fair = replace(site, fair_sharing=replace(site.fair_sharing, enable=True))
    double = replace(queue, weight=2 * queue.weight)
    weighted = replace(site, cluster_queues=dict(site.cluster_queues) | {name: double})
    yield (
        SettingChange("weight", f"twice the weight of {name}", f"double the fairSharing weight of {name}",
                      "the other queues of its cohort", ("quota",), weighted)
        if site.fair_sharing.enable else
        SettingChange("fair sharing", "fair sharing", "enable fairSharing in the configuration of Kueue",
                      "the queues that borrow most", ("quota",), fair)
    )  # fmt: skip


def _waits_most(site: Kueue, jobs: pl.DataFrame) -> str | None:
    """The ClusterQueue whose jobs have waited most in the log; where it tells no starts, that of most GPU-seconds."""
    last = pl.max_horizontal(pl.col("submit", "start", "end").max())
    waited = (pl.coalesce("start", last) - pl.col("submit")).clip(0.0)
    waited = pl.when(pl.col("start").is_not_null() | (pl.col("status") == "waiting")).then(waited)
    asked = pl.col("gpu_milli").cast(pl.Float64) * pl.col("instances")
    frame = jobs.with_columns(
        queue_of=pl.Series(queues_of(site, jobs), dtype=pl.String), wait=waited, asked=asked * pl.col("runtime")
    )
    sums = frame.drop_nulls("queue_of").group_by("queue_of").agg(pl.col("wait", "asked").sum())
    return None if sums.is_empty() else str(sums.sort("wait", "asked", "queue_of")["queue_of"][-1])
