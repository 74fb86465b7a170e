"""The result of a stress test: the breaking point of each mode, and every number of tenants that was measured."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench.stress.run import edges, sentence, steps
from fleetlab.bench.stress.verdict import StressGoal, StressStep, judge_steps, p95_limit
from fleetlab.core import DeviceError, Estimate, Provenance, Result


@dataclass(frozen=True, slots=True, repr=False)
class StressResult(Result):
    """Breaking points, and the measured steps."""

    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """Largest number of tenants that meets the goals, by mode."""
        rows = self.frames["answers"].iter_rows(named=True)
        return [Estimate.exact(f"{row['mode']}: good up to", row["good"], "tenants") for row in rows]


def stress_result(folder: Path) -> StressResult:
    """Read the folder of `fleetlab bench stress --out`."""
    try:
        about = json.loads((folder / "stress.json").read_text("utf-8"))
        goal = StressGoal(**about["goal"])
        by_mode = {mode: steps(folder, mode) for mode in about["modes"]}
    except (OSError, ValueError, KeyError, TypeError) as e:
        msg = f"{folder}: not a stress test: {e}"
        raise DeviceError(msg, hint="`fleetlab bench stress WORKLOAD --out FOLDER` makes one") from None
    on_card = about["device"].startswith("cuda")
    reasons = {m: judge_steps(s.values(), goal, cores=about["cores"], on_card=on_card) for m, s in by_mode.items()}
    frames = {
        "answers": pl.DataFrame([_answer(m, r) for m, r in reasons.items()], schema=ANSWERS, orient="row"),
        "steps": pl.DataFrame(
            [
                _row(m, step, by_mode[m].get(1), reasons[m][n])
                for m in by_mode
                for n, step in sorted(by_mode[m].items())
            ],
            schema=STEPS,
            orient="row",
        ),
    }
    sentences = [sentence(m, r, about["up_to"]) for m, r in reasons.items()]
    settings = {k: about[k] for k in ("modes", "up_to", "goal", "settle", "window", "device")}
    provenance = Provenance("bench stress", about["work"], settings, about["seed"])
    return StressResult(frames, provenance, (*sentences, *_notes(about, goal, by_mode)))


ANSWERS: dict[str, Any] = {"mode": pl.String, "good": pl.Int64, "breaks_at": pl.Int64, "why": pl.String}
STEPS: dict[str, Any] = {
    "mode": pl.String,
    "tenants": pl.Int64,
    "throughput": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "unit": pl.String,
    "progress": pl.Float64,
    "worst": pl.Float64,
    "best": pl.Float64,
    "p95_ms": pl.Float64,
    "p95_low": pl.Float64,
    "p95_high": pl.Float64,
    "memory_mib": pl.Float64,
    "watts": pl.Float64,
    "cores": pl.Float64,
    "failures": pl.Int64,
    "good": pl.Boolean,
}


def _answer(mode: str, reasons: dict[int, list[str]]) -> dict[str, Any]:
    good, bad = edges(reasons)
    return {"mode": mode, "good": good, "breaks_at": bad, "why": "; ".join(reasons[bad]) if bad is not None else None}


def _row(mode: str, step: StressStep, alone: StressStep | None, why: list[str]) -> dict[str, Any]:
    card = step.cell.get("gpu") or {}
    known = alone is not None and alone.rate > 0
    made = [t["rate"] / alone.rate for t in step.tenants] if alone is not None and known else []
    p95 = [1000 * x for x in step.p95] if step.p95 else [None] * 3
    rate = step.throughput if step.tenants else (None, None, None)
    return {
        "mode": mode,
        "tenants": step.count,
        **dict(zip(("throughput", "low", "high"), rate, strict=True)),
        "unit": f"{step.tenants[0]['unit']}/s" if step.tenants else None,
        "progress": sum(made) / len(made) if made else None,
        "worst": min(made, default=None),
        "best": max(made, default=None),
        **dict(zip(("p95_ms", "p95_low", "p95_high"), p95, strict=True)),
        "memory_mib": card.get("memory_mib"),
        "watts": card.get("watts"),
        "cores": step.cores if step.tenants else None,
        "failures": len(step.failures),
        "good": not why,
    }


def _notes(about: dict[str, Any], goal: StressGoal, found: dict[str, dict[int, StressStep]]) -> Iterable[str]:
    if about["rehearsal"]:
        yield "a rehearsal on the CPU: the results are meaningless"
    for mode, by in found.items():
        if by.get(1) and by[1].tenants and p95_limit(by[1], goal) is None:
            yield f"{mode}: too few steps alone for a P95, so latency was not checked; longer --window, or --slo-ms"
        if by.get(1) and about["device"].startswith("cuda") and by[1].starved > 0.25:
            starved = 100 * by[1].starved
            yield f"{mode}: alone, {starved:.0f} % of steps find the GPU idle: the host is the bottleneck at once"
    yield "each number of tenants was measured in one window: intervals do not cover variation between runs"
