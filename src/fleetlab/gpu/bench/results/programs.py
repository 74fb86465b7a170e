"""Results of programs that measure beside suites: a workload alone, and a stress test.

A record names the cells behind it. A mode that was not measured has none.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import DeviceError, Estimate, Provenance
from fleetlab.core.files import folder_at
from fleetlab.core.result import FieldsResult
from fleetlab.gpu.bench.options import WorkloadOptions
from fleetlab.gpu.bench.stress import StressGoal, StressStep, edges, judge_steps, p95_limit, sentence, steps
from fleetlab.gpu.devices.console import BenchError, Progress


def single_result(options: WorkloadOptions, *, progress: Progress) -> tuple[FieldsResult, int]:
    """Run one workload as the command line asks for it: its estimates and tables, and the exit status."""
    try:
        from fleetlab.gpu.bench.single import run_workload
    except ImportError as e:
        raise BenchError(f"a package is not installed: {e}", hint="pip install 'fleetlab[bench]'") from None
    report = run_workload(options, progress=progress)
    about = {key: value for key, value in report.about.items() if key != "seed"}
    provenance = Provenance("bench workload", report.work, about, report.about["seed"])
    estimates = [Estimate(*number) for number in report.numbers]
    frames = {name: pl.DataFrame(rows, infer_schema_length=None) for name, rows in report.tables.items()}
    tiny = ["tiny sizes: the results are meaningless"] if report.about["tiny"] else []
    notes = (*tiny, *report.notes)
    return FieldsResult(provenance, estimates=estimates, frames=frames, notes=notes), report.status


# --- the result of a stress test: the breaking point of each mode, and every number of tenants that was measured -----


def stress_result(folder: Path) -> FieldsResult:
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
    rows = frames["answers"].iter_rows(named=True)
    estimates = [Estimate.exact(f"{row['mode']}: good up to", row["good"], "tenants") for row in rows]
    notes = (*sentences, *_notes(about, goal, by_mode))
    return FieldsResult(provenance, estimates=estimates, frames=frames, notes=notes)


ANSWERS: dict[str, Any] = {"mode": pl.String, "good": pl.Int64, "breaks_at": pl.Int64, "why": pl.String}
STEPS: dict[str, Any] = {"mode": pl.String, "tenants": pl.Int64}
STEPS |= dict.fromkeys(("throughput", "low", "high"), pl.Float64) | {"unit": pl.String}
STEPS |= dict.fromkeys(("progress", "worst", "best", "p95_ms", "p95_low", "p95_high"), pl.Float64)
STEPS |= dict.fromkeys(("memory_mib", "watts", "cores"), pl.Float64) | {"failures": pl.Int64, "good": pl.Boolean}


def _answer(mode: str, reasons: dict[int, list[str]]) -> dict[str, Any]:
    good, bad = edges(reasons)
    return {"mode": mode, "good": good, "breaks_at": bad, "why": "; ".join(reasons[bad]) if bad is not None else None}


def _row(mode: str, step: StressStep, alone: StressStep | None, why: list[str]) -> dict[str, Any]:
    card = step.cell.get("gpu") or {}
    known = alone is not None and alone.rate > 0
    progress = [t["rate"] / alone.rate for t in step.tenants] if alone is not None and known else []
    p95 = [1000 * x for x in step.p95] if step.p95 else [None] * 3
    rate = step.throughput if step.tenants else (None, None, None)
    return {
        "mode": mode,
        "tenants": step.count,
        **dict(zip(("throughput", "low", "high"), rate, strict=True)),
        "unit": f"{step.tenants[0]['unit']}/s" if step.tenants else None,
        "progress": sum(progress) / len(progress) if progress else None,
        "worst": min(progress, default=None),
        "best": max(progress, default=None),
        **dict(zip(("p95_ms", "p95_low", "p95_high"), p95, strict=True)),
        "memory_mib": card.get("memory_mib"),
        "watts": card.get("watts"),
        "cores": step.cores if step.tenants else None,
        "failures": len(step.failures),
        "good": not why,
    }


def _notes(about: dict[str, Any], goal: StressGoal, by_mode: dict[str, dict[int, StressStep]]) -> Iterable[str]:
    if about["rehearsal"]:
        yield "a rehearsal on the CPU: the results are meaningless"
    for mode, by in by_mode.items():
        if by.get(1) and by[1].tenants and p95_limit(by[1], goal) is None:
            yield f"{mode}: too few steps alone for a P95, so latency was not checked; longer --window, or --slo-ms"
        if by.get(1) and about["device"].startswith("cuda") and by[1].starved > 0.25:
            starved = 100 * by[1].starved
            yield f"{mode}: alone, {starved:.0f} % of steps find the GPU idle: the host is the bottleneck at once"
    yield "each number of tenants was measured in one window: intervals do not cover variation between runs"


# --- results of the probes: a table row per probe and mode, and a record per mode and guarantee ----------------------


Cell = dict[str, Any]
KEPT, PARTLY, LOST = "kept", "partly", "lost"
UNTOUCHED = 0.9  # of the speed alone: a neighbor that keeps this much counts as undisturbed
SHORT = 0.5  # s without a good step: below it, an event counts as unnoticed
GIB = 1024


@dataclass(frozen=True, slots=True)
class MeasuredGuarantee:
    """How a mode keeps a guarantee, in a sentence with the numbers, and the cells that show it."""

    mode: str
    guarantee: str
    verdict: str
    says: str
    cells: tuple[str, ...]


def measured_guarantees(cells: Sequence[Cell]) -> list[MeasuredGuarantee]:
    """Judge the good cells of a run."""
    good = [cell for cell in cells if cell["status"] == "ok"]
    records = []
    for mode in dict.fromkeys(cell["mode"] for cell in good):
        for guarantee, (probe, judge) in JUDGES.items():
            here = [cell for cell in good if (cell["mode"], cell["probe"]) == (mode, probe)]
            if here:
                verdict, says = judge(here)
                records.append(MeasuredGuarantee(mode, guarantee, verdict, says, tuple(c["cell"] for c in here)))
    return records


# --- one judge per guarantee -----------------------------------------------------------------------------------------


def _memory_verdict(cells: Sequence[Cell]) -> tuple[str, str]:
    cell = cells[-1]
    during, gib = cell["neighbor"]["during"], cell["aggressor"]["held_mib"] / GIB
    tried = during["good"] + during["refused"]
    says = f"a tenant took {gib:.1f} GiB; the neighbor was refused {during['refused']} of {tried} allocations"
    if not during["refused"] and cell["newcomer_while_full"]["good"]:
        return KEPT, says + ", and a new process could start"
    start = "could" if cell["newcomer_while_full"]["good"] else "could not"
    return LOST, f"{says} until the release; a new process {start} start"


def _faults(cells: Sequence[Cell]) -> tuple[str, str]:
    lost = [cell["kind"] for cell in cells if not cell["neighbor"]["survived"]]
    every = [cell["kind"] for cell in cells]
    if not lost:
        return KEPT, f"the neighbor survived: {_words(every)}"
    if survived := [kind for kind in every if kind not in lost]:
        return PARTLY, f"the neighbor died of: {_words(lost)}; it survived: {_words(survived)}"
    return LOST, f"the neighbor died of: {_words(lost)}"


def _stalls(cells: Sequence[Cell]) -> tuple[str, str]:
    """Gaps in the fault cells: a kernel that does not end, and a death in the middle of one.

    A neighbor that died has no gap that ends, so the guarantee is kept in part at best.
    """
    gaps = {c["kind"]: c["neighbor"]["longest_gap_s"] for c in cells if c["neighbor"]["survived"]}
    measured = {kind: gap for kind, gap in gaps.items() if gap is not None}
    if not measured:
        return LOST, "no neighbor survived"
    says = "longest time without a good step: " + ", ".join(f"{kind} {_seconds(gap)}" for kind, gap in measured.items())
    short = max(measured.values()) < SHORT
    if died := [cell["kind"] for cell in cells if not cell["neighbor"]["survived"]]:
        return (PARTLY if short else LOST), f"{says}; the neighbor died, and made no further step: {_words(died)}"
    return (KEPT if short else LOST), says


def _recovery(cells: Sequence[Cell]) -> tuple[str, str]:
    after = {cell["kind"]: cell["newcomer"]["after_s"] for cell in cells}
    says = "a new process computed after: " + ", ".join(
        f"{kind} {_seconds(s) if s is not None else 'never'}" for kind, s in after.items()
    )
    return (KEPT if all(s is not None for s in after.values()) else LOST), says


def _performance_verdict(cells: Sequence[Cell]) -> tuple[str, str]:
    windows = cells[-1]["windows"]
    alone = [w["per_second"] for w in windows if not w["stressor"]]
    base = sum(alone) / len(alone)
    by = {(w["stressor"], w["duty"]): w["per_second"] / base for w in windows if w["stressor"]}
    worst = {duty: min((v, s) for (s, d), v in by.items() if d == duty) for duty in sorted({d for _, d in by})}
    says = "worst neighbor: " + ", ".join(f"{v:.2f} at duty {duty:g} ({s})" for duty, (v, s) in worst.items())
    lowest = min(by.values())
    return (KEPT if lowest >= UNTOUCHED else LOST), says


def _information_verdict(cells: Sequence[Cell]) -> tuple[str, str]:
    shares = {cell["kind"]: cell["found_share"] for cell in cells}
    says = "of a freed pattern the next tenant found: " + ", ".join(
        f"{100 * v:.0f} % ({kind})" for kind, v in shares.items()
    )
    says += f"; it read {min(cell['read_mib'] for cell in cells) / GIB:.0f} GiB or more"
    return (LOST if any(shares.values()) else KEPT), says


JUDGES: dict[str, tuple[str, Callable[[Sequence[Cell]], tuple[str, str]]]] = {
    "memory cap": ("memory", _memory_verdict),
    "fault isolation": ("faults", _faults),
    "no stalls": ("faults", _stalls),
    "recovery": ("faults", _recovery),
    "fairness": ("performance", _performance_verdict),
    "confidentiality": ("information", _information_verdict),
}


def _words(kinds: Sequence[str]) -> str:
    return ", ".join(kinds)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.0f} ms"


# --- results of the probes as tables ---------------------------------------------------------------------------------


def isolation_result(folder: Path) -> FieldsResult:
    """Read the folder of `fleetlab bench isolation --out`."""
    about, cells = read_probes(folder)
    good = [cell for cell in cells if cell["status"] == "ok"]
    by: dict[str, list[Cell]] = {"failed": [cell for cell in cells if cell["status"] != "ok"]}
    for cell in good:
        by.setdefault(cell["probe"], []).extend(_windows(cell) if cell["probe"] == "performance" else [cell])
    frames = {name: _frame(name, by.get(name, [])) for name in TABLES}
    notes = ["times are in seconds from the event; a new process is one that has to open the GPU"]
    if about.get("rehearsal"):
        notes.append("a rehearsal on the CPU: the results are meaningless")
    if apart := [c["cell"] for c in good if not c["attached"]]:
        notes.append(f"not proved to be attached to MPS: {', '.join(apart)}")
    card = about.get("card", {}).get("name", about.get("device", ""))
    lost = sum(not alive for name in ("faults", "memory") for alive in frames[name]["survived"])
    count = sum(frame.height for frame in frames.values())
    estimates = [Estimate.exact("rows", count), Estimate.exact("neighbors lost", lost)]
    frames = {name: frame for name, frame in frames.items() if frame.height}
    provenance = Provenance("bench isolation", card, {"folder": folder.name})
    return FieldsResult(provenance, estimates=estimates, frames=frames, notes=tuple(notes))


def read_probes(folder: Path) -> tuple[dict[str, Any], list[Cell]]:
    """The manifest, and the last measurement of each cell."""
    place = folder_at(folder)
    try:
        about: dict[str, Any] = json.loads((place / "manifest.json").read_text("utf-8"))
        packed = place / "probes.jsonl.gz"
        plain = place / "probes.jsonl"
        text = gzip.decompress(packed.read_bytes()).decode() if packed.exists() else plain.read_text("utf-8")
        cells = [json.loads(line) for line in text.splitlines() if line]
        by = {cell["cell"]: cell for cell in sorted(cells, key=lambda cell: cell["status"] == "ok")}
    except (OSError, ValueError, KeyError) as e:
        msg = f"{folder}: not a folder of probes: {e}"
        raise DeviceError(msg, hint="`fleetlab bench isolation --out FOLDER` makes one") from None
    return about, [cell for name, cell in by.items() if name]


# Columns of the tables: the type, and the value in a cell of one probe, or in one window of it.
Columns = dict[str, tuple[pl.DataType, Callable[[Cell], Any]]]
STRING, NUMBER, WHOLE, TRUTH = pl.String(), pl.Float64(), pl.Int64(), pl.Boolean()
MODE: Columns = {"mode": (STRING, lambda c: c["mode"])}
TABLES: dict[str, Columns] = {
    "faults": MODE
    | {
        "fault": (STRING, lambda c: c["kind"]),
        "survived": (TRUTH, lambda c: c["neighbor"]["survived"]),
        "wrong_results": (WHOLE, lambda c: sum(c["neighbor"][when]["wrong"] for when in ("before", "during", "after"))),
        "slowed_to": (NUMBER, lambda c: _slowed(c["neighbor"]) if c["kind"] == "hang" else None),
        "longest_gap": (NUMBER, lambda c: c["neighbor"]["longest_gap_s"]),
        "new_process_after": (NUMBER, lambda c: c["newcomer"]["after_s"]),
        "error": (STRING, lambda c: c["neighbor"]["error"] or None),
    },
    "memory": MODE
    | {
        "held_mib": (WHOLE, lambda c: c["aggressor"]["held_mib"]),
        "survived": (TRUTH, lambda c: c["neighbor"]["survived"]),
        "refused": (WHOLE, lambda c: c["neighbor"]["during"]["refused"]),
        "good_while_full": (WHOLE, lambda c: c["neighbor"]["during"]["good"]),
        "good_after": (TRUTH, lambda c: c["neighbor"]["good_after"]),
        "new_process_while_full": (TRUTH, lambda c: c["newcomer_while_full"]["good"]),
        "new_process_after": (NUMBER, lambda c: c["newcomer"]["after_s"]),
    },
    "performance": MODE
    | {
        "stressor": (STRING, lambda w: w["stressor"]),
        "duty": (NUMBER, lambda w: w["duty"]),
        "speed": (NUMBER, lambda w: w["per_second"] / w["alone"] if w["alone"] else None),
        "max_ms": (NUMBER, lambda w: w.get("max_ms")),
        "wrong": (WHOLE, lambda w: w["wrong"]),
    },
    "information": MODE
    | {
        "freed_by": (STRING, lambda c: c["kind"]),
        "written_mib": (NUMBER, lambda c: c["written_words"] / (1 << 18)),
        "read_mib": (WHOLE, lambda c: c["read_mib"]),
        "found": (NUMBER, lambda c: c["found_share"]),
    },
    "failed": {"cell": (STRING, lambda c: c["cell"]), "detail": (STRING, lambda c: c["detail"])},
}


def _frame(name: str, cells: Sequence[Cell]) -> pl.DataFrame:
    columns = TABLES[name]
    rows = [{column: value(cell) for column, (_, value) in columns.items()} for cell in cells]
    return pl.DataFrame(rows, schema={column: kind for column, (kind, _) in columns.items()})


def _slowed(neighbor: Cell) -> float | None:
    """Steps per second during the event over those before."""
    before, during = neighbor["before"]["per_second"], neighbor["during"]["per_second"]
    return during / before if before else None


def _windows(cell: Cell) -> list[Cell]:
    """Windows of a cell beside a stressor, with the mean rate of those without one."""
    alone = [w["per_second"] for w in cell["windows"] if not w["stressor"]]
    about = {"mode": cell["mode"], "alone": sum(alone) / len(alone)}
    return [about | w for w in cell["windows"] if w["stressor"]]
