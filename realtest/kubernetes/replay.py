"""Every decision of a real kube-scheduler again: is its node among our best, are our scores and victims its own?

The cache is led by the record: a pod is on its node from the attempt that chose it, and off when the log says it is
gone. kube-scheduler takes its snapshot a moment after it logs an attempt, and logs that a pod is gone a moment before
it takes it off, in another thread: the last pod that went before an attempt may still have been there, and those that
went within `BLUR_S` after it may have been gone. A decision is `exact` if it follows from the order of the log, and
`late` if it follows only with such pods still there, or gone already. It is `among best` if as many nodes fit and its
node is among our best, but another node has another sum of scores.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.schedulers.kubernetes.config import DisruptionBudget, KubeScheduler, SchedulingPod
from fleetlab.schedulers.kubernetes.preemption import best_candidates
from fleetlab.schedulers.kubernetes.reader.scheduler_config import scheduler_of
from fleetlab.schedulers.kubernetes.reader.scheduling import disruption_budget, scheduling_node, scheduling_pod
from fleetlab.schedulers.kubernetes.reasons import fit_error
from fleetlab.schedulers.kubernetes.scores import Decision, decide
from fleetlab.schedulers.kubernetes.state import Cache, Ints
from realtest.kubernetes.objects import RUN_TIME
from realtest.kubernetes.record import SCHEMA, checksum, pod_number

BLUR_S = 0.02


@dataclass(frozen=True)
class Run:
    """A recorded run: its nodes, pods by number, budgets, the profile, and what happened."""

    nodes: list[dict[str, Any]]
    pods: dict[int, SchedulingPod]
    started: dict[int, float]  # when a pod began to run, in whole seconds
    run_s: dict[int, float]  # how long a pod was to run
    budgets: list[DisruptionBudget]
    profile: KubeScheduler
    record: pl.DataFrame

    @classmethod
    def load(cls, folder: Path) -> Run:
        """Read a folder that `keep` wrote."""
        items = json.loads(gzip.decompress((folder / "list.json.gz").read_bytes()))["items"]
        pods = [item for item in items if item["kind"] == "Pod"]
        site = json.loads((folder / "site.json").read_text())
        profile = scheduler_of(site["scheduler"])
        return cls(
            sorted((item for item in items if item["kind"] == "Node"), key=lambda item: item["metadata"]["name"]),
            {pod_number(item["metadata"]["name"]): profile.adds_to(scheduling_pod(item)) for item in pods},
            {pod_number(item["metadata"]["name"]): _started(item, site["begin"]) for item in pods},
            {pod_number(item["metadata"]["name"]): float(item["metadata"]["annotations"][RUN_TIME]) for item in pods},
            [disruption_budget(item) for item in site["budgets"]],
            profile,
            _record(gzip.decompress((folder / "record.csv.gz").read_bytes())),
        )


def _record(text: bytes) -> pl.DataFrame:
    """Read a record; earlier ones do not say how long an attempt took."""
    names = text.partition(b"\n")[0].decode().split(",")
    record = pl.read_csv(text, schema={name: SCHEMA[name] for name in names})
    return record if "took" in names else record.with_columns(took=pl.lit(None, dtype=pl.Float64))


def _started(item: dict[str, Any], begin: float) -> float:
    text = item["status"].get("startTime")
    return datetime.fromisoformat(text).timestamp() - begin if text else math.inf


@dataclass
class Outcome:
    """How many decisions follow, and which do not."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def replay(run: Run) -> Outcome:
    """Check every attempt of a run."""
    return Replay(run).play()


class Replay:
    """The cache of the scheduler as the record leads it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.cache = Cache([scheduling_node(item) for item in run.nodes])
        self.outcome = Outcome()
        self._rows = list(run.record.iter_rows(named=True))

    def play(self) -> Outcome:
        """Go through the record."""
        for number, row in enumerate(self._rows):
            name = self.run.pods[row["pod"]].name
            if row["what"] == "attempt":
                self._attempt(number, row)
            elif row["what"] == "gone" and name in self.cache:
                self.cache.remove(name)
            elif row["what"] == "running":
                self.cache.started[name] = self.run.started[row["pod"]]
            elif row["what"] == "terminating":
                self.cache.terminate(name)
        return self.outcome

    def _attempt(self, number: int, row: dict[str, Any]) -> None:
        pod = self.run.pods[row["pod"]]
        kind = self._explained(number, row, pod)
        self.outcome.counts[f"{'unfit' if row['node'] < 0 else 'placed'} {kind}"] += 1
        if kind == "wrong":
            self.outcome.wrong.append(f"{pod.name} at {row['at']:.4f} on node {row['node']}")
        if row["node"] < 0:
            self._preempt(row, pod)
        else:
            self.cache.nominated.pop(pod.name, None)
            self.cache.add(pod, row["node"])

    def _explained(self, number: int, row: dict[str, Any], pod: SchedulingPod) -> str:
        among = _mask(row["among"], len(self.cache.nodes)) if row["among"] else None
        if self._agrees(row, decide(self.cache, pod, self.run.profile, among)):
            return "exact"
        for gone, back in self._blurred(number, row["at"]):
            with self.cache.without(gone):
                for other, node in back:
                    self.cache.add(other, node)
                agrees = self._agrees(row, decide(self.cache, pod, self.run.profile, among))
                for other, _ in back:
                    self.cache.remove(other.name)
            if agrees:
                return "late"
        return "among best" if self._placed_alike(row, decide(self.cache, pod, self.run.profile, among)) else "wrong"

    def _placed_alike(self, row: dict[str, Any], ours: Decision) -> bool:
        """Whether as many nodes fit and its node is among our best, though some other node has another sum."""
        return row["node"] >= 0 and len(ours.nodes) == row["found"] and row["node"] in ours.best

    def _agrees(self, row: dict[str, Any], ours: Decision) -> bool:
        if row["node"] < 0:
            return len(ours.nodes) == 0 and self._same_reasons(row)
        if len(ours.nodes) != row["found"] or row["node"] not in ours.best:
            return False
        return len(ours.nodes) < 2 or checksum(telling(ours).tolist()) == row["check"]

    def _same_reasons(self, row: dict[str, Any]) -> bool:
        """Whether the scheduler gave the reasons that we would, where the record has them."""
        if not row["check"]:
            return True
        return bool(zlib.crc32(fit_error(self.cache, self.run.pods[row["pod"]]).encode()) == row["check"])

    def _blurred(self, number: int, now: float) -> Iterator[tuple[list[str], list[tuple[SchedulingPod, int]]]]:
        """Pods that may have been gone already, or the one that may still have been there: they go in order."""
        soon = [
            name
            for row in self._rows[number + 1 : number + 200]
            if row["at"] <= now + BLUR_S
            and row["what"] == "gone"
            and (name := self.run.pods[row["pod"]].name) in self.cache
        ]
        # One thread takes pods off, in order: only the last that was logged may not be off yet, however long that took.
        last = next((row for row in reversed(self._rows[:number]) if row["what"] == "gone"), None)
        just = [(self.run.pods[last["pod"]], self._node_of(last["pod"]))] if last else []
        if just:
            yield [], just
        for count in range(1, len(soon) + 1):
            yield soon[:count], []

    def _node_of(self, pod: int) -> int:
        return int(next(row["node"] for row in self._rows if row["pod"] == pod and row["node"] >= 0))

    def _preempt(self, row: dict[str, Any], pod: SchedulingPod) -> None:
        real = sorted(self.run.pods[int(k)].name for k in row["preempts"].split())
        ours = best_candidates(self.cache, pod, self.run.budgets, row["at"])
        sets = [sorted(victim.name for victim in one.victims) for one in ours]
        if real:
            kind = "exact" if real in sets else "wrong"
            node = self.cache.node_of(real[0])
            self.cache.nominated[pod.name] = (pod, node)
            for name in real:
                self.cache.terminate(name)
            for name, (other, where) in list(self.cache.nominated.items()):
                if where == node and other.priority < pod.priority:
                    del self.cache.nominated[name]
        elif self.run.budgets or any(p.priority for p in self.run.pods.values()):
            kind = "none, exact" if not sets else "none, wrong"
        else:
            return
        self.outcome.counts[f"preempts {kind}"] += 1
        if kind.endswith("wrong"):
            self.outcome.wrong.append(f"{pod.name} at {row['at']:.4f} preempts {real}, ours {sets[:3]}")


def _mask(text: str, size: int) -> Ints:
    bits = int(text, 16)
    return np.array([k for k in range(size) if bits >> k & 1], np.int64)


def telling(ours: Decision) -> Ints:
    """Our sums of the plugins that do not give every node the same."""
    differing = [scores for scores in ours.scores.values() if len(set(scores.tolist())) > 1]
    return sum(differing, np.zeros(len(ours.nodes), np.int64))
