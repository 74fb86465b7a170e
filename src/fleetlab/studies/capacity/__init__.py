"""Capacity planning: how many nodes meet a goal."""

from fleetlab.studies.capacity.search import Capacity, capacity

__all__ = ["Capacity", "capacity"]
