"""How many nodes to have ready each step, by forecasts; and whether that beats waiting for a queue."""

from fleetlab.studies.autoscale.study import Autoscaling, autoscale

__all__ = ["Autoscaling", "autoscale"]
