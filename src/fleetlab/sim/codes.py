"""The integers that compiled code knows wait reasons, orders, backfill rules and placements by: places in catalogs."""

from __future__ import annotations

from fleetlab.core import catalog
from fleetlab.core.catalog import BACKFILLS, ORDERS, PLACEMENTS

REASONS = catalog.REASONS.names
BY_ORDER, BY_HEAD, BY_GPU, BY_TYPE, BY_FRAGMENT, BY_CPU, BY_MEMORY, BY_OTHER, BY_GANG, BY_QUOTA = map(
    catalog.REASONS.index,
    ("queue_order", "head_of_line", "gpu", "gpu_type", "fragmentation", "cpu", "memory", "other", "gang", "quota"),
)
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
