"""Scaling on fewer SMs and with more copies, and what an item costs at each number of copies."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from fleetlab.core import DeviceError
from fleetlab.gpu.bench.analysis.measure import SuiteData
from fleetlab.gpu.bench.analysis.mixes import MixMeasures
from fleetlab.gpu.bench.analysis.wording import mode_order
from fleetlab.gpu.bench.histogram import Histogram, interval_columns, known_percentile, tail
from fleetlab.gpu.bench.results.cells import BASELINE, CellResult, grouped, table
from fleetlab.gpu.bench.results.latency import effective_size
from fleetlab.stats import Interval, log_interval, sum_variances

CURVE = {"tenant": pl.String, "sms": pl.Int64, "progress": pl.Float64}
SCALE = {"tenant": pl.String, "mode": pl.String, "tenants": pl.Int64, "rate": pl.Float64, "state": pl.String}


def curve_table(x: MixMeasures) -> pl.DataFrame:
    """Each tenant alone on a part of the SMs; intervals are by the noise of tenants alone."""
    by = grouped(
        ((one.name, int(sms)), one.progress)
        for m in x.gathered.cells
        if (one := m.alone) and one.progress and m.mode != BASELINE and (sms := one.about.get("sms"))
    )
    parts = {name: len({sms for of, sms in by if of == name}) for name, _ in by}
    rows = []
    for (name, sms), progress in sorted(by.items()):
        if parts[name] > 2:  # two points are no curve
            again = x.noise.one(x.gathered, name).over(len(progress))
            interval = log_interval(
                sum(map(math.log, progress)) / len(progress), sum_variances([again, x.noise.own(x.gathered, name)])
            )
            rows.append({"tenant": name, "sms": sms, "blocks": len(progress), **interval_columns("progress", interval)})
    return table(rows, CURVE)


@dataclass(frozen=True, slots=True)
class TailGoal:
    """The limit of a tail latency: relative to one tenant alone, or in milliseconds."""

    factor: float = 3.0
    slo_ms: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor >= 1):
            msg = f"not a slowdown factor: {self.factor}"
            raise DeviceError(msg, hint="a number of at least 1, such as --slo-factor 3")
        if self.slo_ms is not None and not 0 < self.slo_ms < math.inf:
            msg = f"not a latency in milliseconds: {self.slo_ms}"
            raise DeviceError(msg, hint="a number above 0, such as --slo-ms 15")

    def __str__(self) -> str:
        return f"{self.factor:g} times that of one tenant" if self.slo_ms is None else f"{self.slo_ms:g} ms"

    def state(self, tail: Interval | None, times: Interval | None) -> str:
        """Whether a tail, in seconds and relative to one tenant, is within the limit."""
        value, limit = (times, self.factor) if self.slo_ms is None else (tail, self.slo_ms / 1000)
        if value is None:
            return "not known"
        if math.isnan(value.high):  # without an interval the value decides, and the notes say so
            return "holds" if value.value <= limit else "breaks"
        return "holds" if value.high <= limit else "breaks" if value.low > limit else "not known"


# --- copies of one tenant --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScalingCurve:
    """One tenant in one mode by number of copies."""

    tenant: str
    mode: str
    percentile: float
    rows: list[dict[str, Any]]

    @property
    def largest_good(self) -> int | None:
        """The largest number that meets the limit, together with all smaller ones."""
        good = None
        for row in self.rows:
            if row["state"] != "holds":
                break
            good = row["tenants"]
        return good

    @property
    def breaks(self) -> dict[str, Any] | None:
        """The first number that exceeds the limit, or failed."""
        return next((row for row in self.rows if row["state"] in ("breaks", "failed")), None)


def scaling_curves(x: MixMeasures, goal: TailGoal) -> list[ScalingCurve]:
    """Every tenant that was measured in at least two numbers of copies.

    Servers of language models and users of notebooks have limits and tables of their own, not one of step times.
    """
    by: dict[tuple[str, str], dict[int, list[CellResult]]] = defaultdict(lambda: defaultdict(list))
    for m in x.gathered.cells:
        own = any(kind in t.about for t in m.tenants for kind in ("llm", "notebook"))
        if len(set(m.names)) == 1 and not own and not any(t.is_limited for t in m.tenants):
            by[m.names[0], m.mode][len(m.tenants)].append(m)
    curves = []
    for (tenant, mode), sizes in sorted(by.items(), key=lambda at: (at[0][0], mode_order(at[0][1]))):
        if max(sizes) > 2 or (len(sizes) > 1 and any(t.is_open_loop for t in next(iter(sizes.values()))[0].tenants)):
            curves.append(_curve(x, tenant, mode, dict(sorted(sizes.items())), by.get((tenant, BASELINE)), goal))
    return curves


def _curve(
    x: MixMeasures,
    tenant: str,
    mode: str,
    sizes: dict[int, list[CellResult]],
    apart: dict[int, list[CellResult]] | None,
    goal: TailGoal,
) -> ScalingCurve:
    timed = next(iter(sizes.values()))[0].tenants[0].is_open_loop
    p = 0.99 if timed else 0.95
    # Relative to alone without MPS if measured, otherwise to alone in this mode.
    alone = _tail((apart or sizes).get(1) or sizes.get(1, []), p)
    rows: list[dict[str, Any]] = []
    for n, here in sizes.items():
        half = x.noise.measured_again(x.gathered, tenant, len(here))
        rate = sum(t.rate for m in here for t in m.tenants) / len(here)
        total = widen(Interval(rate, rate, rate), half)
        latency = widen(_tail(here, p), half)
        times = Interval(*(v / alone.value for v in latency)) if latency and alone else None
        unsent = sum(t.about.get("unsent", 0) for m in here for t in m.tenants)
        rows.append(
            {
                "tenant": tenant,
                "mode": mode,
                "tenants": n,
                "blocks": len(here),
                "unit": f"{x.gathered.units[tenant]}/s",
                **interval_columns("rate", total),
                "percentile": f"P{100 * p:g}",
                **interval_columns("tail_ms", Interval(*(1000 * v for v in latency)) if latency else None),
                **interval_columns("times", times),
                "unsent": unsent,
                # Requests that were never sent would have had the longest latency.
                "state": "breaks" if unsent else goal.state(latency, times),
            }
        )
    rows += _failed_rows(x.gathered, tenant, mode, {r["tenants"] for r in rows})
    return ScalingCurve(tenant, mode, p, sorted(rows, key=lambda r: r["tenants"]))


def widen(value: Interval | None, half: float) -> Interval | None:
    """Widen an interval by the variation between repetitions, because steps of one cell are not independent.

    >>> widen(Interval(2.0, 1.9, 2.1), 0.0)
    Interval(value=2.0, low=1.9, high=2.1)
    """
    if value is None or math.isnan(half):
        return value
    return Interval(value.value, value.low * math.exp(-half), value.high * math.exp(half))


def _tail(here: list[CellResult], p: float) -> Interval | None:
    """Of open-loop requests by their effective number; of steps in a closed loop see `widen`."""
    tenants = [t for m in here for t in m.tenants]
    times = Histogram.sum(t.times() for t in tenants)
    if not any(t.is_open_loop for t in tenants):
        return known_percentile(times, p)
    return tail(times, p, effective_size([t.about for t in tenants], f"p{100 * p:g}"))


def _failed_rows(g: SuiteData, tenant: str, mode: str, there: set[int]) -> Iterator[dict[str, Any]]:
    """Numbers of copies at which a cell failed and none succeeded."""
    for f in g.failures:
        n, _, name = f["mix"].rpartition(" ")
        many = int(n) if n.isdigit() else 1
        if name == tenant and f["mode"] == mode and many not in there:
            there.add(many)
            yield {"tenant": tenant, "mode": mode, "tenants": many, "blocks": 0, "state": "failed", "why": f["kind"]}


def scale_table(curves: list[ScalingCurve]) -> pl.DataFrame:
    """One row per tenant, mode and number of copies."""
    return table((row for crowd in curves for row in crowd.rows), SCALE)


# --- GPU seconds -----------------------------------------------------------------------------------------------------


SCHEMA = {"tenant": pl.String, "mode": pl.String, "tenants": pl.Int64, "gpu_s_per_1000": pl.Float64}
HOUR = 3600.0


def cost_table(x: MixMeasures, *, price: float | None = None) -> pl.DataFrame:
    """One row per tenant, mode and number of copies; mixes of several tenants have no common item, see their `stp`."""
    by = grouped(
        ((m.names[0], m.mode, len(m.tenants)), m)
        for m in x.gathered.cells
        if len(set(m.names)) == 1 and m.progress and x.gathered.kinds[m.names[0]] != "stressor" and _whole(m)
    )
    keys = sorted(by, key=lambda at: (at[0], at[2], mode_order(at[1])))
    return table((_row(x, *key, by[key], price) for key in keys), SCHEMA)


def _whole(m: CellResult) -> bool:
    """Whether it uses the whole GPU: alone on a part of the SMs is not a way to share."""
    return len(m.tenants) > 1 or not m.tenants[0].is_limited


def _row(x: MixMeasures, tenant: str, mode: str, n: int, here: list[CellResult], price: float | None) -> dict[str, Any]:
    half = x.noise.measured_again(x.gathered, tenant, len(here))
    took = 1000 * len(here) / sum(t.rate for m in here for t in m.tenants)
    seconds = widen(Interval(took, took, took), half)
    joules = x.item_joules(tenant, mode, here[0].mix) if n > 1 else _joules_alone(here, seconds)
    money = Interval(*(s / HOUR * price for s in seconds)) if seconds and price is not None else None
    return {
        "tenant": tenant,
        "mode": mode,
        "tenants": n,
        "blocks": len(here),
        "unit": x.gathered.units[tenant],
        **interval_columns("gpu_s_per_1000", seconds),
        **interval_columns("joules_an_item", joules),
        **({} if price is None else interval_columns("cost_per_1000", money)),
    }


def _joules_alone(here: list[CellResult], seconds: Interval | None) -> Interval | None:
    """Energy of an item alone in a mode."""
    watts = [m.gpu["watts"] for m in here if (m.gpu.get("watts") or 0) > 0]
    if not watts or seconds is None:
        return None
    return Interval(*(sum(watts) / len(watts) * taken / 1000 for taken in seconds))


def short_windows(g: SuiteData) -> bool:
    """Whether a window is too short for the energy counter."""
    return any(0 < m.window < 5 and m.gpu.get("watts") for m in g.cells)
