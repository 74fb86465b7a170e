"""Any delimited table, mapped to a workload by expressions."""

from fleetlab.traces.table.reader import FORMAT, read

__all__ = ["FORMAT", "read"]
