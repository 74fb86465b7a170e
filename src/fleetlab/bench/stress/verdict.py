"""Judge a number of tenants against one tenant alone and the best throughput so far.

Latency and throughput count as broken only if the whole 95 % interval does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fleetlab.bench import statistics
from fleetlab.bench.histogram import GROWTH, LOWEST, Histogram
from fleetlab.devices.errors import BenchError
from fleetlab.stats import POSITIVE, Interval, mean_of_runs, no_interval

MISS = 0.05
BUSY = 0.8  # of the cores: above it the host is the bottleneck
STARVED, AT_FIRST = 0.5, 0.25  # steps that found the GPU idle, now above and alone below: the host is the bottleneck


@dataclass(frozen=True, slots=True)
class StressGoal:
    """Limits of the P95 step time, and of the loss of total throughput."""

    factor: float = 3.0  # times the P95 of one tenant
    ms: float | None = None  # P95 limit instead of `factor`
    least: float = 0.8  # of the best throughput so far

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 1):
            msg = f"not a slowdown factor: {self.factor:g}"
            raise BenchError(msg, hint="above 1, such as 3")
        if self.ms is not None and not (math.isfinite(self.ms) and self.ms > 0):
            msg = f"not a step time: {self.ms:g} ms"
            raise BenchError(msg, hint="above 0")


@dataclass(frozen=True)
class StressStep:
    """The measurement of one number of tenants."""

    count: int
    cell: dict[str, Any]

    @property
    def tenants(self) -> list[dict[str, Any]]:
        """Tenants with a result."""
        rows: list[dict[str, Any]] = self.cell.get("tenants", [])
        return rows

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Tenants that failed."""
        rows: list[dict[str, Any]] = self.cell["failures"]
        return rows

    @property
    def rate(self) -> float:
        """Total items per second."""
        return float(sum(t["rate"] for t in self.tenants))

    @cached_property
    def throughput(self) -> Interval:
        """Total rate, with an interval from the tenths of the window."""
        tenths = np.asarray([t["rates"] for t in self.tenants], float)
        if not tenths.size:
            return no_interval()
        interval = mean_of_runs(tenths.sum(axis=0), POSITIVE).interval()
        return interval._replace(value=self.rate)

    @cached_property
    def times(self) -> Histogram:
        """Step times of all tenants."""
        return Histogram.sum(Histogram.from_json(t["times"]) for t in self.tenants)

    @cached_property
    def p95(self) -> Interval | None:
        """P95 in seconds; None if there are too few steps."""
        return statistics.known_percentile(self.times, 0.95)

    @property
    def cores(self) -> float:
        """Cores that the tenants keep busy."""
        return float(sum(t["cpu"] for t in self.tenants))

    @property
    def starved(self) -> float:
        """Fraction of steps that found the GPU idle."""
        shares = [t["starved"] for t in self.tenants]
        return sum(shares) / len(shares) if shares else 0.0


def judge_steps(steps: Iterable[StressStep], goal: StressGoal, *, cores: int, on_card: bool) -> dict[int, list[str]]:
    """Reasons why each number of tenants is bad; none if it is good."""
    reasons: dict[int, list[str]] = {}
    alone: StressStep | None = None
    best = 0.0
    for step in sorted(steps, key=lambda s: s.count):
        alone = step if step.count == 1 else alone
        reasons[step.count] = [
            *_failed(step),
            *(_host(step, alone, cores, on_card=on_card) if step.count > 1 else ()),
            *_slow(step, alone, goal),
            *_low_throughput(step, best, goal),
        ]
        if not reasons[step.count]:
            best = max(best, step.rate)
    return reasons


def _failed(step: StressStep) -> Iterable[str]:
    by: dict[str, list[dict[str, Any]]] = {}
    for failure in step.failures:
        by.setdefault(failure["kind"], []).append(failure)
    for kind, found in by.items():
        detail = str(found[0].get("detail", ""))
        if kind == "mode":
            yield f"the mode failed: {detail}"
            continue
        who = _who([f["copy"] + 1 for f in found], step.count)
        request = re.search(r"[Tt]ried to allocate ([\d.]+ [KMGT]?i?B)", detail)
        if kind == "out-of-memory":
            yield f"out of memory ({who} requested {request[1] if request else 'more'})"
        else:
            verb = {"died": "died", "hung": "did not answer", "error": "failed"}.get(kind, kind)
            yield f"{who} {verb}" + (f" ({detail[:200]})" if detail else "")
    if not step.failures and len(step.tenants) < step.count:
        yield f"{step.count - len(step.tenants)} of {step.count} tenants did not answer"


def _who(numbers: list[int], count: int) -> str:
    if len(numbers) == 1:
        return f"tenant {numbers[0]} of {count}"
    return f"{len(numbers)} of {count} tenants"


def _host(step: StressStep, alone: StressStep | None, cores: int, *, on_card: bool) -> Iterable[str]:
    if step.cores > BUSY * cores:
        yield f"the host, not the GPU: the tenants keep {step.cores:.1f} of {cores} cores busy"
    # On a CPU each step ends when it returns, so none is ever in flight.
    elif on_card and step.starved > STARVED and alone is not None and alone.starved < AT_FIRST:
        here, one = 100 * step.starved, 100 * alone.starved
        yield f"the host, not the GPU: {here:.0f} % of steps found the GPU idle ({one:.0f} % alone)"


def _slow(step: StressStep, alone: StressStep | None, goal: StressGoal) -> Iterable[str]:
    if not step.tenants or (limit := p95_limit(alone, goal)) is None:
        return
    if not step.times.n:
        yield "no step ended within the window"
        return
    over = count_longer(step.times, limit)
    if tail_probability(over, step.times.n) < MISS:
        now = f"{1000 * step.p95.value:.3g} ms" if step.p95 else f"of {step.times.n} steps {over} took longer"
        rule = f"{goal.factor:g} times that of one tenant" if goal.ms is None else "the goal"
        yield f"P95 step time above {rule}: {now}, limit {1000 * limit:.3g} ms"


def p95_limit(alone: StressStep | None, goal: StressGoal) -> float | None:
    """Limit of the P95 step time in seconds; None if unknown."""
    if goal.ms is not None:
        return goal.ms / 1000
    return goal.factor * alone.p95.value if alone is not None and alone.p95 is not None else None


def count_longer(times: Histogram, limit: float) -> int:
    """Number of times above a limit."""
    return int(times.counts[LOWEST * GROWTH ** (times.buckets + 0.5) > limit].sum())


def tail_probability(k: int, n: int, share: float = 0.05) -> float:
    """Probability that `k` or more of `n` steps exceed a limit that a fraction `share` exceeds.

    >>> tail_probability(0, 10), round(tail_probability(3, 3), 6), round(tail_probability(1, 59), 3)
    (1.0, 0.000125, 0.952)
    """
    if k <= 0:
        return 1.0
    log = math.lgamma(n + 1)
    terms = (
        log - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(share) + (n - i) * math.log1p(-share)
        for i in range(k, n + 1)
    )
    return min(math.fsum(map(math.exp, terms)), 1.0)


def _low_throughput(step: StressStep, best: float, goal: StressGoal) -> Iterable[str]:
    if step.tenants and not step.failures and step.throughput.high < goal.least * best:
        yield f"throughput {step.rate:.4g}/s is below {goal.least:g} of the best, {best:.4g}/s"
