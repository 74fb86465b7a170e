"""From what was measured to a profile that the simulator takes, and how far its model can be trusted."""

from fleetlab.bench.profile.check import Checked, check
from fleetlab.bench.profile.make import profile
from fleetlab.bench.profile.mig import Sliced, slices

__all__ = ["Checked", "Sliced", "check", "profile", "slices"]
