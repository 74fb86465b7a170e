"""What pods and nodes say of themselves besides amounts, as series of the trace: pods that say the same have one spec.

Of a pod's labels those are kept that some pod or budget selects by: others decide nothing, and tell every pod apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from fleetlab.schedulers.kubernetes.admission import CreatedPod
from fleetlab.schedulers.kubernetes.config import CONTROLLER, DisruptionBudget, SchedulingNode, SchedulingPod, Selector
from fleetlab.schedulers.kubernetes.reader.gangs import Row
from fleetlab.schedulers.kubernetes.reader.nodes import passes
from fleetlab.schedulers.kubernetes.reader.objects import MalformedObject, Object, members, whole, words
from fleetlab.schedulers.kubernetes.reader.scheduling import scheduling_node
from fleetlab.schedulers.kubernetes.specs import NODES, PODS, SPECS
from fleetlab.schedulers.kueue.workload import Parallelism

if TYPE_CHECKING:
    from fleetlab.schedulers.kubernetes.reader.workloads import QueuedWorkload

# -- how many pods of a job run at once where Kueue admits it: those it asks for, the least that will ------------------
# A Workload of one set of pods says so (`count`, `minCount`, and the count that was admitted); where the list has
# none, the Job does, by its `parallelism` and the annotation `kueue.x-k8s.io/job-min-parallelism`. Kueue lowers the
# parallelism of a Job to what it admitted, so the Workload is asked first. How many pods must complete is what the
# Job says.

LEAST = "kueue.x-k8s.io/job-min-parallelism"
QUEUE = "kueue.x-k8s.io/queue-name"  # a label of Jobs that Kueue admits
SYNCED = "kueue.x-k8s.io/job-completions-equal-parallelism"  # Kueue lowers completions with parallelism


@dataclass(frozen=True)
class AdmittedPods:
    """What a job asks for, and how many pods it was given at once."""

    asked: Parallelism
    admitted: int

    def instances(self, pods: int) -> int:
        """How many pods it asks for at once, of which so many were seen: more, where others took their places."""
        return self.asked.count if self.asked.least is not None else min(pods, self.asked.count)

    @property
    def stretch(self) -> float:
        """How many times as long it ran as with all pods."""
        return self.asked.stretch(min(self.admitted, self.asked.count))


@dataclass
class Parallelisms:
    """Jobs and Workloads, by the uid of the Job."""

    jobs: dict[str, Parallelism] = field(default_factory=dict)
    workloads: dict[str, AdmittedPods] = field(default_factory=dict)
    queued: set[str] = field(default_factory=set)  # Jobs that Kueue admits, whether a Workload is listed or not
    several: int = 0  # Workloads of several sets of pods, of which one would do with fewer

    def store_job(self, item: Object) -> None:
        """Take a Job; Malformed says what is wrong with it."""
        about, spec = members(item.get("metadata"), "metadata"), members(item.get("spec"), "spec")
        notes = members(about.get("annotations"), "metadata.annotations")
        labels = members(about.get("labels"), "metadata.labels")
        count, completions = (_positive(spec.get(name), f"spec.{name}") for name in ("parallelism", "completions"))
        at_once = min(count or 1, completions or count or 1)
        least = _least(notes, at_once)
        work = None if words(notes.get(SYNCED), SYNCED) == "true" else completions
        uid = words(about.get("uid"), "metadata.uid")
        self.jobs[uid] = Parallelism(at_once, least, work)
        if notes.get(LEAST) is not None or labels.get(QUEUE) is not None:
            self.queued.add(uid)

    def store_workload(self, one: QueuedWorkload) -> None:
        """Take a Workload; Malformed says what is wrong with it."""
        shrinks = any(each.least is not None for each in one.sets)
        if len(one.sets) != 1:
            self.several += shrinks
            return
        only = one.sets[0]
        count, where = max(1, only.count), "spec.podSets.minCount"
        asked = Parallelism(count, None if only.least is None else _fewer(only.least, count, where))
        given = one.assigned.get(only.name)
        admitted = given.count if given is not None and given.count else count
        for owner in one.owners:
            if owner.get("kind") == "Job" or shrinks:
                self.workloads[words(owner.get("uid"), "uid")] = AdmittedPods(asked, admitted)

    def of(self, uid: str) -> AdmittedPods | None:
        """What is known of a job; None: it has all its pods, or none."""
        job, workload = self.jobs.get(uid), self.workloads.get(uid)
        if workload is None:
            return AdmittedPods(job, job.count) if job is not None and uid in self.queued else None
        asked = workload.asked
        work = None if job is None else job.completions
        return AdmittedPods(Parallelism(asked.count, asked.least, work), workload.admitted)

    def notes(self, part: int) -> list[str]:
        """Say what to know of jobs that were, or may be, admitted in part."""
        told = {
            f"{part:,} jobs ran with fewer pods than they ask for: their runtime is that with all pods, as if pods "
            "completed in fewer waves or, where a Job has no completions, in the same pod-time": part,
            f"`minCount` is left out of {self.several:,} Workloads with several sets of pods": self.several,
        }
        return [note for note, holds in told.items() if holds]


def _positive(value: object, where: str) -> int | None:
    """A number above 0; None: not given, or none."""
    given = None if value is None else whole(value, where)
    return given if given is None or given > 0 else None


def _least(notes: Object, count: int) -> int | None:
    """The least number of pods that will do; None: all of them."""
    if notes.get(LEAST) is None:
        return None
    given, where = words(notes[LEAST], LEAST), f"metadata.annotations.{LEAST}"
    if not (given.isascii() and given.isdecimal() and len(given) < 10):
        msg = f"`{where}` is no number above 0: {given[:80] or 'nothing'}"
        raise MalformedObject(msg)
    return _fewer(int(given), count, where)


def _fewer(least: int, count: int, where: str) -> int | None:
    """The least number of pods, if it is fewer than all; Kueue takes none that is not positive or above the count."""
    if least < 1:
        msg = f"`{where}` is no number above 0: {least}"
        raise MalformedObject(msg)
    if least > count:
        msg = f"`{where}` is above the number of pods: {least} of {count}"
        raise MalformedObject(msg)
    return least if least < count else None


Spec = tuple[SchedulingPod, CreatedPod]


def node_spec(item: Object) -> SchedulingNode:
    """Read a node without its amounts, but for how many pods it takes, and without what comes and goes."""
    node = scheduling_node(item)
    pods = {"pods": node.allocatable["pods"]} if "pods" in node.allocatable else {}
    taints = tuple(taint for taint in node.taints if not passes(taint.key))
    return replace(node, allocatable=pods, taints=taints, cordoned=False)


def spec_series(
    gangs: list[list[Row]],
    jobs: pl.DataFrame,
    specs: Mapping[str, Spec],
    nodes: Iterable[SchedulingNode],
    budgets: Iterable[DisruptionBudget],
) -> dict[str, pl.LazyFrame]:
    """Return the series; `jobs` says which number each gang has got."""
    keys = {CONTROLLER, *(one.key for selector in _selectors(specs.values(), budgets) for one in selector.labels)}
    numbers: dict[tuple[str, str], int] = {}
    rows = [(at, _number(_of_gang(gang, specs), keys, numbers)) for at, gang in enumerate(gangs)]
    frame = pl.DataFrame(rows, schema={"at": pl.Int64, "spec": pl.Int64}, orient="row")
    texts = [(number, pod, created) for (pod, created), number in numbers.items()]
    of_nodes = [(node.name, _text(node.to_values())) for node in nodes]
    return {
        PODS: frame.join(jobs.select("at", "job"), on="at").sort("job").select("job", "spec").lazy(),
        SPECS: pl.LazyFrame(texts, schema={"spec": pl.Int64, "pod": pl.String, "created": pl.String}, orient="row"),
        NODES: pl.LazyFrame(of_nodes, schema={"node": pl.String, "spec": pl.String}, orient="row"),
    }


def _of_gang(gang: list[Row], specs: Mapping[str, Spec]) -> Spec:
    """What its first pod says; a gang has left when the last of its pods has."""
    pod, created = specs[gang[0]["key"]]
    return replace(pod, grace=max(specs[row["key"]][0].grace for row in gang)), created


def _number(spec: Spec, keys: set[str], numbers: dict[tuple[str, str], int]) -> int:
    pod, created = spec
    labels = {key: value for key, value in pod.labels.items() if key in keys}
    plain = replace(pod, name="", requests={}, priority=0, labels=labels)
    return numbers.setdefault((_text(plain.to_values()), _text(created.to_values())), len(numbers))


def _selectors(specs: Iterable[Spec], budgets: Iterable[DisruptionBudget]) -> Iterator[Selector]:
    yield from (budget.selector for budget in budgets)
    for pod, _ in specs:
        yield from (one.selector for one in pod.spread)
        terms = (*pod.affinity, *pod.anti_affinity, *(term for _, term in pod.preferred_affinity))
        yield from (term.selector for term in terms if term.selector is not None)


def _text(values: object) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))
