"""Measured rates on one GPU by mode, workload and neighbors, from the comparable cells of suites."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fleetlab.core import DeviceError
from fleetlab.gpu.bench.plans import STRESSORS
from fleetlab.gpu.bench.profile.models import Group, SpeedTable
from fleetlab.gpu.bench.results.cells import (
    BASELINE,
    CellResult,
    Limits,
    SuiteFolder,
    TenantResult,
    gpu_share,
    grouped,
    rates_by_sms,
    suites,
    utilization_alone,
)
from fleetlab.gpu.sharing.modes import MIG
from fleetlab.stats import Interval, Spread, pooled_variance

TENTHS = 10  # parts of a window
PROBES = frozenset(STRESSORS)  # used to fit the models, but not part of a profile


class Colocation(NamedTuple):
    """A workload beside others in a mode."""

    mode: str
    workload: str
    beside: tuple[str, ...]


class RateSample(NamedTuple):
    """The logarithm of a rate, and its standard error within the window."""

    log: float
    wobble: float


@dataclass(frozen=True, slots=True)
class Observations:
    """Rates by co-location, and utilization of each workload alone."""

    device: str
    works: dict[str, dict[str, Any]]  # settings of each
    rates: dict[Colocation, list[RateSample]]  # one per cell
    busy: dict[str, float] = field(default_factory=dict)  # GPU utilization alone
    memory: dict[str, float] = field(default_factory=dict)  # memory utilization alone
    curve: dict[str, dict[int, float]] = field(default_factory=dict)  # SMs of an MPS client -> rate
    notes: tuple[str, ...] = ()

    def modes(self) -> list[str]:
        """Modes with co-locations."""
        return list(dict.fromkeys(met.mode for met in self.rates if met.beside))

    def table(self, mode: str, works: Container[str] | None = None) -> SpeedTable:
        """Pairs of a mode, of all workloads or of some and the stressors."""
        here = {
            met: self.speed(met).value
            for met in self.rates
            if met.mode == mode and all(works is None or w in works or w in PROBES for w in (met[1], *met.beside))
        }
        pairs = {(met.workload, met.beside[0]): speed for met, speed in here.items() if len(met.beside) == 1}
        # Without a measurement alone in this mode the speed is assumed to be that without MPS.
        alone = {a: 1.0 for a, _ in pairs} | {met.workload: speed for met, speed in here.items() if not met.beside}
        return SpeedTable(pairs, alone, self.busy)

    def groups(self, mode: str) -> dict[Group, float]:
        """Speeds beside two or more others."""
        many = [met for met in self.rates if met.mode == mode and len(met.beside) > 1]
        return {(met.workload, met.beside): self.speed(met).value for met in many}

    def alone(self, workload: str) -> Interval:
        """Rate alone on a whole GPU: the median, because disturbances only slow a run."""
        runs = self.rates[Colocation(BASELINE, workload, ())]
        middle = float(np.median([run.log for run in runs]))
        half = self._half(BASELINE, workload, len(runs))
        half *= math.sqrt(math.pi / 2) if len(runs) > 2 else 1.0  # standard error of a median relative to a mean
        return around(middle, half)

    def speed(self, met: Colocation) -> Interval:
        """Speed relative to alone without MPS; the interval includes the uncertainty of the baseline."""
        runs, alone = self.rates[met], self.alone(met.workload)
        doubt = math.log(alone.high / alone.value)
        if not met.beside and met.mode == BASELINE:
            return around(0.0, doubt)
        middle = sum(run.log for run in runs) / len(runs) - math.log(alone.value)
        return around(middle, math.hypot(self._half(met.mode, met.workload, len(runs)), doubt))

    def _half(self, mode: str, workload: str, runs: int) -> float:
        """Half width of the 95 % interval of the mean of so many runs, from the variation between equal runs.

        Noise differs between workloads by a factor of fifty, so it is estimated for each over all co-locations. Without
        repetitions the tenths of each window are used, which do not include variation between runs.
        """
        groups = [g for met, g in self.rates.items() if (met.mode, met.workload) == (mode, workload)]
        return noise_of_runs(groups).over(runs).half()


def noise_of_runs(groups: Sequence[Sequence[RateSample]]) -> Spread:
    """Variance of one run, between equal runs or, without repetitions, within their windows."""
    between = pooled_variance([run.log for run in group] for group in groups)
    inside = [run.wobble**2 for group in groups for run in group]
    return between if between.freedom else Spread(sum(inside) / len(inside), TENTHS - 1)


def around(middle: float, half: float) -> Interval:
    """The interval of a log, transformed back."""
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


# --- read observations from the folders of suites --------------------------------------------------------------------


def read_observations(folders: Sequence[Path]) -> Observations:
    """Read suites of one GPU; each workload must have been measured alone without MPS."""
    if not folders:
        raise DeviceError("no folders to make a profile from", hint="name folders of `fleetlab bench suite --out`")
    folders_read = [suite for folder in folders for suite in suites(folder)]
    works = _works(folders_read)
    cells, notes = [], [note for suite in folders_read for note in suite.notes]
    for suite in folders_read:
        # Those on MIG instances are compared with predictions elsewhere: `mig_check`.
        here = [cell for cell in suite.cells if not cell.mode.startswith(MIG)]
        good = [(mode, cell) for cell in here if (mode := _mode(cell, works))]
        cells += good
        notes += _suite_notes(suite, left=sum(bool(c.tenants) for c in here) - len(good))
    rates = grouped(sample for mode, cell in cells for sample in _colocations(mode, cell.tenants))
    _all_alone(rates)
    solos = _solos(cell for mode, cell in cells if mode == BASELINE)
    return Observations(
        _gpu_name(folders_read),
        works,
        rates,
        busy={work: utilization_alone(alone) for work, alone in solos.items()},
        memory={work: gpu_share(alone, "memory_util") for work, alone in solos.items()},
        curve=_curves(_solos(cell for mode, cell in cells if mode.startswith("mps"))),
        notes=tuple(notes),
    )


def _gpu_name(folders: Sequence[SuiteFolder]) -> str:
    cards = {suite.gpu_name: suite.path.name for suite in folders if suite.cells}
    if len(cards) > 1:
        msg = f"two GPUs in one profile: {' and '.join(f'{card} ({name})' for card, name in cards.items())}"
        raise DeviceError(msg, hint="make a profile for each")
    return next(iter(cards))


def _works(folders: Sequence[SuiteFolder]) -> dict[str, dict[str, Any]]:
    works: dict[str, dict[str, Any]] = {}
    for suite in folders:
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


def _mode(cell: CellResult, works: dict[str, dict[str, Any]]) -> str | None:
    """The mode, with the percentage of SMs if it is the same for all; None if the cell is not comparable."""
    if not cell.ok or not cell.tenants:
        return None
    for one in cell.tenants:
        other = one.limits._replace(percent=None, memory_mib=None)  # those of SMs matter here, those of memory do not
        if other != Limits() or one.rate <= 0 or works.get(one.name, {}).get("poisson"):
            return None
    parts = {one.limits.percent or 100 for one in cell.tenants}
    return None if len(parts) > 1 else cell.mode if (part := parts.pop()) == 100 else f"{cell.mode}-{part}"


def _colocations(mode: str, tenants: Sequence[TenantResult]) -> Iterable[tuple[Colocation, RateSample]]:
    """Each workload of a cell once: copies have the same neighbors and are one sample."""
    names = sorted(one.name for one in tenants)
    for name in dict.fromkeys(names):
        same, others = [one for one in tenants if one.name == name], names.copy()
        others.remove(name)
        log = math.log(sum(one.rate for one in same) / len(same))
        yield Colocation(mode, name, tuple(others)), RateSample(log, within_window_error(same))


def within_window_error(same: Sequence[TenantResult]) -> float:
    """Standard error of the logarithm of a rate, from the tenths of its window."""
    tenths = np.array([one.about["rates"] for one in same if len(one.about.get("rates", ())) == TENTHS], float)
    if not tenths.size or tenths.mean() <= 0:
        return 0.0
    over = tenths.mean(axis=0)
    return float(over.std(ddof=1) / over.mean() / math.sqrt(TENTHS))


def _solos(cells: Iterable[CellResult]) -> dict[str, list[CellResult]]:
    return grouped((cell.alone.name, cell) for cell in cells if cell.alone)


def _curves(solos: dict[str, list[CellResult]]) -> dict[str, dict[int, float]]:
    """Rates by number of SMs, of workloads measured on several."""
    curves: dict[str, dict[int, float]] = {}
    for work, cells in solos.items():
        if len(curve := rates_by_sms(cell.tenants[0] for cell in cells)) > 1:
            curves[work] = curve
    return curves


def _all_alone(rates: dict[Colocation, list[RateSample]]) -> None:
    alone = {colocation.workload for colocation in rates if colocation.mode == BASELINE and not colocation.beside}
    if missing := sorted({colocation.workload for colocation in rates} - alone):
        msg = f"not measured alone without MPS: {', '.join(missing)}"
        raise DeviceError(msg, hint="add a folder of the plans solo, pairs-ts or classes")
