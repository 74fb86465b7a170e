"""Requests to a language model: their lengths, the tokens that came, and the metrics of both.

TTFT is the time to the first token and E2EL the end-to-end latency, both from the scheduled time; TPOT is the time per
output token of a request, (last - first) / (n - 1); ITL the time between two tokens. The names are those of vLLM's
`bench serve`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np
from numpy.typing import NDArray

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.llm.goals import METRICS
from fleetlab.bench.llm.trace import read_trace
from fleetlab.devices.errors import BenchError
from fleetlab.serving.load import intervals
from fleetlab.serving.load.requests import ANSWERED, Requests
from fleetlab.stats import Interval, no_interval, samples_needed

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
DATASETS = "azure-conv, azure-code, a CSV file with their columns, or random:INPUT,OUTPUT"
Floats = NDArray[np.float64]


def request_lengths(dataset: str, seed: int) -> Iterator[tuple[float, int, int]]:
    """Endless requests of a dataset: due time at its own rate, tokens of prompt and of output."""
    if not dataset.startswith("random:"):
        return read_trace(dataset).window(math.inf, seed=seed)
    try:
        prompt, output = (int(word) for word in dataset.removeprefix("random:").split(","))
    except ValueError:
        prompt = output = 0
    if min(prompt, output) < 1:
        msg = f"not a dataset: `{dataset}`"
        raise BenchError(msg, hint="random:512,128 has prompts of 512 tokens and outputs of 128")
    return ((float(k), prompt, output) for k in range(1 << 62))


@dataclass(slots=True)
class TokenTimes:
    """Tokens of one answer, on the monotonic clock."""

    prompt: int
    output: int
    got: int = 0
    first: float = math.nan
    last: float = math.nan
    gaps: list[float] = field(default_factory=list)

    async def read(self, answer: aiohttp.ClientResponse) -> None:
        """Read the events of an answer; one without its end is an error."""
        whole = False
        async for line in answer.content:
            now = time.monotonic()
            if line.startswith(b"data: [DONE]"):
                whole = True
            elif line.startswith(b"data: ") and _has_text(line[6:]):
                if self.got:
                    self.gaps.append(now - self.last)
                else:
                    self.first = now
                self.got, self.last = self.got + 1, now
        if not whole:
            msg = "the stream ended without [DONE]"
            raise aiohttp.ClientPayloadError(msg)


def _has_text(event: bytes) -> bool:
    try:
        about = json.loads(event)
        return any(choice.get("text") or choice.get("delta", {}).get("content") for choice in about["choices"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


@dataclass(frozen=True, slots=True)
class TokenReport:
    """Tokens of the requests that were scheduled in a window, in that order."""

    rows: Requests
    itl: Histogram
    goals: dict[str, float]

    @property
    def got(self) -> Floats:
        """Tokens that came."""
        return self.rows.tokens[:, 2]

    @property
    def ttft(self) -> Floats:
        """Time to first token; NaN if none came."""
        return self.rows.tokens[:, 3] - self.rows.due

    @property
    def e2el(self) -> Floats:
        """Time to the last token; NaN if none came."""
        return self.rows.tokens[:, 4] - self.rows.due

    @property
    def tpot(self) -> Floats:
        """Time per output token; NaN with fewer than two."""
        return np.where(self.got > 1, (self.e2el - self.ttft) / np.maximum(self.got - 1, 1), np.nan)

    @property
    def good(self) -> NDArray[np.bool_]:
        """Whether the whole answer came within all goals."""
        good = self.rows.outcome == ANSWERED
        for name, goal in self.goals.items():
            times = getattr(self, name)
            good = good & (np.isnan(times) | (times <= goal))
        return np.asarray(good)

    def to_json(self, opens: float, closes: float) -> dict[str, Any]:
        """Metrics with intervals."""
        span = closes - opens
        times = {name: getattr(self, name) for name in METRICS}
        return {
            "prompt_tokens": int(self.rows.tokens[:, 0].sum()),
            "output_tokens": int(self.got.sum()),
            "per_s": {"prompt": self.rows.tokens[:, 0].sum() / span, "output": self.got.sum() / span},
            "percentiles": {
                name: {p: intervals.quantile_or_reason(of[~np.isnan(of)], at) for p, at in PERCENTILES.items()}
                for name, of in times.items()
            }
            | {"itl": {p: _itl(self.itl, at) for p, at in PERCENTILES.items()}},
            "counts": {name: int((~np.isnan(of)).sum()) for name, of in times.items()} | {"itl": self.itl.n},
            "goals": self.goals,
            "goodput": intervals.rate(self.rows.due[self.good], opens, closes) if self.goals else None,
            "good": intervals.share(self.good) if self.goals else None,
        }


def _itl(times: Histogram, p: float) -> Interval | str:
    """A quantile without limits: tokens of one iteration come together."""
    if times.n < samples_needed(p):
        return f"n too small for P{100 * p:g}: {times.n} of {samples_needed(p)}"
    return no_interval(times.at(min(times.n, math.floor(p * times.n) + 1)))
