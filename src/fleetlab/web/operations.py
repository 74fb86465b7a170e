"""Work that takes a while, as its visitor sees it: what it is, how far it is, what came out; and a way to stop it."""

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
from fleetlab.web import answers
from fleetlab.web.pool import PATIENCE, Withdrawn

KEPT = 256  # operations that are over
ALONE = 5.0  # s after which an operation ends whose visitor has closed the page
QUIET = 10.0  # s after which a stream says that it is still there
GOING, DONE, FAILED, CANCELLED = "going", "done", "failed", "cancelled"


@dataclass(eq=False)
class Operation:
    """One piece of work of one visitor."""

    kind: Any
    visitor: str
    name: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    status: Any = GOING
    progress: Any = None
    early: answers.Answer | None = None  # the newest answer before the last
    result: Any = None
    refusal: answers.Refusal | None = None
    overtaken: bool = False
    partly: bool = False  # answered for the first jobs: all of them take long
    ahead: Callable[[], int] = lambda: 0
    began: float = field(default_factory=time.monotonic)
    took: float | None = None
    listeners: int = 0
    future: asyncio.Task[None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def told(self, seen: answers.Answer | None = None) -> answers.Operation:
        """As the interface answers it, to somebody who has seen an early answer."""
        took = time.monotonic() - self.began if self.took is None else self.took
        found: answers.Operation = {
            "operation": self.name,
            "kind": self.kind,
            "status": self.status,
            "ahead": self.ahead() if self.status == GOING else 0,
            "seconds": round(took, 3),
            "progress": self.progress,
        }
        if self.status == GOING and self.early is not None and self.early is not seen:
            blank = {"what": "simulating", "done": 0, "share": None}
            found["progress"] = {**(self.progress or blank), "answer": self.early}  # type: ignore[typeddict-item]
        if self.result is not None:
            found["result"] = self.result
        if self.refusal is not None:
            found["refusal"] = self.refusal
        return found

    def tell(self, progress: dict[str, Any] | None) -> None:
        """How far it is."""
        told = {name: value for name, value in (progress or {}).items() if name != "numbers"}
        self.early = told.pop("answer", self.early)  # kept apart: what is told next must not hide it
        self.progress = told or None
        self._say()

    def patience(self) -> float:
        """How long its process may go on once it is not wanted any more."""
        return PATIENCE if self.overtaken and not self.partly else 0.0

    def _say(self) -> None:
        before, self._changed = self._changed, asyncio.Event()
        before.set()

    def end(self, status: str) -> None:
        """It is over."""
        self.status, self.took, self.progress = status, time.monotonic() - self.began, None
        self._say()

    async def wait(self, most: float) -> bool:
        """Until something changes; False: nothing did."""
        try:
            await asyncio.wait_for(self._changed.wait(), most)
        except TimeoutError:
            return False
        return True


class Operations:
    """All of them, by name."""

    def __init__(self) -> None:
        self._operations: OrderedDict[str, Operation] = OrderedDict()

    def get(self, name: str) -> Operation | None:
        """One of them."""
        return self._operations.get(name)

    def start(self, kind: str, visitor: str, do: Callable[[Operation], Awaitable[Any]]) -> Operation:
        """Begin something."""
        operation = Operation(kind, visitor)
        self._operations[operation.name] = operation
        over = [name for name, j in self._operations.items() if j.status != GOING]
        for name in over[: max(0, len(over) - KEPT)]:
            del self._operations[name]
        operation.future = asyncio.create_task(self._do(operation, do))
        # One that is stopped before it has begun never gets to say so.
        operation.future.add_done_callback(lambda _: operation.end(CANCELLED) if operation.status == GOING else None)
        return operation

    async def _do(self, operation: Operation, do: Callable[[Operation], Awaitable[Any]]) -> None:
        try:
            operation.result = await do(operation)
            operation.end(DONE)
        except FleetlabError as e:
            operation.refusal = {"error": str(e), "hint": e.hint}
            operation.end(FAILED)
        except (asyncio.CancelledError, Withdrawn):
            operation.end(CANCELLED)
        except Exception:
            operation.refusal = {"error": "something broke here", "hint": "the terminal of the page says more"}
            traceback.print_exc()
            operation.end(FAILED)

    def cancel(self, operation: Operation, *, overtaken: bool = False) -> None:
        """Stop it; its process too, if nobody else waits for the same. One that was overtaken may go on for a while."""
        operation.overtaken = overtaken
        if operation.future is not None and not operation.future.done():
            operation.future.cancel()

    async def close(self) -> None:
        """Stop them all."""
        futures = [operation.future for operation in self._operations.values() if operation.future is not None]
        for future in futures:
            future.cancel()
        await asyncio.gather(*futures, return_exceptions=True)

    async def events(self, operation: Operation) -> AsyncIterator[answers.Operation | None]:
        """What is known of it whenever that changes, until it is over; None: still there."""
        operation.listeners += 1
        told, seen = operation.told(), operation.early
        try:
            yield told
            while operation.status == GOING:
                if operation.early is not seen or await operation.wait(QUIET):
                    told, seen = operation.told(seen), operation.early
                    yield told
                else:
                    yield None
        finally:
            operation.listeners -= 1
            if operation.status == GOING and not operation.listeners:
                asyncio.get_running_loop().call_later(ALONE, self._cancel_if_alone, operation)

    def _cancel_if_alone(self, operation: Operation) -> None:
        if not operation.listeners:
            self.cancel(operation)
