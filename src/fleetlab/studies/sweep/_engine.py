"""Workers and the queue: who is free gets a cell, who dies is replaced, and what came of a cell is kept at once.

The same loop serves the cores of this machine and a Ray cluster: they differ in what a worker is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from fleetlab.core import FleetlabError
from fleetlab.studies.sweep._cases import Cell
from fleetlab.studies.sweep._code import code
from fleetlab.studies.sweep._queue import Queue, answered

Ask = Callable[[Cell], Mapping[str, Any]]  # a cell as a question to a worker
PAUSE = 0.2  # seconds between looks at cells that another sweep has, and at workers that are still to come
NEVER_READY = 3  # workers that die before they are ready: then it is not chance


class Worker(Protocol):
    """One that plays a cell at a time, somewhere."""

    def give(self, ask: Mapping[str, Any]) -> None:
        """Hand it a question."""

    def hear(self) -> Mapping[str, Any] | None:
        """What it says, when it is ready and then after each question; None: it is dead."""

    def why(self) -> str:
        """How it died."""

    def stop(self, *, now: bool) -> None:
        """End it: when it has heard that nobody asks any more, or at once."""


class Crew(Protocol):
    """Where workers come from."""

    name: str
    most_deaths: int

    def count(self) -> int:
        """How many workers there should be now."""

    def hire(self) -> Worker:
        """One more."""

    def listen(self, workers: Sequence[Worker], timeout: float | None) -> list[Worker]:
        """Those of them who have something to say, waiting for the first."""

    def close(self) -> None:
        """Nobody is needed any more."""


class Engine:
    """A crew at work on a queue; workers stay from one queue to the next."""

    def __init__(self, crew: Crew, ask: Ask) -> None:
        self._crew, self._ask = crew, ask
        self._cells: dict[Worker, Cell | None] = {}
        self._ready: set[Worker] = set()
        self._began: dict[Worker, float] = {}
        self._unready = 0
        self.held = 0.0  # seconds that workers were ready
        self.made = {"engine": crew.name, "code": code()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        for worker in list(self._cells):
            self._end(worker, now=kind is not None or worker not in self._ready)
        self._crew.close()

    def begin(self, cells: int) -> None:
        """Call the workers that so many cells need: they get ready while something else is done here."""
        for _ in range(min(self._crew.count() - len(self._cells), cells)):
            worker = self._crew.hire()
            self._cells[worker], self._began[worker] = None, time.perf_counter()

    def run(self, queue: Queue) -> None:
        """Play all cells of a queue."""
        queue.most_deaths = self._crew.most_deaths
        while True:
            self._hand_out(queue)
            busy = any(self._cells.values())
            if not busy and not queue.left:
                return
            speak = [w for w, cell in self._cells.items() if cell is not None or w not in self._ready]
            if not speak:
                time.sleep(PAUSE)
                continue
            for worker in self._crew.listen(speak, PAUSE if queue.left else None):
                self._listen(worker, queue)

    def held_now(self) -> float:
        """Seconds that workers were ready, up to now."""
        now = time.perf_counter()
        return self.held + sum(now - self._began[w] for w in self._ready)

    def _hand_out(self, queue: Queue) -> None:
        if not queue.groups:
            queue.look()
        free = [w for w, cell in self._cells.items() if cell is None]
        if queue.groups and len(self._cells) < self._crew.count():
            self.begin(queue.count - len(free))
        for worker in free:
            if worker in self._ready:
                self._next(worker, queue)

    def _next(self, worker: Worker, queue: Queue) -> None:
        if (cell := queue.take(worker)) is not None:
            self._cells[worker] = cell
            worker.give(self._ask(cell))

    def _listen(self, worker: Worker, queue: Queue) -> None:
        said, cell = worker.hear(), self._cells[worker]
        if said is None:
            self._bury(worker, queue)
        elif cell is None:
            self._welcome(worker, said)
            self._next(worker, queue)
        else:
            self._cells[worker] = None
            self._next(worker, queue)  # first, so that it works while we write
            queue.finish(cell, answered(self._ask(cell), said, self.made))

    def _welcome(self, worker: Worker, said: Mapping[str, Any]) -> None:
        self._ready.add(worker)
        self._unready, self._began[worker] = 0, time.perf_counter()
        if said["code"] != self.made["code"]:
            msg = f"a worker has another fleetlab than this one: {said.get('where', 'on this machine')}"
            hint = "it was changed while the sweep ran, or other nodes have another version; finished cells are kept"
            raise FleetlabError(msg, hint=hint)

    def _bury(self, worker: Worker, queue: Queue) -> None:
        why, cell, ready = worker.why(), self._cells[worker], worker in self._ready
        self._end(worker, now=True)
        if not ready:
            self._unready += 1
            if self._unready >= NEVER_READY:
                msg = f"workers do not start: {why}"
                raise FleetlabError(msg, hint="is there memory enough? `--workers 1` takes the least")
        if cell is not None and (killed := queue.died(cell, worker, why)) is not None:
            queue.finish(cell, answered(self._ask(cell), {"failed": killed, "died": True}, self.made))

    def _end(self, worker: Worker, *, now: bool) -> None:
        began = self._began.pop(worker)
        if worker in self._ready:
            self.held += time.perf_counter() - began
        self._ready.discard(worker)
        del self._cells[worker]
        worker.stop(now=now)
