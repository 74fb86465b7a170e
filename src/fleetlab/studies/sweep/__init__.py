"""Many simulations for one question: scenarios and seeds, kept in a store that loses nothing."""

from fleetlab.studies.sweep.result import Sweep
from fleetlab.studies.sweep.runs import Runs, runs
from fleetlab.studies.sweep.study import Study
from fleetlab.studies.sweep.sweep import sweep

__all__ = ["Runs", "Study", "Sweep", "runs", "sweep"]
