"""The record of every request, and of language models its tokens, in compact arrays: there may be millions.

TTFT is the time to the first token and E2EL the end-to-end latency, both from the scheduled time; TPOT is the time per
output token of a request, (last - first) / (n - 1); ITL the time between two tokens. The names are those of vLLM's
`bench serve`.

Requests in one queue wait alike, so they carry less information than independent ones; `design_effect` estimates how
much less, for the intervals here.
"""

from __future__ import annotations

import json
import math
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import aiohttp
import numpy as np
from numpy.typing import NDArray

from fleetlab.gpu.bench.histogram import Histogram, percentile
from fleetlab.gpu.bench.llm.requests import METRICS, read_trace
from fleetlab.gpu.devices.console import BenchError
from fleetlab.stats import (
    POSITIVE,
    Interval,
    design_effect,
    mean_of_runs,
    no_interval,
    samples_needed,
    share_of_windows,
)

# --- intervals of latencies that depend on each other -----------------------------------------------------------------


Floats = NDArray[np.float64]
WITHIN = 1.1  # maximum ratio of the largest to the smallest of three values


def quantile(latency: Floats, p: float) -> Interval:
    """Quantile `p` of latencies in scheduled order; an error if there are too few.

    For autocorrelated latencies the interval is that of a smaller sample, but not smaller than the minimum that
    supports `p`.
    """
    times = Histogram.of(latency)
    return percentile(times, p, effective_n=_effective_n(latency, percentile(times, p)))


def is_autocorrelated(latency: Floats, p: float) -> bool:
    """Whether the effective sample is smaller than `p` needs, so that its interval is too narrow."""
    n = len(latency)
    return n >= samples_needed(p) > _effective_n(latency, percentile(Histogram.of(latency), p))


def _effective_n(latency: Floats, interval: Interval) -> int:
    """Effective sample size for a quantile."""
    return math.floor(len(latency) / design_effect(latency > interval.value))


def quantile_or_reason(latency: Floats, p: float) -> Interval | str:
    """The quantile, or the reason why there is none."""
    try:
        return quantile(latency, p)
    except BenchError as e:
        return str(e)


def event_rate(at: Floats, opens: float, closes: float) -> Interval:
    """Rate of events in the window, with an interval from ten parts of it."""
    counts, _ = np.histogram(at, np.linspace(opens, closes, 11))
    return mean_of_runs(counts * 10 / (closes - opens), POSITIVE).interval()


def is_steady(
    due: Floats, done: Floats, latency: Floats, opens: float, closes: float, *, by_timetable: bool
) -> bool | None:
    """Whether rate and median latency of the last three fifths of the window agree within 10 %.

    This is perf_analyzer's rule. In an open loop the rate is that of answers over that of requests, because the offered
    rate itself varies. `latency` is NaN for requests without an answer; returns None if there are too few.
    """
    edges = np.linspace(opens, closes, 6)[2:]
    offered, answered, timed = (np.histogram(at, edges)[0] for at in (due, done, due[np.isfinite(latency)]))
    if min(offered.min(), answered.min(), timed.min()) < 10:
        return None
    parts = [latency[(due >= a) & (due < b)] for a, b in pairwise(edges)]
    medians = np.array([np.nanmedian(part) for part in parts])
    rates = answered / offered if by_timetable else answered
    return bool(rates.max() <= WITHIN * rates.min() and medians.max() <= WITHIN * medians.min())


# --- the record of every request --------------------------------------------------------------------------------------


# Outcomes of a request. `stopped` was unfinished when the user stopped the load.
OUTCOMES = (
    "answered",
    "refused",
    "client-error",
    "server-error",
    "timeout",
    "reset",
    "unreachable",
    "garbled",
    "stopped",
)
ANSWERED, REFUSED, CLIENT_ERROR, SERVER_ERROR, TIMEOUT, RESET, UNREACHABLE, GARBLED, STOPPED = range(len(OUTCOMES))
FAILED = (CLIENT_ERROR, SERVER_ERROR, TIMEOUT, RESET, UNREACHABLE, GARBLED)


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in scheduled order; times are in seconds from the start."""

    due: NDArray[np.float64]
    begun: NDArray[np.float64]  # when the generator started it: late by its lag
    sent: NDArray[np.float64]  # when it got a connection; NaN if never
    first: NDArray[np.float64]  # when the response headers arrived; NaN if never
    done: NDArray[np.float64]
    outcome: NDArray[np.int8]
    status: NDArray[np.int16]  # HTTP status; 0 if none
    queued: NDArray[np.bool_]  # waited for a connection
    # Of a language model: tokens of prompt and output, that came; when the first and the last came. Else no columns.
    tokens: NDArray[np.float64]

    def where(self, mask: NDArray[Any]) -> Requests:
        """Select requests."""
        return Requests(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})

    @property
    def latency(self) -> NDArray[np.float64]:
        """Latency from the scheduled time, not from sending: a stall also delays the requests behind it."""
        latency: NDArray[np.float64] = np.maximum(self.done - self.due, 0)
        return latency

    @property
    def lag(self) -> NDArray[np.float64]:
        """Lag of the generator."""
        lag: NDArray[np.float64] = np.maximum(self.begun - self.due, 0)
        return lag


class RequestLog:
    """Records requests as they end."""

    def __init__(self) -> None:
        self._times = array("d")  # five per request
        self._ends = array("h")  # three per request
        self._tokens = array("d")  # five per request, if it has tokens
        self._gaps = array("d")  # due time and s between two tokens, in turn

    def __len__(self) -> int:
        return len(self._ends) // 3

    def write(self, times: tuple[float, float, float, float, float], ends: tuple[int, int, int]) -> None:
        """Add a request: due, begun, sent, first and done; outcome, status and queued."""
        self._times.extend(times)
        self._ends.extend(ends)

    def write_tokens(self, due: float, tokens: tuple[float, float, float, float, float], gaps: list[float]) -> None:
        """Add the tokens of the request that `write` added last."""
        self._tokens.extend(tokens)
        for gap in gaps:
            self._gaps.extend((due, gap))

    def gaps(self, begin: float, opens: float, closes: float) -> NDArray[np.float64]:
        """Times between two tokens of a request that was due in a window."""
        due, gaps = np.array(self._gaps).reshape(-1, 2).T
        return np.asarray(gaps[(due - begin >= opens) & (due - begin < closes)])

    def rows(self, begin: float) -> Requests:
        """All requests, with times relative to `begin`."""
        times = np.array(self._times).reshape(-1, 5) - begin
        ends = np.array(self._ends).reshape(-1, 3)
        order = np.argsort(times[:, 0], kind="stable")
        due, begun, sent, first, done = times[order].T
        outcome, status, queued = ends[order].T
        tokens = np.array(self._tokens).reshape(len(self), -1) if len(self) else np.empty((0, 0))
        if tokens.shape[1]:
            tokens[:, 3:] -= begin
        ends_ = outcome.astype(np.int8), status, queued.astype(bool)
        return Requests(due, begun, sent, first, done, *ends_, tokens[order])


# --- requests to a language model ------------------------------------------------------------------------------------


PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
DATASETS = "azure-conv, azure-code, a CSV file with their columns, or random:INPUT,OUTPUT"


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
            raise aiohttp.ClientPayloadError("the stream ended without [DONE]")


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
                name: {p: quantile_or_reason(of[~np.isnan(of)], at) for p, at in PERCENTILES.items()}
                for name, of in times.items()
            }
            | {"itl": {p: _itl(self.itl, at) for p, at in PERCENTILES.items()}},
            "counts": {name: int((~np.isnan(of)).sum()) for name, of in times.items()} | {"itl": self.itl.n},
            "goals": self.goals,
            "goodput": event_rate(self.rows.due[self.good], opens, closes) if self.goals else None,
            "good": share_of_windows([self.good], [1]) if self.goals else None,
        }


def _itl(times: Histogram, p: float) -> Interval | str:
    """A quantile without limits: tokens of one iteration come together."""
    if times.n < samples_needed(p):
        return f"n too small for P{100 * p:g}: {times.n} of {samples_needed(p)}"
    return no_interval(times.at(min(times.n, math.floor(p * times.n) + 1)))
