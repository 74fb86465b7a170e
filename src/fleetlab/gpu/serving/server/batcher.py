"""A model in one compute thread, and the requests of an event loop: what batching and text generation have in common.

The event loop adds requests and takes results; the thread loads the model and computes. Both hold the lock only while
they move requests. Every request ends once, with its result or with an error.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.serving.server.counts import ServerCounts
from fleetlab.gpu.serving.server.limits import ServerLimits
from fleetlab.gpu.serving.server.requests import ModelInput, RequestError, client_gone

if TYPE_CHECKING:
    from fleetlab.gpu.serving.server.models import InferenceEngine

SWEEP = 0.05  # s between checks for expired requests
Engine = TypeVar("Engine")


class Refusable(Protocol):
    """A request that may be failed."""

    def refuse(self, why: RequestError) -> None:
        """Fail the request, unless it is complete."""


class ComputeThread(ABC, Generic[Engine]):
    """The state of a server's requests, the thread that computes them, and the checks in the event loop."""

    waits = "requests"  # what the queue holds

    def __init__(self, limits: ServerLimits, counts: ServerCounts, loop: asyncio.AbstractEventLoop) -> None:
        self._limits, self._counts, self._loop = limits, counts, loop
        self._more = threading.Condition()
        self._over = False
        self.stuck = False
        self.engine: Engine | None = None
        self.thread: threading.Thread | None = None

    def start(self, load: Callable[[], Engine], on_loaded: Callable[[Exception | None], None]) -> None:
        """Load in the background; `told` is called in the event loop, with None once the model is warm."""
        self.thread = threading.Thread(target=self._run, args=(load, on_loaded), name="compute", daemon=True)
        self.thread.start()
        self._loop.call_later(SWEEP, self._sweep)

    # --- in the event loop -------------------------------------------------------------------------------------------

    @abstractmethod
    def __len__(self) -> int:
        """How many wait."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether nothing is queued or computed."""

    @property
    @abstractmethod
    def how(self) -> str:
        """How steps run: as CUDA graphs, or eagerly."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """State of the model, for /stats."""

    def hurry(self) -> None:
        """Stop waiting for company, where anything does."""

    def room_for(self, count: int) -> None:
        """Raise an error if the queue has no room for so many."""
        if len(self) + count > self._limits.queue:
            msg = f"the queue is full: {len(self)} of {self._limits.queue} {self.waits}"
            raise RequestError(msg, "queue-full", hint="retry later, at a lower rate")

    def stop(self, why: RequestError) -> None:
        """Fail the remaining requests and end the thread."""
        with self._more:
            remaining = self._abandon()
            self._over = True
            self._more.notify()
        self._fail(remaining, why)

    def _sweep(self) -> None:
        if self._over:
            return
        self._look_after(time.monotonic())
        self._loop.call_later(SWEEP, self._sweep)

    @property
    def _died(self) -> bool:
        return self.engine is not None and self.thread is not None and not self.thread.is_alive()

    def _fail(self, requests: Iterable[Refusable], why: RequestError) -> None:
        for request in requests:
            request.refuse(why)

    def _hangs(self) -> RequestError:
        msg = f"still computing after {self._limits.deadline:g} s"
        return RequestError(msg, "stuck", hint="the model may hang: restart the server")

    def _overloaded(self, what: str) -> RequestError:
        return RequestError(f"{what} {self._limits.deadline:g} s", "deadline", hint="the server is overloaded")

    @abstractmethod
    def _abandon(self) -> list[Refusable]:
        """Empty the queue, under the lock; return all requests that are not complete."""

    @abstractmethod
    def _look_after(self, now: float) -> None:
        """Fail requests that waited too long, and those of a computation that hangs."""

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self, load: Callable[[], Engine], on_loaded: Callable[[Exception | None], None]) -> None:
        try:
            engine = self.engine = load()
        except Exception as e:  # the event loop must learn of any failure
            self._in_loop(on_loaded, e)
            return
        self._in_loop(on_loaded, None)
        self._compute(engine)

    @abstractmethod
    def _compute(self, engine: Engine) -> None:
        """Compute until the server stops; what fails must not end it."""

    def _in_loop(self, call: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the event loop has ended
            self._over = True


def model_error(e: Exception) -> RequestError:
    """The error of a request whose computation failed."""
    import torch

    text = (str(e).splitlines() or [""])[0][:300]
    if isinstance(e, torch.OutOfMemoryError):
        return RequestError(f"out-of-memory: {text}", "out-of-memory", hint="use smaller batches, or fewer tenants")
    return RequestError(f"the model failed: {type(e).__name__}: {text}", "model")


def load_error(e: Exception) -> BenchError:
    """The error if a workload cannot be loaded."""
    if isinstance(e, BenchError):
        return e
    text = (str(e).splitlines() or [""])[0][:300]
    return BenchError(f"cannot be loaded: {type(e).__name__}: {text}")


# --- dynamic batching: a bounded queue of inputs, of which the compute thread takes batches ---------------------------


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
        remaining = [*self._queue, *(self._under_way[1] if self._under_way else ())]
        self._queue.clear()
        return [ask for ask, _ in remaining]

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

    def _deliver(self, batch: list[Waiting], result: list[int] | RequestError, began: float, ended: float) -> None:
        if isinstance(result, RequestError):
            self._fail([ask for ask, _ in batch], result)
            return
        self._counts.computed(len(batch), ended - began)
        for (ask, k), one in zip(batch, result, strict=True):
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
                elif (patience := self._patience()) > 0:
                    self._more.wait(patience)
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
