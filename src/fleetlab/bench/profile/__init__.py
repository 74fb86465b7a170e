"""Speed profiles for the simulator from measurements, and the accuracy of their model."""

from fleetlab.bench.profile.build import profile
from fleetlab.bench.profile.check import ProfileCheck, check
from fleetlab.bench.profile.mig import SlicePrediction, predict_slices
from fleetlab.bench.profile.mig_check import SliceCheck, check_slices
from fleetlab.bench.profile.published import PublishedCheck, check_published

__all__ = [
    "ProfileCheck",
    "PublishedCheck",
    "SliceCheck",
    "SlicePrediction",
    "check",
    "check_published",
    "check_slices",
    "predict_slices",
    "profile",
]
