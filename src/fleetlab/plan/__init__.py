"""Where to put it: the best placement in hindsight with a proof of how good it is, and moves that free nodes."""

from fleetlab.plan.checker import check
from fleetlab.plan.defragment import Defragmentation, defragment
from fleetlab.plan.demand import alive, demand, present
from fleetlab.plan.plan import plan
from fleetlab.plan.result import Plan

__all__ = ["Defragmentation", "Plan", "alive", "check", "defragment", "demand", "plan", "present"]
