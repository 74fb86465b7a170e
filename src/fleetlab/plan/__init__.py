"""Where to put it: the best placement in hindsight with a proof of how good it is, and moves that make room."""

from fleetlab.plan.checker import check
from fleetlab.plan.demands import alive, demand
from fleetlab.plan.moves import Defragmentation, defragment
from fleetlab.plan.result import Plan
from fleetlab.plan.run import plan

__all__ = ["Defragmentation", "Plan", "alive", "check", "defragment", "demand", "plan"]
