"""Hand out cells to workers: a free worker gets a cell, a dead one is replaced, an answer is stored at once.

The same loop serves the cores of this machine and a Ray cluster: they differ in what a worker is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from fleetlab.core import FleetlabError
from fleetlab.studies.code_version import code_version
from fleetlab.studies.sweep.cell_queue import CellQueue, record_of
from fleetlab.studies.sweep.plan import CELL, StudyCell

PAUSE = 0.2  # seconds between looks at cells that another sweep runs, and at workers that are still starting
NEVER_READY = 3  # workers in a row that die before they are ready: then it is not chance


class CellWorker(Protocol):
    """A worker, somewhere, that runs one cell at a time."""

    def give(self, question: Mapping[str, Any]) -> None:
        """Send it a question."""

    def receive(self) -> Mapping[str, Any] | None:
        """Return that it is ready, and then one answer after the other; None: it is dead."""

    def reason(self) -> str:
        """Return why it died."""

    def stop(self, *, now: bool) -> None:
        """End it: when it has noticed that there are no more questions, or at once."""


class Backend(Protocol):
    """Where workers come from."""

    name: str
    most_deaths: int

    def count(self) -> int:
        """Return how many workers there should be now."""

    def start(self) -> CellWorker:
        """Start one more worker."""

    def wait(self, workers: Sequence[CellWorker], timeout: float | None) -> list[CellWorker]:
        """Return the workers that have an answer, waiting for the first."""

    def close(self) -> None:
        """Release the backend."""


class Dispatcher:
    """The workers of a backend; they stay from one queue to the next."""

    def __init__(self, backend: Backend, question: Callable[[StudyCell], Mapping[str, Any]]) -> None:
        self._backend, self._question = backend, question
        self._cells: dict[CellWorker, StudyCell | None] = {}
        self._ready: set[CellWorker] = set()
        self._since: dict[CellWorker, float] = {}
        self._not_ready = 0
        self._past_seconds = 0.0
        self.about = {"engine": backend.name, "code": code_version(CELL)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        for worker in list(self._cells):
            self._end(worker, now=kind is not None or worker not in self._ready)
        self._backend.close()

    def start(self, cells: int) -> None:
        """Start the workers that so many cells need: they get ready while this process does something else."""
        for _ in range(min(self._backend.count() - len(self._cells), cells)):
            worker = self._backend.start()
            self._cells[worker], self._since[worker] = None, time.perf_counter()

    def run(self, queue: CellQueue) -> None:
        """Run all cells of a queue."""
        queue.most_deaths = self._backend.most_deaths
        while True:
            self._hand_out(queue)
            busy = any(self._cells.values())
            if not busy and not queue.left:
                return
            waiting_for = [w for w, cell in self._cells.items() if cell is not None or w not in self._ready]
            if not waiting_for:
                time.sleep(PAUSE)
                continue
            for worker in self._backend.wait(waiting_for, PAUSE if queue.left else None):
                self._receive(worker, queue)

    @property
    def worker_seconds(self) -> float:
        """Seconds that workers were ready, all together, up to now."""
        now = time.perf_counter()
        return self._past_seconds + sum(now - self._since[worker] for worker in self._ready)

    def _hand_out(self, queue: CellQueue) -> None:
        if not queue.groups:
            queue.look()
        free = [w for w, cell in self._cells.items() if cell is None]
        if queue.groups and len(self._cells) < self._backend.count():
            self.start(queue.count - len(free))
        for worker in free:
            if worker in self._ready:
                self._next(worker, queue)

    def _next(self, worker: CellWorker, queue: CellQueue) -> None:
        if (cell := queue.take(worker)) is not None:
            self._cells[worker] = cell
            worker.give(self._question(cell))

    def _receive(self, worker: CellWorker, queue: CellQueue) -> None:
        answer, cell = worker.receive(), self._cells[worker]
        if answer is None:
            self._replace(worker, queue)
        elif cell is None:
            self._welcome(worker, answer)
            self._next(worker, queue)
        else:
            self._cells[worker] = None
            self._next(worker, queue)  # first, so that it works while we write
            queue.finish(cell, record_of(self._question(cell), answer, self.about))

    def _welcome(self, worker: CellWorker, answer: Mapping[str, Any]) -> None:
        self._ready.add(worker)
        self._not_ready, self._since[worker] = 0, time.perf_counter()
        if answer["code"] != self.about["code"]:
            msg = f"a worker has another version of fleetlab: {answer.get('where', 'on this machine')}"
            hint = "it was changed while the sweep ran, or other nodes have another version; finished cells are kept"
            raise FleetlabError(msg, hint=hint)

    def _replace(self, worker: CellWorker, queue: CellQueue) -> None:
        reason, cell, ready = worker.reason(), self._cells[worker], worker in self._ready
        self._end(worker, now=True)
        if not ready:
            self._not_ready += 1
            if self._not_ready >= NEVER_READY:
                msg = f"workers do not start: {reason}"
                raise FleetlabError(msg, hint="is there enough memory? `--workers 1` needs the least")
        if cell is not None and (failure := queue.died(cell, worker, reason)) is not None:
            queue.finish(cell, record_of(self._question(cell), {"failed": failure, "died": True}, self.about))

    def _end(self, worker: CellWorker, *, now: bool) -> None:
        since = self._since.pop(worker)
        if worker in self._ready:
            self._past_seconds += time.perf_counter() - since
        self._ready.discard(worker)
        del self._cells[worker]
        worker.stop(now=now)
