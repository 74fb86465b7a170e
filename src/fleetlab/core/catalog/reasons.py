"""Why a job waits, and who holds what it waits for: every second of waiting has one reason and is split by holder."""

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
    resource: str = ""  # that is missing


def _missing(name: str, meaning: str, resource: str = "") -> WaitReason:
    return WaitReason(name, meaning, "resource", "Resources", resource or name)


# Why a job is left out of a simulation: it would never start, or never end.
UNKNOWN_RUNTIME = "runtime unknown"
CANCELLED = "cancelled before it started"
NO_SUCH_NODE = "no node is in its partitions and meets its constraint"
UNREAD_CONSTRAINT = "its constraint cannot be read"
FITS_NOWHERE = "an instance fits on no node"
GANG_TOO_LARGE = "its instances do not all fit at once"
ABOVE_QUOTA = "requests more GPUs than its quota"
# Why a job is left out of a simulation: it is refused when it is submitted.
ABOVE_SUBMIT_LIMIT = "refused: a limit on submitted jobs, or with DenyOnLimit on the job itself"
CLOSED_PARTITION = "refused: its partitions take no jobs, or none like it"
NO_QUEUE = "refused: it names no LocalQueue or ClusterQueue of Kueue"
ABOVE_CLUSTER_QUEUE = (
    "refused: its ClusterQueue could never admit it: more than all quota, of no flavor that it may use, or more than "
    "lies as close together as it requires"
)
ABOVE_NAMESPACE_QUOTA = "refused: more than a ResourceQuota of its namespace, or without what the quota wants said"
OUTSIDE_LIMIT_RANGE = "refused: outside of the bounds of a LimitRange of its namespace"
NO_GANG_QUEUE = "never starts: it names no Queue of the scheduler that takes jobs"
CLOSED_GANG_QUEUE = "never starts: its Queue is closed"
ABOVE_GANG_QUEUE = "never starts: its gang requests more than its Queue, or one above it, may ever hold"
OVER_GANG_QUOTA = "never starts: it is not preemptible, and above the quota of its Queue, or of one above that"
# Why a job is left out of a simulation: a scheduler never lets it end.
MOST_EVICTIONS = 100
EVICTED_WITHOUT_END = f"never ends: it began anew {MOST_EVICTIONS} times, as jobs evict each other without end"
REFUSALS = (
    "", ABOVE_SUBMIT_LIMIT, CLOSED_PARTITION, NO_QUEUE, ABOVE_CLUSTER_QUEUE, ABOVE_NAMESPACE_QUOTA, OUTSIDE_LIMIT_RANGE,
    NO_GANG_QUEUE, CLOSED_GANG_QUEUE, ABOVE_GANG_QUEUE, OVER_GANG_QUOTA, EVICTED_WITHOUT_END,
)  # fmt: skip  # by number

# At every instant a waiting job has the first of these that applies in the state after the scheduling pass.
REASONS = Catalog(
    "wait reason",
    (
        WaitReason("not_eligible", "it may not start: dependency, begin time, hold or requeue", "rule", "Dependency"),
        WaitReason("quota", "its user, queue or account has reached its quota or a limit", "rule", "QOSMaxGRESPerUser"),
        WaitReason("node_down", "too few nodes that it may use are up, even if they were empty", "rule",
                   "ReqNodeNotAvail"),
        _missing("gpu", "too few free GPUs in the cluster"),
        _missing("gpu_type", "too few free GPUs of the types it may use", "gpu"),
        _missing("partition", "too few free GPUs in its partitions, or that meet its constraint", "gpu"),
        _missing("fragmentation", "enough is free in total, but not on nodes or GPUs where it fits", "gpu"),
        _missing("cpu", "GPUs are free, but not enough CPU on the same nodes"),
        _missing("memory", "GPUs and CPU are free, but not enough memory on the same nodes"),
        _missing("rdma", "too few free RDMA cards on nodes that have the rest"),
        _missing("disk", "too little free disk on nodes that have the rest"),
        _missing("gpu_memory", "too little free GPU memory on GPUs that are free"),
        _missing("max_per_node", "nodes that have the rest run the most instances of its app allowed", "gpu"),
        WaitReason("reservation", "it fits now, but would delay the reservation of a job ahead of it", "rule",
                   "Priority"),
        WaitReason("head_of_line", "it fits now, but a job ahead of it does not, and none may pass", "rule",
                   "Priority"),
        WaitReason("scheduler", "it fits now, but the scheduler has not started it yet", "rule", "None"),
        WaitReason("start_up", "its GPUs are allocated, and it starts up (images, containers)", "rule",
                   "None"),
        # Appended, because saved results know reasons by their place: `limit` and `partition_down` are asked after
        # `quota`, the other two where a job would fit.
        WaitReason("limit", "a limit of its account, user, QOS, partition or array is reached", "rule",
                   "QOSMaxGRESPerUser"),
        WaitReason("partition_down", "its partitions are down, or refuse its time limit or its size", "rule",
                   "PartitionDown"),
        WaitReason("advance_reservation", "it would fit, but an advance reservation keeps the nodes", "rule",
                   "Reservation"),
        WaitReason("completing", "it would fit, but an epilog still runs on the nodes", "rule", "Resources"),
        *(
            WaitReason(name, f"it may fit, but backfill skips it: {why}", "rule", "Priority")
            for name, why in (
                ("bf_max_job_user", "so many jobs of its user are ahead of it"),
                ("bf_max_job_part", "so many jobs of its partition are ahead of it"),
                ("bf_max_job_user_part", "so many jobs of its user in this partition are ahead of it"),
                ("bf_max_job_assoc", "so many jobs of its user in this account are ahead of it"),
                ("bf_max_job_array_resv", "so many tasks of its array are ahead of it"),
                ("bf_max_job_test", "a cycle looks at so many jobs, all ahead of it"),
                ("bf_max_job_start", "a cycle has started so many jobs"),
            )
        ),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has allocated what a waiting job is missing."""

    name: str
    meaning: str


HOLDERS = Catalog(
    "holder",
    (
        Holder("ran_before", "jobs already running when the job began to wait"),
        Holder("ahead", "jobs ahead in the queue that started meanwhile"),
        Holder("overtook", "jobs behind it that started meanwhile"),
        Holder("nobody", "no running job (a rule, or nodes that are down)"),
    ),
)
