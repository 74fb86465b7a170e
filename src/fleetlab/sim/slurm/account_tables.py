"""The accounts of a site, as its loops take them: limits, usage and priorities."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.core.slurm import Slurm as Site
from fleetlab.sim.layout import Floats
from fleetlab.sim.slurm.accounting import Accounting
from fleetlab.sim.slurm.associations import associations_of, places, usage_of
from fleetlab.sim.slurm.limit_tables import groups_of, requests_of, resource_names
from fleetlab.sim.slurm.priority import FIRST_BASIC, priority_rules
from fleetlab.sim.slurm.state import Slurm
from fleetlab.sim.slurm.usage import billing_rules, new_usage, usage_rules
from fleetlab.sim.world import World


def accounting_of(world: World, site: Site, s: Slurm, cluster: Cluster) -> Accounting:
    """Return the accounts of a site before the first submission; `site` has the partitions of `s`."""
    rows = places(site.queues)
    rules = usage_rules(site.priority, site.enforce)
    associations = associations_of(site.queues, fair_tree=bool(rules.fair_tree))
    names = world.frame.select(pl.col("queue", "user").cast(pl.String))
    queues = [site.queues.of(account, user) for account, user in names.iter_rows()]
    qos = s.jobs.qos
    resources = resource_names(cluster.frame)
    amounts = requests_of(world, s, resources)
    classes = {q.name: len(associations.parent) + k for k, q in enumerate(site.qos)}
    factor = np.array([*(q.usage_factor for q in site.qos), 1.0])
    return Accounting(
        groups=groups_of(world, site, s, resources, cluster.frame["gpu_type"].to_list()),
        multifactor=int(site.priority.multifactor), period=max(1.0, float(site.priority.calc_period)),
        always=int("ACCRUE_ALWAYS" in {flag.upper() for flag in site.priority.flags}),
        pass_at=_passes(site, s), lowest=np.array([FIRST_BASIC], dtype=np.int64),
        associations=associations, usage=new_usage(associations, site.qos, len(resources), usage_of(site.queues)),
        usage_rules=rules, billing=billing_rules(site, resources),
        rules=priority_rules(site, resources, _totals(cluster.frame), _of_partitions(site, cluster)), amounts=amounts,
        cpus=amounts[:, 0].copy(), nodes=amounts[:, 2].copy(),
        association=np.array([rows[queue.name] if queue else 0 for queue in queues], dtype=np.int64),
        partition_row=np.array([classes.get(part.qos or "", -1) for part in site.partitions], dtype=np.int64),
        qos_row=np.where(qos >= 0, qos + len(associations.parent), -1), factor=factor[qos],
        rate=np.full(len(s.jobs), -1.0),
    )  # fmt: skip


def _passes(site: Site, s: Slurm) -> Floats:
    """Return when the accounts are ranked first, and the phase of later passes: they count from slurmctld's start."""
    begin = np.floor(s.jobs.submit.min(initial=0.0))
    return np.array([begin, begin if site.boot is None else site.boot])


def _totals(nodes: pl.DataFrame) -> dict[str, float]:
    cpu, memory, gpus = (float(nodes[name].cast(pl.Int64).sum()) for name in ("cpu_milli", "memory_mib", "gpus"))
    return {"cpu": max(1.0, cpu / 1000), "memory": memory, "node": max(1.0, float(nodes.height)), "gpu": gpus}


def _of_partitions(site: Site, cluster: Cluster) -> dict[str, dict[str, float]]:
    inside = pl.col("partitions").list
    named = cluster.frame["partitions"].list.len().max()
    return {
        part.name: _totals(cluster.frame.filter(inside.contains(part.name)) if named else cluster.frame)
        for part in site.partitions
    }
