"""Find and read the suites of a folder; truncated parts are ignored and noted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetlab.bench.results.cells import Cell, last_tries, read_cells
from fleetlab.core import DeviceError

BASELINE = "time-slicing"  # alone in this mode a tenant has the whole GPU


@dataclass(frozen=True, slots=True)
class SuiteFolder:
    """The folder of one suite: manifest, cells in the order of measurement, and notes."""

    path: Path
    about: dict[str, Any]
    cells: list[Cell]
    notes: tuple[str, ...] = ()

    @property
    def gpu_name(self) -> str:
        """The GPU model; none for a rehearsal."""
        if self.about.get("rehearsal"):
            return "no GPU (a rehearsal on the CPU)"
        return str((self.about.get("card") or {}).get("name") or "an unknown GPU")


def suites(folder: Path) -> list[SuiteFolder]:
    """All suites in `folder` or below; they must be of one GPU model."""
    if not folder.is_dir():
        msg = f"{'not a folder' if folder.exists() else 'no such folder'}: {folder}"
        raise DeviceError(msg, hint="name a folder of `fleetlab bench suite PLAN --out FOLDER`, or a folder of such")
    homes = sorted({path.parent for path in folder.rglob("cells.jsonl*") if path.name.endswith(("jsonl", "jsonl.gz"))})
    suites_read = [_suite(home) for home in homes]
    if not any(s.cells for s in suites_read):
        why = f": {suites_read[0].notes[0]}" if suites_read and suites_read[0].notes else ""
        msg = f"{folder}: no results of a suite{why}"
        raise DeviceError(msg, hint="`fleetlab bench suite PLAN --out FOLDER` makes one")
    _of_one_card([s for s in suites_read if s.cells])
    return suites_read


def _of_one_card(found: list[SuiteFolder]) -> None:
    cards = {s.gpu_name: s.path.name for s in found}
    if len(cards) > 1:
        listed = "; ".join(f"{card} in {name}" for card, name in cards.items())
        msg = f"suites of different GPUs in one folder: {listed}"
        raise DeviceError(msg, hint="analyze the folder of each GPU model separately")


def _suite(home: Path) -> SuiteFolder:
    try:
        about, tries, cut = read_cells(home)
        if not isinstance(about, dict) or "plan" not in about:
            return SuiteFolder(home, {}, [], (f"{home.name}: ignored, its manifest has no plan",))
    except DeviceError as e:
        return SuiteFolder(
            home, {}, [], (f"{home.name}: ignored, it cannot be read: {str(e).rpartition('suite: ')[2]}",)
        )
    cells = [c | {"tenants": c.get("tenants") or [], "gpu": c.get("gpu") or {}} for c in last_tries(tries)]
    notes = (f"{home.name}: its truncated last line is ignored",) if cut else ()
    return SuiteFolder(home, about, cells, notes)


def time_slice_record(folder: Path) -> dict[str, Any] | None:
    """The measured time slices, if there is a `slices.json` in the folder."""
    for path in sorted(folder.rglob("slices.json")):
        try:
            record = json.loads(path.read_text("utf-8"))
            if record["device"] != "cpu" and len(record[BASELINE]["2"]["slice_ms"]) == 6:
                return dict(record[BASELINE]["2"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
