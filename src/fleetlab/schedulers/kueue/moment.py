"""Why does a workload wait in Kueue: for which quota, behind which limit, and who would have to go for it?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetlab.core.names import lookup
from fleetlab.schedulers.kubernetes.reader.kueue import read_kueue
from fleetlab.schedulers.kubernetes.reader.kueue_snapshot import KueueSnapshot, read_kueue_snapshot
from fleetlab.schedulers.kueue.config import Kueue
from fleetlab.schedulers.kueue.cycle import Cycle, Head
from fleetlab.schedulers.kueue.fair import share
from fleetlab.schedulers.kueue.loop import KueueSite
from fleetlab.schedulers.kueue.pending import why
from fleetlab.schedulers.kueue.state import Snapshot
from fleetlab.schedulers.kueue.workload import KueueWorkload


@dataclass(frozen=True)
class KueueMoment:
    """The workloads of Kueue at one moment: those that hold quota, and those that are pending."""

    snapshot: KueueSnapshot
    kueue: Kueue

    @classmethod
    def read(cls, path: str | Path, queues: str | Path | None = None) -> KueueMoment:
        """Read what `kubectl get clusterqueues,cohorts,localqueues,resourceflavors,workloads -A -o json` wrote.

        `queues` is a file of objects that are applied to those that were read: what if the quotas were others?
        """
        found = read_kueue_snapshot(Path(path))
        return cls(found, found.kueue if queues is None else read_kueue(Path(queues), found.kueue))

    def state(self) -> Snapshot:
        """The trees of quota with all usage."""
        forests = KueueSite(self.kueue, self.snapshot.nodes).forests()
        known = [one for one in self.snapshot.admitted if one.workload.cluster_queue in self.kueue.cluster_queues]
        return Snapshot.of(self.kueue, known, forests)

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
        return why(self.state(), one, self.snapshot.pending.values())

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
