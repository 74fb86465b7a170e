"""Microsoft's Philly trace of 2017 (job log and machine list)."""

from fleetlab.traces.philly.reader import FORMAT, read

__all__ = ["FORMAT", "read"]
