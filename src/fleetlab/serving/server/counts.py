"""Counters of a server, of fixed size.

Law: received = answered + refused + failed + in flight, at every moment.
"""

from __future__ import annotations

import math
import os
import time
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.bench.histogram import GROWTH, LAST, LOWEST, Histogram
from fleetlab.bench.statistics import percentile
from fleetlab.devices.errors import BenchError
from fleetlab.serving.server.errors import REASONS

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

    def last_words(self) -> str:
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
