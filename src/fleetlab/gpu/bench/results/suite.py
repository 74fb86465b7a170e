"""The result of a suite: rates, progress, throughput, fairness, latency, costs, runs and checks.

Energy relative to alone is the power of a mix over the power that its tenants take to do the same work alone, one after
the other. An item of each tenant takes that multiple of its energy alone: the joules of a mix are split in proportion
to what the work of each tenant takes alone, and add up to all of them. Of equal tenants it is the power over the items
per second.

Tenants that share a GPU split each of its seconds in proportion to their progress. With NP the progress, R the rate
alone and STP the sum of all NP, an item then costs (NP/STP) / (NP·R) = 1 / (STP·R) GPU seconds: sharing makes every
tenant's items cheaper by the same factor, STP. Equal tenants split by items, which is the same.  In an open loop the
progress of a tenant is the offered load: beside other kinds of tenants its share is undefined, and it has no row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fleetlab.core import DeviceError, Estimate, Provenance
from fleetlab.core.result import FieldsResult
from fleetlab.gpu.bench.histogram import antt, interval_columns, jain, known_percentile, unfairness
from fleetlab.gpu.bench.results.cells import (
    AloneRates,
    CellResult,
    Record,
    Schema,
    TenantResult,
    grouped,
    mean,
    mix_name,
    neighbors,
    read_suite,
    table,
)
from fleetlab.gpu.bench.results.latency import (
    LATENCY,
    LLM,
    MAX_LAG,
    NOTEBOOK,
    SERVING,
    falls_behind,
    lag_p99,
    rows_latency,
    rows_llm,
    rows_notebook,
    rows_serving,
    sum_times,
)
from fleetlab.gpu.devices.console import unit_scale
from fleetlab.gpu.devices.nvml import THROTTLE_REASONS
from fleetlab.gpu.sharing.modes import MIG
from fleetlab.stats import Interval, geometric_mean_of, geometric_means, wilson


def rows_runs(tries: Sequence[CellResult]) -> Iterable[dict[str, Any]]:
    """By mix; every try counts, also of a cell that was repeated.

    `busy` is the fraction of the window in which a step of a tenant was running or waiting for the GPU; alone it is GPU
    time over wall time. `util` is the GPU's utilization: the fraction of time in which any kernel ran.
    """
    for (stage, name), many in grouped(((c.stage, c.label), c) for c in tries).items():
        good = [c for c in many if c.ok]
        share, low, high = wilson(len(good), len(many))
        util = mean(c.gpu["util"] for c in good if c.gpu.get("util", -1) >= 0)
        yield {
            "stage": stage,
            "mix": name,
            "tried": len(many),
            "ok": len(good),
            "success": share,
            "low": low,
            "high": high,
            "seconds": sum(c.window for c in good),
            "busy": mean(t.about["busy"] for c in good for t in c.tenants if "busy" in t.about),
            "util": None if util is None else util / 100,
            "cpu": mean(sum(t.about.get("cpu", 0.0) for t in c.tenants) for c in good),
        }


# --- validity checks of a suite --------------------------------------------------------------------------------------


MAX_DRIFT, MAX_CPU = 0.03, 0.8
Checks = Iterable[tuple[str, float, bool]]  # what, value, and whether it failed


def rows_checks(about: Record, cells: Sequence[CellResult]) -> Iterable[dict[str, Any]]:
    """One row per check; `worst` is the worst case."""
    all_checks: dict[str, Checks] = {
        f"solo rate within {100 * MAX_DRIFT:g} % in every block": _solo_drift(cells),
        "clients attached to MPS": _attached(cells, "mps"),
        "tenants on their MIG instances": _attached(cells, MIG),
        "no throttling by power or temperature": _throttled(cells),
        f"generator lag below {1000 * MAX_LAG:g} ms at P99": _lags(cells),
        f"CPU utilization below {100 * MAX_CPU:g} %": _cpu(cells, about.get("machine", {}).get("cores")),
    }
    formats: dict[str, Callable[[float], str]] = {
        f"solo rate within {100 * MAX_DRIFT:g} % in every block": lambda far: f"{100 * far:.1f} %",
        f"generator lag below {1000 * MAX_LAG:g} ms at P99": lambda far: f"{1000 * far:.3g} ms",
        f"CPU utilization below {100 * MAX_CPU:g} %": lambda far: f"{100 * far:.0f} %",
    }
    for name, checks in all_checks.items():
        yield _row(name, list(checks), formats.get(name, lambda _: ""))


def _row(name: str, checks: list[tuple[str, float, bool]], say: Callable[[float], str]) -> dict[str, Any]:
    broken = [check for check in checks if check[2]]
    what, far, _ = max(broken or checks, key=lambda check: check[1], default=("", 0.0, False))
    return {
        "check": name,
        "checked": len(checks),
        "failed": len(broken),
        "passed": None if not checks else not broken,
        "worst": f"{what} {say(far)}".strip() if checks and (broken or say(far)) else "",
    }


def _solo_drift(cells: Sequence[CellResult]) -> Checks:
    """Each tenant alone in every block of a stage, against its mean: drift that may affect the cells in between."""
    alone = grouped(((c.stage, c.alone.seat), c) for c in cells if c.alone and not c.alone.is_open_loop)
    for (stage, seat), blocks in alone.items():
        rates = [c.tenants[0].rate for c in blocks]
        middle = sum(rates) / len(rates)
        if len(rates) > 1 and middle > 0:
            far = max(abs(rate / middle - 1) for rate in rates)
            yield f"{stage}/{seat}", far, far > MAX_DRIFT


def _attached(cells: Sequence[CellResult], mode: str) -> Checks:
    for c in cells:
        if c.mode.startswith(mode) and c.tenants and all("attached" in t.about for t in c.tenants):
            apart = sum(not t.about["attached"] for t in c.tenants)
            yield c.cell, apart, apart > 0


def _throttled(cells: Sequence[CellResult]) -> Checks:
    for c in cells:
        if c.gpu:
            yield c.cell, c.gpu.get("watts", 0.0), bool(c.gpu.get("reasons", 0) & THROTTLE_REASONS)


def _lags(cells: Sequence[CellResult]) -> Checks:
    """Of servers that keep up: one that falls behind delays the generator in its process."""
    for c in cells:
        sent = [t.about for t in c.tenants if t.is_open_loop and not falls_behind(t.about, c.window)]
        if (lag := lag_p99(sent)) is not None:
            yield c.cell, lag, lag >= MAX_LAG


def _cpu(cells: Sequence[CellResult], cores: int | None) -> Checks:
    """All tenants, relative to all cores; nothing if the number of cores is unknown."""
    for c in cells if cores else ():
        if c.tenants:
            used = sum(t.about.get("cpu", 0.0) for t in c.tenants) / (cores or 1)
            yield c.cell, used, used >= MAX_CPU


# --- the result of a suite -------------------------------------------------------------------------------------------


def suite_result(folder: Path, *, price: float | None = None) -> FieldsResult:
    """Read the folder of a suite; the last try of each cell counts.

    `price` is per GPU hour, in any currency.
    """
    suite = read_suite(folder)
    about, alone = suite.about, AloneRates(suite.cells)
    good = [alone.progress(c) for c in suite.cells if c.ok]
    mixed = [c for c in good if len(c.tenants) > 1 and c.progress]
    single = [c for c in good if c.alone and not c.alone.is_open_loop]
    limited = [c for c in good if len(c.tenants) > 1 or any(t.is_limited for t in c.tenants)]
    frames = {
        "alone": table(_rows_alone(single)),
        "progress": table(_rows_progress(limited)),
        "mixes": table(_rows_mixes(mixed, alone), MIXES),
        "latency": table(rows_latency(good), LATENCY),
        "serving": table(rows_serving(good), SERVING),
        "llm": table(rows_llm(good), LLM),
        "notebook": table(rows_notebook(good), NOTEBOOK),
        "costs": table(rows_costs(good, alone, price), COSTS),
        "runs": table(rows_runs(suite.tries)),
        "checks": table(rows_checks(about, good)),
        "failures": table(({"cell": c.cell, **f} for c in suite.cells if not c.ok for f in c.failures), FAILURES),
    }
    settings = {"window": about["window"], "settle": about["settle"], "card": about["card"].get("name", "none")}
    if price is not None:
        settings["price"] = price
    provenance = Provenance("bench suite", f"{folder.name}: {about['plan']}", settings, about["seed"])
    estimates = []
    for (stage, tenants), rows in frames["mixes"].group_by("stage", "tenants", maintain_order=True):
        stp = geometric_mean_of([Interval(*row) for row in rows.select("stp", "low", "high").rows()])
        estimates.append(Estimate(f"{stage}, {tenants} tenants: geometric mean STP", *stp, "GPUs"))
    estimates.append(Estimate.exact("cells failed", frames["failures"]["cell"].n_unique()))
    notes = (*suite.notes, *alone.notes(), *_notes(about, good, frames))
    return FieldsResult(provenance, estimates=estimates, frames=frames, notes=notes)


MIXES = {"stage": pl.String, "mix": pl.String, "tenants": pl.Int64, "stp": pl.Float64}
FAILURES = {"cell": pl.String, "seat": pl.String, "kind": pl.String, "detail": pl.String}


# --- rows ------------------------------------------------------------------------------------------------------------


def _rows_alone(cells: Iterable[CellResult]) -> Iterable[dict[str, Any]]:
    by = grouped(((c.stage, c.tenants[0].seat), c) for c in cells)
    limits = geometric_means([[max(c.tenants[0].rate, 1e-12) for c in group] for group in by.values()])
    for ((stage, seat), group), rate in zip(by.items(), limits, strict=True):
        ones = [c.tenants[0].about for c in group]
        # P50 of the steps of all blocks; the table `latency` has its interval
        median = known_percentile(sum_times(ones), 0.5)
        yield {
            "stage": stage,
            "tenant": seat,
            "unit": f"{ones[0].get('unit', '?')}/s",
            "blocks": len(group),
            "rate": rate.value,
            "low": rate.low,
            "high": rate.high,
            "p50_ms": (None if median is None else 1000 * median.value),
            "sms": ones[0].get("sms"),
            "starved": mean(one["starved"] for one in ones if "starved" in one),
            "cpu": mean(one["cpu"] for one in ones if "cpu" in one),
            "memory_mib": ones[0].get("memory_mib"),
            **_card(group),
        }


def _rows_progress(cells: list[CellResult]) -> Iterable[dict[str, Any]]:
    # Copies of one tenant in one cell share a block: they are one sample.
    each = ((c, grouped((t.seat, t.progress) for t in c.tenants if t.progress is not None)) for c in cells)
    by = grouped(
        ((c.stage, seat, neighbors(c.seats, seat)), max(sum(same) / len(same), 1e-12))
        for c, seats in each
        for seat, same in seats.items()
    )
    limits = geometric_means(list(by.values()))
    for ((stage, tenant, others), blocks), (value, low, high) in zip(by.items(), limits, strict=True):
        about = {"stage": stage, "tenant": tenant, "beside": others, "blocks": len(blocks)}
        yield about | {"progress": value, "low": low, "high": high}


def _rows_mixes(cells: list[CellResult], alone: AloneRates) -> Iterable[dict[str, Any]]:
    by = grouped(((c.stage, mix_name(c.seats)), c) for c in cells)
    limits = geometric_means([[sum(c.progress) for c in group] for group in by.values()])
    # Energy of each mix relative to alone, as far as it is known
    each = {key: [cell_energy(c, alone) for c in group] for key, group in by.items()}
    measured = {key: [times for times in values if times] for key, values in each.items() if any(values)}
    energy = dict(zip(measured, geometric_means(list(measured.values())), strict=True)) if measured else {}
    for (key, group), stp in zip(by.items(), limits, strict=True):
        yield {
            "stage": key[0],
            "mix": key[1],
            "tenants": len(group[0].tenants),
            "blocks": len(group),
            "stp": stp.value,
            "low": stp.low,
            "high": stp.high,
            **{name: _mean(of, [c.progress for c in group]) for name, of in METRICS.items()},
            **_card(group),
            **interval_columns("energy_times", energy.get(key)),
        }


METRICS: dict[str, Callable[[list[float]], float]] = {
    "antt": antt,
    "jain": jain,
    "worst": min,
    "unfairness": unfairness,
}


def _card(cells: list[CellResult]) -> dict[str, Any]:
    """Mean power by the energy counter, SM clock, and whether it was throttled."""
    samples = [c.gpu for c in cells if c.gpu]
    if not samples:
        return {"watts": None, "sm_mhz": None, "throttled": None}
    return {
        "watts": mean(g["watts"] for g in samples if "watts" in g),
        "sm_mhz": mean(g["sm_mhz"] for g in samples if "sm_mhz" in g),
        "throttled": any(g.get("reasons", 0) & THROTTLE_REASONS for g in samples),
    }


def _mean(of: Callable[[list[float]], float], nps: list[list[float]]) -> float:
    return sum(map(of, nps)) / len(nps)


def _notes(about: Record, good: list[CellResult], frames: dict[str, pl.DataFrame]) -> Iterable[str]:
    if about["rehearsal"]:
        yield "a rehearsal on the CPU: the results are meaningless"
    if about["skipped"]:
        yield f"{len(about['skipped'])} cells were skipped for lack of time"
    if late := [c.cell for c in good if any(t.about.get("late", 0.0) > 0 for t in c.tenants)]:
        yield f"{len(late)} cells have a tenant that started late"
    if eager := {t.seat for c in good for t in c.tenants if str(t.about.get("how", "")).startswith("eager:")}:
        yield f"not captured as a CUDA graph: {', '.join(sorted(eager))}"
    if (serving := frames["serving"]).height:
        yield "`serving`: latency counts from the scheduled time; where it is not `valid`, the generator was late"
        if serving["unsent"].sum():
            yield "`unsent`: requests that were never sent and would have had the longest latency; not in percentiles"
    if frames["llm"].height:
        yield "`llm`: TTFT is from the scheduled time, TPOT is (last - first token) / (n - 1), goodput meets both goals"
        yield (
            "`llm`: goodput leaves out requests that the window's end cut off while they met the goals; "
            "`goodput_least` counts them as missed, `goodput_most` as met"
        )
    if frames["notebook"].height:
        yield "`notebook`: `each_ms` is the mean time to answer, of a training per step; slowdown: over one user alone"
    for row in frames["checks"].filter(pl.col("failed") > 0).iter_rows(named=True):
        yield f"check failed: {row['check']}: {row['failed']} of {row['checked']}, worst: {row['worst']}"
    if frames["costs"].height:
        yield "`costs`: tenants that share split the GPU's seconds in proportion to their progress"
        yield "`costs`: they split its joules in proportion to what the same work of each takes alone"
    yield (
        "intervals pool the noise of all cells of a table: its relative size is assumed to be the same; "
        "that of the rates alone is not in them, `bench analyze` adds it"
    )


# --- energy and cost of tenants that share a GPU: relative to alone, and per item ------------------------------------


def energy_times(watts: float | None, work: Iterable[tuple[float | None, float | None]]) -> float | None:
    """Energy relative to alone, from the progress of each tenant and its watts alone; None if one is not known.

    >>> energy_times(440.0, [(0.6, 300.0), (0.5, 200.0)])
    1.5714285714285714
    """
    apart = 0.0
    for progress, alone in work:
        if not progress or not alone or alone <= 0:
            return None
        apart += progress * alone
    return watts / apart if watts and watts > 0 and apart > 0 else None


# --- the cost of an item ---------------------------------------------------------------------------------------------


COSTS: Schema = {"stage": pl.String, "tenant": pl.String, "beside": pl.String, "unit": pl.String}
COSTS |= {"gpu_s_per_1000": pl.Float64, "joules_an_item": pl.Float64}
HOUR = 3600.0


def check_price(price: float | None) -> None:
    """Refuse what is no price of a GPU hour."""
    if price is not None and not 0 <= price < float("inf"):
        raise DeviceError(f"not a price of a GPU hour: {price}", hint="a number of at least 0, such as --price 3.5")


class ItemCost(NamedTuple):
    """Cost of an item of one tenant in one block."""

    seconds: float  # GPU seconds
    joules: float | None  # None if no counter was read


def cell_energy(cell: CellResult, alone: AloneRates) -> float | None:
    """Energy of a cell relative to alone; None if a tenant has no baseline, or no counter was read."""
    return energy_times(cell.gpu.get("watts"), [(t.progress, alone.watts.get(t.name)) for t in cell.tenants])


def rows_costs(cells: Iterable[CellResult], alone: AloneRates, price: float | None) -> Iterable[dict[str, Any]]:
    """By tenant and neighbors: GPU seconds and joules per item, and money at `price` per GPU hour."""
    check_price(price)
    by, units = _by_tenant(cells, alone)
    seconds = geometric_means([[one.seconds for one in blocks] for blocks in by.values()])
    measured = {key: [one.joules for one in blocks if one.joules] for key, blocks in by.items()}
    measured = {key: values for key, values in measured.items() if values}
    joules = dict(zip(measured, geometric_means(list(measured.values())), strict=True)) if measured else {}
    for (key, blocks), taken in zip(by.items(), seconds, strict=True):
        stage, tenant, others = key
        scale, unit = unit_scale(units[key])
        row = {"stage": stage, "tenant": tenant, "beside": others, "unit": unit, "blocks": len(blocks)}
        row |= _limits("gpu_s", "_per_1000", taken, 1000 / scale)
        row |= _limits("joules", "_an_item", joules.get(key), 1 / scale)
        yield row if price is None else row | _limits("cost", "_per_1000", taken, 1000 / scale * price / HOUR)


Key = tuple[str, str, str]


def _by_tenant(cells: Iterable[CellResult], alone: AloneRates) -> tuple[dict[Key, list[ItemCost]], dict[Key, str]]:
    by: dict[Key, list[ItemCost]] = defaultdict(list)
    units: dict[Key, str] = {}
    for cell in cells:
        for one in {t.seat: t for t in cell.tenants}.values():  # copies of one tenant have the same cost
            if taken := _card_seconds(cell, one, alone):
                key = (cell.stage, one.seat, neighbors(cell.seats, one.seat))
                by[key].append(ItemCost(taken, _item_joules(cell, one, alone, taken)))
                units[key] = one.about.get("unit", "?")
    return by, units


def _card_seconds(cell: CellResult, one: TenantResult, alone: AloneRates) -> float | None:
    """GPU seconds per item of this tenant in this cell."""
    if len(set(cell.names)) == 1:
        rate = sum(t.rate for t in cell.tenants)
    elif cell.progress:
        rate = sum(cell.progress) * (alone.rate(one.name) or 0.0)
    else:
        return None
    return 1 / rate if rate > 0 else None


def _item_joules(cell: CellResult, one: TenantResult, alone: AloneRates, taken: float) -> float | None:
    """Equal tenants share the power by items; others have the same multiple of their energy alone."""
    watts = cell.gpu.get("watts") or 0.0
    if len(set(cell.names)) == 1:
        return watts * taken if watts > 0 else None
    times, own = cell_energy(cell, alone), alone.joules(one.name)
    return times * own if times and own else None


def _limits(name: str, of: str, interval: Interval | None, times: float) -> dict[str, float | None]:
    value, low, high = (None, None, None) if interval is None else (times * x for x in interval)
    return {name + of: value, f"{name}_low": low, f"{name}_high": high}
