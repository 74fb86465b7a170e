"""A few processes that work for all visitors: a bounded queue, served round-robin by visitor.

The same request by two visitors is worked on once. When nobody waits for an answer any more, its request leaves the
queue, or its process is asked to stop; one that does not stop is killed and replaced. A process that has ended is
replaced at once, and what it worked on is tried once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetlab.core import FleetlabError
from fleetlab.web.cache import AnswerCache, pack
from fleetlab.web.messages import TookTooLong, TooManyRequests, WorkerEnded
from fleetlab.web.worker import COMPILING, REFINE

LINE = 256 << 20  # bytes of an answer
MOST = 128  # requests in the queue
EACH = 16  # of one visitor
ANSWER_BYTES = 24 << 20  # of answers in memory
PATIENCE = 3.0  # s for which replaced work goes on: most of it is done by then, and is cached
READ_IT = "read it with `fleetlab read`, and start the page with --traces FOLDER"
COMPILATION = 300.0  # s that compiling a rule adds to the time limit of a request: only the first one waits for it
GRACE = 0.5  # s for a process to stop by itself, with its traces open: a new one takes seconds to start

Listener = Callable[[dict[str, Any] | None], None]


class RequestCancelled(Exception):
    """Nobody waits for the answer any more."""


class _ProcessEnded(Exception):
    """The process has ended."""


@dataclass(eq=False)
class PendingRequest:
    """One request, and the listeners that wait for its answer."""

    key: str
    request: Mapping[str, Any]
    visitor: str
    limit: float
    kind: str  # of the process that it needs
    keep: bool  # the answer, for the same request again
    done: asyncio.Future[dict[str, Any]]
    listeners: list[Listener] = field(default_factory=list)
    worker: PoolWorker | None = None
    tried: bool = False  # by a process that has ended

    def notify(self, progress: dict[str, Any] | None) -> None:
        """Pass on a progress message."""
        for listener in self.listeners:
            listener(progress)


class PoolWorker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.turn = 0  # counts requests
        self._busy = False
        self.was_ready = False
        self.ended = asyncio.create_task(process.wait())

    @classmethod
    async def start(cls, kind: str, uploads: str = "") -> PoolWorker:
        """Start one; it is ready once `ready` has returned. It deletes `uploads` if the server is killed."""
        path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "fleetlab.web.worker", kind, uploads,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE,
            env=os.environ | path, start_new_session=True,  # Ctrl-C is for the server, which ends them
        )  # fmt: skip
        return cls(process)

    async def ready(self) -> None:
        """Wait until it takes requests."""
        self._busy = True  # so that it is killed where nobody waits for what it starts for
        await self._receive()
        self._busy, self.was_ready = False, True

    async def request(self, request: Mapping[str, Any], listener: Listener) -> dict[str, Any]:
        """Send one request; pass on its progress messages and return its answer."""
        self.turn += 1
        self._busy = True
        await self._send({**request, "turn": self.turn})
        while True:
            message = await self._receive()
            if "what" not in message:
                self._busy = False
                return message
            listener(message)

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()
        except OSError:
            raise _ProcessEnded from None

    async def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError:
            raise _ProcessEnded from None
        if not line.endswith(b"\n"):
            raise _ProcessEnded
        return json.loads(line)  # type: ignore[no-any-return]

    async def end(self) -> None:
        """Kill it."""
        self._kill()
        await self.ended

    def _kill(self) -> None:
        # Not by `Process.kill`, which collects the exit status of a dead process that asyncio waits for.
        if not self.has_ended():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Whether it has ended, also where that is not reported yet."""
        if self.ended.done() or not hasattr(os, "waitid"):
            return self.ended.done()
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def stop(self) -> None:
        """Ask it to stop the current request; kill it if it does not do so soon."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"stop": self.turn}).encode() + b"\n")
        asyncio.get_running_loop().call_later(GRACE, self._kill_if_at, self.turn)

    def _kill_if_at(self, turn: int) -> None:
        if self._busy and self.turn == turn:
            self._kill()


class WorkerPool:
    """The processes, their queue, and the answers in memory."""

    def __init__(self, size: int, uploads: str = "") -> None:
        self._size, self._uploads = size, uploads
        # By kind of process, and by visitor: the next one comes first. Reading a file holds up nobody's simulation.
        self._lanes: dict[str, OrderedDict[str, deque[PendingRequest]]] = {
            kind: OrderedDict() for kind in ("run", "read", REFINE)
        }
        self._pending: dict[str, PendingRequest] = {}
        self._answers = AnswerCache(ANSWER_BYTES)
        self._wake = asyncio.Event()
        self._slots: list[asyncio.Task[None]] = []
        self._started = asyncio.Event()  # of the first, which may have to compile: the others find it compiled

    def start(self) -> None:
        """Start the processes."""
        self._slots = [asyncio.create_task(self._slot(k)) for k in range(self._size)]
        self._slots += [asyncio.create_task(self._read_slot()), asyncio.create_task(self._slot(self._size, REFINE))]

    async def close(self) -> None:
        """End them all."""
        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        for pending in list(self._pending.values()):
            _settle(pending, RequestCancelled("the server is shutting down"))

    # -- requests ---------------------------------------------------------------------------------------------------

    def cached(self, key: str) -> dict[str, Any] | None:
        """Return an answer that is in memory."""
        return self._answers.get(key)  # type: ignore[no-any-return]

    def ahead(self, key: str) -> int:
        """Return how many requests will be served before this one."""
        pending = self._pending.get(key)
        queues = self._lanes[pending.kind] if pending is not None else {}
        if pending is None or pending.worker is not None or not any(pending in q for q in queues.values()):
            return 0
        mine = queues[pending.visitor].index(pending)
        return sum(min(len(q), mine + 1) for name, q in queues.items() if name != pending.visitor) + mine

    async def request(
        self,
        key: str,
        request: Mapping[str, Any],
        *,
        visitor: str,
        limit: float,
        listener: Listener,
        kind: str = "run",
        keep: bool = True,
        patience: Callable[[], float] = lambda: 0.0,
    ) -> dict[str, Any]:
        """Return the answer, from memory or from a process; what the user can fix is raised as a `FleetlabError`.

        To stop waiting, cancel the call. If nobody else waits for the answer, its process stops after `patience` s.
        """
        if keep and (answer := self.cached(key)) is not None:
            return answer
        pending = self._pending.get(key)
        if pending is None:
            self._refuse_too_many(visitor)
            done = asyncio.get_running_loop().create_future()
            done.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to wait
            pending = PendingRequest(key, request, visitor, limit, kind, keep, done)
            self._pending[key] = pending
            self._lanes[kind].setdefault(visitor, deque()).append(pending)
            self._wake_all()
        pending.listeners.append(listener)
        try:
            return await asyncio.shield(pending.done)
        finally:
            pending.listeners.remove(listener)
            if not pending.listeners and not pending.done.done():
                self._abandon(pending, patience())

    def _refuse_too_many(self, visitor: str) -> None:
        own, total = sum(pending.visitor == visitor for pending in self._pending.values()), len(self._pending)
        if total >= MOST or own >= EACH:
            msg = f"too many requests at once: {own if own >= EACH else total} are waiting"
            raise TooManyRequests(msg, hint="wait until some are answered")

    def _abandon(self, pending: PendingRequest, patience: float) -> None:
        """Take a request that nobody waits for out of the queue or, after some patience, out of its process."""
        queue = self._lanes[pending.kind].get(pending.visitor, deque())
        if pending in queue:
            queue.remove(pending)
            self._cancel(pending)
        elif patience:
            asyncio.get_running_loop().call_later(patience, self._cancel_unless_wanted, pending)
        else:
            self._cancel(pending)

    def _cancel_unless_wanted(self, pending: PendingRequest) -> None:
        if not pending.listeners and not pending.done.done():
            self._cancel(pending)

    def _cancel(self, pending: PendingRequest) -> None:
        if self._pending.get(pending.key) is pending:
            del self._pending[pending.key]
        _settle(pending, RequestCancelled())
        if pending.worker is not None:
            pending.worker.stop()

    # -- processes --------------------------------------------------------------------------------------------------

    async def _slot(self, number: int, kind: str = "run") -> None:
        """Serve one request after the other, and replace the process when it ends."""
        if number:
            await self._started.wait()
        while kind == REFINE and not self._lanes[kind]:  # nobody may ever want it
            await self._wake.wait()
        worker: PoolWorker | None = None
        try:
            worker = await self._new_worker(kind)
            self._started.set()
            while True:
                pending = await self._next(worker, kind)
                if pending is not None and not worker.was_ready:  # it ended while it started: another may start
                    await worker.end()
                    worker = await self._new_worker(kind)
                if pending is None or not await self._answer(pending, worker):
                    await worker.end()
                    worker = await self._new_worker(kind)
        finally:
            if worker is not None:
                await worker.end()

    async def _new_worker(self, kind: str) -> PoolWorker:
        worker = await PoolWorker.start(kind, self._uploads)
        try:
            await worker.ready()
        except _ProcessEnded:
            pass  # the first request reports it
        except BaseException:
            await worker.end()
            raise
        worker.ended.add_done_callback(lambda _: self._wake_all())
        return worker

    async def _next(self, worker: PoolWorker | None = None, kind: str = "run") -> PendingRequest | None:
        """Return the first request of the visitor whose turn it is, who is last then; None if the process has ended.

        One that was never ready is not replaced before there is a request: the next may not start either.
        """
        queues = self._lanes[kind]
        while True:
            if worker is not None and worker.was_ready and worker.has_ended():
                return None
            if (pending := _first(queues, fresh=worker is None or not worker.turn)) is not None:
                return pending
            await self._wake.wait()

    async def _read_slot(self) -> None:
        """Read one uploaded file after the other, each with a process of its own, which ends after it."""
        while True:
            pending = await self._next(kind="read")
            assert pending is not None
            worker = await PoolWorker.start(pending.kind, self._uploads)
            try:
                await self._answer(pending, worker, starting=True)
            finally:
                await worker.end()

    async def _answer(self, pending: PendingRequest, worker: PoolWorker, *, starting: bool = False) -> bool:
        pending.worker = worker
        try:
            async with asyncio.timeout(pending.limit) as clock:
                if starting:
                    await worker.ready()
                    if pending.done.done():
                        return False
                pending.notify({"what": "started", "count": 0, "fraction": None})
                message = await worker.request(pending.request, _with_time_to_compile(pending, clock))
        except TimeoutError:
            msg = f"the computation took more than {pending.limit:g} s and was stopped"
            smaller = "a smaller trace; or `fleetlab web --limit SECONDS`"
            self._finish(pending, TookTooLong(msg, hint=READ_IT if pending.kind == "read" else smaller))
            return False
        except _ProcessEnded:
            self._try_again(pending)
            return False
        except asyncio.CancelledError:
            self._finish(pending, RequestCancelled())
            raise
        if "cancelled" in message:
            self._finish(pending, RequestCancelled())
        elif "answer" in message:
            self._finish(pending, message["answer"])
        else:
            self._finish(pending, FleetlabError(message["error"], hint=message["hint"]))
        return True

    def _try_again(self, pending: PendingRequest) -> None:
        """Put a request back whose process has ended; if that is the second one, or read a file, say so."""
        if pending.done.done():
            return  # nobody waits for it: the process was killed for that
        if pending.tried or pending.kind == "read":
            times = "twice" if pending.tried else "before it was done"
            msg = f"the process that worked on this has ended {times}: it may have run out of memory"
            self._finish(pending, WorkerEnded(msg, hint="try it again, or with a smaller trace"))
            return
        pending.tried, pending.worker = True, None
        self._lanes[pending.kind].setdefault(pending.visitor, deque()).appendleft(pending)
        self._wake_all()

    def _wake_all(self) -> None:
        """Let every slot look at its queue and its process."""
        before, self._wake = self._wake, asyncio.Event()
        before.set()

    def _finish(self, pending: PendingRequest, answer: dict[str, Any] | Exception) -> None:
        if self._pending.get(pending.key) is pending:
            del self._pending[pending.key]
        if pending.keep and isinstance(answer, dict):
            self._answers.put(pending.key, pack(answer))
        _settle(pending, answer)


def _first(queues: OrderedDict[str, deque[PendingRequest]], *, fresh: bool) -> PendingRequest | None:
    """Take the first request of the visitor whose turn it is; one that is tried again goes to a fresh process, first.

    Whatever killed its process may have killed the others too, which is not known of them at once.
    """
    for visitor in [name for name, queue in queues.items() if not queue]:
        del queues[visitor]
    heads = sorted(queues, key=lambda name: not queues[name][0].tried) if fresh else queues
    for visitor in heads:
        if fresh or not queues[visitor][0].tried:
            queues.move_to_end(visitor)
            return queues[visitor].popleft()
    return None


def _with_time_to_compile(pending: PendingRequest, clock: asyncio.Timeout) -> Listener:
    """Return what passes progress messages on, and moves the time limit once where a rule is compiled."""
    moved = False

    def listen(message: dict[str, Any] | None) -> None:
        nonlocal moved
        if message and message["what"] == COMPILING and not moved:
            moved = True
            clock.reschedule((clock.when() or 0.0) + COMPILATION)
        pending.notify(message)

    return listen


def _settle(pending: PendingRequest, answer: dict[str, Any] | Exception) -> None:
    if pending.done.done():
        return
    if isinstance(answer, Exception):
        pending.done.set_exception(answer)
    else:
        pending.done.set_result(answer)
