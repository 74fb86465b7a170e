"""Measure and configure how GPUs are shared: suites, load on a server, samples, MPS and MIG, Kubernetes configuration.

GPU machines have little installed, so measuring needs only the standard library, torch, numpy and, if present, NVML;
reading results needs polars. Each name is imported when first used: `step`, which counts the steps of a program of
your own, imports the standard library only.
"""

from typing import TYPE_CHECKING

from fleetlab.core.lazy import lazy

if TYPE_CHECKING:
    from fleetlab.gpu.bench.advise import AdviceOptions as AdviceOptions
    from fleetlab.gpu.bench.advise import advise as advise
    from fleetlab.gpu.bench.all_modes import run_all as run_all
    from fleetlab.gpu.bench.analysis.findings import Findings as Findings
    from fleetlab.gpu.bench.analysis.findings import collect_findings as collect_findings
    from fleetlab.gpu.bench.analysis.measure import collect_suites as collect_suites
    from fleetlab.gpu.bench.analysis.scale import TailGoal as TailGoal
    from fleetlab.gpu.bench.analysis.serving import serving_table as serving_table
    from fleetlab.gpu.bench.isolation.run import run_isolation as run_isolation
    from fleetlab.gpu.bench.options import AllOptions as AllOptions
    from fleetlab.gpu.bench.options import IsolationOptions as IsolationOptions
    from fleetlab.gpu.bench.options import StressOptions as StressOptions
    from fleetlab.gpu.bench.options import SuiteOptions as SuiteOptions
    from fleetlab.gpu.bench.options import WorkloadOptions as WorkloadOptions
    from fleetlab.gpu.bench.plans import mig_plan as mig_plan
    from fleetlab.gpu.bench.profile import check_slices as check_slices
    from fleetlab.gpu.bench.profile import predict_slices as predict_slices
    from fleetlab.gpu.bench.profile.predictions import compare_predictions as compare_predictions
    from fleetlab.gpu.bench.profile.predictions import predict_plan as predict_plan
    from fleetlab.gpu.bench.results.cells import CellResult as CellResult
    from fleetlab.gpu.bench.results.cells import suites as suites
    from fleetlab.gpu.bench.results.programs import isolation_result as isolation_result
    from fleetlab.gpu.bench.results.programs import single_result as single_result
    from fleetlab.gpu.bench.results.programs import stress_result as stress_result
    from fleetlab.gpu.bench.results.suite import suite_result as suite_result
    from fleetlab.gpu.bench.run import make_plan as make_plan
    from fleetlab.gpu.bench.run import run_suite as run_suite
    from fleetlab.gpu.bench.steps import step as step
    from fleetlab.gpu.bench.stress import run_stress as run_stress
    from fleetlab.gpu.devices.console import BenchError as BenchError
    from fleetlab.gpu.devices.nvidia_smi import NoGpu as NoGpu
    from fleetlab.gpu.monitor.result import monitor_result as monitor_result
    from fleetlab.gpu.monitor.result import pack_log as pack_log
    from fleetlab.gpu.monitor.run import MonitorOptions as MonitorOptions
    from fleetlab.gpu.serving.load.result import load_result as load_result
    from fleetlab.gpu.serving.load.result import saved_load as saved_load
    from fleetlab.gpu.serving.load.settings import LoadOptions as LoadOptions
    from fleetlab.gpu.serving.server.limits import ServeOptions as ServeOptions
    from fleetlab.gpu.sharing.mig.layouts import MigGpu as MigGpu
    from fleetlab.gpu.sharing.mig.layouts import gpu_profiles as gpu_profiles
    from fleetlab.gpu.sharing.mig.layouts import mig_gpu as mig_gpu
    from fleetlab.gpu.sharing.mig.layouts import parse_layout as parse_layout
    from fleetlab.gpu.sharing.mig.layouts import slices_left as slices_left
    from fleetlab.gpu.sharing.modes import Share as Share
    from fleetlab.gpu.sharing.result import layout_tables as layout_tables
    from fleetlab.gpu.sharing.result import machine_tables as machine_tables
    from fleetlab.gpu.sharing.result import placement_table as placement_table
    from fleetlab.gpu.sharing.result import profile_tables as profile_tables
    from fleetlab.gpu.sharing.result import status_tables as status_tables
    from fleetlab.gpu.sharing.run_command import run_in_mode as run_in_mode

lazy(__name__)
