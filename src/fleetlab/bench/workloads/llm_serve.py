"""A server of a language model as a tenant: requests arrive on schedule, with the lengths of a trace.

The engine of `fleetlab.bench.llm` runs in the tenant's own process, without sockets, so that every sharing mode can be
measured. Latency counts from the scheduled time. Requests that were due in the last `drain` seconds of a window are not
counted, because others stop with the window: their first tokens would be those of an emptier GPU. Of a request that has
not ended by then the tokens so far count.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import torch

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.llm.engine import DecodeEngine, Generation, NewToken, QueueFullError
from fleetlab.bench.llm.model import CachedDecoder, DecoderSize
from fleetlab.bench.llm.trace import read_trace
from fleetlab.bench.loops import StepLog
from fleetlab.bench.window import DriveWindow, summarize_window

SIZES = [f.name for f in fields(DecoderSize)]
WARM_UP = ((100, 8), (700, 4))  # prompt and output tokens


@dataclass(slots=True)
class Served:
    """Times of one request."""

    due: float
    prompt: int
    output: int
    got: int = 0  # tokens so far
    first: float | None = None
    last: float | None = None  # of the tokens so far
    ended: float | None = None
    refused: bool = False


@dataclass
class LlmServe:
    """A decoder with continuous batching, `rate` requests per second."""

    unit: ClassVar[str] = "token"
    TINY: ClassVar[dict[str, Any]] = {
        "rate": 40.0,
        "layers": 1,
        "width": 32,
        "heads": 4,
        "groups": 2,
        "inner": 64,
        "vocabulary": 64,
        "slots": 4,
        "context": 512,
        "budget": 256,
        "drain": 0.1,
        "most": 12,
    }
    rate: float = 10.0
    trace: str = "azure-conv"
    ttft: float = 0.2  # s, goal
    tpot: float = 0.025  # s, goal
    drain: float = 1.0  # s
    most: int = 8192  # tokens of output at most
    layers: int = 16
    width: int = 2048
    heads: int = 32
    groups: int = 8
    inner: int = 8192
    vocabulary: int = 128256
    slots: int = 32
    context: int = 8192
    budget: int = 2048
    queue: int = 256
    how: str = field(init=False, default="")

    def setup(self, device: torch.device) -> None:
        """Load the model and its cache, and capture its steps."""
        size = DecoderSize(**{name: getattr(self, name) for name in SIZES})
        self.requests = read_trace(self.trace).fitting(self.context)
        self.model = CachedDecoder(size, device)
        self.model.capture()
        self.how = self.model.how
        self._fresh()
        for prompt, output in WARM_UP:
            self._submit(Served(0.0, min(prompt, self.context // 2), min(output, self.context // 2)))
        while not self.engine.idle:
            self.engine.step()

    def _fresh(self) -> None:
        """A new engine on the same model; what a previous window left is forgotten."""
        for slot in range(self.slots):
            self.model.rest(slot)
        self.engine = DecodeEngine(self.model, budget=self.budget, queue=self.queue)
        self.chance = np.random.default_rng(0)

    def _submit(self, one: Served) -> None:
        prompt = self.chance.integers(0, self.vocabulary, one.prompt)
        try:
            self.engine.submit(Generation(prompt, one.output, tag=one))
        except QueueFullError:
            one.refused = True

    def step(self) -> int:
        """Run one iteration with all slots taken: the capacity of the server. Returns its tokens of output."""
        short = self.slots - len(self.engine.waiting)
        for _, prompt, output in self.requests.window(short, rate=1.0, seed=int(self.chance.integers(1 << 30))):
            self._submit(Served(0.0, prompt, min(output, self.most)))
        return max(len(self.engine.step()), 1)

    # --- open loop ---------------------------------------------------------------------------------------------------

    def drive(self, run: DriveWindow) -> dict[str, Any]:
        """Answer the requests of a schedule; what was measured in the window."""
        self._fresh()
        schedule = self.requests.window(run.closes - run.start, rate=self.rate, seed=run.seed)
        log = ServingLog([Served(run.start + at, prompt, min(output, self.most)) for at, prompt, output in schedule])
        todo, idle = deque(log.requests), True
        while (now := time.monotonic()) < run.until:
            while todo and todo[0].due <= now:
                # While an iteration runs nothing can be admitted: that is the server's delay, not the generator's.
                log.lags.append(now - todo[0].due if idle else 0.0)
                self._submit(todo.popleft())
            idle = self.engine.idle
            if idle:
                time.sleep(max(min((todo[0].due if todo else run.until) - now - 1e-4, 0.05), 2e-5))
            else:
                log.load.append((len(self.engine.running), len(self.engine.waiting), self.engine.kv_tokens))
                log.note(self.engine.step(), time.monotonic(), count=run.opens <= now < run.closes)
        counted = run.closes - min(self.drain, (run.closes - run.opens) / 2)
        return summarize_window(log.steps(run.until), run.opens, counted) | {
            "llm": {"goals": {"ttft": self.ttft, "tpot": self.tpot}, "kv_tokens": self.engine.kv_capacity}
            | log.about(run.opens, counted)
        }


@dataclass(slots=True)
class ServingLog:
    """The requests of a window and what became of them."""

    requests: list[Served]
    lags: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)  # s between two tokens of a request
    load: list[tuple[int, int, int]] = field(default_factory=list)  # running, waiting, tokens in the cache

    def note(self, tokens: list[NewToken], now: float, *, count: bool) -> None:
        """Record the tokens of an iteration."""
        for token in tokens:
            one: Served = token.of.tag
            if one.first is None:
                one.first = now
            elif count and one.last is not None:
                self.between.append(now - one.last)
            one.last, one.got = now, one.got + 1
            one.ended = now if token.last else None

    def steps(self, until: float) -> StepLog:
        """Requests as scheduled steps, in the order of their ends; tokens count when their request ended."""
        ends = sorted(((one.ended or until, one) for one in self.requests if not one.refused), key=lambda e: e[0])
        return StepLog(
            begun=[one.due for _, one in ends],
            ended=[max(end, one.due) for end, one in ends],
            items=[one.output if one.ended else 0 for _, one in ends],
            due=[one.due for one in self.requests],
            lags=self.lags or [0.0],
        )

    def about(self, opens: float, closes: float) -> dict[str, Any]:
        """Requests due in the window, and the load of all iterations."""
        counted = [one for one in self.requests if opens <= one.due < closes]
        running, waiting, held = (np.array(part) for part in zip(*self.load or [(0, 0, 0)], strict=True))
        return {
            "seconds": round(closes - opens, 4),
            "refused": sum(one.refused for one in counted),
            # Tokens of prompt, of output, and so far; s from the scheduled time to the first and the last of these.
            "requests": [[o.prompt, o.output, o.got, _since(o.first, o.due), _since(o.last, o.due)] for o in counted],
            "itl": Histogram.of(self.between).to_json(),
            "iterations": len(self.load),
            "running": round(float(running.mean()), 2),
            "waiting_most": int(waiting.max()),
            "kv_most": int(held.max()),
        }


def _since(when: float | None, due: float) -> float | None:
    return None if when is None else round(max(when - due, 0.0), 6)
