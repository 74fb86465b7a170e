"""Why do jobs wait, and what would help? The ledger added up, one thing changed at a time, and five named checks."""

from fleetlab.studies.diagnose.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
