"""Why does a workload wait in Kueue: for which quota, behind which limit, and who would have to go for it?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetlab.core.kueue import Kueue
from fleetlab.core.kueue_workload import KueueWorkload
from fleetlab.core.names import lookup
from fleetlab.sim.kueue.cycle import Cycle, Entry, Head
from fleetlab.sim.kueue.loop import KueueSite
from fleetlab.sim.kueue.quotas import QuotaNode
from fleetlab.sim.kueue.shares import share
from fleetlab.sim.kueue.state import Admitted, Snapshot
from fleetlab.traces.kubernetes.kueue_file import read_kueue
from fleetlab.traces.kubernetes.kueue_snapshot import KueueSnapshot, read_kueue_snapshot


@dataclass(frozen=True)
class KueueMoment:
    """The workloads of Kueue at one moment: those that hold quota, and those that are pending."""

    snapshot: KueueSnapshot
    kueue: Kueue

    @classmethod
    def read(cls, path: str | Path, queues: str | Path | None = None) -> KueueMoment:
        """Read what `kubectl get clusterqueues,cohorts,localqueues,resourceflavors,workloads -A -o json` wrote.

        `queues` is a file of objects that takes the place of those that were read: what if the quotas were others?
        """
        found = read_kueue_snapshot(Path(path))
        return cls(found, found.kueue if queues is None else read_kueue(Path(queues)))

    def state(self) -> Snapshot:
        """The trees of quota with all usage."""
        forests = KueueSite(self.kueue, self.snapshot.nodes).forests()
        known = [one for one in self.snapshot.admitted if one.workload.cluster_queue in self.kueue.cluster_queues]
        rows = [Admitted(one.workload, one.usage, one.since, one.workload.created, one.evicted) for one in known]
        return Snapshot.of(self.kueue, rows, forests)

    def quotas(self) -> pl.DataFrame:
        """What each ClusterQueue has, uses, borrows and could still get, by flavor and resource."""
        state = self.state()
        rows = []
        for name, node in state.nodes.items():
            for (flavor, resource), quota in node.quotas.items():
                used = node.usage[flavor, resource]
                rows.append((
                    name, flavor, resource, quota.nominal, used, max(0, used - quota.nominal), quota.borrowing_limit,
                    quota.lending_limit, state.available(name, (flavor, resource)), share(node).rounded,
                ))  # fmt: skip
        schema = {
            "cluster_queue": pl.String, "flavor": pl.String, "resource": pl.String, "nominal": pl.Int64,
            "used": pl.Int64, "borrowed": pl.Int64, "borrowing_limit": pl.Int64, "lending_limit": pl.Int64,
            "available": pl.Int64, "share": pl.Float64,
        }  # fmt: skip
        return pl.DataFrame(rows, schema=schema, orient="row")

    def why(self, name: str) -> list[str]:
        """Why a workload waits, in sentences."""
        one = self._pending(name)
        state, queue = self.state(), self.kueue.cluster_queues[one.cluster_queue]
        if queue.stop_policy != "None":
            return [f"ClusterQueue {queue.name} is stopped: stopPolicy {queue.stop_policy}."]
        entry = Cycle(state, 0.0).nominate(Head(one, one.created))
        return [*_room(state, one, entry), *_help(entry), *self._ahead(one)]

    def victims(self, name: str) -> pl.DataFrame:
        """Who would be preempted so that a workload is admitted; nobody where it fits, or where that cannot help."""
        one = self._pending(name)
        entry = Cycle(self.state(), 0.0).nominate(Head(one, one.created))
        rows = [
            (each.one.name, each.one.workload.cluster_queue, each.one.priority, each.reason) for each in entry.targets
        ]
        schema = {"victim": pl.String, "cluster_queue": pl.String, "priority": pl.Int64, "reason": pl.String}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def _pending(self, name: str) -> KueueWorkload:
        full = name if "/" in name else f"default/{name}"
        lookup("workload that waits", full, list(self.snapshot.pending))
        return self.snapshot.pending[full]

    def _ahead(self, one: KueueWorkload) -> list[str]:
        mine = (-one.priority, one.created, one.tie)
        others = [each for each in self.snapshot.pending.values() if each.cluster_queue == one.cluster_queue]
        ahead = sum((-each.priority, each.created, each.tie) < mine for each in others)
        strict = self.kueue.cluster_queues[one.cluster_queue].strategy == "StrictFIFO"
        rule = "and under StrictFIFO it waits for all of them" if strict else "which it may pass where they do not fit"
        return [f"{ahead} of its ClusterQueue {'is' if ahead == 1 else 'are'} ahead of it, {rule}."] if ahead else []


def _room(state: Snapshot, one: KueueWorkload, entry: Entry) -> list[str]:
    """What each flavor lacks."""
    node, lines = state.nodes[one.cluster_queue], []
    wanted: dict[str, int] = {}
    for pods in one.pod_sets:
        for resource, amount in pods.requests.items():
            wanted[resource] = wanted.get(resource, 0) + amount * pods.count
    for resource, amount in wanted.items():
        group = state.queue(one.cluster_queue).group_of(resource)
        if group is None:
            lines.append(f"ClusterQueue {one.cluster_queue} has no quota for {resource}.")
            continue
        lines += [_of_flavor(node, flavor, resource, amount) for flavor in group.flavors]
    return [*lines, *(f"Kueue would say: {reason}." for reason in entry.reasons)]


def _of_flavor(node: QuotaNode, flavor: str, resource: str, amount: int) -> str:
    at = (flavor, resource)
    quota, used, free = node.quota(at), node.usage[at], max(0, node.available(at))
    limit = "no borrowing limit" if quota.borrowing_limit is None else f"borrowing limit {quota.borrowing_limit:,}"
    held = f"{node.name} uses {used:,} of its nominal {quota.nominal:,} ({limit})"
    if amount > node.potential(at):
        return f"{flavor}: it asks for {amount:,} {resource}, and could never get more than {node.potential(at):,}."
    if amount <= free:
        return f"{flavor}: {free:,} {resource} are available for its {amount:,}; {held}."
    idle = node.root.subtree.get(at, 0) - node.root.usage[at] if node.parent is not None else free
    elsewhere = f", though {idle:,} are free in its cohort" if node.parent is not None and idle >= amount else ""
    return f"{flavor}: it asks for {amount:,} {resource}, and {free:,} are available{elsewhere}: {held}."


def _help(entry: Entry) -> list[str]:
    if entry.assignment.mode.name == "FIT":
        return ["It fits: Kueue admits it in its next cycle."]
    if not entry.targets:
        return ["Nobody may be preempted for it: it waits until others end."]
    names = ", ".join(f"{each.one.name} ({each.reason})" for each in entry.targets)
    return [f"It would be admitted by preempting {names}."]
