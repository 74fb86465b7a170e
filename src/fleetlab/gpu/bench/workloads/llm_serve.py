"""A server of a language model as a tenant: requests arrive on schedule, with the lengths of a trace.

The engine of `bench.llm` runs in the tenant's own process, without sockets, so that every sharing mode can be measured.
Latency counts from the scheduled time. Requests that were due in the last `drain` seconds of a window are not
counted, because others stop with the window: their first tokens would be those of an emptier GPU. Of a request that has
not ended by then the tokens so far count.

A round is what people do with a table of numbers: load it, clean it, look at it twice, train a small network. The
time to answer of a cell counts on the host's clock, from when the user runs it until its results are back.

Times follow the notebooks for interactive training of Adobe (Carver et al., NotebookOS, ASPLOS 2026): half of the
training tasks take at most 2 minutes, three quarters at most 5, and the median time between the tasks of a session is
5 minutes, of which 3 are left to think (from a summary of the paper). As a lognormal distribution the two quartiles
give a sigma of ln(2.5) / 0.674 = 1.36, which is used for think times, too. A window of seconds would contain no such
cell, so all times are divided by `pace`, 1,200: a median of 0.15 s to think, and of 0.1 s to train. Sharing depends on
how much of the time users compute, which is kept, as long as cells are much longer than a time slice, 1 to 2 ms.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fleetlab.gpu.bench.histogram import Histogram
from fleetlab.gpu.bench.llm.engine import CachedDecoder, DecodeEngine, DecoderSize, Generation, NewToken, QueueFullError
from fleetlab.gpu.bench.llm.requests import read_trace
from fleetlab.gpu.bench.loops import GOLDEN, DriveWindow, StepLog, summarize_window
from fleetlab.gpu.bench.workloads.text import TINY_DECODER

SIZES = [f.name for f in fields(DecoderSize)]
WARM_UP = ((100, 8), (700, 4))  # prompt and output tokens
TINY_SERVER = {"rate": 40.0, "slots": 4, "context": 512, "budget": 256, "drain": 0.1, "most": 12}
TINY_NOTEBOOK = {"rows": 200, "columns": 4, "width": 8, "batch": 16, "steps": 2, "pace": 18_000.0}


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
    TINY: ClassVar[dict[str, Any]] = TINY_DECODER | TINY_SERVER
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


# --- A user of a notebook: cells of four kinds, with time to think after each ----------------------------------------


THINK = 180.0  # s, median
SIGMA = 1.36  # of the logarithm, of think times and of trainings
LONGEST = 8.0  # times the median: longer ones would be cut off by the window
ROUND = ("load", "prepare", "explore", "explore", "train")
CLASSES = 10


@dataclass
class Notebook:
    """One user."""

    unit: ClassVar[str] = "cell"
    TINY: ClassVar[dict[str, Any]] = TINY_NOTEBOOK
    rows: int = 250_000
    columns: int = 64
    width: int = 1024
    batch: int = 8192
    steps: int = 80  # of a median training: about 0.1 s on an H200
    pace: float = 1200.0
    seed: int = 0
    rests: ClassVar[bool] = True

    def setup(self, device: torch.device) -> None:
        """Generate the file to load, as scaled integers, and start the session."""
        self.device = device
        numbers = np.random.default_rng(self.seed)
        raw = numbers.integers(-3000, 3000, (self.rows, self.columns + 1), dtype=np.int16)
        raw[:, -1] %= CLASSES
        raw[numbers.random(self.rows) < 0.01, 0] = -9999  # missing
        self.file = raw
        self.cells: dict[str, Callable[[int], Tensor]] = {
            "load": self._load,
            "prepare": self._prepare,
            "explore": self._explore,
            "train": self._train,
        }
        self._begin(self.seed)
        for _ in ROUND:
            self.step()
        self._begin(self.seed)

    def _begin(self, seed: int) -> None:
        self.count = 0
        chance = random.Random(seed)
        self._turns = chance.random(), chance.random()  # of the lengths, and of the pauses

    # --- cells -------------------------------------------------------------------------------------------------------

    def _load(self, _: int) -> Tensor:
        """Decode on the host, then copy to the device."""
        table = self.file.astype(np.float32)
        table[table == -9999] = np.nan
        self.table = torch.from_numpy(table).to(self.device)
        return self.table.shape[0] - torch.isnan(self.table).sum()

    @torch.no_grad()
    def _prepare(self, _: int) -> Tensor:
        """Fill gaps with the mean, clip to percentiles, scale, shuffle."""
        x = self.table[:, :-1]
        x = torch.where(torch.isnan(x), x.nanmean(0), x)
        ranked = x.sort(0).values
        low, high = ranked[len(x) // 100], ranked[-len(x) // 100]
        x = x.clamp(low, high)
        order = torch.randperm(len(x), device=self.device)
        self.x = ((x - x.mean(0)) / (x.std(0) + 1e-6))[order]
        self.y = self.table[order, -1].nan_to_num().long().clamp(0, CLASSES - 1)
        return self.x.abs().max()

    @torch.no_grad()
    def _explore(self, _: int) -> Tensor:
        """What plots need: histograms, correlations, group means, and two principal components."""
        bars = torch.stack([self.x[:, k].histc(50, -3, 3) for k in range(self.x.shape[1])])
        spread = self.x.T @ self.x / len(self.x)
        means = torch.zeros(CLASSES, self.x.shape[1], device=self.device).index_add_(0, self.y, self.x)
        _, axes = torch.linalg.eigh(spread)
        points = self.x[:: max(len(self.x) // 5000, 1)] @ axes[:, -2:]
        return torch.cat([part.flatten().cpu() for part in (bars, spread, means, points)]).sum()

    def _train(self, steps: int) -> Tensor:
        """Train a small network from the start, as written in a notebook: eager, with a loss to look at."""
        sizes = (self.x.shape[1], self.width, self.width, CLASSES)
        with self.device:
            layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        model = nn.Sequential(*layers[:-1])
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for k in range(steps):
            at = (k * self.batch) % max(len(self.x) - self.batch, 1)
            loss = cross_entropy(model(self.x[at : at + self.batch]), self.y[at : at + self.batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return loss.detach()

    # --- a session ---------------------------------------------------------------------------------------------------

    def next_cell(self) -> tuple[str, int]:
        """Kind and size of the next cell: the steps of a training, else 1."""
        kind = ROUND[self.count % len(ROUND)]
        size = max(round(self.steps * self._draw(0, self.count // len(ROUND))), 1) if kind == "train" else 1
        return kind, size

    def step(self) -> int:
        """Run the next cell until its result is on the host."""
        kind, size = self.next_cell()
        self.cells[kind](size).item()
        self.count += 1
        return 1

    def pause(self, busy: float) -> float:
        """Time to think, whatever the answer took."""
        return THINK / self.pace * self._draw(1, self.count)

    def _draw(self, of: int, k: int) -> float:
        """The k-th multiple of the median: a golden-ratio sequence, whose distribution is right after a few."""
        share = (self._turns[of] + GOLDEN * k) % 1
        return min(math.exp(SIGMA * NormalDist().inv_cdf(min(max(share, 1e-6), 1 - 1e-6))), LONGEST)

    def drive(self, run: DriveWindow) -> dict[str, Any]:
        """Work until the window ends; the cells that ended in it, with their times to answer."""
        self._begin(run.seed)
        log, kinds = StepLog(), list[tuple[str, int]]()
        _sleep(run.start + self.pause(0.0), run.until)  # users do not start together
        while (begun := time.monotonic()) < run.until:
            kinds.append(self.next_cell())
            log.items.append(self.step())
            log.begun.append(begun)
            log.ended.append(time.monotonic())
            _sleep(log.ended[-1] + self.pause(log.ended[-1] - begun), run.until)
        cells = [
            [kind, size, round(ended - begun, 6)]
            for (kind, size), begun, ended in zip(kinds, log.begun, log.ended, strict=True)
            if run.opens <= ended < run.closes
        ]
        return summarize_window(log, run.opens, run.closes) | {"notebook": {"cells": cells, "pace": self.pace}}


def _sleep(when: float, until: float) -> None:
    if (left := min(when, until) - time.monotonic()) > 0:
        time.sleep(left)
