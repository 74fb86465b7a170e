"""Rounds of seeds: which cells to run next, and which comparisons are narrow enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetlab.core import Scenario, WorkloadError
from fleetlab.stats import Statistic, bonferroni, over_replicas
from fleetlab.studies.sweep.plan import CaseWords, case_words
from fleetlab.studies.sweep.study import Study
from fleetlab.studies.sweep.tables import Pair, Values, differences, values_of

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
