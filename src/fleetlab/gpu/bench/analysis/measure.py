"""One measure of each mix in each mode, such as its throughput: means with intervals, and differences of modes.

All variances are of logarithms, because noise is relative. Two blocks say little about their own noise, so it is pooled
over like cells: mixes of the same work, whatever its pace or number, in the same kind of mode. Where none of these was
measured twice, the noise is not known. That of a tenant alone is pooled over all modes in which its work was repeated,
and over all tenants where that was too seldom. Modes are mostly measured in different runs, so the variance between
runs is added; it is estimated from the same work alone in several suites. Degrees of freedom are combined after
Satterthwaite (Biometrics Bulletin 2, 1946).
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fleetlab.gpu.bench.analysis.wording import mode_kind, mode_order
from fleetlab.gpu.bench.plans import STRESSORS
from fleetlab.gpu.bench.results.cells import AloneRates, CellResult, SuiteFolder, grouped, utilization_alone
from fleetlab.stats import (
    UNKNOWN_SPREAD,
    Difference,
    Interval,
    Spread,
    log_interval,
    mean_over_groups,
    pooled_variance,
    spread_of_distances,
    sum_variances,
)

STARVED = 0.5  # fraction of steps that found the GPU idle: above it the host is the bottleneck
PART_TIME = 0.9  # utilization alone below which a tenant does not saturate the GPU
PACE = ("rest", "poisson", "rate", "pace")  # settings that say how often a tenant steps, not what a step is


@dataclass(frozen=True, slots=True)
class SuiteData:
    """All measurements of one GPU model."""

    gpu_name: str
    rehearsal: bool
    suites: list[SuiteFolder]
    cells: list[CellResult]
    alone: AloneRates
    kinds: dict[str, str]  # of each tenant
    units: dict[str, str]
    settings: dict[str, str]  # of each tenant, as text: two names may have the same
    failures: list[dict[str, Any]]
    notes: tuple[str, ...]

    def own(self, name: str) -> float:
        """Rate of a tenant alone."""
        return self.alone.median[name]

    def work_of(self, name: str) -> str:
        """What a step of a tenant is, whatever its pace: tenants of one work differ in pauses or rate of requests."""
        about = json.loads(self.settings.get(name, json.dumps({"work": name})))
        return json.dumps({k: v for k, v in about.items() if k not in PACE}, sort_keys=True)

    def mixes(self) -> list[CellResult]:
        """Cells of several tenants in closed loops that were all measured alone."""
        return [m for m in self.cells if len(m.tenants) > 1 and m.progress]

    def saturating(self, names: Iterable[str]) -> bool:
        """Whether each of them saturates the GPU alone."""
        return all(self.kinds[name] in ("training", "inference", "other") for name in names)

    def kind(self, names: Iterable[str]) -> str:
        """Kind of a mix of these tenants."""
        kinds = {self.kinds[name] for name in names}
        for rare in ("launch-bound", "part-time", "stressor"):
            if rare in kinds:
                return f"anything + {rare}"
        if kinds == {"training", "inference"}:
            return "training + inference"
        one = kinds.pop() if len(kinds) == 1 else "other"
        return f"{one} + {one}" if one != "other" else "other"


def collect_suites(folders: list[SuiteFolder]) -> SuiteData:
    """Collect suites; tenants of one name with different settings are distinguished."""
    called, notes = _tenant_names(folders)
    good = [_renamed(c, called[s.path]) for s in folders for c in s.cells if c.ok and c.tenants]
    alone = AloneRates(good)
    cells = [alone.progress(c) for c in good]
    notes += alone.notes()
    uuids = {(s.about.get("card") or {}).get("uuid") for s in folders if s.cells}
    if len(uuids) > 1:
        notes.append(f"{len(uuids)} GPUs of the same model were measured; they are treated as one")
    return SuiteData(
        gpu_name=next(s.gpu_name for s in folders if s.cells),
        rehearsal=any(s.about.get("rehearsal") for s in folders),
        suites=folders,
        cells=cells,
        alone=alone,
        kinds=_kinds(folders, called, cells),
        settings={
            called[s.path][name]: json.dumps(about, sort_keys=True)
            for s in folders
            for name, about in (s.about.get("tenants") or {}).items()
        },
        units={t.name: t.about.get("unit", "item") for m in cells for t in m.tenants},
        failures=[
            {"suite": s.path.name, "cell": c.cell, "mix": c.label, "mode": c.mode}
            | {"kind": f["kind"], "detail": f.get("detail")}
            for s in folders
            for c in s.cells
            if not c.ok
            for f in c.failures or [{"kind": "unknown"}]
        ],
        notes=(*(note for s in folders for note in s.notes), *notes),
    )


TenantNames = dict[Path, dict[str, str]]  # by suite: name there -> name here


def _tenant_names(folders: list[SuiteFolder]) -> tuple[TenantNames, list[str]]:
    """One name per tenant and settings: two suites may use one name for different settings."""
    meant: dict[str, list[str]] = defaultdict(list)
    called: TenantNames = {}
    for s in folders:
        called[s.path] = {}
        for name, settings in (s.about.get("tenants") or {}).items():
            words = json.dumps(settings, sort_keys=True)
            if words not in meant[name]:
                meant[name].append(words)
            k = meant[name].index(words)
            called[s.path][name] = name if not k else f"{name} ({k + 1})"
    twice = sorted(name for name, words in meant.items() if len(words) > 1)
    return called, [f"has other settings in another suite, numbered: {name}" for name in twice]


def _renamed(cell: CellResult, names: dict[str, str]) -> CellResult:
    """The cell with the names of this analysis; its mode has the limits of its tenants: `mps@50`."""
    tenants = tuple(replace(t, name=names.get(t.name, t.name), limits=t.limits.binding) for t in cell.tenants)
    limits = sorted({str(t.limits) for t in tenants})
    return replace(cell, mode=cell.mode + "".join(limits), tenants=tenants)


def _kinds(folders: list[SuiteFolder], called: TenantNames, cells: list[CellResult]) -> dict[str, str]:
    works = {
        called[s.path][name]: str((about or {}).get("work", name))
        for s in folders
        for name, about in (s.about.get("tenants") or {}).items()
    }
    by = grouped((m.alone.name, m) for m in cells if m.alone and not m.alone.is_open_loop)
    names = {t.name for m in cells for t in m.tenants}
    return {name: _kind(works.get(name, name), by.get(name, [])) for name in sorted(names)}


def _kind(work: str, alone: list[CellResult]) -> str:
    if alone and np.median([m.tenants[0].about.get("starved", 0.0) for m in alone]) > STARVED:
        return "launch-bound"
    if utilization_alone(alone) < PART_TIME:
        return "part-time"
    if work in STRESSORS:
        return "stressor"
    word = work.lower()
    return "training" if "train" in word else "inference" if re.search("infer|decode|serve", word) else "other"


OWN = 2  # degrees of freedom from which on a tenant's own repetitions say how far it varies
MANY = 5  # degrees of freedom from which on outliers among them count little


class Noise(NamedTuple):
    """Variance between repetitions of a tenant alone; of launch-bound tenants (True) and others (False)."""

    again: dict[bool, Spread]  # between blocks or runs
    again_of: dict[str, Spread]  # the same of each tenant whose work was measured often enough
    run: dict[bool, Spread]  # between runs, beyond that between blocks
    run_of: dict[str, Spread]  # the same of each work that was measured in several runs

    def between_runs(self, works: Iterable[str], *, launch: bool) -> Spread:
        """Variance between runs of the least steady of these works; of all works, if one was measured in one run."""
        each = [self.run_of.get(work, UNKNOWN_SPREAD) for work in works]
        return max(each, key=lambda s: s.variance) if each and all(s.freedom for s in each) else self.run[launch]

    def own(self, g: SuiteData, name: str) -> Spread:
        """Variance of a tenant's rate alone: the median of its measurements."""
        n = len(g.alone.rates[name])
        wider = math.pi / 2 if n > 2 else 1.0  # variance of a median relative to a mean
        return self.one(g, name).over(n / wider)

    def measured_again(self, g: SuiteData, name: str, n: int) -> float:
        """Half width of the interval of the log of a mean of `n`, for values without enough blocks of their own."""
        return self.one(g, name).over(n).half()

    def note(self, g: SuiteData, names: Iterable[str]) -> str:
        """Whose repetitions the intervals of the rates alone of these tenants rest on."""
        seldom = sorted({name for name in names if name in g.alone.rates and name not in self.again_of})
        whose = "of its own repetitions" + (", of those of all tenants for " + ", ".join(seldom) if seldom else "")
        return f"noise of the rate of a tenant alone is that {whose}"

    def one(self, g: SuiteData, name: str) -> Spread:
        """Variance of one measurement of a tenant alone: by its own repetitions, or by those of all tenants.

        A program that its host limits varies by far more than one that the GPU limits.
        """
        return self.again_of.get(name, self.again[g.kinds.get(name) == "launch-bound"])


def alone_noise(g: SuiteData) -> Noise:
    """Estimate it from each tenant alone in each mode and share, by block and suite."""
    by = grouped(
        ((m.mode, one.name, one.limits), (m.suite, math.log(one.rate)))
        for m in g.cells
        if (one := m.alone) and one.rate > 0 and not one.is_open_loop
    )
    sides = {side: [v for at, v in by.items() if (g.kinds[at[1]] == "launch-bound") == side] for side in (False, True)}
    works = grouped((g.work_of(name), values) for (_, name, _), values in by.items())
    often = {work: _repeated(groups) for work, groups in works.items()}
    return Noise(
        again={side: _apart(groups, {True, False}) for side, groups in sides.items()},
        again_of={name: spread for _, name, _ in by if (spread := often[g.work_of(name)]).freedom >= OWN},
        run={side: _beyond_blocks(groups) for side, groups in sides.items()},
        run_of={work: _beyond_blocks(groups) for work, groups in works.items()},
    )


def _repeated(groups: list[list[tuple[Path, float]]]) -> Spread:
    """Variance of one measurement of one work, between blocks or runs.

    A median of a few distances is no safer from an outlier than the plain variance, and says less.
    """
    plain = pooled_variance([x for _, x in values] for values in groups)
    return plain if plain.freedom < MANY else _apart(groups, {True, False})


def _beyond_blocks(groups: list[list[tuple[Path, float]]]) -> Spread:
    """Variance between runs, less that between blocks of one run."""
    other, same = (_apart(groups, {runs}) for runs in (True, False))
    return Spread(max(other.variance - same.variance, 0.0), other.freedom)


def _apart(groups: list[list[tuple[Path, float]]], runs: set[bool]) -> Spread:
    """Variance of one measurement, from pairwise distances of repetitions, between runs or within one."""
    return spread_of_distances(
        [abs(x - y) for (s, x), (t, y) in combinations(group, 2) if (s != t) in runs] for group in groups
    )


# --- one measure of each mix in each mode, such as its throughput ----------------------------------------------------


class NoiseSample(NamedTuple):
    """One value of one mix in one block of one mode."""

    mode: str
    mix: str
    kind: str
    works: frozenset[str]  # of its tenants: what a step is, whatever their pace
    suite: Path
    value: float
    of: str = ""  # work of the tenant whose value it is; empty for one of the whole mix
    blocks: int = 1  # that it is the mean of, because they drew the same


class Measure:
    """One measure of each mix in each mode, such as its throughput."""

    def __init__(self, samples: Iterable[NoiseSample], noise: Noise) -> None:
        self._logs: dict[tuple[str, str], list[tuple[Path, float]]] = defaultdict(list)
        self.kinds: dict[str, str] = {}
        self._works: dict[str, frozenset[str]] = {}
        self._of: dict[str, str] = {}
        self.same_draw: dict[str, int] = defaultdict(int)  # blocks of each mix that count once, as they drew the same
        for s in samples:
            self._logs[s.mode, s.mix].append((s.suite, math.log(max(s.value, 1e-12))))
            self.kinds[s.mix] = s.kind
            self._works[s.mix], self._of[s.mix] = s.works, s.of
            self.same_draw[s.mix] = max(self.same_draw[s.mix], s.blocks)
        self._noise = noise
        self._pools: dict[tuple[str, str, frozenset[str]], Spread] = {}

    def modes(self, mix: str | None = None) -> list[str]:
        """Modes with measurements of a mix, or of any."""
        return sorted({mode for mode, of in self._logs if mix in (None, of)}, key=mode_order)

    def mixes(self, mode: str | None = None) -> list[str]:
        """Mixes with measurements in a mode, or in any."""
        return list(dict.fromkeys(of for at, of in self._logs if mode in (None, at)))

    def blocks(self, mode: str, mix: str) -> int:
        """Number of blocks."""
        return len(self._logs[mode, mix])

    def log(self, mode: str, mix: str) -> float:
        """Mean of the logs."""
        return float(np.mean([x for _, x in self._logs[mode, mix]]))

    def block(self, mode: str, mix: str) -> Spread:
        """Variance between blocks, pooled over mixes of the same work in the same kind of mode, if any has two."""
        key = self._like(mode, mix)
        if key not in self._pools:
            self._pools[key] = pooled_variance(
                group for at, v in self._logs.items() if self._like(*at) == key for group in _by_suite(v)
            )
        return self._pools[key]

    def _like(self, mode: str, mix: str) -> tuple[str, str, frozenset[str]]:
        """What like cells have in common: the kind of mode, the tenant whose value it is, and the works."""
        return mode_kind(mode), self._of[mix], self._works[mix]

    def _run(self, mix: str) -> Spread:
        # Whether the mix has a launch-bound tenant: the host varies far more than the GPU
        return self._noise.between_runs(self._works[mix], launch=self.kinds[mix].endswith("launch-bound"))

    def spread(self, mode: str, mix: str) -> Spread:
        """Variance of the mean: between blocks and between runs; unknown if that between blocks is."""
        group = self._logs[mode, mix]
        if not self.block(mode, mix).freedom:
            return UNKNOWN_SPREAD
        runs = len({suite for suite, _ in group})
        run = self._run(mix).over(runs)
        return sum_variances([self.block(mode, mix).over(len(group)), run])

    def mean(self, mode: str, mix: str, also: Spread = UNKNOWN_SPREAD) -> Interval:
        """Value with interval; `also` is additional variance."""
        freedom = self.block(mode, mix).freedom
        return log_interval(
            self.log(mode, mix), sum_variances([self.spread(mode, mix), also]) if freedom else UNKNOWN_SPREAD
        )

    def difference(self, mixes: Sequence[str], one: str, other: str) -> Difference:
        """Log ratio of two modes over the same mixes.

        Of three mixes and more the noise is that between mixes, as of a mean over mixes; of one or two it is that of
        their own blocks, and, if the modes were measured in different runs, that between runs.
        """
        n = len(mixes)
        logs = [self.log(one, mix) - self.log(other, mix) for mix in mixes]
        value = float(np.mean(logs))
        if n > 2:
            return Difference(value, (float(np.var(logs, ddof=1)), 0.0), (n, 1), n - 1)
        each = [[self.block(mode, mix).over(self.blocks(mode, mix)) for mode in (one, other)] for mix in mixes]
        runs = [UNKNOWN_SPREAD if self._met(mix, one, other) else self._run(mix) for mix in mixes]
        counts = (self.blocks(one, mixes[0]), self.blocks(other, mixes[0]))
        variances = [sum(means[k].variance for means in each) / n**2 * counts[k] for k in (0, 1)]
        parts = [*(spread for means in each for spread in means), *runs, *runs]
        known = all(spread.freedom for means in each for spread in means)
        freedom = sum_variances(parts).freedom if known else 0.0
        fixed = sum(2 * run.variance for run in runs) / n**2
        return Difference(value, (variances[0], variances[1]), counts, freedom, fixed)

    def _met(self, mix: str, one: str, other: str) -> bool:
        """Whether a suite has both modes."""
        suites = [{suite for suite, _ in self._logs[mode, mix]} for mode in (one, other)]
        return bool(suites[0] & suites[1])

    def common(self, mixes: list[str]) -> tuple[list[str], list[str]]:
        """Modes and the mixes that all of them have; a mode with too few of the mixes is left out."""
        modes = [mode for mode in self.modes() if set(self.mixes(mode)) & set(mixes)]
        while modes:
            same = [mix for mix in mixes if set(modes) <= set(self.modes(mix))]
            if 2 * len(same) >= len(mixes):
                return modes, same
            # The mode with the fewest mixes prevents the comparison of the others.
            modes.remove(min(modes, key=lambda mode: len(set(self.mixes(mode)) & set(mixes))))
        return [], []

    def mean_of(self, mode: str, mixes: Sequence[str]) -> Interval:
        """Geometric mean over mixes."""
        return mean_over_groups([(self.log(mode, mix), self.spread(mode, mix)) for mix in mixes])


def _by_suite(group: Iterable[tuple[Path, float]]) -> list[list[float]]:
    by: dict[Path, list[float]] = defaultdict(list)
    for suite, x in group:
        by[suite].append(x)
    return list(by.values())
