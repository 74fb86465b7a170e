"""What a folder of cells says: who made how much progress beside whom, and what the card did in all."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench import statistics
from fleetlab.bench.monitor import BAD_REASONS
from fleetlab.workload import DeviceError, Estimate, Provenance

Cell = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
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

    def tables(self) -> dict[str, pl.DataFrame]:
        """As told, in that order."""
        return self.frames

    def __repr__(self) -> str:
        return f"<Measured {self.provenance.source}, {self.frames['mixes'].height} mixes>"


def measured(folder: Path) -> Measured:
    """Read what a suite wrote; of a cell that was measured again, the last counts."""
    about, cells = _read(folder)
    good = [c for c in cells if c["status"] == "ok"]
    alone = _alone(good)
    shared = [c for c in good if len(c["tenants"]) > 1 or _part(c["tenants"][:1])]
    shared = [c for c in shared if all(_reference(alone, c, t) for t in c["tenants"])]
    frames = {
        "alone": _frame(_rows_alone(c for c in good if len(c["tenants"]) == 1)),
        "progress": _frame(_rows_progress(shared, alone)),
        "mixes": _frame(_rows_mixes([c for c in shared if len(c["tenants"]) > 1], alone), MIXES),
        "failures": _frame(
            ({"cell": c["cell"], **f} for c in cells if c["status"] != "ok" for f in c["failures"]), FAILURES
        ),
    }
    settings = {"window": about["window"], "settle": about["settle"], "card": about["card"].get("name", "none")}
    provenance = Provenance("bench suite", f"{folder.name}: {about['plan']}", settings, about["seed"])
    return Measured(frames, provenance, tuple(_notes(about, good)))


MIXES = {"stage": pl.String, "mix": pl.String, "tenants": pl.Int64, "stp": pl.Float64}
FAILURES = {"cell": pl.String, "seat": pl.String, "kind": pl.String, "detail": pl.String}


def _text(path: Path) -> str:
    """A file as it was written, or packed by gzip, as one keeps it."""
    packed = path.with_name(path.name + ".gz")
    return (
        path.read_text("utf-8")
        if path.exists() or not packed.exists()
        else gzip.decompress(packed.read_bytes()).decode()
    )


def _read(folder: Path) -> tuple[dict[str, Any], list[Cell]]:
    try:
        about = json.loads((folder / "manifest.json").read_text("utf-8"))
        lines = _text(folder / "cells.jsonl").splitlines()
        cells = {c["cell"]: c for c in map(json.loads, lines)}
    except (OSError, EOFError, ValueError, KeyError, TypeError) as e:
        msg = f"{folder}: holds no measured suite: {e}"
        raise DeviceError(msg, hint="`fleetlab bench suite PLAN --out FOLDER` makes one") from None
    return about, list(cells.values())


# --- who is compared with whom ---------------------------------------------------------------------------------------


def _part(tenants: list[Cell]) -> bool:
    return any("@" in t["seat"] and not t["seat"].endswith("@100") for t in tenants)


def _alone(cells: list[Cell]) -> dict[tuple[Any, ...], float]:
    """Rates of whole cards, by stage and block, and by mode where a block has none of its own."""
    found: dict[tuple[Any, ...], float] = {}
    many: dict[tuple[str, str], list[float]] = defaultdict(list)
    for c in cells:
        if len(c["tenants"]) == 1 and not _part(c["tenants"]) and c["tenants"][0]["rate"] > 0:
            one = c["tenants"][0]
            found[c["stage"], c["block"], one["tenant"]] = one["rate"]
            many[c["mode"], one["tenant"]].append(one["rate"])
    return found | {key: sum(rates) / len(rates) for key, rates in many.items()}


def _reference(alone: dict[tuple[Any, ...], float], cell: Cell, one: Cell) -> float | None:
    own = alone.get((cell["stage"], cell["block"], one["tenant"]))
    return own or alone.get((cell["mode"], one["tenant"]))


def _progress(alone: dict[tuple[Any, ...], float], cell: Cell) -> list[float]:
    return [one["rate"] / (_reference(alone, cell, one) or math.nan) for one in cell["tenants"]]


# --- rows ------------------------------------------------------------------------------------------------------------


def _rows_alone(cells: Iterable[Cell]) -> Iterable[dict[str, Any]]:
    by = _grouped((c["stage"], c["tenants"][0]["seat"], c) for c in cells)
    limits = statistics.pooled([[max(c["tenants"][0]["rate"], 1e-12) for c in group] for group in by.values()])
    for ((stage, seat), group), rate in zip(by.items(), limits, strict=True):
        ones = [c["tenants"][0] for c in group]
        p50 = [one["p50"][0] for one in ones if isinstance(one["p50"], list)]
        yield {
            "stage": stage,
            "tenant": seat,
            "unit": f"{ones[0]['unit']}/s",
            "blocks": len(group),
            "rate": rate.value,
            "low": rate.low,
            "high": rate.high,
            "p50_ms": 1000 * sum(p50) / len(p50) if p50 else None,
            "sms": ones[0].get("sms"),
            "starved": sum(one["starved"] for one in ones) / len(ones),
            "cpu": sum(one["cpu"] for one in ones) / len(ones),
            "memory_mib": ones[0].get("memory_mib"),
            **_card(group),
        }


def _rows_progress(cells: list[Cell], alone: dict[tuple[Any, ...], float]) -> Iterable[dict[str, Any]]:
    by: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for c in cells:
        seats = [t["seat"] for t in c["tenants"]]
        made = _progress(alone, c)
        for seat in dict.fromkeys(seats):
            # Copies of one tenant in one cell met the same block: they are one sample of it.
            same = [np_ for s, np_ in zip(seats, made, strict=True) if s == seat]
            others = seats.copy()
            others.remove(seat)
            by[c["stage"], seat, _listed(others)].append(max(sum(same) / len(same), 1e-12))
    limits = statistics.pooled(list(by.values()))
    for ((stage, tenant, beside), blocks), (value, low, high) in zip(by.items(), limits, strict=True):
        about = {"stage": stage, "tenant": tenant, "beside": beside, "blocks": len(blocks)}
        yield about | {"progress": value, "low": low, "high": high}


def _rows_mixes(cells: list[Cell], alone: dict[tuple[Any, ...], float]) -> Iterable[dict[str, Any]]:
    by = _grouped((c["stage"], _listed([t["seat"] for t in c["tenants"]]), c) for c in cells)
    made = {key: [_progress(alone, c) for c in group] for key, group in by.items()}
    limits = statistics.pooled([[max(sum(np_), 1e-12) for np_ in nps] for nps in made.values()])
    for (key, group), stp in zip(by.items(), limits, strict=True):
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
        }


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


def _grouped(keyed: Iterable[tuple[str, str, Cell]]) -> dict[tuple[str, str], list[Cell]]:
    by: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for stage, name, cell in keyed:
        by[stage, name].append(cell)
    return by


def _listed(seats: list[str]) -> str:
    """Names in order, the same ones counted: `3 launch + gemm`."""
    return " + ".join(f"{n} {name}" if (n := seats.count(name)) > 1 else name for name in dict.fromkeys(sorted(seats)))


def _geometric(rows: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """The mean of values that are independent of each other, each with limits of its own."""
    middle = sum(math.log(value) for value, _, _ in rows) / len(rows)
    half = math.sqrt(sum(math.log(high / value) ** 2 for value, _, high in rows)) / len(rows)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def _mean(of: Callable[[list[float]], float], nps: list[list[float]]) -> float:
    return sum(map(of, nps)) / len(nps)


def _frame(rows: Iterable[dict[str, Any]], schema: dict[str, Any] | None = None) -> pl.DataFrame:
    made = list(rows)
    return pl.DataFrame(made, infer_schema_length=None) if made else pl.DataFrame(schema=schema or {})


def _notes(about: dict[str, Any], good: list[Cell]) -> Iterable[str]:
    if about["rehearsal"]:
        yield "a rehearsal on the CPU: the numbers mean nothing"
    if about["skipped"]:
        yield f"{len(about['skipped'])} cells were skipped for want of time"
    if apart := [c["cell"] for c in good if not all(t.get("attached", True) for t in c["tenants"])]:
        yield f"{len(apart)} cells have a tenant that was not proved to be attached"
    if late := [c["cell"] for c in good if any(t["late"] > 0 for t in c["tenants"])]:
        yield f"{len(late)} cells have a tenant that started late"
    if eager := {t["seat"] for c in good for t in c["tenants"] if str(t.get("how", "")).startswith("eager:")}:
        yield f"could not be captured as a graph: {', '.join(sorted(eager))}"
    if [c for c in good if c["gpu"] and c["gpu"]["reasons"] & BAD_REASONS]:
        yield "`held_down`: the power limit or the heat held clocks down in at least one block"
    yield "limits pool the noise of all cells of a table: it is taken to be the same share everywhere"
