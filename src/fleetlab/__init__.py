"""A laboratory for GPU clusters: the verbs and the nouns, each imported when first asked for."""

from typing import TYPE_CHECKING

from fleetlab.core.lazy import lazy
from fleetlab.core.plugins import register

if TYPE_CHECKING:
    from fleetlab.core import Cluster as Cluster
    from fleetlab.core import DeviceError as DeviceError
    from fleetlab.core import Drain as Drain
    from fleetlab.core import Elastic as Elastic
    from fleetlab.core import Estimate as Estimate
    from fleetlab.core import Faults as Faults
    from fleetlab.core import Figure as Figure
    from fleetlab.core import FleetlabError as FleetlabError
    from fleetlab.core import Outage as Outage
    from fleetlab.core import Policy as Policy
    from fleetlab.core import PolicyError as PolicyError
    from fleetlab.core import Prices as Prices
    from fleetlab.core import Provenance as Provenance
    from fleetlab.core import Recovery as Recovery
    from fleetlab.core import Result as Result
    from fleetlab.core import SavedResult as SavedResult
    from fleetlab.core import Scenario as Scenario
    from fleetlab.core import Scheduler as Scheduler
    from fleetlab.core import Speed as Speed
    from fleetlab.core import Spot as Spot
    from fleetlab.core import Trace as Trace
    from fleetlab.core import TraceError as TraceError
    from fleetlab.core import Workload as Workload
    from fleetlab.core import WorkloadError as WorkloadError
    from fleetlab.describe import describe as describe
    from fleetlab.forecast import check_forecaster as check_forecaster
    from fleetlab.forecast import forecast as forecast
    from fleetlab.live.watch import watch as watch
    from fleetlab.plan import defragment as defragment
    from fleetlab.plan import plan as plan
    from fleetlab.queueing import model as model
    from fleetlab.queueing import solve as solve
    from fleetlab.report import report as report
    from fleetlab.reproduce import reproduce as reproduce
    from fleetlab.schedulers.check import check_scheduler as check_scheduler
    from fleetlab.sim import Migrate as Migrate
    from fleetlab.sim import Preempt as Preempt
    from fleetlab.sim import Reserve as Reserve
    from fleetlab.sim import Resize as Resize
    from fleetlab.sim import Start as Start
    from fleetlab.sim import WakeAt as WakeAt
    from fleetlab.sim import check_order as check_order
    from fleetlab.sim import check_placement as check_placement
    from fleetlab.sim import order as order
    from fleetlab.sim import pack as pack
    from fleetlab.sim import placement as placement
    from fleetlab.sim import simulate as simulate
    from fleetlab.studies.audit import audit as audit
    from fleetlab.studies.autoscale import autoscale as autoscale
    from fleetlab.studies.calibrate import calibrate as calibrate
    from fleetlab.studies.capacity import capacity as capacity
    from fleetlab.studies.compare import check as check
    from fleetlab.studies.compare import compare as compare
    from fleetlab.studies.diagnose import diagnose as diagnose
    from fleetlab.studies.eta import eta as eta
    from fleetlab.studies.explain import explain as explain
    from fleetlab.studies.plan_ahead import plan_ahead as plan_ahead
    from fleetlab.studies.sweep import Study as Study
    from fleetlab.studies.sweep import runs as runs
    from fleetlab.studies.sweep import sweep as sweep
    from fleetlab.studies.tune import tune as tune
    from fleetlab.studies.tune import tune_conf as tune_conf
    from fleetlab.studies.validate import validate as validate
    from fleetlab.traces import fetch as fetch
    from fleetlab.traces import read as read
    from fleetlab.traces import synthesize as synthesize
    from fleetlab.traces.anonymize import anonymize as anonymize
    from fleetlab.web import web as web

lazy(__name__)

# What packages need of those above them, which they may not import.
register("own policy", "fleetlab.sim.load:load")
register("own scheduler", "fleetlab.schedulers.own:OwnScheduler")
register("logs that are not saved as traces", "fleetlab.traces.raw:open_raw")
register("shipped traces", "fleetlab.traces.shipped:open_shipped")
register("predicted run times", "fleetlab.sim.boosted_estimate:boosted_estimate")
register(
    "schedulers",
    "fleetlab.schedulers.slurm.config:Slurm",
    "fleetlab.schedulers.kueue.config:Kueue",
    "fleetlab.schedulers.kubernetes.config:KubeScheduler",
    "fleetlab.schedulers.volcano.config:Volcano",
    "fleetlab.schedulers.kai.config:Kai",
)
register("readers of schedulers' logs",
         "fleetlab.schedulers.slurm.reader:FORMAT", "fleetlab.schedulers.kubernetes.reader:FORMAT")  # fmt: skip
register("running clusters", "fleetlab.schedulers.slurm.source:SlurmSource",
         "fleetlab.schedulers.kubernetes.source:KubernetesSource")  # fmt: skip
register("cells of notebooks", "fleetlab.report.cell:cell")
register("nouns in notebooks", "fleetlab.report.cell:noun_cell")
register("figures of matplotlib", "fleetlab.report.plots:to_matplotlib")
register("files of figures", "fleetlab.report.plots:save")
