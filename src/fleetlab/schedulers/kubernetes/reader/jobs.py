"""Jobs: since when their pods were wanted, which is before they were created where a quota refused them.

The first pods of a Job, as many as it runs at once, are wanted from its creation on, or since it was last resumed;
later ones take the place of pods that ended, and are wanted when they are created.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fleetlab.schedulers.kubernetes.reader.objects import (
    MalformedObject,
    Object,
    elements,
    members,
    moment,
    whole,
    words,
)
from fleetlab.schedulers.kubernetes.reader.pods import Pod

TABLE = "Jobs"


@dataclass
class JobTimes:
    """By the uid of a Job: since when it wants pods, and how many at once."""

    jobs: dict[str, tuple[float, int]] = field(default_factory=dict)

    def store(self, item: Object) -> str:
        """Take a Job, and return its uid; Malformed says what is wrong with it."""
        about, spec = members(item.get("metadata"), "metadata"), members(item.get("spec"), "spec")
        uid = words(about.get("uid"), "metadata.uid")
        since = moment(about.get("creationTimestamp"), "metadata.creationTimestamp")
        if not uid or since is None:
            msg = "no `metadata.uid` and `metadata.creationTimestamp`"
            raise MalformedObject(msg)
        at_once = 1 if spec.get("parallelism") is None else whole(spec["parallelism"], "spec.parallelism")
        self.jobs[uid] = (max(since, _resumed(item)), at_once)
        return uid

    def with_submissions(self, pods: Iterable[Pod]) -> dict[str, Pod]:
        """Return pods by their uid, submitted when their Job wanted them."""
        every = list(pods)
        found = {pod.key: pod for pod in every}
        before: dict[str, int] = {}
        for pod in sorted(every, key=lambda pod: pod.submit):
            since, at_once = self.jobs.get(pod.owner, (pod.submit, 0))
            number = before[pod.owner] = before.get(pod.owner, 0) + 1
            if number <= at_once and since < pod.submit:
                found[pod.key] = replace(pod, submit=since)
        return found


def _resumed(item: Object) -> float:
    """When a Job that was suspended was resumed; 0 where it never was."""
    status = members(item.get("status"), "status")
    conditions = [members(one, "status.conditions") for one in elements(status.get("conditions"), "status.conditions")]
    times = [
        moment(one.get("lastTransitionTime"), "status.conditions.lastTransitionTime")
        for one in conditions
        if one.get("type") == "Suspended" and one.get("status") == "False"
    ]
    return max((at for at in times if at is not None), default=0.0)
