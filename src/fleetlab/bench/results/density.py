"""How many equal tenants a GPU can hold within goals of progress and latency."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from fleetlab.bench.results.cells import Cell, Schema, cell_mix
from fleetlab.bench.results.latency import sum_times
from fleetlab.bench.results.solo import SoloRates
from fleetlab.bench.statistics import known_percentile
from fleetlab.core import DeviceError
from fleetlab.stats import Interval, geometric_means

DENSITY: Schema = {"stage": pl.String, "tenant": pl.String, "goal": pl.String, "tenants": pl.Int64}


@dataclass(frozen=True, slots=True)
class DensityGoals:
    """Goals of each tenant."""

    progress: float = 0.5  # of the rate alone, for the slowest tenant
    slowdown: float = 3.0  # of P95, relative to one tenant alone
    slo_ms: float | None = None  # P99

    def __post_init__(self) -> None:
        for name in ("progress", "slowdown", "slo_ms"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                msg = f"not a goal: {name} {value}"
                raise DeviceError(msg, hint="a number above 0")


Copies = dict[int, list[Cell]]  # cells of n equal tenants, by n


def rows_density(cells: Iterable[Cell], solo: SoloRates, goals: DensityGoals) -> Iterable[dict[str, Any]]:
    """The largest number that meets each goal together with all smaller ones, and the first that does not."""
    crowds = _copies(cells)
    worst = _worst(crowds, solo)
    for (stage, tenant), crowd in crowds.items():
        if len(crowd) < 2:
            continue
        broken = {n for n, many in crowd.items() if any(_is_overloaded(c) for c in many)}
        progress = {n: found for (s, t, n), found in worst.items() if (s, t) == (stage, tenant)}
        p95, p99 = _quantile(crowd, 0.95), _quantile(crowd, 0.99)
        checks: list[tuple[str, dict[int, Interval], float, bool]] = []
        if progress:
            checks.append((f"worst progress at least {goals.progress:g}", progress, goals.progress, True))
        if 1 in p95:
            words = f"P95 at most {goals.slowdown:g} times that of one tenant"
            checks.append((words, _relative(p95), goals.slowdown, False))
        if goals.slo_ms is not None:
            checks.append((f"P99 at most {goals.slo_ms:g} ms", p99, goals.slo_ms / 1000, False))
        for words, found, bar, above in checks:
            row = {"stage": stage, "tenant": tenant, "goal": words}
            yield row | _met_up_to(sorted(crowd), broken, found, bar, above=above)


def _copies(cells: Iterable[Cell]) -> dict[tuple[str, str], Copies]:
    """Cells of equal tenants, also failed ones."""
    by: dict[tuple[str, str], Copies] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        name = cell_mix(cell)
        if "+" not in name and name != "idle":
            count, space, tenant = name.partition(" ")
            n, tenant = (int(count), tenant) if space and count.isdigit() else (1, name)
            by[cell["stage"], tenant][n].append(cell)
    return by


def _is_overloaded(cell: Cell) -> bool:
    """Whether it failed, or could not send all scheduled steps."""
    return cell["status"] != "ok" or any(t.get("unsent", 0) for t in cell["tenants"])


def _worst(crowds: dict[tuple[str, str], Copies], solo: SoloRates) -> dict[tuple[str, str, int], Interval]:
    """Progress of the slowest copy; for one tenant it is 1 by definition."""
    blocks = {
        (stage, tenant, n): [max(min(solo.progress(c)), 1e-12) for c in many if c["status"] == "ok" and solo.knows(c)]
        for (stage, tenant), crowd in crowds.items()
        for n, many in crowd.items()
        if n > 1
    }
    blocks = {key: values for key, values in blocks.items() if values}
    intervals = dict(zip(blocks, geometric_means(list(blocks.values())), strict=True)) if blocks else {}
    return intervals | {(stage, tenant, 1): Interval(1.0, 1.0, 1.0) for stage, tenant, _ in blocks}


def _quantile(crowd: Copies, p: float) -> dict[int, Interval]:
    """Quantile of all steps of all copies; none if the sample is too small."""
    intervals = {}
    for n, many in crowd.items():
        times = sum_times(t for c in many if c["status"] == "ok" for t in c["tenants"])
        if (interval := known_percentile(times, p)) is not None:
            intervals[n] = interval
    return intervals


def _relative(found: dict[int, Interval]) -> dict[int, Interval]:
    one = found[1]
    return {
        n: Interval(1.0, 1.0, 1.0) if n == 1 else Interval(x.value / one.value, x.low / one.high, x.high / one.low)
        for n, x in found.items()
    }


def _met_up_to(
    numbers: list[int], broken: set[int], found: dict[int, Interval], bar: float, *, above: bool
) -> dict[str, Any]:
    """The number up to which the goal is met: by the value, and by both ends of the interval."""

    def upto(pick: int) -> tuple[int, int | None]:
        last = 0
        for n in numbers:
            x = found.get(n)
            if n in broken or (x is not None and not (x[pick] >= bar if above else x[pick] <= bar)):
                return last, n
            if x is None:  # not measured precisely enough
                return last, None
            last = n
        return last, None

    sure, perhaps = (1, 2) if above else (2, 1)
    tenants, breaks = upto(0)
    blind = any(math.isnan(x.low) for x in found.values())  # one block: the noise is unknown
    return {
        "tenants": tenants,
        "low": None if blind else upto(sure)[0],
        "high": None if blind else upto(perhaps)[0],
        "breaks_at": breaks,
        "most_measured": numbers[-1],
    }
