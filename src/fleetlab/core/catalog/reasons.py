"""Why a job waits: every second of waiting is charged to one of these reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleetlab.core.catalog.catalog import Catalog


@dataclass(frozen=True, slots=True)
class WaitReason:
    """One reason; `kind` tells what is short: a resource, or a rule that keeps a job from what is free."""

    name: str
    meaning: str
    kind: Literal["resource", "rule"]
    slurm: str = ""  # what squeue shows in its place


# Why a job is left out of a simulation: it would never start, or never end.
UNKNOWN_RUNTIME = "runtime unknown"
FITS_NOWHERE = "an instance fits on no node"
GANG_TOO_LARGE = "its instances do not all fit at once"
ABOVE_QUOTA = "requests more GPUs than the quota of its user"

REASONS = Catalog(
    "wait reason",
    (
        WaitReason("queue_order", "jobs ahead in the queue order took the free resources", "rule",
                   "Priority"),
        WaitReason("head_of_line", "blocked by an earlier job that does not fit, or by its reservation", "rule",
                   "Priority"),
        WaitReason("gpu", "too few free GPUs in the cluster", "resource", "Resources"),
        WaitReason("gpu_type", "too few free GPUs of the types it may use", "resource", "Resources"),
        WaitReason("fragmentation", "enough free GPUs in total, but not on nodes or GPUs where it fits", "resource",
                   "Resources"),
        WaitReason("cpu", "GPUs are free, but not enough CPU on the same nodes", "resource", "Resources"),
        WaitReason("memory", "GPUs are free, but not enough memory on the same nodes", "resource", "Resources"),
        WaitReason("other", "RDMA, disk, GPU memory, or the limit of instances per node", "resource", "Resources"),
        WaitReason("gang", "some of its instances would fit, but not all at once", "resource", "Resources"),
        WaitReason("quota", "its user has reached the quota", "rule", "QOSMaxGRESPerUser"),
    ),
)  # fmt: skip
