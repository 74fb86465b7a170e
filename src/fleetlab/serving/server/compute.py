"""A model in one compute thread, and the requests of an event loop: what batching and text generation have in common.

The event loop adds requests and takes results; the thread loads the model and computes. Both hold the lock only while
they move requests. Every request ends once, with its result or with an error.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from fleetlab.devices.errors import BenchError
from fleetlab.serving.server.counts import ServerCounts
from fleetlab.serving.server.errors import RequestError
from fleetlab.serving.server.limits import ServerLimits

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

    def start(self, load: Callable[[], Engine], told: Callable[[Exception | None], None]) -> None:
        """Load in the background; `told` is called in the event loop, with None once the model is warm."""
        self.thread = threading.Thread(target=self._run, args=(load, told), name="compute", daemon=True)
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
            left = self._abandon()
            self._over = True
            self._more.notify()
        self._fail(left, why)

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

    def _run(self, load: Callable[[], Engine], told: Callable[[Exception | None], None]) -> None:
        try:
            engine = self.engine = load()
        except Exception as e:  # the event loop must learn of any failure
            self._in_loop(told, e)
            return
        self._in_loop(told, None)
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
