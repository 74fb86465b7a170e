"""Find the suites in a folder and read them; what is half-written is left out and said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetlab.bench.results.cells import Cell, last, read
from fleetlab.core import DeviceError

WHOLE = "time-slicing"  # alone in this mode is a card of one's own


@dataclass(frozen=True, slots=True)
class Suite:
    """One folder that a suite wrote: what it said of itself, its cells in the order of their writing, and remarks."""

    path: Path
    about: dict[str, Any]
    cells: list[Cell]
    notes: tuple[str, ...] = ()

    @property
    def card(self) -> str:
        """The card's name; a rehearsal has none."""
        if self.about.get("rehearsal"):
            return "no card (a rehearsal on the CPU)"
        return str((self.about.get("card") or {}).get("name") or "an unknown card")


def suites(folder: Path) -> list[Suite]:
    """All suites in `folder`, itself or anywhere below; they must all be of one kind of card."""
    if not folder.is_dir():
        msg = f"no such folder: {folder}"
        raise DeviceError(msg, hint="name what `fleetlab bench suite PLAN --out FOLDER` wrote, or a folder of such")
    homes = sorted({path.parent for path in folder.rglob("cells.jsonl*") if path.name.endswith(("jsonl", "jsonl.gz"))})
    found = [_suite(home) for home in homes]
    if not any(s.cells for s in found):
        why = f": {found[0].notes[0]}" if found and found[0].notes else ""
        msg = f"{folder}: holds no measured suite{why}"
        raise DeviceError(msg, hint="`fleetlab bench suite PLAN --out FOLDER` makes one")
    _of_one_card([s for s in found if s.cells])
    return found


def _of_one_card(found: list[Suite]) -> None:
    cards = {s.card: s.path.name for s in found}
    if len(cards) > 1:
        listed = "; ".join(f"{card} in {name}" for card, name in cards.items())
        msg = f"suites of different cards in one folder: {listed}"
        raise DeviceError(
            msg, hint="what two cards do cannot be compared as modes: analyse each card's folder by itself"
        )


def _suite(home: Path) -> Suite:
    try:
        about, tries, cut = read(home)
        if not isinstance(about, dict) or "plan" not in about:
            return Suite(home, {}, [], (f"{home.name}: left out, its manifest names no plan",))
    except DeviceError as e:
        return Suite(home, {}, [], (f"{home.name}: left out, it cannot be read: {str(e).rpartition('suite: ')[2]}",))
    cells = [c | {"tenants": c.get("tenants") or [], "gpu": c.get("gpu") or {}} for c in last(tries)]
    notes = (f"{home.name}: its last line was half-written and is left out",) if cut else ()
    return Suite(home, about, cells, notes)


def turns(folder: Path) -> dict[str, Any] | None:
    """What those who watched a card's clock saw, where a `slices.json` lies in the folder."""
    for path in sorted(folder.rglob("slices.json")):
        try:
            told = json.loads(path.read_text("utf-8"))
            if told["device"] != "cpu" and len(told[WHOLE]["2"]["slice_ms"]) == 6:
                return dict(told[WHOLE]["2"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
