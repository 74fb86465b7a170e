"""The best mode for a goal: better than every other, equivalent to some, or not known and what would decide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fleetlab.bench.analysis.mixes import interval_columns
from fleetlab.bench.analysis.suite_data import mode_name
from fleetlab.bench.analysis.values import GoalValues, best_first
from fleetlab.bench.analysis.wording import join_words, percent
from fleetlab.stats import CONFIDENCE, Difference, Interval

BETTER, SAME, UNKNOWN = "better", "no difference", "not known"
MARGIN = 0.05  # relative difference that does not matter


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """Modes, best first, with the difference of the best to each other one."""

    modes: tuple[str, ...]
    values: dict[str, Interval]
    behind: dict[str, Difference]
    margin: float  # relative difference below which two modes are equivalent
    no_noise: str = ""  # why the noise is not known, where it is not

    @property
    def best(self) -> str:
        """The best mode as measured."""
        return self.modes[0]

    def verdict_on(self, mode: str) -> str:
        """Whether the best is better than a mode, equivalent, or neither is shown."""
        return {"differ": BETTER, "equivalent": SAME, "undecided": UNKNOWN}[
            self.behind[mode].decide(math.log1p(self.margin))
        ]

    @property
    def verdict(self) -> str:
        """Of the best mode against all others."""
        made = {self.verdict_on(mode) for mode in self.modes[1:]}
        return UNKNOWN if UNKNOWN in made else SAME if SAME in made else BETTER

    @property
    def level(self) -> list[str]:
        """The best, and modes that are equivalent or not shown to be worse."""
        return [self.best, *(mode for mode in self.modes[1:] if self.verdict_on(mode) != BETTER)]

    def ratio(self, mode: str) -> Interval:
        """By how much the best is better than a mode."""
        return ratio_interval(self.behind[mode])

    def blocks(self) -> int | None:
        """How many more blocks of each mode would decide; None if that cannot be told."""
        needed = [
            self.behind[mode].samples_to_decide(math.log1p(self.margin))
            for mode in self.modes[1:]
            if self.verdict_on(mode) == UNKNOWN
        ]
        return None if None in needed else max((n for n in needed if n is not None), default=0)

    def sentence(self) -> str:
        """The decision in words."""
        best, others = mode_name(self.best), self.modes[1:]
        if self.verdict == UNKNOWN:
            unsure = [mode for mode in others if self.verdict_on(mode) == UNKNOWN]
            ahead = f"not known: {best} is ahead of {join_words([mode_name(mode) for mode in unsure])}"
            if not all(self.behind[mode].freedom for mode in unsure):
                return f"{ahead}, but {self.no_noise}; measure both in one plan, with blocks{self._shown()}"
            n = self.blocks()
            more = f"{n} more blocks of each in one plan would decide" if n else "measure both in one plan, with blocks"
            return f"{ahead}, but not beyond the noise; {more}{self._shown()}"
        if self.verdict == SAME:
            same = join_words([mode_name(mode) for mode in self.level])
            return f"no difference beyond {100 * self.margin:g} % between {same} (two one-sided tests)"
        gain = self.ratio(others[0])
        return f"{best}, by {percent(Interval(*(v - 1 for v in gain)))} over {mode_name(others[0])}"

    def _shown(self) -> str:
        """Than which modes the best is better, where others are not known."""
        behind = [mode_name(mode) for mode in self.modes[1:] if self.verdict_on(mode) == BETTER]
        return f". It is better than {join_words(behind)}" if behind else ""

    def rows(self) -> list[dict[str, Any]]:
        """One row per mode."""
        rows = []
        for mode in self.modes:
            ahead = None if mode == self.best else Interval(*(v - 1 for v in self.ratio(mode)))
            rows.append(
                {
                    "mode": mode,
                    **interval_columns("value", self.values[mode]),
                    **interval_columns("best_ahead_by", ahead),
                    "verdict": "best" if mode == self.best else self.verdict_on(mode),
                    "more_blocks": None
                    if mode == self.best
                    else self.behind[mode].samples_to_decide(math.log1p(self.margin)),
                }
            )
        return rows


def ratio_interval(d: Difference) -> Interval:
    """The ratio of which a difference is the log."""
    half = d.half(CONFIDENCE)
    return Interval(*(math.exp(v) for v in (d.value, d.value - half, d.value + half)))


def choose_mode(values: GoalValues, margin: float = MARGIN) -> ModeChoice | None:
    """Rank the modes; None if there are fewer than two."""
    if len(values.modes) < 2:
        return None
    ranked = best_first(values, values.modes)
    behind = {mode: values.difference(ranked[0], mode) for mode in ranked[1:]}
    shown = {mode: values.value(mode) for mode in ranked}
    return ModeChoice(tuple(ranked), shown, behind, margin, values.no_noise)
