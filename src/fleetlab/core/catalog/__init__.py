"""Catalogs: one record per order, backfill rule, placement, estimate, sharing mode, resource, wait reason and metric.

Engine constants, help, menus, tables of the guides and validation of input derive from these records.
"""

from fleetlab.core.catalog.catalog import Catalog
from fleetlab.core.catalog.columns import GPU_AMOUNTS, METRICS, NODE_AMOUNTS, REQUESTS, RESOURCES, Metric, Resource
from fleetlab.core.catalog.policies import (
    BACKFILLS,
    ESTIMATES,
    ORDERS,
    PLACEMENTS,
    SHARINGS,
    SPEEDS,
    BackfillRule,
    EstimateRule,
    OrderRule,
    PlacementRule,
    SharingMode,
    SpeedProfile,
)
from fleetlab.core.catalog.reasons import HOLDERS, REASONS, Holder, WaitReason

__all__ = [
    "BACKFILLS", "ESTIMATES", "GPU_AMOUNTS", "HOLDERS", "METRICS", "NODE_AMOUNTS", "ORDERS", "PLACEMENTS", "REASONS",
    "REQUESTS", "RESOURCES", "SHARINGS", "SPEEDS", "BackfillRule", "Catalog", "EstimateRule", "Holder", "Metric",
    "OrderRule", "PlacementRule", "Resource", "SharingMode", "SpeedProfile", "WaitReason",
]  # fmt: skip
