"""How many pods of a job run at once where Kueue admits it: those it asks for, the least that will do, and what it got.

A Workload of one set of pods says so (`count`, `minCount`, and the count that was admitted); where the list has none,
the Job does, by its `parallelism` and the annotation `kueue.x-k8s.io/job-min-parallelism`. Kueue lowers the parallelism
of a Job to what it admitted, so the Workload is asked first. How many pods must complete is what the Job says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetlab.core.kueue_workload import Parallelism
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, elements, members, whole, words

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

    def store_workload(self, item: Object) -> None:
        """Take a Workload; Malformed says what is wrong with it."""
        about, spec = members(item.get("metadata"), "metadata"), members(item.get("spec"), "spec")
        sets = [members(one, "spec.podSets") for one in elements(spec.get("podSets"), "spec.podSets")]
        shrinks = any(one.get("minCount") is not None for one in sets)
        if len(sets) != 1:
            self.several += shrinks
            return
        count = _positive(sets[0].get("count"), "spec.podSets.count") or 1
        given, where = sets[0].get("minCount"), "spec.podSets.minCount"
        asked = Parallelism(count, None if given is None else _fewer(whole(given, where), count, where))
        for one in elements(about.get("ownerReferences"), "metadata.ownerReferences"):
            owner = members(one, "metadata.ownerReferences")
            if owner.get("kind") == "Job" or shrinks:
                self.workloads[words(owner.get("uid"), "uid")] = AdmittedPods(asked, _admitted(item) or asked.count)

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


def _admitted(item: Object) -> int | None:
    """How many pods of a Workload of one set were admitted; None: it has no quota."""
    where = "status.admission.podSetAssignments"
    admission = members(members(item.get("status"), "status").get("admission"), "status.admission")
    given = [members(one, where) for one in elements(admission.get("podSetAssignments"), where)]
    return _positive(given[0].get("count"), f"{where}.count") if given else None
