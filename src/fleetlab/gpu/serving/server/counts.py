"""Counters of a server, of fixed size, and its Prometheus metrics, computed from them on each scrape.

Law: received = answered + refused + failed + in flight, at every moment.
"""

from __future__ import annotations

import bisect
import math
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fleetlab.gpu.bench.histogram import GROWTH, LAST, LOWEST, Histogram, percentile
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.serving.server.requests import REASONS

if TYPE_CHECKING:
    from fleetlab.gpu.serving.server.generator import TokenGenerator

MANY = 10_000  # samples from which on ranks use the normal approximation: the exact one needs memory per sample
_STEP = math.log(GROWTH)


class LatencyCounter:
    """A histogram that is updated in place."""

    def __init__(self) -> None:
        self.counts = array("q", bytes(8 * (LAST + 1)))
        self.n, self.sum = 0, 0.0

    def add(self, seconds: float) -> None:
        """Count one time."""
        at = int(math.log(seconds / LOWEST) / _STEP) if seconds > LOWEST else 0
        self.counts[min(at, LAST)] += 1
        self.n += 1
        self.sum += seconds

    def histogram(self) -> Histogram:
        """Return a copy."""
        counts = np.array(self.counts, np.int64)
        buckets = np.flatnonzero(counts)
        return Histogram(buckets, counts[buckets])

    def about(self) -> dict[str, Any]:
        """Percentiles in milliseconds as value, low and high, or the reason why there is none."""
        histogram = self.histogram()
        percentiles = {f"p{100 * p:g}_ms": _milliseconds(histogram, p) for p in (0.5, 0.95, 0.99)}
        return {"n": self.n, "mean_ms": round(1000 * self.sum / self.n, 3) if self.n else None, **percentiles}


def _milliseconds(times: Histogram, p: float) -> list[float] | str:
    try:
        limits = percentile(times, p) if times.n < MANY else _by_normal(times, p)
    except BenchError as e:
        return str(e)
    return [float(f"{1000 * x:.4g}") for x in limits]


def _by_normal(times: Histogram, p: float) -> tuple[float, float, float]:
    """A quantile and its 95 % interval by the normal approximation of ranks."""
    n, reach = times.n, 1.96 * math.sqrt(times.n * p * (1 - p))
    low, high = max(math.floor(n * p - reach), 1), min(math.ceil(n * p + reach) + 1, n)
    return times.at(math.floor(n * p) + 1), times.at(low), times.at(high)


class ServerCounts:
    """Counters of one server; only the event loop writes to them, except `dropped`."""

    def __init__(self, batch: int) -> None:
        self.began = time.monotonic()
        self.received = self.accepted = self.in_flight = self.answered = 0
        self.reasons = dict.fromkeys(REASONS, 0)
        self.batches = [0] * (batch + 1)  # number of batches by size
        self.dropped = 0  # inputs whose client had disconnected before they were computed
        self.connections = {"open": 0, "crowded": 0, "slow": 0, "broken": 0}
        self.queue, self.compute, self.total = LatencyCounter(), LatencyCounter(), LatencyCounter()

    def begin(self) -> None:
        """Count a new request."""
        self.received += 1
        self.in_flight += 1

    def end(self, reason: str | None, seconds: float) -> None:
        """Count the end of a request; `reason` is None if it was answered."""
        self.in_flight -= 1
        if reason is None:
            self.answered += 1
            self.total.add(seconds)
        else:
            self.reasons[reason] += 1

    def computed(self, size: int, seconds: float) -> None:
        """Count a batch."""
        self.batches[size] += 1
        self.compute.add(seconds)

    def of(self, group: str) -> int:
        """Number of requests in the group `refused` or `failed`."""
        return sum(n for reason, n in self.reasons.items() if REASONS[reason].group == group)

    def about(self) -> dict[str, Any]:
        """All counters, for /stats."""
        return {
            "uptime_s": round(time.monotonic() - self.began, 3),
            "received": self.received,
            "accepted": self.accepted,
            "answered": self.answered,
            "refused": self.of("refused"),
            "failed": self.of("failed"),
            "timed_out": self.reasons["deadline"],
            "in_flight": self.in_flight,
            "reasons": {reason: n for reason, n in self.reasons.items() if n},
            "dropped_inputs": self.dropped,
            "batches": {str(size): n for size, n in enumerate(self.batches) if n},
            "connections": self.connections,
            "latency": {"queue": self.queue.about(), "compute": self.compute.about(), "total": self.total.about()},
            "rss_mib": rss_mib(),
        }

    def totals_line(self) -> str:
        """One line for the log."""
        refused, failed = self.of("refused"), self.of("failed")
        return f"{self.received:,} requests: {self.answered:,} answered, {refused:,} refused, {failed:,} failed"


def rss_mib() -> float | None:
    """Resident memory of this process; None without /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 2)


# --- prometheus metrics, computed from the counters on each scrape ---------------------------------------------------


EDGES = [m * 10.0**e for e in range(-4, 2) for m in (1, 2.5, 5)]  # s, 0.1 ms to 50 s
# The last fine bucket below each edge: an edge inside a bucket counts up to 0.2 % too low, never too high.
_BELOW = [bisect.bisect_right([LOWEST * GROWTH ** (k + 1) for k in range(LAST)], edge) for edge in EDGES]
PREFIX = "fleetlab_serve_"


class ServerMetrics(Collector):
    """Counters as metric families."""

    def __init__(self, counts: ServerCounts, waiting: Callable[[], int]) -> None:
        self._counts, self._waiting = counts, waiting

    def collect(self) -> Iterator[Metric]:
        """Now."""
        c = self._counts
        outcomes = CounterMetricFamily(PREFIX + "requests", "Requests by outcome.", labels=["outcome"])
        for outcome, n in {"answered": c.answered, **c.reasons}.items():
            outcomes.add_metric([outcome], n)
        yield outcomes
        for name, times in (("queue", c.queue), ("compute", c.compute), ("total", c.total)):
            yield _histogram(name, times)
        yield _batches(c.batches)
        yield GaugeMetricFamily(PREFIX + "queue_inputs", "Queued inputs.", value=self._waiting())
        yield GaugeMetricFamily(PREFIX + "in_flight_requests", "Requests not yet answered.", value=c.in_flight)


class GeneratorMetrics(Collector):
    """Tokens, requests and the cache of a language model, under the names of vLLM behind our prefix."""

    def __init__(self, generator: TokenGenerator) -> None:
        self._generator = generator

    def collect(self) -> Iterator[Metric]:
        """Now."""
        tokens, load = self._generator.tokens, self._generator.load()
        yield CounterMetricFamily(PREFIX + "prompt_tokens", "Tokens of prompts.", value=tokens.prompt_tokens)
        yield CounterMetricFamily(PREFIX + "generation_tokens", "Tokens of output.", value=tokens.generation_tokens)
        yield GaugeMetricFamily(PREFIX + "num_requests_running", "Requests in the cache.", value=load["running"])
        yield GaugeMetricFamily(PREFIX + "num_requests_waiting", "Requests that wait.", value=load["waiting"])
        used = load["kv_tokens"] / max(load["kv_capacity"], 1)
        yield GaugeMetricFamily(PREFIX + "kv_cache_usage_ratio", "Tokens in the cache over its size.", value=used)
        yield _histogram("time_to_first_token", tokens.ttft)
        yield _histogram("time_per_output_token", tokens.tpot)


def _histogram(name: str, times: LatencyCounter) -> Metric:
    below = np.concatenate(([0], np.cumsum(np.array(times.counts, np.int64))))
    buckets = [(_number(edge), float(below[k])) for edge, k in zip(EDGES, _BELOW, strict=True)]
    help_ = {
        "queue": "Queueing time of an input.",
        "compute": "Compute time of a batch.",
        "total": "Time of a request.",
        "time_to_first_token": "Time from the arrival of a request to its first token.",
        "time_per_output_token": "Time between tokens of a request.",
    }
    return HistogramMetricFamily(
        f"{PREFIX}{name}_seconds", help_[name], buckets=[*buckets, ("+Inf", float(times.n))], sum_value=times.sum
    )


def _batches(batches: list[int]) -> Metric:
    buckets, total = [], 0
    for size, n in enumerate(batches):
        total += n
        if size and (size & (size - 1) == 0 or size == len(batches) - 1):
            buckets.append((_number(size), float(total)))
    inputs = sum(size * n for size, n in enumerate(batches))
    return HistogramMetricFamily(
        PREFIX + "batch_inputs", "Batch size.", buckets=[*buckets, ("+Inf", float(total))], sum_value=inputs
    )


def _number(edge: float) -> str:
    return f"{edge:.6g}" if edge != int(edge) else f"{edge:.1f}"


def exposition(books: Iterable[Collector]) -> Callable[[], bytes]:
    """Return a function that renders the metrics of its own registry."""
    registry = CollectorRegistry(auto_describe=False)
    for book in books:
        registry.register(book)
    return lambda: generate_latest(registry)
