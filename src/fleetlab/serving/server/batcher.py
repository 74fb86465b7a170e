"""Dynamic batching: a bounded queue of inputs, of which the compute thread takes batches."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetlab.serving.server.compute import ComputeThread, Refusable, model_error
from fleetlab.serving.server.counts import ServerCounts
from fleetlab.serving.server.errors import RequestError, client_gone
from fleetlab.serving.server.inputs import ModelInput
from fleetlab.serving.server.limits import ServerLimits

if TYPE_CHECKING:
    from fleetlab.serving.server.models import InferenceEngine


class Prediction(NamedTuple):
    """The class of an input, its batch size, and its queueing and compute time in seconds."""

    label: int
    batch: int
    queue: float
    compute: float


class PendingPrediction:
    """The inputs of a request; it is completed once, by its predictions or by an error."""

    __slots__ = ("answers", "at", "done", "inputs", "left")

    def __init__(self, inputs: Sequence[ModelInput], done: asyncio.Future[list[Prediction]]) -> None:
        self.inputs, self.done = inputs, done
        self.at = time.monotonic()
        self.answers: list[Prediction] = [None] * len(inputs)  # type: ignore[list-item]  # until all have come
        self.left = len(inputs)

    def refuse(self, why: RequestError) -> None:
        """Fail the request, unless it is complete."""
        if not self.done.done():
            self.done.set_exception(why)

    def client_gone(self) -> None:
        """Fail the request because its client disconnected."""
        self.refuse(client_gone())

    def answer(self, k: int, answer: Prediction) -> None:
        """Add the prediction of one input."""
        self.answers[k] = answer
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(self.answers)


Waiting = tuple[PendingPrediction, int]  # request and index of the input


class Batcher(ComputeThread["InferenceEngine"]):
    """The queue of inputs and the thread that computes batches of them."""

    waits = "inputs"

    def __init__(self, limits: ServerLimits, counts: ServerCounts, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limits, counts, loop)
        self._queue: deque[Waiting] = deque()
        self._hurry = False
        self._under_way: tuple[float, list[Waiting]] | None = None

    # --- in the event loop -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def idle(self) -> bool:
        """Whether the queue is empty and nothing is computed."""
        return not self._queue and self._under_way is None

    @property
    def how(self) -> str:
        """How steps run: as a CUDA graph, or eagerly."""
        return self.engine.how if self.engine else ""

    def about(self) -> dict[str, Any]:
        """GPU memory, for /stats."""
        return self.engine.memory() if self.engine else {}

    def put(self, inputs: Sequence[ModelInput]) -> PendingPrediction:
        """Queue the inputs of a request, all or none."""
        self.room_for(len(inputs))
        ask = PendingPrediction(inputs, self._loop.create_future())
        with self._more:
            before = len(self._queue)
            self._queue.extend((ask, k) for k in range(len(inputs)))
            # Otherwise the thread sleeps until the oldest input has waited long enough.
            if not before or len(self._queue) >= self._limits.batch:
                self._more.notify()
        return ask

    def hurry(self) -> None:
        """Stop waiting for full batches."""
        with self._more:
            self._hurry = True
            self._more.notify()

    def _abandon(self) -> list[Refusable]:
        left = [*self._queue, *(self._under_way[1] if self._under_way else ())]
        self._queue.clear()
        return [ask for ask, _ in left]

    def _look_after(self, now: float) -> None:
        """Fail the requests that are late, and those of a batch that takes too long or of a thread that died."""
        with self._more:
            late = self._late(now)
        self._refuse_late(late)
        doing = self._under_way
        too_long = doing is not None and now - doing[0] > self._limits.deadline
        self.stuck = too_long or self._died
        if doing is not None and too_long:
            self._fail([ask for ask, _ in doing[1]], self._hangs())

    def _refuse_late(self, late: Sequence[PendingPrediction]) -> None:
        if late:
            self._fail(late, self._overloaded("queued longer than"))

    def _deliver(self, batch: list[Waiting], found: list[int] | RequestError, began: float, ended: float) -> None:
        if isinstance(found, RequestError):
            self._fail([ask for ask, _ in batch], found)
            return
        self._counts.computed(len(batch), ended - began)
        for (ask, k), one in zip(batch, found, strict=True):
            self._counts.queue.add(began - ask.at)
            ask.answer(k, Prediction(one, len(batch), began - ask.at, ended - began))

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _compute(self, engine: InferenceEngine) -> None:
        while (batch := self._take()) is not None:
            began = time.monotonic()
            classes: list[int] | RequestError
            try:
                classes = engine.classes([ask.inputs[k] for ask, k in batch])
            except Exception as e:  # a batch that fails must not end the server
                classes = model_error(e)
            ended = time.monotonic()
            self._under_way = None
            self._in_loop(self._deliver, batch, classes, began, ended)

    def _take(self) -> list[Waiting] | None:
        """Take the next batch in order; None at the end."""
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
        """Seconds that the oldest input may still wait to form a batch."""
        if self._hurry or len(self._queue) >= self._limits.batch:
            return 0.0
        return self._queue[0][0].at + self._limits.wait / 1000 - time.monotonic()

    def _taken(self) -> list[Waiting]:
        if late := self._late(time.monotonic()):
            self._in_loop(self._refuse_late, late)
        batch: list[Waiting] = []
        while self._queue and len(batch) < self._limits.batch:
            waiting = self._queue.popleft()
            if waiting[0].done.done():  # its client disconnected, or another of its inputs failed
                self._counts.dropped += 1
            else:
                batch.append(waiting)
        return batch

    def _late(self, now: float) -> list[PendingPrediction]:
        late = []
        while self._queue and now - self._queue[0][0].at > self._limits.deadline:
            late.append(self._queue.popleft()[0])
        return late
