"""When will it start? The present queue, played many times with what is known now."""

from fleetlab.studies.eta.eta import Eta, eta

__all__ = ["Eta", "eta"]
