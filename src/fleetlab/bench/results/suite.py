"""What a folder of cells says: who made how much progress beside whom, and what the card did in all."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench import statistics
from fleetlab.bench.results import cells as _cells
from fleetlab.bench.results.cells import beside, grouped, last, part, read, timed
from fleetlab.bench.results.checks import rows_gates
from fleetlab.bench.results.costs import COSTS, rows_costs
from fleetlab.bench.results.density import DENSITY, Goals, rows_density
from fleetlab.bench.results.latency import LATENCY, SERVING, pooled_times, rows_latency, rows_serving
from fleetlab.bench.results.runs import rows_runs
from fleetlab.bench.results.solo import Solo
from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvml import BAD_REASONS
from fleetlab.stats import Interval, geometric_means

Cell = _cells.Cell
_frame, _listed, _text = _cells.frame, _cells.listed, _cells.text  # what others who read cells ask for here


@dataclass(frozen=True, slots=True)
class Measured(Result):
    """Rates alone, progress beside others, throughput and fairness of each mix, and every failure."""

    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """System throughput by stage and number of tenants; how many cells failed."""
        found = []
        for (stage, tenants), rows in self.frames["mixes"].group_by("stage", "tenants", maintain_order=True):
            stp = _geometric(rows.select("stp", "low", "high").rows())
            found.append(Estimate(f"{stage}, {tenants} tenants: mean STP", *stp, "cards"))
        return [*found, Estimate.exact("cells failed", self.frames["failures"]["cell"].n_unique())]

    def __repr__(self) -> str:
        return f"<Measured {self.provenance.source}, {self.frames['mixes'].height} mixes>"


def measured(folder: Path, *, price: float | None = None, goals: Goals | None = None) -> Measured:
    """Read what a suite wrote; of a cell that was measured again, the last counts.

    `price` is of a card's hour, in any currency; `goals` say how many tenants a card may hold.
    """
    about, tries, cut = read(folder)
    cells = last(tries)
    good = [c for c in cells if c["status"] == "ok"]
    solo = Solo(good)
    mixed = [c for c in good if len(c["tenants"]) > 1 and solo.knows(c)]
    single = [c for c in good if len(c["tenants"]) == 1 and not timed(c["tenants"][0])]
    frames = {
        "alone": _frame(_rows_alone(single)),
        "progress": _frame(_rows_progress([c for c in good if len(c["tenants"]) > 1 or part(c["tenants"])], solo)),
        "mixes": _frame(_rows_mixes(mixed, solo), MIXES),
        "latency": _frame(rows_latency(good), LATENCY),
        "serving": _frame(rows_serving(good), SERVING),
        "costs": _frame(rows_costs(good, solo, price), COSTS),
        "density": _frame(rows_density(cells, solo, goals or Goals()), DENSITY),
        "runs": _frame(rows_runs(tries)),
        "gates": _frame(rows_gates(about, good)),
        "failures": _frame(
            ({"cell": c["cell"], **f} for c in cells if c["status"] != "ok" for f in c.get("failures", [])), FAILURES
        ),
    }
    settings = {"window": about["window"], "settle": about["settle"], "card": about["card"].get("name", "none")}
    if price is not None:
        settings["price"] = price
    provenance = Provenance("bench suite", f"{folder.name}: {about['plan']}", settings, about["seed"])
    return Measured(frames, provenance, tuple(_notes(about, good, frames, cut=cut)))


MIXES = {"stage": pl.String, "mix": pl.String, "tenants": pl.Int64, "stp": pl.Float64}
FAILURES = {"cell": pl.String, "seat": pl.String, "kind": pl.String, "detail": pl.String}


# --- rows ------------------------------------------------------------------------------------------------------------


def _rows_alone(cells: Iterable[Cell]) -> Iterable[dict[str, Any]]:
    by = grouped((c["stage"], c["tenants"][0]["seat"], c) for c in cells)
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
    """Of the steps of all blocks together; the table `latency` has its limits."""
    try:
        return 1000 * statistics.percentile(pooled_times(ones), 0.5).value
    except BenchError:
        return None


def _rows_progress(cells: list[Cell], solo: Solo) -> Iterable[dict[str, Any]]:
    by: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for c in cells:
        seats = [t["seat"] for t in c["tenants"]]
        made = [(seat, np_) for seat, np_ in zip(seats, solo.progress(c), strict=True) if not math.isnan(np_)]
        for seat in dict.fromkeys(seat for seat, _ in made):
            # Copies of one tenant in one cell met the same block: they are one sample of it.
            same = [np_ for s, np_ in made if s == seat]
            by[c["stage"], seat, beside(seats, seat)].append(max(sum(same) / len(same), 1e-12))
    limits = geometric_means(list(by.values()))
    for ((stage, tenant, others), blocks), (value, low, high) in zip(by.items(), limits, strict=True):
        about = {"stage": stage, "tenant": tenant, "beside": others, "blocks": len(blocks)}
        yield about | {"progress": value, "low": low, "high": high}


def _rows_mixes(cells: list[Cell], solo: Solo) -> Iterable[dict[str, Any]]:
    by = grouped((c["stage"], _listed([t["seat"] for t in c["tenants"]]), c) for c in cells)
    made = {key: [solo.progress(c) for c in group] for key, group in by.items()}
    limits = geometric_means([[max(sum(np_), 1e-12) for np_ in nps] for nps in made.values()])
    joules = _joules(by, made)
    for (key, group), stp in zip(by.items(), limits, strict=True):
        spent = joules.get(key)
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
            "joules": spent and spent.value,
            "joules_low": spent and spent.low,
            "joules_high": spent and spent.high,
        }


def _joules(
    by: dict[tuple[str, str], list[Cell]], made: dict[tuple[str, str], list[list[float]]]
) -> dict[tuple[str, str], Interval]:
    """For a second's work of a tenant alone: the power of the card over the cards' worth of work that it did."""
    known = {
        key: [
            c["gpu"]["watts"] / sum(np_)
            for c, np_ in zip(group, made[key], strict=True)
            if c["gpu"] and c["gpu"]["watts"] > 0 and sum(np_) > 0
        ]
        for key, group in by.items()
    }
    known = {key: values for key, values in known.items() if values}
    return dict(zip(known, geometric_means(list(known.values())), strict=True)) if known else {}


METRICS: dict[str, Callable[[list[float]], float]] = {
    "antt": statistics.antt,
    "jain": statistics.jain,
    "worst": min,
    "unfairness": statistics.unfairness,
}


def _card(cells: list[Cell]) -> dict[str, Any]:
    """Power by the energy counter, the SMs' clock, and whether anything held it down."""
    seen = [c["gpu"] for c in cells if c["gpu"]]
    if not seen:
        return {"watts": None, "sm_mhz": None, "held_down": None}
    return {
        "watts": sum(g["watts"] for g in seen) / len(seen),
        "sm_mhz": sum(g["sm_mhz"] for g in seen) / len(seen),
        "held_down": any(g["reasons"] & BAD_REASONS for g in seen),
    }


def _geometric(rows: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """The mean of values that are independent of each other, each with limits of its own."""
    middle = sum(math.log(value) for value, _, _ in rows) / len(rows)
    half = math.sqrt(sum(math.log(high / value) ** 2 for value, _, high in rows)) / len(rows)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def _mean(of: Callable[[list[float]], float], nps: list[list[float]]) -> float:
    return sum(map(of, nps)) / len(nps)


def _notes(about: dict[str, Any], good: list[Cell], frames: dict[str, pl.DataFrame], *, cut: bool) -> Iterable[str]:
    if cut:
        yield "the last cell was cut off while it was written, and is left out"
    if about["rehearsal"]:
        yield "a rehearsal on the CPU: the numbers mean nothing"
    if about["skipped"]:
        yield f"{len(about['skipped'])} cells were skipped for want of time"
    if late := [c["cell"] for c in good if any(t["late"] > 0 for t in c["tenants"])]:
        yield f"{len(late)} cells have a tenant that started late"
    if eager := {t["seat"] for c in good for t in c["tenants"] if str(t.get("how", "")).startswith("eager:")}:
        yield f"could not be captured as a graph: {', '.join(sorted(eager))}"
    if (serving := frames["serving"]).height:
        yield "`serving`: times run from when a request was due; where it is not `valid`, the sender was late"
        if serving["unsent"].sum():
            yield "`unsent`: requests that were never sent, and would have waited longest; percentiles leave them out"
    for row in frames["gates"].filter(pl.col("broken") > 0).iter_rows(named=True):
        yield f"not so: {row['gate']}: {row['broken']} of {row['checked']}, such as {row['worst']}"
    if frames["costs"].height:
        yield "`costs`: tenants that share divide the card's seconds and joules by the progress that each made"
    yield "limits pool the noise of all cells of a table: it is taken to be the same share everywhere"
