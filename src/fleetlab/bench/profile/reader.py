"""Read observations from the folders of suites: comparable cells and their rates."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.bench.analysis.folders import SuiteFolder, suites
from fleetlab.bench.profile.observations import BASELINE_MODE, TENTHS, Colocation, Observations, RateSample
from fleetlab.bench.results.cells import Cell
from fleetlab.core import DeviceError
from fleetlab.sharing.modes import MIG

CAP = re.compile(r"(?:@(\d+))?(?:~\d+)?")  # limits of a seat: percentage of SMs, which matters here, and memory


def read_observations(folders: Sequence[Path]) -> Observations:
    """Read suites of one GPU; each workload must have been measured alone without MPS."""
    if not folders:
        msg = "no folders to make a profile from"
        raise DeviceError(msg, hint="name folders of `fleetlab bench suite --out`")
    folders_read = [suite for folder in folders for suite in suites(folder)]
    works = _works(folders_read)
    cells, notes = [], [note for suite in folders_read for note in suite.notes]
    for suite in folders_read:
        # Those on MIG instances are compared with predictions elsewhere: `mig_check`.
        here = [cell for cell in suite.cells if not str(cell["mode"]).startswith(MIG)]
        good = [(mode, cell) for cell in here if (mode := _mode(cell, works))]
        cells += good
        notes += _suite_notes(suite, left=sum(bool(c.get("tenants")) for c in here) - len(good))
    rates: dict[Colocation, list[RateSample]] = defaultdict(list)
    for mode, cell in cells:
        for met, one in _colocations(mode, cell["tenants"]):
            rates[met].append(one)
    _all_alone(rates)
    solos = _solos(cell for mode, cell in cells if mode == BASELINE_MODE)
    return Observations(
        _gpu_name(folders_read),
        works,
        dict(rates),
        busy={work: _busy(alone) for work, alone in solos.items()},
        memory={work: _share(alone, "memory_util") for work, alone in solos.items()},
        curve=_curves(_solos(cell for mode, cell in cells if mode.startswith("mps"))),
        notes=tuple(notes),
    )


def _gpu_name(found: Sequence[SuiteFolder]) -> str:
    cards = {suite.gpu_name: suite.path.name for suite in found if suite.cells}
    if len(cards) > 1:
        msg = f"two GPUs in one profile: {' and '.join(f'{card} ({name})' for card, name in cards.items())}"
        raise DeviceError(msg, hint="make a profile for each")
    return next(iter(cards))


def _works(found: Sequence[SuiteFolder]) -> dict[str, dict[str, Any]]:
    works: dict[str, dict[str, Any]] = {}
    for suite in found:
        for name, settings in suite.about.get("tenants", {}).items():
            if works.setdefault(name, settings) != settings:
                msg = f"{suite.path.name}: `{name}` is another workload elsewhere: {settings}, not {works[name]}"
                raise DeviceError(msg, hint="make a profile for each, or rename one")
    return works


def _suite_notes(suite: SuiteFolder, *, left: int) -> Iterable[str]:
    if suite.about.get("rehearsal"):
        yield f"{suite.path.name} is a rehearsal on the CPU: its results are meaningless"
    if left:
        yield f"{suite.path.name}: {left} cells ignored: failed, in an open loop, with priorities or unequal limits"


def _mode(cell: Cell, works: dict[str, dict[str, Any]]) -> str | None:
    """The mode, with the percentage of SMs if it is the same for all; None if the cell is not comparable."""
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


def _colocations(mode: str, tenants: list[Cell]) -> Iterable[tuple[Colocation, RateSample]]:
    """Each workload of a cell once: copies have the same neighbors and are one sample."""
    names = sorted(one["tenant"] for one in tenants)
    for name in dict.fromkeys(names):
        same, others = [one for one in tenants if one["tenant"] == name], names.copy()
        others.remove(name)
        log = math.log(sum(one["rate"] for one in same) / len(same))
        yield Colocation(mode, name, tuple(others)), RateSample(log, within_window_error(same))


def within_window_error(same: list[Cell]) -> float:
    """Standard error of the logarithm of a rate, from the tenths of its window."""
    tenths = np.array([one["rates"] for one in same if len(one.get("rates", ())) == TENTHS], float)
    if not tenths.size or tenths.mean() <= 0:
        return 0.0
    over = tenths.mean(axis=0)
    return float(over.std(ddof=1) / over.mean() / math.sqrt(TENTHS))


def _solos(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    cells_by_work: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        if len(cell["tenants"]) == 1:
            cells_by_work[cell["tenants"][0]["tenant"]].append(cell)
    return dict(cells_by_work)


def _busy(cells: list[Cell]) -> float:
    """The lower of two measures: steps running (which includes waits for the host), and GPU utilization."""
    under_way = float(np.median([cell["tenants"][0]["busy"] for cell in cells]))
    return min(under_way, _share(cells, "util"))


def _share(cells: list[Cell], of: str) -> float:
    shares = [cell["gpu"][of] / 100 for cell in cells if cell["gpu"].get(of) is not None]
    return float(np.median(shares)) if shares else 1.0


def _curves(solos: dict[str, list[Cell]]) -> dict[str, dict[int, float]]:
    """Rates by number of SMs, of workloads measured on several."""
    curves: dict[str, dict[int, float]] = {}
    for work, cells in solos.items():
        by: dict[int, list[float]] = defaultdict(list)
        for one in (cell["tenants"][0] for cell in cells):
            if one.get("sms"):
                by[one["sms"]].append(math.log(one["rate"]))
        if len(by) > 1:
            curves[work] = {sms: math.exp(sum(logs) / len(logs)) for sms, logs in sorted(by.items())}
    return curves


def _all_alone(rates: dict[Colocation, list[RateSample]]) -> None:
    known = {met.workload for met in rates if met.mode == BASELINE_MODE and not met.beside}
    if missing := sorted({met.workload for met in rates} - known):
        msg = f"not measured alone without MPS: {', '.join(missing)}"
        raise DeviceError(msg, hint="add a folder of the plans solo, pairs-ts or classes")
