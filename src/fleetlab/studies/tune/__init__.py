"""Search for a better policy on some weeks of a trace, and compare it with the built-in ones on later weeks."""

from fleetlab.studies.tune.result import Tuning
from fleetlab.studies.tune.site_settings import ConfTuning, tune_conf
from fleetlab.studies.tune.tune import tune

__all__ = ["ConfTuning", "Tuning", "tune", "tune_conf"]
