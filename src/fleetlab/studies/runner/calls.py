"""Several simulations at once, for studies: a call is a function of a module, a scenario and other arguments.

Starting a process takes two seconds, so that the calls of a small study are made in this process; so is a call with a
policy that exists only here. Wherever a call is made, its result is the same.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from fleetlab.core import FleetlabError, Scenario, WorkloadError
from fleetlab.studies.runner.backends import Backend, Processes, Reply, Worker
from fleetlab.studies.runner.shipping import can_travel, code_version

# -- questions to workers: a free one gets one, a dead one is replaced, an answer is passed on at once -----------------

PAUSE = 0.2  # seconds between looks at questions that another process works on, and at workers that are still starting
NEVER_READY = 3  # workers in a row that die before they are ready: then it is not chance


class Questions(Protocol):
    """The questions that are still to be answered."""

    most_deaths: int

    @property
    def unsent(self) -> bool:
        """Whether there are any that were not handed out."""

    @property
    def count(self) -> int:
        """How many can be handed out now."""

    def look(self) -> None:
        """See whether there are more to hand out; called when there are none."""

    def take(self, worker: object) -> Any:  # noqa: ANN401
        """Return one for a worker; None: there is none at the moment."""

    def message(self, item: Any) -> Any:  # noqa: ANN401
        """Return it as workers take it."""

    def finish(self, item: Any, answer: Any) -> None:  # noqa: ANN401
        """Take its answer."""

    def died(self, item: Any, worker: object, reason: str) -> None:  # noqa: ANN401
        """Put it back, as its worker died; or give it up."""


class Dispatcher:
    """The workers of a backend; they stay from one set of questions to the next."""

    def __init__(self, backend: Backend, version: str | None = None) -> None:
        self._backend, self._version = backend, version
        self._items: dict[Worker, Any] = {}
        self._ready: set[Worker] = set()
        self._since: dict[Worker, float] = {}
        self._not_ready = 0
        self._past_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        for worker in list(self._items):
            self._end(worker, now=kind is not None or worker not in self._ready)
        self._backend.close()

    def start(self, questions: int) -> None:
        """Start the workers that so many questions need: they get ready while this process does something else."""
        for _ in range(min(self._backend.count() - len(self._items), questions)):
            worker = self._backend.start()
            self._items[worker], self._since[worker] = None, time.perf_counter()

    def run(self, questions: Questions) -> None:
        """Have all questions answered."""
        questions.most_deaths = self._backend.most_deaths
        while True:
            self._hand_out(questions)
            busy = any(item is not None for item in self._items.values())
            if not busy and not questions.unsent:
                return
            waiting_for = [w for w, item in self._items.items() if item is not None or w not in self._ready]
            if not waiting_for:
                time.sleep(PAUSE)
                continue
            for worker in self._backend.wait(waiting_for, PAUSE if questions.unsent else None):
                self._receive(worker, questions)

    @property
    def worker_seconds(self) -> float:
        """Seconds that workers were ready, all together, up to now."""
        now = time.perf_counter()
        return self._past_seconds + sum(now - self._since[worker] for worker in self._ready)

    def _hand_out(self, questions: Questions) -> None:
        if not questions.count:
            questions.look()
        free = [w for w, item in self._items.items() if item is None]
        if questions.count and len(self._items) < self._backend.count():
            self.start(questions.count - len(free))
        for worker in free:
            if worker in self._ready:
                self._next(worker, questions)

    def _next(self, worker: Worker, questions: Questions) -> None:
        if (item := questions.take(worker)) is not None:
            self._items[worker] = item
            worker.give(questions.message(item))

    def _receive(self, worker: Worker, questions: Questions) -> None:
        reply, item = worker.receive(), self._items[worker]
        if reply is None:
            self._replace(worker, questions)
        elif reply.error is not None:
            raise reply.error
        elif worker not in self._ready:
            self._welcome(worker, reply)
            self._next(worker, questions)
        else:
            self._items[worker] = None
            self._next(worker, questions)  # first, so that it works while we write
            questions.finish(item, reply.value)

    def _welcome(self, worker: Worker, reply: Reply) -> None:
        self._ready.add(worker)
        self._not_ready, self._since[worker] = 0, time.perf_counter()
        if self._version is not None and reply.value["code"] != self._version:
            msg = f"a worker has another version of fleetlab: {reply.value.get('where', 'on this machine')}"
            hint = "it was changed while the work ran, or other nodes have another version; finished cells are kept"
            raise FleetlabError(msg, hint=hint)

    def _replace(self, worker: Worker, questions: Questions) -> None:
        reason, item, ready = worker.reason(), self._items[worker], worker in self._ready
        self._end(worker, now=True)
        if not ready:
            self._not_ready += 1
            if self._not_ready >= NEVER_READY:
                msg = f"workers do not start: {reason}"
                raise FleetlabError(msg, hint="is there enough memory? `--workers 1` needs the least")
        if item is not None:
            questions.died(item, worker, reason)

    def _end(self, worker: Worker, *, now: bool) -> None:
        since = self._since.pop(worker)
        if worker in self._ready:
            self._past_seconds += time.perf_counter() - since
        self._ready.discard(worker)
        del self._items[worker]
        worker.stop(now=now)


class NumberedQuestions:
    """Questions 0, 1, 2, … that are asked once each; one whose workers die again and again ends the work."""

    def __init__(self, numbers: list[int], done: Callable[[int, Any], None]) -> None:
        self.most_deaths = 1
        self._waiting, self._done = deque(numbers), done
        self._deaths: dict[int, int] = {}

    @property
    def unsent(self) -> bool:
        """Whether there are any that were not handed out."""
        return bool(self._waiting)

    @property
    def count(self) -> int:
        """How many can be handed out now."""
        return len(self._waiting)

    def look(self) -> None:
        """Do nothing: there are no more."""

    def take(self, worker: object) -> int | None:
        """Return the next one."""
        return self._waiting.popleft() if self._waiting else None

    def message(self, item: int) -> int:
        """Return its number."""
        return item

    def finish(self, item: int, answer: Any) -> None:  # noqa: ANN401
        """Pass its answer on."""
        self._done(item, answer)

    def died(self, item: int, worker: object, reason: str) -> None:
        """Ask it again, or give up."""
        self._deaths[item] = self._deaths.get(item, 0) + 1
        if self._deaths[item] < self.most_deaths:
            self._waiting.appendleft(item)
            return
        msg = f"a simulation in a process of its own ended with {reason}"
        raise WorkloadError(msg, hint="if memory is short, workers=0 runs the simulations one after the other")


# -- calls -------------------------------------------------------------------------------------------------------------

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
