"""The result of a sweep: the mean of every scenario, paired differences from the baseline, and what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result, Scenario, WorkloadError
from fleetlab.core.coverage import Coverage
from fleetlab.stats import Statistic, bonferroni, over_replicas
from fleetlab.studies.replicas import note_of_verdicts
from fleetlab.studies.sweep.plan import CaseWords, SweepPlan, case_words
from fleetlab.studies.sweep.store import Record
from fleetlab.studies.sweep.study import Study
from fleetlab.studies.sweep.tables import Pair, Values, comparison, differences, values_of, varying

NOTES = {
    "synthesize": "intervals are of logs like it: each seed synthesizes a trace of its own",
    "blocks": "intervals are of blocks of this log, and narrow with seeds; those of logs like it are "
    "as wide as `sd` tells; `fleetlab compare --scope like` gives them",
    "nudge": "intervals are of this log: each seed nudges its jobs, as a replica does",
    "none": "intervals are of this log as it is: seeds change only what is random in the simulator",
}


# -- rounds of seeds: which cells to run next, and which comparisons are narrow enough --------------------------------

Unit = Pair | CaseWords  # what gets more seeds until it is narrow enough: a comparison, or a scenario in none


@dataclass(slots=True)
class Rounds:
    """The last look at each comparison, counted from 1, and those that need more seeds."""

    study: Study
    scenarios: Mapping[CaseWords, Scenario]
    pairs: tuple[Pair, ...]
    looks: dict[Unit, int] = field(default_factory=dict)
    open: list[Unit] = field(default_factory=list)

    @classmethod
    def of(cls, study: Study) -> Rounds:
        """Begin: every comparison needs seeds."""
        words = {scenario: case_words(scenario) for scenario in study.scenarios}
        scenarios = {case: scenario for scenario, case in words.items()}
        if len(scenarios) < len(words):
            msg = "two scenarios have the same words, but different functions or objects"
            raise WorkloadError(msg, hint="give own policies names of their own")
        pairs = tuple(Pair(words[scenario], words[base]) for scenario, base in study.pairs())
        paired = {case for pair in pairs for case in pair}
        alone: list[Unit] = [case for case in scenarios if case not in paired]
        return cls(study, scenarios, pairs, open=[*pairs, *alone])

    def cells(self, look: int) -> list[tuple[Scenario, int]]:
        """Return the scenarios and seeds that a look needs, those of one seed together."""
        needed = {case for unit in self.open for case in (unit if isinstance(unit, Pair) else (unit,))}
        some = [scenario for case, scenario in self.scenarios.items() if case in needed]
        return [(scenario, seed) for seed in self.seeds(look) for scenario in some]

    def seeds(self, look: int) -> Sequence[int]:
        """Return the seeds of a look and of those before it."""
        return self.study.seeds.values[: self.study.seeds.looks()[look - 1]]

    def settle(self, look: int, values: Values) -> None:
        """Look at all that is open; what is narrow enough gets no more seeds."""
        still = []
        for unit in self.open:
            self.looks[unit] = look
            if not self._narrow(unit, look, values):
                still.append(unit)
        self.open = still

    def _narrow(self, unit: Unit, look: int, values: Values) -> bool:
        seeds, rule = self.seeds(look), self.study.seeds
        if rule.within is None:
            return True
        confidence = self.confidence(look)
        if isinstance(unit, Pair):
            base = over_replicas(values_of(values[unit.base], rule.metric, seeds))
            apart = over_replicas(differences(values, unit, rule.metric, seeds))
            return rule.enough(_half_width(apart, bonferroni(self.comparisons, confidence)), base.value)
        mean = over_replicas(values_of(values[unit], rule.metric, seeds))
        return rule.enough(_half_width(mean, confidence), mean.value)

    @property
    def comparisons(self) -> int:
        """The number of intervals that hold simultaneously."""
        return max(1, len(self.pairs) * len(self.study.metrics))

    def confidence(self, look: int) -> float:
        """Return the confidence of all intervals at a look."""
        return 1 - self.study.seeds.error_rate(look, 1 - self.study.confidence)

    def seeds_of(self, unit: Unit) -> Sequence[int]:
        """Return the seeds of the last look at a comparison or a scenario."""
        return self.seeds(self.look_of(unit))

    def confidence_of(self, unit: Unit) -> float:
        """Return the confidence at the last look at a comparison or a scenario."""
        return self.confidence(self.look_of(unit))

    def look_of(self, unit: Unit) -> int:
        """Return the last look at a comparison, or at any that a scenario is in."""
        if unit in self.looks:
            return self.looks[unit]
        return max((k for other, k in self.looks.items() if isinstance(other, Pair) and unit in other), default=1)


def _half_width(mean: Statistic, confidence: float) -> float:
    _, low, high = mean.interval(confidence)
    return (high - low) / 2


# -- the result -------------------------------------------------------------------------------------------------------


class Effort(NamedTuple):
    """What a sweep took."""

    engine: str
    cells: int  # that were run now
    busy: float  # seconds that workers ran cells
    ready: float  # seconds that workers were ready
    wall: float


@dataclass(slots=True)
class Measurements:
    """The metrics of all cells, and of those only the ones that the result needs: there may be a million cells."""

    values: dict[CaseWords, dict[int, dict[str, float | None]]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    failures: list[Record] = field(default_factory=list)

    def add(self, case: CaseWords, seed: int, record: Record, study: Study) -> None:
        """Add a record."""
        metrics = record.get("metrics") or {}
        names = dict.fromkeys((*study.metrics, study.seeds.metric))
        self.values.setdefault(case, {})[seed] = {name: metrics[name] for name in names if name in metrics}
        self.units.update({name: unit for name, unit in record.get("units", {}).items() if name in names})
        if record.get("failed"):
            self.failures.append(record)

    def __len__(self) -> int:
        return sum(map(len, self.values.values()))


@dataclass(frozen=True, slots=True, repr=False)
class Sweep(Result):
    """The means and differences of a study."""

    provenance: Provenance
    findings: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    frames: Mapping[str, pl.DataFrame]
    charts: Mapping[str, Figure]
    notes: tuple[str, ...]
    coverage: Coverage | None = None

    @classmethod
    def of(cls, plan: SweepPlan, rounds: Rounds, measurements: Measurements, effort: Effort) -> Sweep:
        """Build the tables from all measurements."""
        study, metrics, units = plan.study, plan.study.metrics, measurements.units
        values = {case: measurements.values.get(case, {}) for case in rounds.scenarios}
        compared = comparison(values, rounds.pairs, metrics, units, rounds.seeds_of, rounds.confidence_of)
        failed = _failures(measurements.failures)
        axes = {word: list(dict.fromkeys(dict(case)[word] for case in values)) for word in varying(list(values))}
        settings = axes | {
            "scenarios": len(values), "seeds": str(study.seeds), "resample": study.resample,
            "against": dict(study.against), "confidence": study.confidence, "engine": effort.engine,
        }  # fmt: skip
        return cls(
            Provenance("sweep", study.name, settings, study.seeds.values[0]),
            compared.findings,
            tuple(_summary(rounds, len(measurements), failed, effort)),
            compared.frames | ({"failed": failed} if failed.height else {}),
            compared.charts,
            tuple(_notes(plan, rounds, failed)),
            _coverage(study.scenarios),
        )

    def __repr__(self) -> str:
        by = {e.metric: e.value for e in self.estimates}
        return f"<Sweep {self.provenance.source}: {by['cells']:,} cells, {by['cells failed']:,} failed>"

    @property
    def failed(self) -> int:
        """The number of cells that failed."""
        return sum(self.frames["failed"]["cells"].to_list()) if "failed" in self.frames else 0


def _coverage(scenarios: Sequence[Scenario]) -> Coverage | None:
    """Return which jobs of a log were simulated, where all scenarios are of one and fill in run times alike."""
    alike = {(s.data.name, s.censored, s.window) for s in scenarios}
    return scenarios[0].coverage if len(alike) == 1 else None


def _summary(rounds: Rounds, cells: int, failed: pl.DataFrame, effort: Effort) -> list[Estimate]:
    estimates = [
        Estimate.exact("scenarios", len(rounds.scenarios)),
        Estimate.exact("cells", cells),
        Estimate.exact("cells run now", effort.cells),
        Estimate.exact("cells failed", sum(failed["cells"].to_list())),
    ]
    if rounds.study.seeds.within is not None:
        what = "comparisons" if rounds.pairs else "scenarios"
        estimates.append(Estimate.exact(f"{what} wider than `within`", len(rounds.open)))
    if effort.cells:
        estimates += [
            Estimate.exact("wall time", effort.wall, "s"),
            Estimate.exact("time per cell", effort.busy / effort.cells, "s"),
            Estimate.exact("workers busy", 100 * min(1.0, effort.busy / effort.ready) if effort.ready else 0.0, "%"),
        ]
    return estimates


def _failures(records: Sequence[Record]) -> pl.DataFrame:
    """Return why cells failed, how many, and the first of them."""
    by: dict[str, list[Record]] = {}
    for record in records:
        by.setdefault(record["failed"], []).append(record)
    rows = [
        {"reason": reason, "cells": len(some), "first": some[0]["key"], "hint": some[0].get("hint") or ""}
        for reason, some in sorted(by.items(), key=lambda pair: -len(pair[1]))
    ]
    return pl.DataFrame(rows, schema={"reason": pl.String, "cells": pl.Int64, "first": pl.String, "hint": pl.String})


def _notes(plan: SweepPlan, rounds: Rounds, failed: pl.DataFrame) -> list[str]:
    study = plan.study
    notes = [NOTES[resample] for resample in dict.fromkeys(source.resample for source in plan.sources.values())]
    if rounds.pairs:
        notes.append(
            f"the {rounds.comparisons:,} intervals of differences hold simultaneously with "
            f"{100 * study.confidence:g} % (Bonferroni); a scenario and its baseline have the same jobs in each seed"
        )
        notes.append(note_of_verdicts("seeds"))
    if study.seeds.within is not None:
        notes.append(
            "intervals allow for seeds that were added until they were narrow: look k may miss with α/(k(k+1))"
        )
    elif study.seeds.most < 2:
        notes.append("one seed gives no interval: run more")
    if plan.local_only:
        notes.append("a scenario has a function or object without a name, so all cells ran in this process")
    if failed.height:
        notes.append("cells whose workers died are run again by the same command; others would fail again")
    if "load" in varying(list(rounds.scenarios)):
        notes.append("at another load the same jobs are submitted faster or slower, bursts included")
    return notes
