"""The analysis of a folder: its tables, its answers, and how it came to be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench.analysis.advice import SCHEMA, advice_table, by_kind, kind_table
from fleetlab.bench.analysis.costs import cost_table, short_windows
from fleetlab.bench.analysis.expected import came, expected_table
from fleetlab.bench.analysis.findings import Findings, found, overhead
from fleetlab.bench.analysis.folders import WHOLE, suites, turns
from fleetlab.bench.analysis.meetings import gathered, spoken
from fleetlab.bench.analysis.mixes import mix_table, progress_table
from fleetlab.bench.analysis.questions import Answer, answer_table, answers
from fleetlab.bench.analysis.scale import FACTOR, curve_table, scale_table
from fleetlab.bench.analysis.serving import by_serving, serving_table
from fleetlab.bench.analysis.timeline import Timeline, timelines
from fleetlab.bench.analysis.words import capital, times
from fleetlab.bench.results.cells import frame
from fleetlab.bench.results.checks import rows_gates
from fleetlab.bench.results.suite import FAILURES
from fleetlab.core import DeviceError, Estimate, Provenance, Result

REHEARSAL = "A REHEARSAL ON THE CPU: THESE NUMBERS MEAN NOTHING"


@dataclass(frozen=True, slots=True)
class Analysis(Result):
    """What a folder of suites says about sharing one card."""

    facts: Findings
    frames: dict[str, pl.DataFrame]
    timelines: list[Timeline]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """Throughput by mode, what time slicing loses, how many mixes have a clear best mode, and failures."""
        f = self.facts
        modes, mixes = f.compared()
        stp = [
            Estimate(f"{spoken(mode)}: mean STP of {len(mixes)} mixes", *f.mixes.stp.mean_of(mode, mixes), "cards")
            for mode in modes
            if mixes
        ]
        lost = overhead(f.alike(WHOLE))
        advice = self.frames["advice"]
        clear = advice.filter(pl.col("verdict") == "better").height
        return [
            *stp,
            *([Estimate("time slicing: overhead of two alike", *lost, "of a card")] if lost else []),
            Estimate.exact("recommendations", advice.height),
            Estimate.exact("recommendations with a clear best mode", clear),
            Estimate.exact("cells measured", len(f.gathered.meetings)),
            Estimate.exact("cells failed", len({(r["suite"], r["cell"]) for r in f.gathered.failures})),
        ]

    def answers(self) -> list[Answer]:
        """The six questions."""
        return answers(self.facts)

    def headline(self) -> list[str]:
        """The whole in a few sentences."""
        f = self.facts
        where = "no card: a rehearsal" if f.gathered.rehearsal else f.gathered.card
        modes = ", ".join(spoken(mode) for mode in f.mixes.stp.modes()) or "none"
        cells = f"{times(len(f.gathered.meetings), 'cell')} of {times(len(f.gathered.suites), 'suite')}"
        said = [f"{where}; {cells}; modes with mixes: {modes}"]
        if f.compared()[1]:
            said.append(capital(self.answers()[0].sentences[-1]) + ".")
        said += [capital(f"{a.of}, {a.goal}: {a.said()}.") for a in by_kind(f.mixes) if a.verdict == "better"]
        said += [capital(c.said()) + "." for c in came(f)]
        return said

    def __repr__(self) -> str:
        return f"<Analysis {self.provenance.source}, {self.frames['advice'].height} recommendations>"


def analyse(folder: Path, *, price: float | None = None, slo_factor: float = FACTOR) -> Analysis:
    """Read every suite in a folder and say what it means; `price` is that of an hour of the card.

    A tenant is broken when its tail is more than `slo_factor` times that alone.
    """
    if price is not None and not (math.isfinite(price) and price >= 0):
        msg = f"not a price of a GPU hour: {price}"
        raise DeviceError(msg, hint="a number of at least 0, such as --price 3.5")
    if not (math.isfinite(slo_factor) and slo_factor >= 1):
        msg = f"not a factor by which a tail may grow: {slo_factor}"
        raise DeviceError(msg, hint="a number of at least 1, such as --slo-factor 3")
    read = suites(folder)
    f = found(gathered(read), price=price, factor=slo_factor, turns=turns(folder))
    lines, remarks = timelines(read)
    settings = {"card": f.gathered.card, "price": price, "slo_factor": slo_factor}
    provenance = Provenance("bench analyse", f"{folder.name}: {', '.join(_plans(f))}", settings)
    return Analysis(f, _frames(f), lines, provenance, (*_notes(f), *remarks))


def _plans(f: Findings) -> list[str]:
    return sorted({str(s.about["plan"]) for s in f.gathered.suites if s.cells})


def _frames(f: Findings) -> dict[str, pl.DataFrame]:
    x = f.mixes
    served = [{"kind": "requests by a timetable", "mix": a.of, **a.row()} for a in by_serving(f.served, x.noise)]
    advice = [t for t in (advice_table(x), frame(served, SCHEMA)) if t.height]
    return {
        "answers": answer_table(f),
        "expected": expected_table(f),
        "kinds": kind_table(x),
        "advice": pl.concat(advice, how="diagonal_relaxed") if advice else pl.DataFrame(schema=SCHEMA),
        "mixes": mix_table(x),
        "progress": progress_table(x),
        "scale": scale_table(f.crowds),
        "curve": curve_table(x),
        "serving": serving_table(f.served),
        "costs": cost_table(x, price=f.price),
        "gates": frame(_gates(f)),
        "failures": frame(f.gathered.failures, FAILURES),
    }


def _gates(f: Findings) -> list[dict[str, Any]]:
    """May these numbers be believed? By suite."""
    found = []
    for s in f.gathered.suites:
        good = [c for c in s.cells if c["status"] == "ok"]
        found += [{"suite": s.path.name, **row} for row in rows_gates(s.about, good)] if good else []
    return found


def _notes(f: Findings) -> list[str]:
    g, noise = f.gathered, f.mixes.noise
    said = [REHEARSAL] if g.rehearsal else []
    said += g.notes
    said.append(
        "progress is against the tenant alone on the whole card without MPS, the median of all that was measured"
    )
    said.append("limits are 95 % each for itself; noise is pooled over cells of one mode and one kind of mix")
    if noise.run[False].freedom:
        apart = 100 * math.sqrt(noise.run[False].variance)
        said.append(f"from run to run the same tenant alone differs by {apart:.1f} % (SD) beyond its blocks")
    elif len([s for s in g.suites if s.cells]) > 1:
        said.append("no cell was measured in two suites: what one run differs from the next by is not in the limits")
    said.append("the card at work: the share of time in which any kernel ran, not how much of the card it filled")
    if short_windows(g):
        said.append("windows below 5 s: the energy counter is coarse over such, energy is a rough guide")
    broken = [f"{g['suite']}, {g['gate']} ({g['worst']})" for g in _gates(f) if g["holds"] is False]
    said += [f"a gate that did not hold: {one}" for one in broken]
    late = [f"{s.tenant} beside {s.background} under {spoken(s.mode)}" for s in f.served if not s.valid]
    if late:
        said.append(f"requests were sent more than 1 ms late at P99, so these are not compared: {', '.join(late)}")
    return said
