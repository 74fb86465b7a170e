"""Nodes for the demand that comes next: forecast instances placed beside those that run and wait."""

from fleetlab.studies.plan_ahead.plan_ahead import plan_ahead
from fleetlab.studies.plan_ahead.result import PlanAhead

__all__ = ["PlanAhead", "plan_ahead"]
