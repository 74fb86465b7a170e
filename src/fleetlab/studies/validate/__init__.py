"""Validation: the simulator beside theory, papers and real logs, one module a comparison."""

from fleetlab.studies.validate._report import Validation, validate

__all__ = ["Validation", "validate"]
