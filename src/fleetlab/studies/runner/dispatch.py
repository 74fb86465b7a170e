"""Hand out questions to workers: a free worker gets one, a dead one is replaced, an answer is passed on at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from fleetlab.core import FleetlabError, WorkloadError
from fleetlab.studies.runner.backends import Backend, Reply, Worker

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
