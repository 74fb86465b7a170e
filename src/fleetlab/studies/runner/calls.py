"""Several simulations at once, for studies: a call is a function of a module, a scenario and other arguments.

Starting a process takes two seconds, so that the calls of a small study are made in this process; so is a call with a
policy that exists only here. Wherever a call is made, its result is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from fleetlab.core import Scenario, WorkloadError
from fleetlab.studies.code_version import code_version
from fleetlab.studies.runner.backends import Backend, Processes
from fleetlab.studies.runner.dispatch import Dispatcher, NumberedQuestions
from fleetlab.studies.runner.shipping import can_travel

Arrays = Mapping[str, Any]  # arrays by name
Done = Callable[[int], None]  # called with the number of calls that have returned
Workers: TypeAlias = int | str | None

SMALL = 50_000  # instances: below, starting a process takes longer than a simulation
MOST = 4  # processes by default: each has its schedule in memory
RAY = "ray"


class Call(NamedTuple):
    """One simulation: its scenario, and the other arguments of the function."""

    scenario: Scenario
    arguments: Mapping[str, Any]


def process_count(instances: int, workers: Workers) -> int | str:
    """Return how many processes to start, 0 for none but this one; a Ray cluster stays as it is."""
    if isinstance(workers, str) and not workers.isdecimal():
        return _address(workers)
    count = int(workers) if isinstance(workers, str) else workers
    if count is not None and (isinstance(count, bool) or not 0 <= count <= 1024):
        msg = f"a number of processes is not below 0: {workers}"
        raise WorkloadError(msg, hint="workers=0 runs the simulations in this process, one after the other")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return (0 if instances < SMALL else min(cores, MOST)) if count is None else count


def _address(workers: str) -> str:
    """Check the word of a Ray cluster."""
    if workers != RAY and ":" not in workers:
        msg = f"workers is a number of processes, `ray`, or the address of a Ray cluster, not: {workers}"
        raise WorkloadError(msg, hint="workers=2, workers=ray, or workers=10.0.0.1:6379")
    return workers


@dataclass(frozen=True, slots=True)
class CallService:
    """Makes calls by their number."""

    function: Callable[..., Arrays]
    calls: Mapping[int, Call]

    def open(self) -> Callable[[int], Arrays]:
        """Return what makes a call."""
        return lambda k: self.function(self.calls[k].scenario, **self.calls[k].arguments)


def run_calls(
    function: Callable[..., Arrays], calls: Sequence[Call], *, workers: int | str, done: Done
) -> list[Arrays]:
    """Call a function of a module once per call; return the results in the order of the calls."""
    results: dict[int, Arrays] = {}

    def keep(k: int, result: Arrays) -> None:
        results[k] = result
        done(len(results))

    remote = [k for k, travels in enumerate(can_travel(*calls)) if travels] if workers else []
    if remote:
        service = CallService(function, {k: calls[k] for k in remote})
        with ExitStack() as stack:
            backend, version = _backend(service, workers, len(remote))
            dispatcher = stack.enter_context(Dispatcher(backend, version))
            dispatcher.run(NumberedQuestions(remote, keep))
    for k in sorted(set(range(len(calls))) - set(remote)):
        keep(k, function(calls[k].scenario, **calls[k].arguments))
    return [results[k] for k in range(len(calls))]


def _backend(service: CallService, workers: int | str, calls: int) -> tuple[Backend, str | None]:
    if isinstance(workers, int):
        return Processes(service, min(workers, calls)), None
    from fleetlab.studies.runner.ray_cluster import RayCluster

    address = None if workers == RAY else workers
    return RayCluster(service, address=address, workers=None), code_version()
