"""A few processes that work for everybody: a bounded queue, each visitor in turn, and nobody works for nobody.

The same question asked twice is worked on once. When the last of those who wait for an answer goes away, the work is
taken out of the queue, or its process leaves it; one that does not is ended, and another started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetlab.core import FleetlabError
from fleetlab.web.errors import Busy

LINE = 256 << 20  # bytes of an answer
MOST = 128  # in the queue
EACH = 16  # of one visitor
KEPT = 96 << 20  # bytes of answers that are kept
PATIENCE = 3.0  # s for which work goes on that was overtaken: most of it is done by then, and is kept
GRACE = 0.5  # s for a process to stop by itself, with all that it has opened: a new one takes seconds to start

Tell = Callable[[dict[str, Any] | None], None]


class Withdrawn(Exception):
    """Nobody waits for it any more."""


class _Gone(Exception):
    """The process has ended."""


@dataclass(eq=False)
class Work:
    """One question, and those who wait for its answer."""

    key: str
    request: Mapping[str, Any]
    visitor: str
    limit: float
    kind: str  # of the process that it needs
    keep: bool  # the answer, for whoever asks again
    done: asyncio.Future[dict[str, Any]]
    tells: list[Tell] = field(default_factory=list)
    worker: Worker | None = None

    def tell(self, progress: dict[str, Any] | None) -> None:
        """Pass on how far it is."""
        for tell in self.tells:
            tell(progress)


class Worker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.size = 0  # bytes of its last answer
        self.turn = 0  # counts questions
        self._busy = False

    @classmethod
    async def start(cls, kind: str) -> Worker:
        """Start one; it is ready once `ready` has returned."""
        path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "fleetlab.web.worker", kind,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE,
            env=os.environ | path, start_new_session=True,  # Ctrl-C is for the page, which ends them
        )  # fmt: skip
        return cls(process)

    async def ready(self) -> None:
        """Until it takes requests."""
        await self._line()

    async def ask(self, request: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """One request, one answer, and words on progress before it."""
        self.turn += 1
        self._busy = True
        await self._say({**request, "turn": self.turn})
        while True:
            said = await self._line()
            if "what" not in said:
                self._busy = False
                return said
            tell(said)

    async def _say(self, said: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(said).encode() + b"\n")
            await self._process.stdin.drain()
        except OSError:
            raise _Gone from None

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError:
            raise _Gone from None
        if not line.endswith(b"\n"):
            raise _Gone
        self.size = len(line)
        return json.loads(line)  # type: ignore[no-any-return]

    async def end(self) -> None:
        """At once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def stop(self) -> None:
        """Ask it to leave the question it works on; if it does not come up for air soon, it is ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"stop": self.turn}).encode() + b"\n")
        asyncio.get_running_loop().call_later(GRACE, self._kill_if_at, self.turn)

    def _kill_if_at(self, turn: int) -> None:
        if self._busy and self.turn == turn:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


class Pool:
    """Processes, the queue before them, and the answers that were given."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._queues: OrderedDict[str, deque[Work]] = OrderedDict()  # by visitor; whose turn is next comes first
        self._going: dict[str, Work] = {}
        self._answers: OrderedDict[str, tuple[int, dict[str, Any]]] = OrderedDict()
        self._wake = asyncio.Event()
        self._slots: list[asyncio.Task[None]] = []
        self._started = asyncio.Event()  # of the first, which may have to compile: the others find it compiled

    def start(self) -> None:
        """Start the processes."""
        self._slots = [asyncio.create_task(self._slot(k)) for k in range(self._size)]

    async def close(self) -> None:
        """End them all."""
        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        for work in list(self._going.values()):
            _settle(work, Withdrawn("the page is closed"))

    # -- asking -----------------------------------------------------------------------------------------------------

    def kept(self, key: str) -> dict[str, Any] | None:
        """An answer that was given before."""
        if key not in self._answers:
            return None
        self._answers.move_to_end(key)
        return self._answers[key][1]

    def ahead(self, key: str) -> int:
        """How much stands in the queue before this."""
        work = self._going.get(key)
        if work is None or work.worker is not None or not any(work in q for q in self._queues.values()):
            return 0
        mine = self._queues[work.visitor].index(work)
        return sum(min(len(q), mine + 1) for name, q in self._queues.items() if name != work.visitor) + mine

    async def ask(
        self,
        key: str,
        request: Mapping[str, Any],
        *,
        visitor: str,
        limit: float,
        tell: Tell,
        kind: str = "run",
        keep: bool = True,
        patience: Callable[[], float] = lambda: 0.0,
    ) -> dict[str, Any]:
        """The answer, from what is kept or from a process; raises what the user can mend as an error of the house.

        Whoever no longer wants it cancels the call. If nobody else wants it either, its process is ended, after some
        `patience`.
        """
        if keep and (found := self.kept(key)) is not None:
            return found
        work = self._going.get(key)
        if work is None:
            self._refuse_too_much(visitor)
            done = asyncio.get_running_loop().create_future()
            done.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to ask
            work = Work(key, request, visitor, limit, kind, keep, done)
            self._going[key] = work
            self._queues.setdefault(visitor, deque()).append(work)
            self._wake.set()
        work.tells.append(tell)
        try:
            return await asyncio.shield(work.done)
        finally:
            work.tells.remove(tell)
            if not work.tells and not work.done.done():
                self._leave(work, patience())

    def _refuse_too_much(self, visitor: str) -> None:
        own, whole = sum(work.visitor == visitor for work in self._going.values()), len(self._going)
        if whole >= MOST or own >= EACH:
            msg = f"too much is asked for at once: {own if own >= EACH else whole} questions wait"
            raise Busy(msg, hint="wait until some are answered")

    def _leave(self, work: Work, patience: float) -> None:
        """Nobody waits for it: out of the queue, or, after some patience, out of its process."""
        queue = self._queues.get(work.visitor, deque())
        if work in queue:
            queue.remove(work)
            self._withdraw(work)
        elif patience:
            asyncio.get_running_loop().call_later(patience, self._withdraw_unless_wanted, work)
        else:
            self._withdraw(work)

    def _withdraw_unless_wanted(self, work: Work) -> None:
        if not work.tells and not work.done.done():
            self._withdraw(work)

    def _withdraw(self, work: Work) -> None:
        if self._going.get(work.key) is work:
            del self._going[work.key]
        _settle(work, Withdrawn())
        if work.worker is not None:
            work.worker.stop()

    def _keep(self, key: str, found: dict[str, Any], size: int) -> None:
        self._answers[key] = (size, found)
        while len(self._answers) > 1 and sum(size for size, _ in self._answers.values()) > KEPT:
            self._answers.popitem(last=False)

    # -- working ----------------------------------------------------------------------------------------------------

    async def _slot(self, number: int) -> None:
        """One process after the other, one question after the other."""
        if number:
            await self._started.wait()
        worker: Worker | None = None
        try:
            worker = await self._ready()
            self._started.set()
            while True:
                work = await self._next()
                if not await self._do(work, worker):
                    await worker.end()
                    worker = await self._ready()
        finally:
            if worker is not None:
                await worker.end()

    async def _ready(self) -> Worker:
        worker = await Worker.start("run")
        try:
            await worker.ready()
        except _Gone:
            pass  # the first question finds out
        except BaseException:
            await worker.end()
            raise
        return worker

    async def _next(self) -> Work:
        """The first of the visitor whose turn it is; then he goes to the end of the line."""
        while not any(self._queues.values()):
            self._wake.clear()
            await self._wake.wait()
        for visitor in [name for name, queue in self._queues.items() if not queue]:
            del self._queues[visitor]
        visitor, queue = next(iter(self._queues.items()))
        self._queues.move_to_end(visitor)
        return queue.popleft()

    async def _do(self, work: Work, worker: Worker) -> bool:
        """Answer it; is the process still good?"""
        if work.kind == "run":
            return await self._asked(work, worker)
        # A stranger's file is read in a process of its own, which ends after it.
        own = await Worker.start(work.kind)
        try:
            await self._asked(work, own, starts=True)
        finally:
            await own.end()
        return True

    async def _asked(self, work: Work, worker: Worker, *, starts: bool = False) -> bool:
        work.worker = worker
        try:
            async with asyncio.timeout(work.limit):
                if starts:
                    await worker.ready()
                work.tell({"what": "started", "done": 0, "share": None})
                said = await worker.ask(work.request, work.tell)
        except TimeoutError:
            msg = f"this took more than {work.limit:g} s and was stopped"
            self._answered(work, FleetlabError(msg, hint="a smaller trace, or `--limit` when the page is started"))
            return False
        except _Gone:
            msg = "the process that worked on this has ended: it may have needed more memory than it may have"
            self._answered(work, FleetlabError(msg, hint="a smaller trace"))
            return False
        except asyncio.CancelledError:
            self._answered(work, Withdrawn())
            raise
        if "stopped" in said:
            self._answered(work, Withdrawn())
        else:
            self._answered(work, said["found"] if "found" in said else FleetlabError(said["error"], hint=said["hint"]))
        return True

    def _answered(self, work: Work, found: dict[str, Any] | Exception) -> None:
        if self._going.get(work.key) is work:
            del self._going[work.key]
        if work.keep and isinstance(found, dict):
            self._keep(work.key, found, work.worker.size if work.worker is not None else 0)
        _settle(work, found)


def _settle(work: Work, found: dict[str, Any] | Exception) -> None:
    if work.done.done():
        return
    if isinstance(found, Exception):
        work.done.set_exception(found)
    else:
        work.done.set_result(found)
