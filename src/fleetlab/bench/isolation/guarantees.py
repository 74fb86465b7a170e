"""What each mode guarantees to a neighbor, from the cells of the probes: one record per mode and guarantee.

A record names the cells behind it. A mode that was not measured has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

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


def to_json(records: Sequence[MeasuredGuarantee], *, folder: str, card: str, date: str) -> dict[str, Any]:
    """Records with the folder, card and date of the run."""
    return {"folder": folder, "card": card, "date": date, "records": [asdict(record) for record in records]}


# --- one judge per guarantee -----------------------------------------------------------------------------------------


def _memory(cells: Sequence[Cell]) -> tuple[str, str]:
    cell = cells[-1]
    during, held = cell["neighbor"]["during"], cell["aggressor"]["held_mib"] / GIB
    tried = during["good"] + during["refused"]
    says = f"a tenant took {held:.1f} GiB; the neighbor was refused {during['refused']} of {tried} allocations"
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
    known = {kind: gap for kind, gap in gaps.items() if gap is not None}
    if not known:
        return LOST, "no neighbor survived"
    says = "longest time without a good step: " + ", ".join(f"{kind} {_seconds(gap)}" for kind, gap in known.items())
    short = max(known.values()) < SHORT
    if died := [cell["kind"] for cell in cells if not cell["neighbor"]["survived"]]:
        return (PARTLY if short else LOST), f"{says}; the neighbor died, and made no further step: {_words(died)}"
    return (KEPT if short else LOST), says


def _recovery(cells: Sequence[Cell]) -> tuple[str, str]:
    after = {cell["kind"]: cell["newcomer"]["after_s"] for cell in cells}
    says = "a new process computed after: " + ", ".join(
        f"{kind} {_seconds(s) if s is not None else 'never'}" for kind, s in after.items()
    )
    return (KEPT if all(s is not None for s in after.values()) else LOST), says


def _performance(cells: Sequence[Cell]) -> tuple[str, str]:
    windows = cells[-1]["windows"]
    alone = [w["per_second"] for w in windows if not w["stressor"]]
    base = sum(alone) / len(alone)
    by = {(w["stressor"], w["duty"]): w["per_second"] / base for w in windows if w["stressor"]}
    worst = {duty: min((v, s) for (s, d), v in by.items() if d == duty) for duty in sorted({d for _, d in by})}
    says = "worst neighbor: " + ", ".join(f"{v:.2f} at duty {duty:g} ({s})" for duty, (v, s) in worst.items())
    lowest = min(by.values())
    return (KEPT if lowest >= UNTOUCHED else LOST), says


def _information(cells: Sequence[Cell]) -> tuple[str, str]:
    found = {cell["kind"]: cell["found_share"] for cell in cells}
    says = "of a freed pattern the next tenant found: " + ", ".join(
        f"{100 * v:.0f} % ({kind})" for kind, v in found.items()
    )
    says += f"; it read {min(cell['read_mib'] for cell in cells) / GIB:.0f} GiB or more"
    return (LOST if any(found.values()) else KEPT), says


JUDGES: dict[str, tuple[str, Callable[[Sequence[Cell]], tuple[str, str]]]] = {
    "memory cap": ("memory", _memory),
    "fault isolation": ("faults", _faults),
    "no stalls": ("faults", _stalls),
    "recovery": ("faults", _recovery),
    "fairness": ("performance", _performance),
    "confidentiality": ("information", _information),
}


def _words(kinds: Sequence[str]) -> str:
    return ", ".join(kinds)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.0f} ms"
