"""The integers that compiled code knows wait reasons, orders, backfill rules and placements by: places in catalogs."""

from __future__ import annotations

from fleetlab.core import catalog
from fleetlab.core.catalog import BACKFILLS, ORDERS, PLACEMENTS

REASONS = catalog.REASONS.names
(BY_ELIGIBLE, BY_QUOTA, BY_NODES, BY_GPU, BY_TYPE, BY_PARTITION, BY_FRAGMENT, BY_GPU_MEMORY, BY_PER_NODE,
 BY_RESERVATION, BY_HEAD, BY_SCHEDULER, BY_START_UP, BY_LIMIT, BY_PARTITION_DOWN, BY_ADVANCE, BY_COMPLETING,
 BY_BF_USER, BY_BF_PARTITION, BY_BF_USER_PARTITION, BY_BF_ASSOC, BY_BF_TASKS, BY_BF_TEST, BY_BF_START) = map(
    catalog.REASONS.index,
    (
        "not_eligible", "quota", "node_down", "gpu", "gpu_type", "partition", "fragmentation", "gpu_memory",
        "max_per_node", "reservation", "head_of_line", "scheduler", "start_up", "limit", "partition_down",
        "advance_reservation", "completing", "bf_max_job_user", "bf_max_job_part", "bf_max_job_user_part",
        "bf_max_job_assoc", "bf_max_job_array_resv", "bf_max_job_test", "bf_max_job_start",
    ),
)  # fmt: skip
SJF, AGING, LAS, FAIR, SERVER_FILLING, SERVER_FILLING_SRPT = map(
    ORDERS.index, ("sjf", "aging", "las", "fair", "server_filling", "server_filling_srpt")
)
OWN_ORDER = len(ORDERS)  # an order that is not built in
NO_BACKFILL = BACKFILLS.index("none")
BEST_FIT, WORST_FIT, DOT_PRODUCT, GPU_PACKING, GPU_CLUSTERING, FGD, RESERVE_AND_PACK, SPREAD, RANDOM = map(
    PLACEMENTS.index,
    ("best_fit", "worst_fit", "dot_product", "gpu_packing", "gpu_clustering", "fgd", "reserve_and_pack", "spread",
     "random"),
)  # fmt: skip
OWN_PLACEMENT = len(PLACEMENTS)  # a placement policy that is not built in
