"""How many nodes? The smallest cluster that meets a goal, by a queueing model first and by simulation then."""

from fleetlab.studies.capacity.study import Capacity, capacity

__all__ = ["Capacity", "capacity"]
