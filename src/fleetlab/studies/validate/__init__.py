"""Validation of the simulator against theory, papers and real logs, one module per comparison."""

from fleetlab.studies.validate.validation import Validation, validate

__all__ = ["Validation", "validate"]
