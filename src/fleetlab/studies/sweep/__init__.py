"""Many simulations for one question: policies, loads, cluster sizes and seeds, kept in a store that loses nothing."""

from fleetlab.studies.sweep.listed import Runs, runs
from fleetlab.studies.sweep.result import Sweep
from fleetlab.studies.sweep.run import sweep
from fleetlab.studies.sweep.study import Study

__all__ = ["Runs", "Study", "Sweep", "runs", "sweep"]
