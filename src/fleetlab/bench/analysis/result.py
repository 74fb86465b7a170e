"""The analysis of a folder of suites as a result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench.all_modes.run import all_record
from fleetlab.bench.analysis.claims import claim_results, expected_table
from fleetlab.bench.analysis.costs import cost_table, short_windows
from fleetlab.bench.analysis.figures import analysis_figures
from fleetlab.bench.analysis.findings import Findings, collect_findings, overhead
from fleetlab.bench.analysis.folders import BASELINE, suites, time_slice_record
from fleetlab.bench.analysis.mixes import mix_table, progress_table
from fleetlab.bench.analysis.modes import mode_name, mode_notes
from fleetlab.bench.analysis.questions import QuestionAnswer, answer_table, answers
from fleetlab.bench.analysis.recommend import advice_table, by_kind, kind_table
from fleetlab.bench.analysis.scale import TailGoal, curve_table, scale_table
from fleetlab.bench.analysis.serving import ServedTenant, serving_table
from fleetlab.bench.analysis.suite_data import collect_suites
from fleetlab.bench.analysis.users import llm_table, notebook_table, user_findings
from fleetlab.bench.analysis.wording import capital, count_noun
from fleetlab.bench.results.cells import table
from fleetlab.bench.results.checks import rows_checks
from fleetlab.bench.results.suite import FAILURES
from fleetlab.core import DeviceError, Estimate, Figure, Provenance, Result

REHEARSAL = "A REHEARSAL ON THE CPU: THESE RESULTS ARE MEANINGLESS"


@dataclass(frozen=True, slots=True, repr=False)
class Analysis(Result):
    """Findings, tables and figures of one GPU."""

    facts: Findings
    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """Throughput by mode, overhead of time slicing, clear recommendations, and failures."""
        f = self.facts
        modes, mixes = f.compared()
        stp = [
            Estimate(
                f"{name}: geometric mean STP of {count_noun(len(mixes), 'mix')}",
                *f.mixes.stp.mean_of(mode, mixes),
                "GPUs",
            )
            for mode, name in ((mode, mode_name(mode)) for mode in modes)
            if mixes
        ]
        lost = overhead(f.alike(BASELINE))
        advice = self.frames["advice"]
        clear = advice.filter(pl.col("verdict") == "better").height
        return [
            *stp,
            *([Estimate("time slicing: overhead of two equal tenants", *lost, "of a GPU")] if lost else []),
            Estimate.exact("recommendations", advice.height),
            Estimate.exact("recommendations with a clear best mode", clear),
            Estimate.exact("cells measured", len(f.gathered.meetings)),
            Estimate.exact("cells failed", len({(r["suite"], r["cell"]) for r in f.gathered.failures})),
        ]

    def answers(self) -> list[QuestionAnswer]:
        """Answers to the six questions."""
        return answers(self.facts)

    @property
    def findings(self) -> tuple[str, ...]:
        """What was measured, clear recommendations, common claims, and answers to the six questions."""
        f = self.facts
        where = "no GPU: a rehearsal" if f.gathered.rehearsal else f.gathered.gpu_name
        modes = ", ".join(mode_name(mode) for mode in f.mixes.stp.modes()) or "none"
        cells = f"{count_noun(len(f.gathered.meetings), 'cell')} of {count_noun(len(f.gathered.suites), 'suite')}"
        return (
            *([REHEARSAL] if f.gathered.rehearsal else []),
            f"{where}; {cells}; modes with mixes: {modes}",
            *(capital(f"{a.of}, {a.goal}: {a.sentence()}.") for a in by_kind(f.mixes) if a.verdict == "better"),
            *(capital(c.sentence()) + "." for c in claim_results(f)),
            *user_findings(self.frames["llm"], self.frames["notebook"]),  # they begin with the name of a tenant
            *(f"{a.question} {a}" for a in self.answers()),
        )

    def figures(self) -> dict[str, Figure]:
        """Throughput, interference, SMs, copies, open-loop requests and energy, as far as measured."""
        return analysis_figures(self.frames, self.facts.gathered.kinds, self.facts.goal)


def analyze(
    folder: Path, *, price: float | None = None, slo_factor: float = 3.0, slo_ms: float | None = None
) -> Analysis:
    """Read and analyze every suite in a folder; `price` is per GPU hour.

    `slo_factor` limits the tail latency relative to one tenant alone; `slo_ms`, instead, in milliseconds.
    """
    if price is not None and not (math.isfinite(price) and price >= 0):
        msg = f"not a price of a GPU hour: {price}"
        raise DeviceError(msg, hint="a number of at least 0, such as --price 3.5")
    goal = TailGoal(slo_factor, slo_ms)
    f = collect_findings(collect_suites(suites(folder)), price=price, goal=goal, turns=time_slice_record(folder))
    settings = {"card": f.gathered.gpu_name, "price": price, "slo_factor": slo_factor, "slo_ms": slo_ms}
    provenance = Provenance("bench analyze", f"{folder.name}: {', '.join(_plans(f))}", settings)
    return Analysis(f, _frames(f) | _sequence(folder), provenance, tuple(_notes(f)))


def _sequence(folder: Path) -> dict[str, pl.DataFrame]:
    """Modes that the GPU allowed, and stages, of a folder of `bench all`."""
    record = all_record(folder)
    return {} if record is None else {name: table(record[name]) for name in ("modes", "stages")}


def _plans(f: Findings) -> list[str]:
    return sorted({str(s.about["plan"]) for s in f.gathered.suites if s.cells})


def _frames(f: Findings) -> dict[str, pl.DataFrame]:
    x = f.mixes
    return {
        "answers": answer_table(f),
        "expected": expected_table(f),
        "kinds": kind_table(x),
        "advice": advice_table(f),
        "mixes": mix_table(x),
        "progress": progress_table(x),
        "scale": scale_table(f.scaling_curves),
        "curve": curve_table(x),
        "serving": serving_table(f.served_tenants),
        "llm": llm_table(f.gathered),
        "notebook": notebook_table(f.gathered),
        "costs": cost_table(x, price=f.price),
        "checks": table(_checks(f)),
        "failures": table(f.gathered.failures, FAILURES),
    }


def _checks(f: Findings) -> list[dict[str, Any]]:
    """Validity checks by suite."""
    rows = []
    for s in f.gathered.suites:
        good = [c for c in s.cells if c["status"] == "ok"]
        rows += [{"suite": s.path.name, **row} for row in rows_checks(s.about, good)] if good else []
    return rows


def _notes(f: Findings) -> list[str]:
    g, noise = f.gathered, f.mixes.noise
    notes = [REHEARSAL] if g.rehearsal else []
    notes += g.notes
    notes += mode_notes({m.mode for m in g.meetings})
    notes.append("progress is relative to the median rate of the tenant alone on the whole GPU without MPS")
    notes.append("intervals are 95 % each; noise is pooled over mixes of the same work in one kind of mode")
    notes.append(noise.note(g, g.alone))
    if noise.run[False].freedom:
        apart = 100 * math.sqrt(noise.run[False].variance)
        notes.append(f"between runs the rate of a tenant alone varies by {apart:.1f} % (SD) more than between blocks")
    elif len([s for s in g.suites if s.cells]) > 1:
        notes.append("no cell was measured in two suites: intervals do not include variation between runs")
    notes.append("GPU utilization is the fraction of time in which any kernel ran, not how much of the GPU it used")
    if short_windows(g):
        notes.append("windows below 5 s: the energy counter is too coarse, energy is imprecise")
    broken = [f"{g['suite']}, {g['check']} ({g['worst']})" for g in _checks(f) if g["passed"] is False]
    notes += [f"check failed: {one}" for one in broken]
    if any(row.get("tail_ms") and math.isnan(row["tail_ms_high"]) for c in f.scaling_curves for row in c.rows):
        notes.append(
            "copies with open-loop requests: how requests wait in groups was not recorded, so that their P99 has "
            "no interval, and its value alone decides their state"
        )
    behind = [f"{_served(s)} {s.shortfall()}" for s in f.served_tenants if s.behind]
    late = [_served(s) for s in f.served_tenants if not s.valid and not s.behind]
    notes += [f"no choice, because the server does not keep up: {', '.join(behind)}"] if behind else []
    notes += [f"not compared, because the generator's P99 lag was above 1 ms: {', '.join(late)}"] if late else []
    return notes


def _served(s: ServedTenant) -> str:
    return f"{s.tenant} beside {s.background} under {mode_name(s.mode)}"
