"""The analysis of a folder of suites as a result, with its figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result
from fleetlab.gpu.bench.all_modes import all_record
from fleetlab.gpu.bench.analysis.answers import QuestionAnswer, answer_table, answers
from fleetlab.gpu.bench.analysis.choice import advice_table, by_kind, kind_table
from fleetlab.gpu.bench.analysis.findings import Findings, claim_results, collect_findings, expected_table, overhead
from fleetlab.gpu.bench.analysis.measure import collect_suites
from fleetlab.gpu.bench.analysis.mixes import mix_table, progress_table
from fleetlab.gpu.bench.analysis.scale import TailGoal, cost_table, curve_table, scale_table, short_windows
from fleetlab.gpu.bench.analysis.serving import ServedTenant, llm_table, notebook_table, serving_table, user_findings
from fleetlab.gpu.bench.analysis.wording import capital, count_noun, mode_name, mode_notes, mode_order
from fleetlab.gpu.bench.results.cells import BASELINE, suites, table, time_slice_record
from fleetlab.gpu.bench.results.suite import FAILURES, check_price, rows_checks

Named = Iterator[tuple[str, Figure]]
ENERGY = "energy relative to alone, one after the other"


def analysis_figures(tables: Mapping[str, pl.DataFrame], kinds: Mapping[str, str], goal: TailGoal) -> dict[str, Figure]:
    """All figures that have data, by name; `kinds` are those of tenants, `goal` the limit of the tail latency."""
    return dict(
        [
            *_by_mix(tables["mixes"], "stp", "throughput", "system throughput (STP), GPUs"),
            *_interference(tables["progress"], kinds),
            *_sm_curve(tables["curve"]),
            *_copies(tables["scale"], goal),
            *_serving(tables["serving"]),
            *_by_mix(tables["mixes"], "energy_times", "energy", ENERGY),
        ]
    )


def _by_mode(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows in the order of modes, with their readable names as series."""
    modes = sorted(frame["mode"].unique(), key=mode_order)
    rows = frame.sort(pl.col("mode").replace_strict(modes, range(len(modes))), maintain_order=True)
    return rows.with_columns(series=pl.col("mode").replace_strict({mode: mode_name(mode) for mode in modes}))


def _points(rows: pl.DataFrame, x: str, y: str) -> pl.DataFrame:
    return rows.select(pl.col(x).alias("x"), y=y, low=f"{y}_low", high=f"{y}_high", series="series")


def _extremes(points: pl.DataFrame) -> str:
    ends = points.sort("y")
    low, high = ends.row(0, named=True), ends.row(-1, named=True)
    return " and ".join(
        f"{word} {row['y']:,.3g} ({row['series']}, {row['x']})" for word, row in (("lowest", low), ("highest", high))
    )


def _by_mix(mixes: pl.DataFrame, column: str, name: str, label: str) -> Named:
    """One figure per kind of mix; only mixes in several modes, if there are any."""
    if mixes.is_empty():
        return
    # Copies of one tenant have figures of their own.
    crowd = (pl.col("tenants") > 2) & pl.col("mix").str.contains(r"^\d+ [^+]*$")
    valued = mixes.filter(pl.col(column).is_not_null() & ~crowd)
    several = valued.filter(pl.len().over("mix") > 1)
    rows = several if several.height else valued
    for (kind,), some in rows.sort("kind", descending=True).group_by("kind", maintain_order=True):
        points = _points(_by_mode(some.sort(column, "mix", descending=[True, False])), "mix", column)
        alt = f"{label}, of each mix by mode, 1 is as alone: {_extremes(points)}"
        yield f"{name}, {kind}", Figure(f"{name.capitalize()}: {kind}", "dots", points, "mix", label, alt)


def _interference(progress: pl.DataFrame, kinds: Mapping[str, str]) -> Named:
    """One heat map per mode: progress of a row beside a column."""
    if progress.is_empty():
        return
    order = sorted(kinds, key=lambda name: ({"training": 0, "inference": 1}.get(kinds[name], 2), name))
    pairs = progress.filter(pl.col("beside").is_in(order)).sort(
        *(pl.col(column).replace_strict(order, range(len(order)), default=None) for column in ("tenant", "beside"))
    )
    for mode in sorted(pairs["mode"].unique(), key=mode_order):
        cells = pairs.filter(pl.col("mode") == mode).select(x="beside", y="tenant", value="progress")
        title = f"Interference under {mode_name(mode)}"
        worst = cells.sort("value").row(0, named=True)
        alt = f"progress relative to alone; the lowest is {worst['value']:.2f}, {worst['y']} beside {worst['x']}"
        yield f"interference, {mode}", Figure(title, "heat", cells, "beside", "progress of", alt)


def _sm_curve(curve: pl.DataFrame) -> Named:
    if curve.is_empty():
        return
    points = _points(curve.sort("tenant", "sms").with_columns(series="tenant"), "sms", "progress")
    alt = f"progress of each tenant alone on a part of the SMs under MPS: {_extremes(points)}"
    y = "progress (1: alone on all SMs, without MPS)"
    yield "sm curve", Figure("Progress on a part of the SMs", "line", points, "SMs", y, alt)


def _copies(scale: pl.DataFrame, goal: TailGoal) -> Named:
    """Total throughput and tail latency by the number of copies of each tenant."""
    for tenant in dict.fromkeys(scale["tenant"]):
        rows = scale.filter((pl.col("tenant") == tenant) & pl.col("rate").is_not_null())
        if rows.is_empty():
            continue
        rows, x, last = _by_mode(rows.sort("tenants")), f"copies of {tenant}", max(rows["tenants"].to_list())
        points = _points(rows, "tenants", "rate")
        alt = f"total throughput with up to {last} copies: {_extremes(points)}"
        title, y = f"Throughput of copies of {tenant}", f"{rows['unit'][0]} in total"
        yield f"copies, {tenant}", Figure(title, "line", points, x, y, alt, log_x=True)
        timed = rows.filter(pl.col("times").is_not_null())
        if timed.is_empty():
            continue
        points = _points(timed, "tenants", "tail_ms")
        limit = goal.slo_ms or goal.factor * timed["tail_ms"][0] / timed["times"][0]
        ends = [{"x": n, "y": limit, "series": f"limit: {goal}"} for n in (1, last)]
        alt = f"tail latency with up to {last} copies: {_extremes(points)}; the limit is {limit:,.3g} ms"
        points = pl.concat([points, pl.DataFrame(ends, schema_overrides={"x": points["x"].dtype})], how="diagonal")
        # Only open loops have P99.
        what = "latency" if timed["percentile"][0] == "P99" else "step time"
        title, y = f"Tail latency of copies of {tenant}", f"{timed['percentile'][0]} {what}, ms"
        yield f"tail of copies, {tenant}", Figure(title, "line", points, x, y, alt, log_x=True, log_y=True)


def _serving(serving: pl.DataFrame) -> Named:
    """P99 by rate, one figure per background; cells with a late generator are left out."""
    if serving.is_empty():
        return
    valid = serving.filter(pl.col("p99_ms").is_not_null() & pl.col("valid"))
    for (background,), rows in valid.group_by("background", maintain_order=True):
        points = _points(_by_mode(rows.sort("offered")), "offered", "p99_ms")
        where = "alone" if background == "nothing" else f"beside {background}"
        title, x = f"P99 latency of open-loop requests, {where}", "requests/s offered"
        alt = f"P99 from the scheduled time, by rate and mode: {_extremes(points)}"
        yield f"serving, {where}", Figure(title, "line", points, x, "P99 latency, ms", alt, log_y=True)


# --- the analysis of a folder of suites as a result ------------------------------------------------------------------


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
            Estimate.exact("cells measured", len(f.gathered.cells)),
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
        cells = f"{count_noun(len(f.gathered.cells), 'cell')} of {count_noun(len(f.gathered.suites), 'suite')}"
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
    check_price(price)
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
        good = [c for c in s.cells if c.ok]
        rows += [{"suite": s.path.name, **row} for row in rows_checks(s.about, good)] if good else []
    return rows


def _notes(f: Findings) -> list[str]:
    g, noise = f.gathered, f.mixes.noise
    notes = [REHEARSAL] if g.rehearsal else []
    notes += g.notes
    notes += mode_notes({m.mode for m in g.cells})
    notes.append("progress is relative to the median rate of the tenant alone on the whole GPU without MPS")
    notes.append("intervals are 95 % each; noise is pooled over mixes of the same work in one kind of mode")
    notes.append(noise.note(g, g.alone.rates))
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
