"""Where would kube-scheduler put a pod that waits, and who would have to go for it?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetlab.core import TraceError
from fleetlab.core.names import lookup
from fleetlab.schedulers.kubernetes.config import KubeScheduler, SchedulingPod
from fleetlab.schedulers.kubernetes.preemption import best_candidates
from fleetlab.schedulers.kubernetes.reader.scheduler_config import read_scheduler
from fleetlab.schedulers.kubernetes.reader.snapshot import HINT, Snapshot, read_snapshot
from fleetlab.schedulers.kubernetes.scores import decide
from fleetlab.schedulers.kubernetes.state import Cache


@dataclass(frozen=True)
class KubernetesSite:
    """A cluster at one moment, and the profile of its scheduler."""

    snapshot: Snapshot
    profile: KubeScheduler
    cache: Cache

    @classmethod
    def read(cls, path: str | Path, scheduler: str | Path | None = None, profile: str | None = None) -> KubernetesSite:
        """Read what `kubectl get pods,nodes,pdb -A -o json` wrote, and what kube-scheduler is given with --config.

        Of a configuration with several profiles, `profile` names one; otherwise it is the first.
        """
        snapshot = read_snapshot(Path(path))
        try:
            cache = _cache_of(snapshot)
        except KeyError as e:
            msg = f"{Path(path).name}: a pod is on a node that is not listed: {e.args[0]}"
            raise TraceError(msg, hint=HINT) from None
        rules = KubeScheduler() if scheduler is None else read_scheduler(Path(scheduler), profile)
        return cls(snapshot, rules, cache)

    def scores(self, pod: str) -> pl.DataFrame:
        """The nodes that fit a pod that waits, with what each plugin gives them; kube-scheduler takes one of the best.

        Where a single node fits, it is taken without scores, and the plugins' columns are missing.
        """
        found = decide(self.cache, self._waiting(pod), self.profile)
        names = [self.cache.nodes[k].name for k in found.nodes]
        is_best = [k in found.best for k in found.nodes]
        table = pl.DataFrame({"node": names, **found.scores, "score": found.total, "best": is_best})
        return table.sort("score", "node", descending=[True, False])

    def victims(self, pod: str) -> pl.DataFrame:
        """Who would be evicted for a pod that fits nowhere; several nodes only where kube-scheduler may take any."""
        found = best_candidates(self.cache, self._waiting(pod), self.snapshot.budgets, time.time())
        rows = [
            (self.cache.nodes[one.node].name, victim.name, victim.priority, one.violations)
            for one in found
            for victim in one.victims
        ]
        schema = {"node": pl.String, "victim": pl.String, "priority": pl.Int64, "violations": pl.Int64}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def _waiting(self, pod: str) -> SchedulingPod:
        waiting = self.snapshot.waiting
        full = pod if "/" in pod else f"default/{pod}"
        lookup("pod that waits", full, list(waiting))
        return self.profile.adds_to(waiting[full])


def _cache_of(snapshot: Snapshot) -> Cache:
    cache = Cache(snapshot.nodes)
    for one in snapshot.bound:
        cache.add(one.pod, cache.number[one.node])
        if one.start is not None:
            cache.started[one.pod.name] = one.start
        if one.terminating:
            cache.terminate(one.pod.name)
    for name, node in snapshot.nominated.items():
        cache.nominated[name] = (snapshot.waiting[name], cache.number[node])
    return cache
