"""Diagnose waiting: its reasons, the effect of single changes, and five known problems of GPU clusters."""

from fleetlab.studies.diagnose.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
