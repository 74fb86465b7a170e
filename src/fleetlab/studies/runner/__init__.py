"""One way to run many simulations: in this process, in processes of this machine, or on a Ray cluster."""

from fleetlab.studies.runner.backends import Backend, InProcess, Processes, Reply, Service, Worker
from fleetlab.studies.runner.calls import SMALL, Arrays, Call, Dispatcher, Workers, process_count, run_calls
from fleetlab.studies.runner.shipping import can_travel, code_version

__all__ = [
    "SMALL", "Arrays", "Backend", "Call", "Dispatcher", "InProcess", "Processes", "Reply", "Service", "Worker",
    "Workers", "can_travel", "code_version", "process_count", "run_calls",
]  # fmt: skip
