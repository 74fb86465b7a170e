"""What a visitor can choose, in words for the page; whatever is not listed here is refused at the door.

A policy of one's own (`module:name`) is not among it: an address must not be able to load code.
"""

from __future__ import annotations

SIZES = (2_000, 20_000, 100_000, 400_000, 1_260_920)  # jobs of a built-in trace; the last is the whole two months
SEEDS = 10  # built-in traces of each size

ORDERS = {
    "fifo": "first come, first served",
    "sjf": "shortest believed run time first",
    "smallest": "fewest GPUs first",
    "largest": "most GPUs first",
    "priority": "highest priority first",
    "aging": "shortest first, but waiting counts",
    "las": "least attained GPU time first, in two queues",
    "fair": "the user who holds least first",
    "srpt": "least time still to run first; puts others off",
    "server_filling": "a set that fills the cluster; puts others off",
    "server_filling_srpt": "the same by time still to run; puts others off",
}
BACKFILLS = {
    "greedy": "what does not fit is passed over",
    "none": "all wait behind a head that does not fit",
    "easy": "backfill that never delays the head",
    "conservative": "backfill that delays nobody",
}
PLACES = {
    "best_fit": "the tightest fit",
    "first_fit": "the first that fits",
    "worst_fit": "the emptiest node",
    "dot_product": "like to like",
    "gpu_packing": "full GPUs and nodes first",
    "gpu_clustering": "jobs of a kind together",
    "fgd": "least growth of fragments",
    "reserve_and_pack": "high-end GPUs kept for those who name them",
    "spread": "instances of a job apart",
    "random": "by lot",
}
ESTIMATES = {
    "oracle": "known beforehand",
    "user": "mean of the user's finished jobs",
    "user+gpu": "of the user and the same GPUs",
    "group": "mean of the group's finished jobs",
    "group+gpu": "of the group and the same GPUs",
}
SHARING = {
    "fractional": "as fast as a whole GPU",
    "exclusive": "a share takes a whole GPU",
    "time-slicing": "neighbours slow each other: time slicing",
    "mps": "neighbours slow each other: MPS",
    "mig": "slices of a MIG card",
}
RULES = {
    "order": ORDERS,
    "backfill": BACKFILLS,
    "placement": PLACES,
    "estimate": ESTIMATES,
    "sharing": SHARING,
}
BY_ESTIMATE = ("sjf", "aging", "srpt", "server_filling_srpt")  # orders that look at the estimate
REASONS = {
    "order": "something ahead was served first",
    "head": "blocked behind a head that does not fit",
    "gpu": "not enough free GPU in all",
    "gpu_type": "not enough of the GPU types it may use",
    "fragment": "enough free in all, but not where it can be used",
    "cpu": "GPUs are free, CPU beside them is not",
    "memory": "GPUs are free, memory beside them is not",
    "other": "RDMA, disk, or a limit of instances on a node",
    "gang": "some of its instances would fit, not all",
    "quota": "its user holds as much as allowed",
}
