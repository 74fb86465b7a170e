"""Operations: work that takes a while, with its progress, its result, and a way to cancel it."""

from __future__ import annotations

import asyncio
import secrets
import time
import traceback
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fleetlab.core import FleetlabError
from fleetlab.web import messages
from fleetlab.web.cache import pack, unpack
from fleetlab.web.pool import PATIENCE, RequestCancelled

MOST_OVER = 256  # operations that are over, and kinds of work of which the time is known
OVER_BYTES = 16 << 20  # of their results
ALONE = 5.0  # s after which an operation is cancelled whose visitor has closed the page
QUICK = 0.3  # s: an answer this quick was cached, and tells nothing about the work
QUIET = 10.0  # s without news after which a stream sends a sign of life
RUNNING, DONE, FAILED, CANCELLED = "running", "done", "failed", "cancelled"
INTERNAL: messages.ErrorMessage = {"error": "internal error", "hint": "the terminal of `fleetlab web` says more"}
# Seconds per job of what was never done yet, on two cores of a server from 2023; the first work of a kind corrects it.
PER_JOB = {"open": 5e-5, "describe": 1e-4, "run": 1e-4, "advise": 1e-3, "explain": 2e-4}


@dataclass(eq=False)
class Operation:
    """One piece of work of one visitor."""

    kind: Any
    visitor: str
    name: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    status: Any = RUNNING
    progress: Any = None
    early: messages.RunComparison | None = None  # the newest numbers before the result
    packed: bytes = b""  # its result
    error: messages.ErrorMessage | None = None
    replaced: bool = False
    expected: float | None = None  # s that such work takes
    ahead: Callable[[], int] = lambda: 0
    began: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    listeners: int = 0
    task: asyncio.Task[None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def message(self, sent: messages.RunComparison | None = None) -> messages.OperationMessage:
        """Return its state, for a client that an early answer was sent to."""
        seconds = time.monotonic() - self.began if self.seconds is None else self.seconds
        message: messages.OperationMessage = {
            "operation": self.name,
            "kind": self.kind,
            "status": self.status,
            "ahead": self.ahead() if self.status == RUNNING else 0,
            "seconds": round(seconds, 3),
            "expected": None if self.expected is None else round(self.expected, 3),
            "progress": self.progress,
        }
        if self.status == RUNNING and self.early is not None and self.early is not sent:
            blank = {"what": "simulating", "count": 0, "fraction": None}
            message["progress"] = {**(self.progress or blank), "answer": self.early}  # type: ignore[typeddict-item]
        if self.packed:
            message["result"] = unpack(self.packed)
        if self.error is not None:
            message["error"] = self.error
        return message

    def update(self, progress: dict[str, Any] | None) -> None:
        """Take a progress message."""
        message = dict(progress or {})
        self.early = message.pop("answer", self.early)  # by itself: the next message must not hide it
        self.progress = message or None
        self._notify()

    def patience(self) -> float:
        """Return how long its process may go on once the result is not needed any more."""
        return PATIENCE if self.replaced else 0.0

    def _notify(self) -> None:
        before, self._changed = self._changed, asyncio.Event()
        before.set()

    def end(self, status: str) -> None:
        """Set its final status."""
        self.status, self.seconds, self.progress = status, time.monotonic() - self.began, None
        self._notify()

    async def wait(self, most: float) -> bool:
        """Wait for a change; return False if there is none in so many seconds."""
        try:
            await asyncio.wait_for(self._changed.wait(), most)
        except TimeoutError:
            return False
        return True


class Operations:
    """All operations by name."""

    def __init__(self) -> None:
        self._operations: OrderedDict[str, Operation] = OrderedDict()

    def get(self, name: str) -> Operation | None:
        """Return one of them."""
        return self._operations.get(name)

    def start(
        self, kind: str, visitor: str, do: Callable[[Operation], Awaitable[Any]], expected: float | None = None
    ) -> Operation:
        """Start one; `expected` is how many seconds such work takes."""
        operation = Operation(kind, visitor, expected=expected)
        self._operations[operation.name] = operation
        self._forget()
        operation.task = asyncio.create_task(self._do(operation, do))
        # A task that is cancelled before it has begun never runs.
        operation.task.add_done_callback(lambda _: operation.end(CANCELLED) if operation.status == RUNNING else None)
        return operation

    def _forget(self) -> None:
        """Forget the oldest of those that are over, if they are too many or too large."""
        over = [o for o in self._operations.values() if o.status != RUNNING]
        size = sum(len(o.packed) for o in over)
        for count, operation in zip(range(len(over), 0, -1), over, strict=True):
            if count <= MOST_OVER and size <= OVER_BYTES:
                break
            size -= len(operation.packed)
            del self._operations[operation.name]

    async def _do(self, operation: Operation, do: Callable[[Operation], Awaitable[Any]]) -> None:
        try:
            operation.packed = pack(await do(operation))
            operation.end(DONE)
        except FleetlabError as e:
            operation.error = {"error": str(e), "hint": e.hint}
            operation.end(FAILED)
        except (asyncio.CancelledError, RequestCancelled):
            operation.end(CANCELLED)
        except Exception:
            operation.error = INTERNAL
            traceback.print_exc()
            operation.end(FAILED)

    def cancel(self, operation: Operation, *, replaced: bool = False) -> None:
        """Cancel it, and its process if nobody else waits for the same; one that was replaced may go on for a while."""
        operation.replaced = replaced
        if operation.task is not None and not operation.task.done():
            operation.task.cancel()

    async def close(self) -> None:
        """Cancel all."""
        tasks = [operation.task for operation in self._operations.values() if operation.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def events(self, operation: Operation) -> AsyncIterator[messages.OperationMessage | None]:
        """Yield its state whenever that changes, until it is over; None is a sign of life."""
        operation.listeners += 1
        message, sent = operation.message(), operation.early
        try:
            yield message
            while operation.status == RUNNING:
                if operation.early is not sent or await operation.wait(QUIET):
                    message, sent = operation.message(sent), operation.early
                    yield message
                else:
                    yield None
        finally:
            operation.listeners -= 1
            if operation.status == RUNNING and not operation.listeners:
                asyncio.get_running_loop().call_later(ALONE, self._cancel_if_alone, operation)

    def _cancel_if_alone(self, operation: Operation) -> None:
        if not operation.listeners:
            self.cancel(operation)


class Pace:
    """How long work will take: as long as the same work took last, else by the number of jobs."""

    def __init__(self) -> None:
        self._took: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._per_job = dict(PER_JOB)

    def expected(self, kind: str, what: str, jobs: int | None) -> float | None:
        """Return how many seconds it will take; None: nobody knows.

        >>> pace = Pace()
        >>> pace.expected("run", "a", 20_000), pace.expected("read", "a", None)
        (2.0, None)
        >>> pace.learn("run", "a", 20_000, 8.0)
        >>> pace.expected("run", "a", 20_000), pace.expected("run", "b", 10_000)
        (8.0, 4.0)
        """
        if (kind, what) in self._took:
            return self._took[kind, what]
        return None if jobs is None or kind not in self._per_job else jobs * self._per_job[kind]

    def learn(self, kind: str, what: str, jobs: int | None, seconds: float) -> None:
        """Take down what it took."""
        if seconds < QUICK:
            return
        self._took[kind, what] = seconds
        self._took.move_to_end((kind, what))
        while len(self._took) > MOST_OVER:
            self._took.popitem(last=False)
        if jobs:
            self._per_job[kind] = seconds / jobs
