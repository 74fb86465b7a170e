"""Capacity planning: how many nodes meet a goal."""

from fleetlab.studies.capacity.capacity import Capacity, capacity

__all__ = ["Capacity", "capacity"]
