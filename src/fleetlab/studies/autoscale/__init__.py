"""How many nodes to have ready at each step, by forecasts, compared with other scaling policies."""

from fleetlab.studies.autoscale.autoscale import autoscale
from fleetlab.studies.autoscale.result import Autoscaling

__all__ = ["Autoscaling", "autoscale"]
