"""Recommend a sharing mode for each mix and goal, with its margin; or report that modes do not differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from fleetlab.bench.analysis.mixes import MixMeasures, interval_columns
from fleetlab.bench.analysis.noise import EQUIVALENT, Measure, ModeRatio
from fleetlab.bench.analysis.suite_data import mode_name
from fleetlab.bench.analysis.wording import join_words, percent
from fleetlab.bench.results.cells import table
from fleetlab.stats import Interval

SCHEMA = {"kind": pl.String, "mix": pl.String, "goal": pl.String, "best": pl.String, "verdict": pl.String}


@dataclass(frozen=True, slots=True)
class ModeGoal:
    """A goal, and whether higher values are better."""

    name: str
    measure: Measure
    high: bool
    value: Callable[[str, str], Interval]

    def better(self, mixes: Sequence[str], one: str, other: str) -> ModeRatio:
        """Ratio by which `one` is better than `other`, over these mixes."""
        return self.measure.ratio_of(mixes, *((one, other) if self.high else (other, one)))

    def order(self, modes: Sequence[str], value: dict[str, float]) -> list[str]:
        """Modes, best first."""
        return sorted(modes, key=lambda mode: value[mode], reverse=self.high)


def mode_goals(x: MixMeasures) -> list[ModeGoal]:
    """Total throughput, the slowest tenant, and tail latency."""
    return [
        ModeGoal("throughput", x.stp, high=True, value=x.throughput),
        ModeGoal("fair", x.worst, high=True, value=x.fairness),
        ModeGoal("latency", x.latency, high=False, value=x.latency.mean),
    ]


@dataclass(frozen=True, slots=True)
class Advice:
    """The best mode, its value, and its margin over the next one."""

    of: str
    goal: str
    modes: tuple[str, ...]  # best first
    value: Interval
    margin: ModeRatio  # of the best over the second
    level: tuple[str, ...]  # modes that are not shown to differ from the best
    equivalent: bool = False  # whether these are shown to be equivalent to it
    mixes: int = 1

    @property
    def verdict(self) -> str:
        """`better` than every other, `no difference` where a test shows equivalence, else `not known`."""
        if self.margin.differ is None:
            return "not known"
        return "better" if len(self.level) == 1 else "no difference" if self.equivalent else "not known"

    def row(self) -> dict[str, Any]:
        """As a table row."""
        m = self.margin
        return {
            "goal": self.goal,
            "best": self.modes[0],
            "verdict": self.verdict,
            **interval_columns("value", self.value),
            "second": self.modes[1],
            "margin": m.value - 1,
            "margin_low": m.low - 1,
            "margin_high": m.high - 1,
            "floor": math.expm1(m.floor),
            "level": ", ".join(self.level),
            "modes": ", ".join(self.modes),
        }

    def sentence(self) -> str:
        """As a sentence."""
        best, second = mode_name(self.modes[0]), mode_name(self.modes[1])
        if self.verdict == "not known":
            why = "with single blocks" if self.margin.differ is None else "by so few blocks"
            return f"{best} is ahead of {second}, but {why} the difference may be noise"
        if self.verdict == "no difference":
            same = join_words([mode_name(mode) for mode in self.level])
            return f"no difference beyond {100 * EQUIVALENT:g} % between {same}"
        margin = percent(Interval(*(v - 1 for v in self.margin[:3])))
        how = "shorter than with" if self.goal == "latency" else "better than"
        if self.goal == "latency":  # by how much the best is shorter
            margin = percent(Interval(1 - 1 / self.margin.value, 1 - 1 / self.margin.low, 1 - 1 / self.margin.high))
        return f"{best}, {margin} {how} {second}"


def by_mix(x: MixMeasures) -> Iterator[Advice]:
    """For each mix in at least two modes, and each goal."""
    for mix in x.shared():
        for goal in mode_goals(x):
            if len(modes := goal.measure.modes(mix)) > 1:
                yield advise(goal, mix, [mix], modes)


def advise(goal: ModeGoal, of: str, mixes: Sequence[str], modes: Sequence[str]) -> Advice:
    """For one mix, or for several that these modes have in common."""
    means = {mode: goal.measure.mean_of(mode, mixes) for mode in modes}
    ranked = goal.order(modes, {mode: x.value for mode, x in means.items()})
    behind = {mode: goal.better(mixes, ranked[0], mode) for mode in ranked[1:]}
    level = [mode for mode, c in behind.items() if not c.differ]
    value = goal.value(ranked[0], mixes[0]) if len(mixes) == 1 else means[ranked[0]]
    same = all(behind[mode].equivalent for mode in level)
    return Advice(of, goal.name, tuple(ranked), value, behind[ranked[1]], (ranked[0], *level), same, len(mixes))


def by_kind(x: MixMeasures) -> Iterator[Advice]:
    """For each kind of mix, over the mixes that all of its modes have in common."""
    pairs = set(x.shared(tenants=2))
    for kind in dict.fromkeys(x.stp.kinds[mix] for mix in x.shared()):
        for goal in mode_goals(x):
            mixes = [mix for mix in x.shared() if x.stp.kinds[mix] == kind and len(goal.measure.modes(mix)) > 1]
            mixes = [mix for mix in mixes if mix in pairs] or mixes
            modes, same = common_mixes(goal.measure, mixes)
            if len(modes) > 1:
                yield advise(goal, kind, same, modes)


def common_mixes(measure: Measure, mixes: list[str]) -> tuple[list[str], list[str]]:
    """Modes and their common mixes; a mode with too few common mixes is excluded."""
    modes = [mode for mode in measure.modes() if set(measure.mixes(mode)) & set(mixes)]
    while modes:
        same = [mix for mix in mixes if set(modes) <= set(measure.modes(mix))]
        if 2 * len(same) >= len(mixes):
            return modes, same
        # The mode with the fewest mixes prevents the comparison of the others.
        modes.remove(min(modes, key=lambda mode: len(set(measure.mixes(mode)) & set(mixes))))
    return [], []


def advice_table(x: MixMeasures) -> pl.DataFrame:
    """One row per mix and goal."""
    rows = ({"kind": x.stp.kinds[a.of], "mix": a.of, **a.row()} for a in by_mix(x))
    return table(rows, SCHEMA)


def kind_table(x: MixMeasures) -> pl.DataFrame:
    """One row per kind of mix and goal."""
    return table(({"kind": a.of, "mixes": a.mixes, **a.row()} for a in by_kind(x)), SCHEMA)
