"""Is a number of tenants too many? What a cell says, judged against one tenant alone and the best so far.

Latency and throughput break only where that is shown: by the 95 % limits of what was measured, not by its middle.
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
BUSY = 0.8  # of the cores: above it the host is what is measured
STARVED, AT_FIRST = 0.5, 0.25  # steps that found the card idle, now and alone: above and below, the host gave out


@dataclass(frozen=True, slots=True)
class Goal:
    """What a tenant may ask for: a P95 of a step, and that more tenants do not do less work in all."""

    factor: float = 3.0  # times the P95 alone
    ms: float | None = None  # or this P95, whatever it is alone
    least: float = 0.8  # of the best throughput so far

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 1):
            msg = f"not a factor that a step may slow down by: {self.factor:g}"
            raise BenchError(msg, hint="above 1, such as 3")
        if self.ms is not None and not (math.isfinite(self.ms) and self.ms > 0):
            msg = f"not a time that a step may take: {self.ms:g} ms"
            raise BenchError(msg, hint="above 0")


@dataclass(frozen=True)
class Step:
    """One number of tenants, measured."""

    count: int
    cell: dict[str, Any]

    @property
    def tenants(self) -> list[dict[str, Any]]:
        """Those that answered."""
        found: list[dict[str, Any]] = self.cell.get("tenants", [])
        return found

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Those that did not."""
        found: list[dict[str, Any]] = self.cell["failures"]
        return found

    @property
    def rate(self) -> float:
        """Items a second in all."""
        return float(sum(t["rate"] for t in self.tenants))

    @cached_property
    def throughput(self) -> Interval:
        """The rate in all, with limits from the tenths of the window."""
        tenths = np.asarray([t["rates"] for t in self.tenants], float)
        if not tenths.size:
            return no_interval()
        found = mean_of_runs(tenths.sum(axis=0), POSITIVE).interval()
        return found._replace(value=self.rate)

    @cached_property
    def times(self) -> Histogram:
        """Of all steps of all tenants."""
        return Histogram.sum(Histogram.from_json(t["times"]) for t in self.tenants)

    @cached_property
    def p95(self) -> Interval | None:
        """Seconds; None where there are too few steps to say."""
        try:
            return statistics.percentile(self.times, 0.95)
        except BenchError:
            return None

    @property
    def cores(self) -> float:
        """That the tenants kept busy."""
        return float(sum(t["cpu"] for t in self.tenants))

    @property
    def starved(self) -> float:
        """The share of steps that found the card idle."""
        found = [t["starved"] for t in self.tenants]
        return sum(found) / len(found) if found else 0.0


def judged(steps: Iterable[Step], goal: Goal, *, cores: int, on_card: bool) -> dict[int, list[str]]:
    """What broke at each number of tenants; nothing where it is good."""
    found: dict[int, list[str]] = {}
    alone: Step | None = None
    best = 0.0
    for step in sorted(steps, key=lambda s: s.count):
        alone = step if step.count == 1 else alone
        found[step.count] = [
            *_failed(step),
            *(_host(step, alone, cores, on_card=on_card) if step.count > 1 else ()),
            *_slow(step, alone, goal),
            *_less(step, best, goal),
        ]
        if not found[step.count]:
            best = max(best, step.rate)
    return found


def _failed(step: Step) -> Iterable[str]:
    by: dict[str, list[dict[str, Any]]] = {}
    for failure in step.failures:
        by.setdefault(failure["kind"], []).append(failure)
    for kind, found in by.items():
        detail = str(found[0].get("detail", ""))
        if kind == "mode":
            yield f"the mode failed: {detail}"
            continue
        who = _who([f["copy"] + 1 for f in found], step.count)
        asked = re.search(r"[Tt]ried to allocate ([\d.]+ [KMGT]?i?B)", detail)
        if kind == "out-of-memory":
            yield f"out of memory ({who} asked for {asked[1] if asked else 'more'})"
        else:
            said = {"died": "died", "hung": "gave no answer", "error": "failed"}.get(kind, kind)
            yield f"{who} {said}" + (f" ({detail[:200]})" if detail else "")
    if not step.failures and len(step.tenants) < step.count:
        yield f"{step.count - len(step.tenants)} of {step.count} tenants said nothing"


def _who(numbers: list[int], count: int) -> str:
    if len(numbers) == 1:
        return f"tenant {numbers[0]} of {count}"
    return f"{len(numbers)} of {count} tenants"


def _host(step: Step, alone: Step | None, cores: int, *, on_card: bool) -> Iterable[str]:
    if step.cores > BUSY * cores:
        yield f"the host, not the card: the tenants keep {step.cores:.1f} of {cores} cores busy"
    # Without a card each step ends when it returns, so that none is ever found under way.
    elif on_card and step.starved > STARVED and alone is not None and alone.starved < AT_FIRST:
        yield f"the host, not the card: {step.starved:.0%} of steps found the card idle ({alone.starved:.0%} alone)"


def _slow(step: Step, alone: Step | None, goal: Goal) -> Iterable[str]:
    if not step.tenants or (limit := allowed(alone, goal)) is None:
        return
    if not step.times.n:
        yield "no step ended within the window"
        return
    over = longer(step.times, limit)
    if chance(over, step.times.n) < MISS:
        now = f"{1000 * step.p95.value:.3g} ms" if step.p95 else f"of {step.times.n} steps {over} took longer"
        rule = f"{goal.factor:g} times that alone" if goal.ms is None else "the goal"
        yield f"P95 of a step above {rule}: {now}, against {1000 * limit:.3g} ms"


def allowed(alone: Step | None, goal: Goal) -> float | None:
    """Seconds that the P95 of a step may be; None where that is not known."""
    if goal.ms is not None:
        return goal.ms / 1000
    return goal.factor * alone.p95.value if alone is not None and alone.p95 is not None else None


def longer(times: Histogram, limit: float) -> int:
    """How many took longer."""
    return int(times.counts[LOWEST * GROWTH ** (times.buckets + 0.5) > limit].sum())


def chance(k: int, n: int, share: float = 0.05) -> float:
    """That `k` or more of `n` steps are longer than a time, if only `share` of all steps are: small, if P95 is above.

    >>> chance(0, 10), round(chance(3, 3), 6), round(chance(1, 59), 3)
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


def _less(step: Step, best: float, goal: Goal) -> Iterable[str]:
    if step.tenants and not step.failures and step.throughput.high < goal.least * best:
        yield f"throughput {step.rate:.4g}/s is below {goal.least:g} of the best, {best:.4g}/s"
