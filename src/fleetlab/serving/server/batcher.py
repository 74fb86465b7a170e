"""A bounded queue between many requests and one thread that computes: what waits together is computed together.

The event loop puts in and takes answers out; the thread only takes batches and computes. Both hold the lock for no
longer than it takes to move a few inputs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleetlab.devices.errors import BenchError
from fleetlab.serving.server.counts import Counts
from fleetlab.serving.server.inputs import Input
from fleetlab.serving.server.limits import Limits
from fleetlab.serving.server.refusals import Refusal, gone

if TYPE_CHECKING:
    from fleetlab.serving.server.models import Engine

SWEEP = 0.05  # s between looks for what waited too long


class Answer(NamedTuple):
    """The class of an input, how many were computed with it, and how long it waited and was computed, in seconds."""

    found: int
    batch: int
    queue: float
    compute: float


class Ask:
    """A request's inputs on their way; it is settled once, by its answers or by a refusal."""

    __slots__ = ("answers", "at", "done", "inputs", "left")

    def __init__(self, inputs: Sequence[Input], done: asyncio.Future[list[Answer]]) -> None:
        self.inputs, self.done = inputs, done
        self.at = time.monotonic()
        self.answers: list[Answer] = [None] * len(inputs)  # type: ignore[list-item]  # until all have come
        self.left = len(inputs)

    def refuse(self, why: Refusal) -> None:
        """Unless it was settled before."""
        if not self.done.done():
            self.done.set_exception(why)

    def gone(self) -> None:
        """Its client went away."""
        self.refuse(gone())

    def answer(self, k: int, answer: Answer) -> None:
        """One of its inputs is done."""
        self.answers[k] = answer
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(self.answers)


Waiting = tuple[Ask, int]  # which of its inputs


class Batcher:
    """The queue and its thread."""

    def __init__(self, limits: Limits, counts: Counts, loop: asyncio.AbstractEventLoop) -> None:
        self._limits, self._counts, self._loop = limits, counts, loop
        self._queue: deque[Waiting] = deque()
        self._more = threading.Condition()
        self._hurry = self._over = False
        self._under_way: tuple[float, list[Waiting]] | None = None
        self.stuck = False
        self.engine: Engine | None = None
        self.thread: threading.Thread | None = None

    def start(self, load: Callable[[], Engine], told: Callable[[Exception | None], None]) -> None:
        """Load in the background; `told` is called in the event loop with None once it is warm."""
        self.thread = threading.Thread(target=self._run, args=(load, told), name="compute", daemon=True)
        self.thread.start()
        self._loop.call_later(SWEEP, self._sweep)

    # --- in the event loop -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is computed."""
        return not self._queue and self._under_way is None

    def room_for(self, count: int) -> None:
        """Refuse what the queue cannot hold now."""
        if len(self._queue) + count > self._limits.queue:
            msg = f"the queue is full: {len(self._queue)} inputs wait of at most {self._limits.queue}"
            raise Refusal(msg, "queue-full", hint="ask again later, or more slowly")

    def put(self, inputs: Sequence[Input]) -> Ask:
        """Have inputs computed, all or none."""
        self.room_for(len(inputs))
        ask = Ask(inputs, self._loop.create_future())
        with self._more:
            before = len(self._queue)
            self._queue.extend((ask, k) for k in range(len(inputs)))
            # In between, the thread sleeps until the oldest has waited long enough.
            if not before or len(self._queue) >= self._limits.batch:
                self._more.notify()
        return ask

    def hurry(self) -> None:
        """Wait for no company any more."""
        with self._more:
            self._hurry = True
            self._more.notify()

    def stop(self, why: Refusal) -> None:
        """Refuse what is left and let the thread go."""
        with self._more:
            left = [*self._queue, *(self._under_way[1] if self._under_way else ())]
            self._queue.clear()
            self._over = True
            self._more.notify()
        for ask, _ in left:
            ask.refuse(why)

    def _sweep(self) -> None:
        if self._over:
            return
        now = time.monotonic()
        with self._more:
            late = self._late(now)
        self._refuse_late(late)
        self._look_after(now)
        self._loop.call_later(SWEEP, self._sweep)

    def _look_after(self, now: float) -> None:
        """A batch that is computed on and on, or a thread that fell: whoever waits for it hears so."""
        doing, thread = self._under_way, self.thread
        too_long = doing is not None and now - doing[0] > self._limits.deadline
        self.stuck = too_long or (self.engine is not None and thread is not None and not thread.is_alive())
        if doing is not None and too_long:
            msg = f"still computing after {self._limits.deadline:g} s"
            for ask, _ in doing[1]:
                ask.refuse(Refusal(msg, "stuck", hint="its model may hang: restart the server"))

    def _refuse_late(self, late: Iterable[Ask]) -> None:
        msg = f"waited longer than {self._limits.deadline:g} s for its turn"
        for ask in late:
            ask.refuse(Refusal(msg, "deadline", hint="the server is asked more than it can compute"))

    def _deliver(self, batch: list[Waiting], found: list[int] | Refusal, began: float, ended: float) -> None:
        if isinstance(found, Refusal):
            for ask, _ in batch:
                ask.refuse(found)
            return
        self._counts.computed(len(batch), ended - began)
        for (ask, k), one in zip(batch, found, strict=True):
            self._counts.queue.add(began - ask.at)
            ask.answer(k, Answer(one, len(batch), began - ask.at, ended - began))

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self, load: Callable[[], Engine], told: Callable[[Exception | None], None]) -> None:
        try:
            engine = self.engine = load()
        except Exception as e:  # whatever it is, the loop must hear of it
            self._in_loop(told, e)
            return
        self._in_loop(told, None)
        while (batch := self._take()) is not None:
            began = time.monotonic()
            found: list[int] | Refusal
            try:
                found = engine.classes([ask.inputs[k] for ask, k in batch])
            except Exception as e:  # a batch that fails is an answer, not the end of the server
                found = _why(e)
            ended = time.monotonic()
            self._under_way = None
            self._in_loop(self._deliver, batch, found, began, ended)

    def _take(self) -> list[Waiting] | None:
        """The next batch, in order; None when there will be none."""
        with self._more:
            while not self._over:
                if not self._queue:
                    self._more.wait()
                elif (left := self._patience()) > 0:
                    self._more.wait(left)
                elif batch := self._taken():
                    self._under_way = time.monotonic(), batch
                    return batch
        return None

    def _patience(self) -> float:
        """Seconds that the oldest may still wait for company."""
        if self._hurry or len(self._queue) >= self._limits.batch:
            return 0.0
        return self._queue[0][0].at + self._limits.wait / 1000 - time.monotonic()

    def _taken(self) -> list[Waiting]:
        if late := self._late(time.monotonic()):
            self._in_loop(self._refuse_late, late)
        batch: list[Waiting] = []
        while self._queue and len(batch) < self._limits.batch:
            waiting = self._queue.popleft()
            if waiting[0].done.done():  # its client is gone, or another of its inputs failed
                self._counts.dropped += 1
            else:
                batch.append(waiting)
        return batch

    def _late(self, now: float) -> list[Ask]:
        late = []
        while self._queue and now - self._queue[0][0].at > self._limits.deadline:
            late.append(self._queue.popleft()[0])
        return late

    def _in_loop(self, call: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop has ended: nobody is there to hear it
            self._over = True


def _why(e: Exception) -> Refusal:
    import torch

    said = (str(e).splitlines() or [""])[0][:300]
    if isinstance(e, torch.OutOfMemoryError):
        return Refusal(f"out-of-memory: {said}", "out-of-memory", hint="smaller batches, or fewer neighbours")
    return Refusal(f"the model failed: {type(e).__name__}: {said}", "model")


def load_error(e: Exception) -> BenchError:
    """Why a work could not be loaded, for whoever started the server."""
    if isinstance(e, BenchError):
        return e
    said = (str(e).splitlines() or [""])[0][:300]
    return BenchError(f"cannot be loaded: {type(e).__name__}: {said}")
