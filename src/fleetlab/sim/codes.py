"""Names of wait reasons, orders, backfills and placements, and the integers that compiled code knows them by."""

from __future__ import annotations

# Each waited second is charged to one of these.
REASONS = ("order", "head", "gpu", "gpu_type", "fragment", "cpu", "memory", "other", "gang", "quota")
BY_ORDER, BY_HEAD, BY_GPU, BY_TYPE, BY_FRAGMENT, BY_CPU, BY_MEMORY, BY_OTHER, BY_GANG, BY_QUOTA = range(len(REASONS))

ORDERS = (
    "fifo", "sjf", "smallest", "largest", "priority", "aging", "las", "fair", "srpt", "server_filling",
    "server_filling_srpt", "own",
)  # fmt: skip
(
    FIFO, SJF, SMALLEST, LARGEST, PRIORITY, AGING, LAS, FAIR, SRPT, SERVER_FILLING, SERVER_FILLING_SRPT, OWN_ORDER,
) = range(len(ORDERS))  # fmt: skip
FIXED = ORDERS[: AGING + 1]  # ranks are fixed when a job arrives
BY_ESTIMATE = ("sjf", "aging")
MOVING = (LAS, FAIR, SRPT, SERVER_FILLING, SERVER_FILLING_SRPT)  # ranks change while a job waits or runs
PREEMPTIVE = (SRPT, SERVER_FILLING, SERVER_FILLING_SRPT)  # orders that always preempt

BACKFILLS = ("none", "greedy", "easy", "conservative")
NO_BACKFILL, GREEDY, EASY, CONSERVATIVE = range(len(BACKFILLS))

PLACES = (
    "first_fit", "best_fit", "worst_fit", "dot_product", "gpu_packing", "gpu_clustering", "fgd", "reserve_and_pack",
    "spread", "random", "own",
)  # fmt: skip
(
    FIRST_FIT, BEST_FIT, WORST_FIT, DOT_PRODUCT, GPU_PACKING, GPU_CLUSTERING, FGD, RESERVE_AND_PACK, SPREAD, RANDOM,
    OWN_PLACEMENT,
) = range(len(PLACES))  # fmt: skip
