"""Compare policies, configurations or any scenarios on the same jobs."""

from fleetlab.studies.compare.check import Check, Rule, check
from fleetlab.studies.compare.compare import PolicyLike, compare, five
from fleetlab.studies.compare.runs import Comparison

__all__ = ["Check", "Comparison", "PolicyLike", "Rule", "check", "compare", "five"]
