"""From folders of cells to what was seen: which cells can be compared, and what each says."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.bench.analysis.folders import Suite, suites
from fleetlab.bench.profile.observations import TENTHS, WITHOUT_MPS, Met, One, Seen
from fleetlab.bench.results.suite import Cell
from fleetlab.core import DeviceError

CAP = re.compile(r"(?:@(\d+))?(?:~\d+)?")  # what a seat may have: a part of the SMs, which matters here; some memory


def gather(folders: Sequence[Path]) -> Seen:
    """Read what suites wrote on one card; each work must have been measured alone without MPS somewhere."""
    if not folders:
        msg = "nothing to make a profile of"
        raise DeviceError(msg, hint="name the folders that `fleetlab bench suite --out` wrote")
    found = [suite for folder in folders for suite in suites(folder)]
    works = _works(found)
    cells, notes = [], [note for suite in found for note in suite.notes]
    for suite in found:
        good = [(mode, cell) for cell in suite.cells if (mode := _mode(cell, works))]
        cells += good
        notes += _told(suite, left=sum(bool(c["tenants"]) for c in suite.cells) - len(good))
    rates: dict[Met, list[One]] = defaultdict(list)
    for mode, cell in cells:
        for met, one in _meetings(mode, cell["tenants"]):
            rates[met].append(one)
    _all_alone(rates)
    solos = _solos(cell for mode, cell in cells if mode == WITHOUT_MPS)
    return Seen(
        _card(found),
        works,
        dict(rates),
        busy={work: _busy(alone) for work, alone in solos.items()},
        memory={work: _share(alone, "memory_util") for work, alone in solos.items()},
        curve=_curves(_solos(cell for mode, cell in cells if mode.startswith("mps"))),
        notes=tuple(notes),
    )


def _card(found: Sequence[Suite]) -> str:
    cards = {suite.card: suite.path.name for suite in found if suite.cells}
    if len(cards) > 1:
        msg = f"two cards in one profile: {' and '.join(f'{card} ({name})' for card, name in cards.items())}"
        raise DeviceError(msg, hint="make a profile for each")
    return next(iter(cards))


def _works(found: Sequence[Suite]) -> dict[str, dict[str, Any]]:
    works: dict[str, dict[str, Any]] = {}
    for suite in found:
        for name, settings in suite.about.get("tenants", {}).items():
            if works.setdefault(name, settings) != settings:
                msg = f"{suite.path.name}: `{name}` is not the same work as elsewhere: {settings}, not {works[name]}"
                raise DeviceError(msg, hint="make a profile for each, or give them names of their own")
    return works


def _told(suite: Suite, *, left: int) -> Iterable[str]:
    if suite.about.get("rehearsal"):
        yield f"{suite.path.name} is a rehearsal on the CPU: its numbers mean nothing"
    if left:
        yield f"{suite.path.name}: {left} cells left out: failed, by a timetable, with a priority or unequal shares"


def _mode(cell: Cell, works: dict[str, dict[str, Any]]) -> str | None:
    """The mode by its name, to which a part of the SMs, the same for all, belongs. None: not one to compare."""
    if cell["status"] != "ok" or not cell["tenants"]:
        return None
    parts = set()
    for one in cell["tenants"]:
        cap = CAP.fullmatch(one["seat"].removeprefix(one["tenant"]))
        if not cap or one["rate"] <= 0 or works.get(one["tenant"], {}).get("poisson"):
            return None
        parts.add(int(cap[1] or 100))
    mode = str(cell["mode"])
    return None if len(parts) > 1 else mode if (part := parts.pop()) == 100 else f"{mode}-{part}"


def _meetings(mode: str, tenants: list[Cell]) -> Iterable[tuple[Met, One]]:
    """Each work of a cell once: copies of one met the same neighbours, and are one sample."""
    names = sorted(one["tenant"] for one in tenants)
    for name in dict.fromkeys(names):
        same, others = [one for one in tenants if one["tenant"] == name], names.copy()
        others.remove(name)
        log = math.log(sum(one["rate"] for one in same) / len(same))
        yield Met(mode, name, tuple(others)), One(log, _wobble(same))


def _wobble(same: list[Cell]) -> float:
    tenths = np.array([one["rates"] for one in same if len(one.get("rates", ())) == TENTHS], float)
    if not tenths.size or tenths.mean() <= 0:
        return 0.0
    over = tenths.mean(axis=0)
    return float(over.std(ddof=1) / over.mean() / math.sqrt(TENTHS))


def _solos(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        if len(cell["tenants"]) == 1:
            found[cell["tenants"][0]["tenant"]].append(cell)
    return dict(found)


def _busy(cells: list[Cell]) -> float:
    """A step may be under way while the card waits for the host, and a card may be busy between steps: the lesser."""
    under_way = float(np.median([cell["tenants"][0]["busy"] for cell in cells]))
    return min(under_way, _share(cells, "util"))


def _share(cells: list[Cell], of: str) -> float:
    told = [cell["gpu"][of] / 100 for cell in cells if cell["gpu"].get(of) is not None]
    return float(np.median(told)) if told else 1.0


def _curves(solos: dict[str, list[Cell]]) -> dict[str, dict[int, float]]:
    """Rates by SMs, of works that were measured on more than one number of them."""
    found: dict[str, dict[int, float]] = {}
    for work, cells in solos.items():
        by: dict[int, list[float]] = defaultdict(list)
        for one in (cell["tenants"][0] for cell in cells):
            if one.get("sms"):
                by[one["sms"]].append(math.log(one["rate"]))
        if len(by) > 1:
            found[work] = {sms: math.exp(sum(logs) / len(logs)) for sms, logs in sorted(by.items())}
    return found


def _all_alone(rates: dict[Met, list[One]]) -> None:
    known = {met.workload for met in rates if met.mode == WITHOUT_MPS and not met.beside}
    if missing := sorted({met.workload for met in rates} - known):
        msg = f"not measured alone without MPS: {', '.join(missing)}"
        raise DeviceError(msg, hint="add a folder where each is: the plans solo, pairs-ts and classes measure that")
