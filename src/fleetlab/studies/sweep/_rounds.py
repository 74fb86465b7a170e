"""Seeds in rounds: which cells to play next, and which comparisons are settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetlab.studies.sweep._cases import Case
from fleetlab.studies.sweep._found import Found, Pair, Words, between, difference, mean_of
from fleetlab.studies.sweep.study import Study

Unit = Pair | Words  # what gets more seeds until it is settled: a comparison, or a case that nobody compares


@dataclass(slots=True)
class Rounds:
    """Where each comparison stands: the last look at it, counted from 1."""

    study: Study
    cases: Mapping[Words, Case]
    pairs: tuple[Pair, ...]
    looks: dict[Unit, int] = field(default_factory=dict)
    open: list[Unit] = field(default_factory=list)

    @classmethod
    def of(cls, study: Study) -> Rounds:
        """Before the first look: everything is open."""
        cases = {words_of(case): case for case in study.cases()}
        both = study.compare.pairs(list(cases.values()))
        pairs = tuple(Pair(words_of(case), words_of(base)) for case, base in both)
        paired = {words for pair in pairs for words in pair}
        alone: list[Unit] = [words for words in cases if words not in paired]
        return cls(study, cases, pairs, open=[*pairs, *alone])

    def wanted(self, look: int) -> list[tuple[Case, int]]:
        """The cells that must be there for a look, those of one seed together."""
        needed = {words for unit in self.open for words in (unit if isinstance(unit, Pair) else (unit,))}
        some = [case for words, case in self.cases.items() if words in needed]
        return [(case, seed) for seed in self.seeds(look) for case in some]

    def seeds(self, look: int) -> Sequence[int]:
        """Those that are played by then."""
        return self.study.seeds.listed[: self.study.seeds.looks()[look - 1]]

    def settle(self, look: int, found: Found) -> None:
        """Look at everything that is open; what is narrow enough is not played any more."""
        still = []
        for unit in self.open:
            self.looks[unit] = look
            if not self._narrow(unit, look, found):
                still.append(unit)
        self.open = still

    def _narrow(self, unit: Unit, look: int, found: Found) -> bool:
        seeds, rule = self.seeds(look), self.study.seeds
        if rule.within is None:
            return True
        wrong = self.wrong(look)
        if isinstance(unit, Pair):
            mean, reference = difference(found, unit, rule.metric, seeds), mean_of(found[unit.base], rule.metric, seeds)
            low, high = between(mean, wrong / self.lines)
            return rule.enough((high - low) / 2, reference.value)
        mean = mean_of(found[unit], rule.metric, seeds)
        low, high = between(mean, wrong)
        return rule.enough((high - low) / 2, mean.value)

    @property
    def lines(self) -> int:
        """How many intervals must hold at once."""
        return max(1, len(self.pairs) * len(self.study.compare.metrics))

    def wrong(self, look: int) -> float:
        """The chance to be wrong at a look."""
        return self.study.seeds.spent(look, 1 - self.study.compare.sure)

    def seeds_of(self, what: Unit) -> Sequence[int]:
        """The seeds that a comparison or a case has had when it was last looked at."""
        return self.seeds(self.look_of(what))

    def wrong_of(self, what: Unit) -> float:
        """The chance to be wrong that was spent on that look."""
        return self.wrong(self.look_of(what))

    def look_of(self, what: Unit) -> int:
        """The last look at a comparison, or at anything that a case is part of."""
        if what in self.looks:
            return self.looks[what]
        return max((k for unit, k in self.looks.items() if isinstance(unit, Pair) and what in unit), default=1)


def words_of(case: Case) -> Words:
    """A case by its words, as tables know it."""
    return tuple(case.words.items())
