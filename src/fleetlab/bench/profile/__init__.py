"""Speed profiles for the simulator from measurements, and the accuracy of their model."""

from fleetlab.bench.profile.build import profile
from fleetlab.bench.profile.check import ProfileCheck, check
from fleetlab.bench.profile.mig import SlicePrediction, predict_slices

__all__ = ["ProfileCheck", "SlicePrediction", "check", "predict_slices", "profile"]
