"""Is there a better policy than the built-in ones? A search on some weeks of a trace, judged on others."""

from fleetlab.studies.tune.result import Tuned
from fleetlab.studies.tune.study import tune

__all__ = ["Tuned", "tune"]
