"""When will it start? The present queue, replayed many times with what is known now."""

from fleetlab.studies.eta.eta import Eta, eta
from fleetlab.studies.eta.judge import Judgement, judge

__all__ = ["Eta", "Judgement", "eta", "judge"]
