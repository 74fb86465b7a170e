"""Results of the probes as tables: one row per probe and mode, and a guarantee per mode with the cell behind it."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import DeviceError, Estimate, Provenance, Result

Cell = dict[str, Any]


@dataclass(frozen=True, slots=True)
class IsolationResult(Result):
    """What happened in each probe, by mode."""

    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """Number of probes, and of neighbors that did not survive."""
        lost = sum(not alive for name in ("faults", "memory") for alive in self.frames[name]["survived"])
        count = sum(frame.height for frame in self.frames.values())
        return [Estimate.exact("rows", count), Estimate.exact("neighbors lost", lost)]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Faults, memory, performance, information and failed cells."""
        return {name: frame for name, frame in self.frames.items() if frame.height}


def isolation_result(folder: Path) -> IsolationResult:
    """Read the folder of `fleetlab bench isolation --out`."""
    about, cells = read_probes(folder)
    good = [cell for cell in cells if cell["status"] == "ok"]
    by = {
        probe: [c for c in good if c["probe"] == probe] for probe in ("faults", "memory", "performance", "information")
    }
    frames = {
        "faults": pl.DataFrame([_fault(c) for c in by["faults"]], schema=FAULT),
        "memory": pl.DataFrame([_memory(c) for c in by["memory"]], schema=MEMORY),
        "performance": pl.DataFrame([r for c in by["performance"] for r in _performance(c)], schema=PERFORMANCE),
        "information": pl.DataFrame([_information(c) for c in by["information"]], schema=INFORMATION),
        "failed": pl.DataFrame(
            [{"cell": c["cell"], "detail": c["detail"]} for c in cells if c["status"] != "ok"],
            schema={"cell": pl.String, "detail": pl.String},
        ),
    }
    notes = ["times are in seconds from the event; a new process is one that has to open the GPU"]
    if about.get("rehearsal"):
        notes.append("a rehearsal on the CPU: the results are meaningless")
    if apart := [c["cell"] for c in good if not c["attached"]]:
        notes.append(f"not proved to be attached to MPS: {', '.join(apart)}")
    card = about.get("card", {}).get("name", about.get("device", ""))
    return IsolationResult(frames, Provenance("bench isolation", card, {"folder": folder.name}), tuple(notes))


def read_probes(folder: Path) -> tuple[dict[str, Any], list[Cell]]:
    """The manifest, and the last measurement of each cell."""
    try:
        about: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
        packed = folder / "probes.jsonl.gz"
        plain = folder / "probes.jsonl"
        text = gzip.decompress(packed.read_bytes()).decode() if packed.exists() else plain.read_text("utf-8")
        cells = [json.loads(line) for line in text.splitlines() if line]
        by = {cell["cell"]: cell for cell in sorted(cells, key=lambda cell: cell["status"] == "ok")}
    except (OSError, ValueError, KeyError) as e:
        msg = f"{folder}: not a folder of probes: {e}"
        raise DeviceError(msg, hint="`fleetlab bench isolation --out FOLDER` makes one") from None
    return about, [cell for name, cell in by.items() if name]


STRING, NUMBER, WHOLE, TRUTH = pl.String(), pl.Float64(), pl.Int64(), pl.Boolean()
FAULT = {
    "mode": STRING,
    "fault": STRING,
    "survived": TRUTH,
    "wrong_results": WHOLE,
    "slowed_to": NUMBER,
    "longest_gap": NUMBER,
    "new_process_after": NUMBER,
    "error": STRING,
}
MEMORY = {
    "mode": STRING,
    "held_mib": WHOLE,
    "survived": TRUTH,
    "refused": WHOLE,
    "good_while_full": WHOLE,
    "good_after": TRUTH,
    "new_process_while_full": TRUTH,
    "new_process_after": NUMBER,
}
PERFORMANCE = {"mode": STRING, "stressor": STRING, "duty": NUMBER, "speed": NUMBER, "max_ms": NUMBER, "wrong": WHOLE}
INFORMATION = {"mode": STRING, "freed_by": STRING, "written_mib": NUMBER, "read_mib": WHOLE, "found": NUMBER}


def _fault(cell: Cell) -> dict[str, Any]:
    one = cell["neighbor"]
    before, during = one["before"]["per_second"], one["during"]["per_second"]
    return {
        "mode": cell["mode"],
        "fault": cell["kind"],
        "survived": one["survived"],
        "wrong_results": sum(one[phase]["wrong"] for phase in ("before", "during", "after")),
        "slowed_to": during / before if before and cell["kind"] == "hang" else None,
        "longest_gap": one["longest_gap_s"],
        "new_process_after": cell["newcomer"]["after_s"],
        "error": one["error"] or None,
    }


def _memory(cell: Cell) -> dict[str, Any]:
    one = cell["neighbor"]
    return {
        "mode": cell["mode"],
        "held_mib": cell["aggressor"]["held_mib"],
        "survived": one["survived"],
        "refused": one["during"]["refused"],
        "good_while_full": one["during"]["good"],
        "good_after": one["good_after"],
        "new_process_while_full": cell["newcomer_while_full"]["good"],
        "new_process_after": cell["newcomer"]["after_s"],
    }


def _performance(cell: Cell) -> list[dict[str, Any]]:
    alone = [w["per_second"] for w in cell["windows"] if not w["stressor"]]
    base = sum(alone) / len(alone)
    return [
        {
            "mode": cell["mode"],
            "stressor": w["stressor"],
            "duty": w["duty"],
            "speed": w["per_second"] / base if base else None,
            "max_ms": w.get("max_ms"),
            "wrong": w["wrong"],
        }
        for w in cell["windows"]
        if w["stressor"]
    ]


def _information(cell: Cell) -> dict[str, Any]:
    return {
        "mode": cell["mode"],
        "freed_by": cell["kind"],
        "written_mib": cell["written_words"] / (1 << 18),
        "read_mib": cell["read_mib"],
        "found": cell["found_share"],
    }
