"""Speed profiles for the simulator from measurements, and the accuracy of their model."""

from fleetlab.gpu.bench.profile.build import profile
from fleetlab.gpu.bench.profile.mig import check_slices, predict_slices

__all__ = ["check_slices", "predict_slices", "profile"]
