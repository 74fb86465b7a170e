"""What a reader must know of the queues of Kueue, Volcano or KAI that a scenario is simulated with."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.durations import plural
from fleetlab.core.kai import GPU, Kai
from fleetlab.core.kueue import Kueue
from fleetlab.core.names import clip
from fleetlab.core.volcano import Volcano


def site_notes(s: Scenario) -> list[str]:
    """Return which settings are left out or without effect, which queues nobody uses, and quota that is not there."""
    site = s.scheduler
    if not isinstance(site, Kueue | Volcano | Kai):
        return []
    return [*_left_out(site, s), *_unused(site, s.workload.frame), *_oversold(site, s.cluster.gpus)]


def _left_out(site: Kueue | Volcano | Kai, s: Scenario) -> list[str]:
    if isinstance(site, Kueue):
        from fleetlab.sim.kueue.site_topology import topology_notes

        return topology_notes(site, s)
    if not isinstance(site, Volcano):
        return []
    notes = [f"not simulated, though the configuration names it: {', '.join(site.left_out)}"] if site.left_out else []
    with_deserved = [queue.name for queue in site.queues if queue.deserved]
    if with_deserved and site.plugin("capacity") is None:
        notes.append(
            f"`deserved` of {clip(', '.join(with_deserved))} is without effect: Volcano's plugin capacity alone reads "
            "it, and the configuration does not name that (a file of Queues alone has Volcano's default plugins)"
        )
    return notes


def _unused(site: Kueue | Volcano | Kai, frame: pl.DataFrame) -> list[str]:
    if isinstance(site, Kueue):
        from fleetlab.sim.kueue.submissions import queues_of as kueue_queues

        names, used = list(site.cluster_queues), set(kueue_queues(site, frame))
        kind = "ClusterQueue"
    else:
        from fleetlab.sim.gangs.queues import leaves_of, queues_of

        names, used = leaves_of(site), set(queues_of(site, frame))
        kind = "Queue"
    unused = [name for name in names if name not in used]
    return [f"no job comes to {plural(len(unused), kind)}: {clip(', '.join(unused))}"] if unused else []


def _oversold(site: Kueue | Volcano | Kai, gpus: int) -> list[str]:
    what, amounts = _promised(site)
    total = sum(amount for amount in amounts if amount > 0)
    if total <= gpus:
        return []
    return [f"{what} adds up to {total:,g} GPUs, and the cluster has {gpus:,}: not all of it can be had at once"]


def _promised(site: Kueue | Volcano | Kai) -> tuple[str, Sequence[float]]:
    """What is promised to queues of GPUs, by the word of the scheduler; of a tree, what its top promises."""
    if isinstance(site, Kai):
        return "quota", [queue.quota(GPU).deserved for queue in site.queues if not queue.parent]
    if isinstance(site, Volcano):
        if site.plugin("capacity") is None:
            return "guarantee", [queue.guarantee.get(GPU, 0) for queue in site.queues]
        tree = bool((plugin := site.plugin("capacity")) and plugin.hierarchy)
        top = [queue for queue in site.queues if not tree or queue.parent in ("", "root")]
        return "deserved", [queue.deserved.get(GPU, 0) for queue in top if queue.name != "root"]
    groups = [group for queue in site.cluster_queues.values() for group in queue.groups]
    groups += [group for cohort in site.cohorts.values() for group in cohort.groups]
    quotas = [quotas for group in groups for quotas in group.flavors.values()]
    return "nominalQuota", [one.nominal for some in quotas for name, one in some.items() if name.endswith("/gpu")]
