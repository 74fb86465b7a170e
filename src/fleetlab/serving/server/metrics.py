"""Prometheus metrics, computed from the counters on each scrape."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fleetlab.bench.histogram import GROWTH, LAST, LOWEST
from fleetlab.serving.server.counts import LatencyCounter, ServerCounts
from fleetlab.serving.server.generator import TokenGenerator

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
    seen, total = [], 0
    for size, n in enumerate(batches):
        total += n
        if size and (size & (size - 1) == 0 or size == len(batches) - 1):
            seen.append((_number(size), float(total)))
    inputs = sum(size * n for size, n in enumerate(batches))
    return HistogramMetricFamily(
        PREFIX + "batch_inputs", "Batch size.", buckets=[*seen, ("+Inf", float(total))], sum_value=inputs
    )


def _number(edge: float) -> str:
    return f"{edge:.6g}" if edge != int(edge) else f"{edge:.1f}"


def exposition(books: Iterable[Collector]) -> Callable[[], bytes]:
    """Return a function that renders the metrics of its own registry."""
    registry = CollectorRegistry(auto_describe=False)
    for book in books:
        registry.register(book)
    return lambda: generate_latest(registry)
