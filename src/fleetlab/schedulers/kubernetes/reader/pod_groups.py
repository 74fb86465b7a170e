"""Which pods are one gang, by the labels and annotations of what made them, or of who starts them together.

| made by | the gang | which pod of it |
|---|---|---|
| Volcano, coscheduling, KAI | its pod group | |
| JobSet | `jobset.sigs.k8s.io/jobset-name` | its Job, and its index there |
| PyTorchJob and others of Kubeflow's training operator | `training.kubeflow.org/job-name` | replica type and index |
| RayJob, RayCluster | `ray.io/cluster` | |
| LeaderWorkerSet | `leaderworkerset.sigs.k8s.io/group-key` | worker index |
| pods that Kueue admits together | `kueue.x-k8s.io/pod-group-name` | pod index |
| Job that is Indexed | the Job's name | completion index |

Pods of a Job without an index take work from a queue on their own: they are no gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetlab.schedulers.kubernetes.reader.objects import words

GROUPS = (
    "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name", "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name", "pod-group-name",
    "jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name", "ray.io/cluster",
    "leaderworkerset.sigs.k8s.io/group-key", "kueue.x-k8s.io/pod-group-name",
)  # fmt: skip
INDEX, JOB_NAMES = "batch.kubernetes.io/job-completion-index", ("batch.kubernetes.io/job-name", "job-name")
RANK = (
    "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index", "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index", "leaderworkerset.sigs.k8s.io/worker-index",
    "kueue.x-k8s.io/pod-group-pod-index", INDEX,
)  # fmt: skip


def pod_group(texts: Mapping[str, Any]) -> str:
    """Return the name of a pod's gang by its labels and annotations; empty: it is in none."""
    named = first_of(texts, GROUPS)
    return named or (first_of(texts, JOB_NAMES) if texts.get(INDEX) else "")


def pod_rank(texts: Mapping[str, Any]) -> str:
    """Return which pod of its gang it is; empty: nothing says so. One that replaces a failed pod is the same."""
    return "/".join(words(texts[key], key) for key in RANK if texts.get(key))


def first_of(texts: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first of some labels that is there; empty: none is."""
    return next((words(texts[key], key) for key in keys if texts.get(key)), "")
