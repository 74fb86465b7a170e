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

KEPT = 256  # jobs that are over
ALONE = 5.0  # s after which a job ends whose visitor has closed the page
QUIET = 10.0  # s after which a stream says that it is still there
GOING, DONE, FAILED, CANCELLED = "going", "done", "failed", "cancelled"


@dataclass(eq=False)
class Job:
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
    partly: bool = False  # answered for the first tasks: all of them take long
    ahead: Callable[[], int] = lambda: 0
    began: float = field(default_factory=time.monotonic)
    took: float | None = None
    listeners: int = 0
    task: asyncio.Task[None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def told(self, seen: answers.Answer | None = None) -> answers.Job:
        """As the interface answers it, to somebody who has seen an early answer."""
        took = time.monotonic() - self.began if self.took is None else self.took
        found: answers.Job = {
            "job": self.name,
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


class Jobs:
    """All of them, by name."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def get(self, name: str) -> Job | None:
        """One of them."""
        return self._jobs.get(name)

    def start(self, kind: str, visitor: str, do: Callable[[Job], Awaitable[Any]]) -> Job:
        """Begin something."""
        job = Job(kind, visitor)
        self._jobs[job.name] = job
        over = [name for name, j in self._jobs.items() if j.status != GOING]
        for name in over[: max(0, len(over) - KEPT)]:
            del self._jobs[name]
        job.task = asyncio.create_task(self._do(job, do))
        # One that is stopped before it has begun never gets to say so.
        job.task.add_done_callback(lambda _: job.end(CANCELLED) if job.status == GOING else None)
        return job

    async def _do(self, job: Job, do: Callable[[Job], Awaitable[Any]]) -> None:
        try:
            job.result = await do(job)
            job.end(DONE)
        except FleetlabError as e:
            job.refusal = {"error": str(e), "hint": e.hint}
            job.end(FAILED)
        except (asyncio.CancelledError, Withdrawn):
            job.end(CANCELLED)
        except Exception:
            job.refusal = {"error": "something broke here", "hint": "the terminal of the page says more"}
            traceback.print_exc()
            job.end(FAILED)

    def cancel(self, job: Job, *, overtaken: bool = False) -> None:
        """Stop it; its process too, if nobody else waits for the same. One that was overtaken may go on for a while."""
        job.overtaken = overtaken
        if job.task is not None and not job.task.done():
            job.task.cancel()

    async def close(self) -> None:
        """Stop them all."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def events(self, job: Job) -> AsyncIterator[answers.Job | None]:
        """What is known of it whenever that changes, until it is over; None: still there."""
        job.listeners += 1
        told, seen = job.told(), job.early
        try:
            yield told
            while job.status == GOING:
                if job.early is not seen or await job.wait(QUIET):
                    told, seen = job.told(seen), job.early
                    yield told
                else:
                    yield None
        finally:
            job.listeners -= 1
            if job.status == GOING and not job.listeners:
                asyncio.get_running_loop().call_later(ALONE, self._cancel_if_alone, job)

    def _cancel_if_alone(self, job: Job) -> None:
        if not job.listeners:
            self.cancel(job)
