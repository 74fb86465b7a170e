"""Calibrate a scenario by what its log recorded."""

from fleetlab.studies.calibrate.calibration import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
