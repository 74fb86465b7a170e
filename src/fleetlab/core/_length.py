"""The former name of `durations`."""

from fleetlab.core.durations import HINT, in_seconds

__all__ = ["HINT", "in_seconds"]
