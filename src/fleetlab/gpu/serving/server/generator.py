"""Generation of text: streams of tokens, which the compute thread admits and cancels between two iterations."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fleetlab.gpu.serving.server.batcher import ComputeThread, Refusable, model_error
from fleetlab.gpu.serving.server.counts import LatencyCounter, ServerCounts
from fleetlab.gpu.serving.server.limits import ServerLimits
from fleetlab.gpu.serving.server.requests import RequestError, client_gone, malformed

if TYPE_CHECKING:
    from fleetlab.gpu.bench.llm.engine import DecodeEngine, Generation, NewToken


class TokenStream:
    """Tokens of one request as they are computed; None after the last."""

    def __init__(self, prompt: NDArray[np.int64], max_tokens: int) -> None:
        self.prompt, self.max_tokens = prompt, max_tokens
        self.at = time.monotonic()
        self.first: float | None = None
        self.last = self.at
        self.count = 0
        self.over = False
        self._tokens: asyncio.Queue[int | RequestError | None] = asyncio.Queue()  # at most max_tokens

    async def next(self) -> int | None:
        """The next token; None at the end. Raises the error with which the request ended."""
        item = await self._tokens.get()
        if isinstance(item, RequestError):
            raise item
        return item

    def add(self, token: int, now: float) -> None:
        """A new token."""
        if not self.over:
            self.first = now if self.first is None else self.first
            self.last, self.count = now, self.count + 1
            self._tokens.put_nowait(token)
            if self.count == self.max_tokens:
                self.over = True
                self._tokens.put_nowait(None)

    def refuse(self, why: RequestError) -> None:
        """End with an error, unless it is complete."""
        if not self.over:
            self.over = True
            self._tokens.put_nowait(why)

    def client_gone(self) -> None:
        """End because its client disconnected; its slot is free after the current iteration."""
        self.refuse(client_gone())


class GeneratorCounts:
    """Counters of tokens; only the event loop writes to them."""

    def __init__(self) -> None:
        self.prompt_tokens = self.generation_tokens = 0
        self.ttft, self.tpot = LatencyCounter(), LatencyCounter()

    def ended(self, stream: TokenStream) -> None:
        """Count a request that got all its tokens."""
        self.prompt_tokens += len(stream.prompt)
        self.generation_tokens += stream.count
        if stream.first is not None:
            self.ttft.add(stream.first - stream.at)
            if stream.count > 1:
                self.tpot.add((stream.last - stream.first) / (stream.count - 1))


class TokenGenerator(ComputeThread["DecodeEngine"]):
    """The streams of tokens and the thread that runs the engine."""

    def __init__(self, limits: ServerLimits, counts: ServerCounts, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limits, counts, loop)
        self.tokens = GeneratorCounts()
        self._inbox: list[TokenStream] = []
        self._streams: dict[TokenStream, Generation] = {}  # written by the thread only
        self._since: float | None = None  # when the current iteration began

    # --- in the event loop -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Requests that wait for a slot of the cache."""
        return len(self._inbox) + (len(self.engine.waiting) if self.engine else 0)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or computed."""
        return not self._inbox and not self._streams

    @property
    def how(self) -> str:
        """How steps run: as CUDA graphs, or eagerly."""
        return self.engine.model.how if self.engine else ""

    def load(self) -> dict[str, int]:
        """Running and waiting requests, and tokens in the cache."""
        if self.engine is None:
            return {"running": 0, "waiting": 0, "kv_tokens": 0, "kv_capacity": 0}
        running = len(self.engine.running) + len(self.engine.prefilling)
        with self._more:  # the thread changes them only between iterations, without the lock: a count may be old
            tokens = sum(len(s.prompt) + s.count for s in self._streams if s.first is not None)
        return {"running": running, "waiting": len(self), "kv_tokens": tokens, "kv_capacity": self.engine.kv_capacity}

    def about(self) -> dict[str, Any]:
        """Load and tokens, for /stats."""
        t = self.tokens
        latency = {"ttft": t.ttft.about(), "tpot": t.tpot.about()}
        return self.load() | {"prompt_tokens": t.prompt_tokens, "generation_tokens": t.generation_tokens} | latency

    def put(self, prompt: NDArray[np.int64], max_tokens: int) -> TokenStream:
        """Queue a request."""
        assert self.engine is not None
        context = self.engine.model.size.context
        if len(prompt) + max_tokens > context:
            msg = f"{len(prompt)} tokens of prompt and {max_tokens} of output exceed the context of {context}"
            raise malformed(msg, "a shorter prompt, or a smaller max_tokens")
        self.room_for(1)
        stream = TokenStream(prompt, max_tokens)
        with self._more:
            self._inbox.append(stream)
            self._more.notify()
        return stream

    def _abandon(self) -> list[Refusable]:
        streams: list[Refusable] = [*self._inbox, *self._streams]
        self._inbox.clear()
        return streams

    def _look_after(self, now: float) -> None:
        """Fail requests that waited too long for their first token, and all if an iteration hangs."""
        since, limit = self._since, self._limits.deadline
        self.stuck = self._died or (since is not None and now - since > limit)
        with self._more:
            here = [*self._inbox, *self._streams]
        late = [stream for stream in here if stream.first is None and now - stream.at > limit]
        if self.stuck:
            self._fail(here, self._hangs())
        elif late:
            self._fail(late, self._overloaded("no token within"))

    def _deliver(self, new: list[tuple[TokenStream, int]], began: float, ended: float) -> None:
        self._counts.computed(min(len(new), self._limits.batch), ended - began)
        for stream, token in new:
            if stream.first is None:
                self._counts.queue.add(began - stream.at)
            stream.add(token, ended)
            if stream.over and stream.count == stream.max_tokens:
                self.tokens.ended(stream)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _compute(self, engine: DecodeEngine) -> None:
        while self._admit(engine):
            self._since = began = time.monotonic()
            try:
                new = engine.step()
            except Exception as e:  # an iteration that fails must not end the server
                self._reset(engine, model_error(e))
                continue
            self._since = None
            self._in_loop(self._deliver, self._noted(new), began, time.monotonic())

    def _admit(self, engine: DecodeEngine) -> bool:
        """Take new requests, drop those that ended, and wait for work; False at the end."""
        from fleetlab.gpu.bench.llm.engine import Generation

        with self._more:
            while not self._over:
                for stream in [s for s in self._streams if s.over]:
                    engine.cancel(self._streams.pop(stream))
                    self._counts.dropped += 1
                for stream in self._inbox:
                    if not stream.over:
                        self._streams[stream] = one = Generation(stream.prompt, stream.max_tokens, tag=stream)
                        engine.submit(one)
                self._inbox.clear()
                if not engine.idle:
                    return True
                self._more.wait()
        return False

    def _noted(self, new: list[NewToken]) -> list[tuple[TokenStream, int]]:
        with self._more:
            for token in new:
                if token.last:
                    self._streams.pop(token.of.tag, None)
        return [(token.of.tag, token.token) for token in new]

    def _reset(self, engine: DecodeEngine, why: RequestError) -> None:
        self._since = None
        with self._more:
            streams = list(self._streams)
            for one in self._streams.values():
                engine.cancel(one)
            self._streams.clear()
        self._in_loop(self._fail, streams, why)
