"""The result of a suite: rates, progress, throughput, fairness, latency, costs, and checks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench import statistics
from fleetlab.bench.results.cells import (
    Cell,
    group_cells,
    has_part,
    is_open_loop,
    last_tries,
    mix_name,
    neighbors,
    read_cells,
    table,
)
from fleetlab.bench.results.checks import rows_checks
from fleetlab.bench.results.costs import COSTS, rows_costs
from fleetlab.bench.results.latency import LATENCY, SERVING, rows_latency, rows_serving, sum_times
from fleetlab.bench.results.llm import LLM, rows_llm
from fleetlab.bench.results.notebook import NOTEBOOK, rows_notebook
from fleetlab.bench.results.runs import rows_runs
from fleetlab.bench.results.solo import SoloRates
from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.nvml import THROTTLE_REASONS
from fleetlab.stats import Interval, geometric_means


@dataclass(frozen=True, slots=True, repr=False)
class SuiteResult(Result):
    """Tables of a suite."""

    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """System throughput by stage and number of tenants, and the number of failed cells."""
        estimates = []
        for (stage, tenants), rows in self.frames["mixes"].group_by("stage", "tenants", maintain_order=True):
            stp = _geometric(rows.select("stp", "low", "high").rows())
            estimates.append(Estimate(f"{stage}, {tenants} tenants: geometric mean STP", *stp, "GPUs"))
        return [*estimates, Estimate.exact("cells failed", self.frames["failures"]["cell"].n_unique())]


def suite_result(folder: Path, *, price: float | None = None) -> SuiteResult:
    """Read the folder of a suite; the last try of each cell counts.

    `price` is per GPU hour, in any currency.
    """
    about, tries, cut = read_cells(folder)
    cells = last_tries(tries)
    good = [c for c in cells if c["status"] == "ok"]
    solo = SoloRates(good)
    mixed = [c for c in good if len(c["tenants"]) > 1 and solo.knows(c)]
    single = [c for c in good if len(c["tenants"]) == 1 and not is_open_loop(c["tenants"][0])]
    frames = {
        "alone": table(_rows_alone(single)),
        "progress": table(_rows_progress([c for c in good if len(c["tenants"]) > 1 or has_part(c["tenants"])], solo)),
        "mixes": table(_rows_mixes(mixed, solo), MIXES),
        "latency": table(rows_latency(good), LATENCY),
        "serving": table(rows_serving(good), SERVING),
        "llm": table(rows_llm(good), LLM),
        "notebook": table(rows_notebook(good), NOTEBOOK),
        "costs": table(rows_costs(good, solo, price), COSTS),
        "runs": table(rows_runs(tries)),
        "checks": table(rows_checks(about, good)),
        "failures": table(
            ({"cell": c["cell"], **f} for c in cells if c["status"] != "ok" for f in c.get("failures", [])), FAILURES
        ),
    }
    settings = {"window": about["window"], "settle": about["settle"], "card": about["card"].get("name", "none")}
    if price is not None:
        settings["price"] = price
    provenance = Provenance("bench suite", f"{folder.name}: {about['plan']}", settings, about["seed"])
    return SuiteResult(frames, provenance, tuple(_notes(about, good, frames, cut=cut)))


MIXES = {"stage": pl.String, "mix": pl.String, "tenants": pl.Int64, "stp": pl.Float64}
FAILURES = {"cell": pl.String, "seat": pl.String, "kind": pl.String, "detail": pl.String}


# --- rows ------------------------------------------------------------------------------------------------------------


def _rows_alone(cells: Iterable[Cell]) -> Iterable[dict[str, Any]]:
    by = group_cells((c["stage"], c["tenants"][0]["seat"], c) for c in cells)
    limits = geometric_means([[max(c["tenants"][0]["rate"], 1e-12) for c in group] for group in by.values()])
    for ((stage, seat), group), rate in zip(by.items(), limits, strict=True):
        ones = [c["tenants"][0] for c in group]
        yield {
            "stage": stage,
            "tenant": seat,
            "unit": f"{ones[0]['unit']}/s",
            "blocks": len(group),
            "rate": rate.value,
            "low": rate.low,
            "high": rate.high,
            "p50_ms": _p50(ones),
            "sms": ones[0].get("sms"),
            "starved": sum(one["starved"] for one in ones) / len(ones),
            "cpu": sum(one["cpu"] for one in ones) / len(ones),
            "memory_mib": ones[0].get("memory_mib"),
            **_card(group),
        }


def _p50(ones: list[Cell]) -> float | None:
    """P50 of the steps of all blocks; the table `latency` has its interval."""
    known = statistics.known_percentile(sum_times(ones), 0.5)
    return None if known is None else 1000 * known.value


def _rows_progress(cells: list[Cell], solo: SoloRates) -> Iterable[dict[str, Any]]:
    by: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for c in cells:
        seats = [t["seat"] for t in c["tenants"]]
        made = [(seat, np_) for seat, np_ in zip(seats, solo.progress(c), strict=True) if not math.isnan(np_)]
        for seat in dict.fromkeys(seat for seat, _ in made):
            # Copies of one tenant in one cell share a block: they are one sample.
            same = [np_ for s, np_ in made if s == seat]
            by[c["stage"], seat, neighbors(seats, seat)].append(max(sum(same) / len(same), 1e-12))
    limits = geometric_means(list(by.values()))
    for ((stage, tenant, others), blocks), (value, low, high) in zip(by.items(), limits, strict=True):
        about = {"stage": stage, "tenant": tenant, "beside": others, "blocks": len(blocks)}
        yield about | {"progress": value, "low": low, "high": high}


def _rows_mixes(cells: list[Cell], solo: SoloRates) -> Iterable[dict[str, Any]]:
    by = group_cells((c["stage"], mix_name([t["seat"] for t in c["tenants"]]), c) for c in cells)
    made = {key: [solo.progress(c) for c in group] for key, group in by.items()}
    limits = geometric_means([[max(sum(np_), 1e-12) for np_ in nps] for nps in made.values()])
    energy = _energy(by, solo)
    for (key, group), stp in zip(by.items(), limits, strict=True):
        times = energy.get(key)
        yield {
            "stage": key[0],
            "mix": key[1],
            "tenants": len(group[0]["tenants"]),
            "blocks": len(group),
            "stp": stp.value,
            "low": stp.low,
            "high": stp.high,
            **{name: _mean(of, made[key]) for name, of in METRICS.items()},
            **_card(group),
            "energy_times": times and times.value,
            "energy_times_low": times and times.low,
            "energy_times_high": times and times.high,
        }


def _energy(by: dict[tuple[str, str], list[Cell]], solo: SoloRates) -> dict[tuple[str, str], Interval]:
    """Energy of each mix relative to alone, as far as it is known."""
    each = {key: [solo.energy_times(c) for c in group] for key, group in by.items()}
    known = {key: [times for times in found if times] for key, found in each.items() if any(found)}
    return dict(zip(known, geometric_means(list(known.values())), strict=True)) if known else {}


METRICS: dict[str, Callable[[list[float]], float]] = {
    "antt": statistics.antt,
    "jain": statistics.jain,
    "worst": min,
    "unfairness": statistics.unfairness,
}


def _card(cells: list[Cell]) -> dict[str, Any]:
    """Mean power by the energy counter, SM clock, and whether it was throttled."""
    samples = [c["gpu"] for c in cells if c["gpu"]]
    if not samples:
        return {"watts": None, "sm_mhz": None, "throttled": None}
    return {
        "watts": sum(g["watts"] for g in samples) / len(samples),
        "sm_mhz": sum(g["sm_mhz"] for g in samples) / len(samples),
        "throttled": any(g["reasons"] & THROTTLE_REASONS for g in samples),
    }


def _geometric(rows: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Mean of independent values, each with its own interval."""
    middle = sum(math.log(value) for value, _, _ in rows) / len(rows)
    half = math.sqrt(sum(math.log(high / value) ** 2 for value, _, high in rows)) / len(rows)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def _mean(of: Callable[[list[float]], float], nps: list[list[float]]) -> float:
    return sum(map(of, nps)) / len(nps)


def _notes(about: dict[str, Any], good: list[Cell], frames: dict[str, pl.DataFrame], *, cut: bool) -> Iterable[str]:
    if cut:
        yield "the last line was truncated and is ignored"
    if about["rehearsal"]:
        yield "a rehearsal on the CPU: the results are meaningless"
    if about["skipped"]:
        yield f"{len(about['skipped'])} cells were skipped for lack of time"
    if late := [c["cell"] for c in good if any(t["late"] > 0 for t in c["tenants"])]:
        yield f"{len(late)} cells have a tenant that started late"
    if eager := {t["seat"] for c in good for t in c["tenants"] if str(t.get("how", "")).startswith("eager:")}:
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
    yield "intervals pool the noise of all cells of a table: its relative size is assumed to be the same"
