"""How many tenants of one kind can a card hold before one of them makes too little progress, or waits too long?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from fleetlab.bench import statistics
from fleetlab.bench.results.cells import Cell, Schema, mix
from fleetlab.bench.results.latency import pooled_times
from fleetlab.bench.results.solo import Solo
from fleetlab.core import DeviceError
from fleetlab.devices.errors import BenchError
from fleetlab.stats import Interval, geometric_means

DENSITY: Schema = {"stage": pl.String, "tenant": pl.String, "goal": pl.String, "tenants": pl.Int64}


@dataclass(frozen=True, slots=True)
class Goals:
    """What a tenant may ask for."""

    progress: float = 0.5  # of what it does alone, for the one that makes least
    slowdown: float = 3.0  # of P95, times that alone
    slo_ms: float | None = None  # P99

    def __post_init__(self) -> None:
        for name in ("progress", "slowdown", "slo_ms"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                msg = f"not a goal: {name} {value}"
                raise DeviceError(msg, hint="a number above 0")


Crowd = dict[int, list[Cell]]  # cells of n tenants of one kind, by n


def rows_density(cells: Iterable[Cell], solo: Solo, goals: Goals) -> Iterable[dict[str, Any]]:
    """The largest number that still meets each goal, if all smaller ones do; from when on it does not."""
    crowds = _crowds(cells)
    worst = _worst(crowds, solo)
    for (stage, tenant), crowd in crowds.items():
        if len(crowd) < 2:
            continue
        broken = {n for n, many in crowd.items() if any(_fell(c) for c in many)}
        progress = {n: found for (s, t, n), found in worst.items() if (s, t) == (stage, tenant)}
        p95, p99 = _quantile(crowd, 0.95), _quantile(crowd, 0.99)
        asked: list[tuple[str, dict[int, Interval], float, bool]] = []
        if progress:
            asked.append((f"worst progress at least {goals.progress:g}", progress, goals.progress, True))
        if 1 in p95:
            words = f"P95 at most {goals.slowdown:g} times that alone"
            asked.append((words, _relative(p95), goals.slowdown, False))
        if goals.slo_ms is not None:
            asked.append((f"P99 at most {goals.slo_ms:g} ms", p99, goals.slo_ms / 1000, False))
        for words, found, bar, above in asked:
            row = {"stage": stage, "tenant": tenant, "goal": words}
            yield row | _held(sorted(crowd), broken, found, bar, above=above)


def _crowds(cells: Iterable[Cell]) -> dict[tuple[str, str], Crowd]:
    """Cells of one kind only, failed ones too: what cannot run meets no goal."""
    by: dict[tuple[str, str], Crowd] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        name = mix(cell)
        if "+" not in name and name != "idle":
            count, space, tenant = name.partition(" ")
            n, tenant = (int(count), tenant) if space and count.isdigit() else (1, name)
            by[cell["stage"], tenant][n].append(cell)
    return by


def _fell(cell: Cell) -> bool:
    """It failed, or could not send all that was due."""
    return cell["status"] != "ok" or any(t.get("unsent", 0) for t in cell["tenants"])


def _worst(crowds: dict[tuple[str, str], Crowd], solo: Solo) -> dict[tuple[str, str, int], Interval]:
    """The least progress of each crowd; alone it is 1, and says nothing about the noise."""
    blocks = {
        (stage, tenant, n): [max(min(solo.progress(c)), 1e-12) for c in many if c["status"] == "ok" and solo.knows(c)]
        for (stage, tenant), crowd in crowds.items()
        for n, many in crowd.items()
        if n > 1
    }
    blocks = {key: values for key, values in blocks.items() if values}
    found = dict(zip(blocks, geometric_means(list(blocks.values())), strict=True)) if blocks else {}
    return found | {(stage, tenant, 1): Interval(1.0, 1.0, 1.0) for stage, tenant, _ in blocks}


def _quantile(crowd: Crowd, p: float) -> dict[int, Interval]:
    """Of all steps of all copies; a number whose sample is too small has none."""
    found = {}
    for n, many in crowd.items():
        times = pooled_times(t for c in many if c["status"] == "ok" for t in c["tenants"])
        try:
            found[n] = statistics.percentile(times, p)
        except BenchError:
            continue
    return found


def _relative(found: dict[int, Interval]) -> dict[int, Interval]:
    one = found[1]
    return {
        n: Interval(1.0, 1.0, 1.0) if n == 1 else Interval(x.value / one.value, x.low / one.high, x.high / one.low)
        for n, x in found.items()
    }


def _held(
    numbers: list[int], broken: set[int], found: dict[int, Interval], bar: float, *, above: bool
) -> dict[str, Any]:
    """Up to which number the goal is met: by the value, for sure, and perhaps."""

    def upto(pick: int) -> tuple[int, int | None]:
        held = 0
        for n in numbers:
            x = found.get(n)
            if n in broken or (x is not None and not (x[pick] >= bar if above else x[pick] <= bar)):
                return held, n
            if x is None:  # not measured well enough to say
                return held, None
            held = n
        return held, None

    sure, perhaps = (1, 2) if above else (2, 1)
    tenants, breaks = upto(0)
    blind = any(math.isnan(x.low) for x in found.values())  # one block: the noise was not seen
    return {
        "tenants": tenants,
        "low": None if blind else upto(sure)[0],
        "high": None if blind else upto(perhaps)[0],
        "breaks_at": breaks,
        "most_measured": numbers[-1],
    }
