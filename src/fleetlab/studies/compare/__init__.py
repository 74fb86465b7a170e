"""Compare policies, configurations or any scenarios on the same jobs."""

from fleetlab.studies.compare.compare import FIVE, PolicyLike, compare
from fleetlab.studies.compare.runs import Comparison

__all__ = ["FIVE", "Comparison", "PolicyLike", "compare"]
