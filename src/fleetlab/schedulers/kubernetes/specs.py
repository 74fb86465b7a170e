"""What pods and nodes of a cluster say of themselves, where the trace carries it: labels, affinities, taints, limits.

How much a pod requests, and how much a node has, is that of the trace's rows, for all schedulers alike. A node that the
trace does not know, because it was added for a study, is told from the others by the classes of its row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fleetlab.core import Scenario
from fleetlab.schedulers.kubernetes.admission import CreatedPod
from fleetlab.schedulers.kubernetes.config import (
    GRACE,
    HOSTNAME,
    Requirement,
    SchedulingNode,
    SchedulingPod,
    Selector,
    Toleration,
)
from fleetlab.schedulers.kueue.workload import Parallelism

# -- where a trace keeps what pods and nodes of Kubernetes say of themselves: the names of its series ------------------
# A job has a spec, by number; a spec is a pod without its name and amounts, and the same as it was created; both as
# plain tables in JSON. Nodes are by their name.

PODS, SPECS, NODES = "pods", "pod_specs", "node_specs"
# Of jobs that Kueue may admit in part: how many pods each asks for, the least that will do, and its completions.
PARALLELISM = "parallelism"
# Of jobs that Kueue admits: their Workload, how far it came and when, in seconds of the trace.
ADMISSIONS = "admissions"


ADDED = "fleetlab/added"  # a label of nodes that no object tells of
ANYTHING = (Toleration("", None, ""),)  # of pods whose constraint already says which taints keep them off


@dataclass(frozen=True)
class Specs:
    """What the trace carries: the spec of a job by its number, and nodes by their name."""

    of_job: dict[int, int] = field(default_factory=dict)
    pods: Sequence[tuple[SchedulingPod, CreatedPod]] = ()
    nodes: dict[str, SchedulingNode] = field(default_factory=dict)
    parallelism: dict[int, Parallelism] = field(default_factory=dict)  # of jobs that may run with fewer pods

    @classmethod
    def of(cls, s: Scenario) -> Specs:
        """Read those of a scenario's trace; none where it carries none."""
        series = s.trace.series
        parallelism = _parallelism(s)
        if PODS not in series or SPECS not in series:
            return cls(parallelism=parallelism)
        jobs = s.by_job(series[PODS]).select("job", "spec").collect()
        nodes = series[NODES].collect() if NODES in series else None
        return cls(
            dict(jobs.iter_rows()),
            [
                (SchedulingPod.from_values(json.loads(pod)), CreatedPod.from_values(json.loads(created)))
                for pod, created in series[SPECS].sort("spec").select("pod", "created").collect().iter_rows()
            ],
            {} if nodes is None else {
                name: SchedulingNode.from_values(json.loads(text))
                for name, text in nodes.select("node", "spec").iter_rows()
            },
            parallelism,
        )  # fmt: skip

    def graces(self, jobs: Iterable[int]) -> list[float]:
        """How long the pods of each job take to leave once they are evicted."""
        known = [pod.grace for pod, _ in self.pods]
        return [known[self.of_job[job]] if job in self.of_job else GRACE for job in jobs]

    def on_nodes(self, nodes: Sequence[SchedulingNode]) -> list[SchedulingNode]:
        """Return nodes with the labels and taints that they have in the cluster."""
        return [self._node(node) for node in nodes] if self.nodes else list(nodes)

    def _node(self, node: SchedulingNode) -> SchedulingNode:
        own = self.nodes.get(node.name)
        if own is None:
            return replace(node, labels=dict(node.labels) | {ADDED: ""})
        labels = {HOSTNAME: node.name} | dict(own.labels)
        return replace(
            node,
            labels=dict(node.labels) | labels,
            taints=own.taints,
            allocatable=dict(node.allocatable) | dict(own.allocatable),
        )

    def on_pod(self, row: SchedulingPod, spec: int | None) -> SchedulingPod:
        """Return a pod of a row with what its spec says."""
        if spec is None:
            return replace(row, tolerations=ANYTHING) if self.nodes else row
        own = self.pods[spec][0]
        return replace(
            own,
            name=row.name,
            priority=row.priority,
            requests=row.requests,
            selector=Selector(),
            required=self._terms(row.selector, own),
        )

    def _terms(self, of_row: Selector, own: SchedulingPod) -> tuple[Selector, ...]:
        """Which nodes it may use: those of the cluster by their labels, those that were added by their classes."""
        known, added = Requirement(ADDED, "DoesNotExist"), Requirement(ADDED, "Exists")
        terms = [term for term in own.required if term] if own.required else [Selector()]
        by_labels = [Selector((known, *own.selector.labels, *term.labels), term.fields) for term in terms]
        if any(one.key == HOSTNAME or term.fields for term in by_labels for one in term.labels):
            return tuple(by_labels)  # it names its node, which none of those is that were added
        return (*by_labels, Selector((added, *of_row.labels)))


def _parallelism(s: Scenario) -> dict[int, Parallelism]:
    if PARALLELISM not in s.trace.series:
        return {}
    columns = s.by_job(s.trace.series[PARALLELISM]).select("job", "count", "least", "completions")
    return {job: Parallelism(*counts) for job, *counts in columns.collect().iter_rows()}
