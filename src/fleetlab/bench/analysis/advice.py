"""Which mode for which mix, under which goal, and by how much; where nothing can be told apart, that is the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from fleetlab.bench.analysis.meetings import spoken
from fleetlab.bench.analysis.mixes import Mixes, spread_out
from fleetlab.bench.analysis.noise import Compared, Measure
from fleetlab.bench.analysis.words import all_of, percent
from fleetlab.bench.results.cells import frame
from fleetlab.stats import Interval

SCHEMA = {"kind": pl.String, "mix": pl.String, "goal": pl.String, "best": pl.String, "verdict": pl.String}


@dataclass(frozen=True, slots=True)
class Goal:
    """What one may want of a card, and whether more of it is better."""

    name: str
    measure: Measure
    high: bool
    value: Callable[[str, str], Interval]

    def better(self, mixes: Sequence[str], one: str, other: str) -> Compared:
        """By what factor `one` is better than `other`, over these mixes."""
        return self.measure.ratio_of(mixes, *((one, other) if self.high else (other, one)))

    def order(self, modes: Sequence[str], value: dict[str, float]) -> list[str]:
        """Best first."""
        return sorted(modes, key=lambda mode: value[mode], reverse=self.high)


def goals(x: Mixes) -> list[Goal]:
    """Most work in all, the worst-off tenant, the tail of who answers requests."""
    return [
        Goal("throughput", x.stp, high=True, value=x.throughput),
        Goal("fair", x.worst, high=True, value=x.fairness),
        Goal("latency", x.latency, high=False, value=x.latency.mean),
    ]


@dataclass(frozen=True, slots=True)
class Advice:
    """The best mode, what it gives, and how far the next one is behind."""

    of: str
    goal: str
    modes: tuple[str, ...]  # best first
    value: Interval
    margin: Compared  # of the best over the second
    level: tuple[str, ...]  # modes that cannot be told from the best
    mixes: int = 1

    @property
    def verdict(self) -> str:
        """`better` than every other, `no difference` or, from single blocks, `not known`."""
        if self.margin.differ is None:
            return "not known"
        return "better" if len(self.level) == 1 else "no difference"

    def row(self) -> dict[str, Any]:
        """Of a table."""
        m = self.margin
        return {
            "goal": self.goal,
            "best": self.modes[0],
            "verdict": self.verdict,
            **spread_out("value", self.value),
            "second": self.modes[1],
            "margin": m.value - 1,
            "margin_low": m.low - 1,
            "margin_high": m.high - 1,
            "floor": math.expm1(m.floor),
            "level": ", ".join(self.level),
            "modes": ", ".join(self.modes),
        }

    def said(self) -> str:
        """As a sentence."""
        best, second = spoken(self.modes[0]), spoken(self.modes[1])
        if self.verdict == "not known":
            return f"{best} is ahead of {second}, but single blocks cannot say whether by chance"
        if self.verdict == "no difference":
            return f"no difference between {all_of([spoken(mode) for mode in self.level])}"
        margin = percent(Interval(*(v - 1 for v in self.margin[:3])))
        how = "shorter than with" if self.goal == "latency" else "better than"
        if self.goal == "latency":  # by how much the best is shorter, not the second longer
            margin = percent(Interval(1 - 1 / self.margin.value, 1 - 1 / self.margin.low, 1 - 1 / self.margin.high))
        return f"{best}, {margin} {how} {second}"


def by_mix(x: Mixes) -> Iterator[Advice]:
    """For each mix in at least two modes, and each goal that it was measured for."""
    for mix in x.shared():
        for goal in goals(x):
            if len(modes := goal.measure.modes(mix)) > 1:
                yield advise(goal, mix, [mix], modes)


def advise(goal: Goal, of: str, mixes: Sequence[str], modes: Sequence[str]) -> Advice:
    """Of one mix, or of several that these modes share."""
    means = {mode: goal.measure.mean_of(mode, mixes) for mode in modes}
    ranked = goal.order(modes, {mode: x.value for mode, x in means.items()})
    behind = {mode: goal.better(mixes, ranked[0], mode) for mode in ranked[1:]}
    level = [mode for mode, c in behind.items() if not c.differ]
    value = goal.value(ranked[0], mixes[0]) if len(mixes) == 1 else means[ranked[0]]
    return Advice(of, goal.name, tuple(ranked), value, behind[ranked[1]], (ranked[0], *level), len(mixes))


def by_kind(x: Mixes) -> Iterator[Advice]:
    """For each kind of mix: over the mixes that all of its modes share."""
    pairs = set(x.shared(tenants=2))
    for kind in dict.fromkeys(x.stp.kinds[mix] for mix in x.shared()):
        for goal in goals(x):
            mixes = [mix for mix in x.shared() if x.stp.kinds[mix] == kind and len(goal.measure.modes(mix)) > 1]
            mixes = [mix for mix in mixes if mix in pairs] or mixes
            modes, same = common(goal.measure, mixes)
            if len(modes) > 1:
                yield advise(goal, kind, same, modes)


def common(measure: Measure, mixes: list[str]) -> tuple[list[str], list[str]]:
    """Modes and the mixes that all of them share; a mode that shares too little is left out."""
    modes = [mode for mode in measure.modes() if set(measure.mixes(mode)) & set(mixes)]
    while modes:
        same = [mix for mix in mixes if set(modes) <= set(measure.modes(mix))]
        if 2 * len(same) >= len(mixes):
            return modes, same
        # The mode with the fewest of them keeps the others from being compared.
        modes.remove(min(modes, key=lambda mode: len(set(measure.mixes(mode)) & set(mixes))))
    return [], []


def advice_table(x: Mixes) -> pl.DataFrame:
    """One row a mix and goal."""
    rows = ({"kind": x.stp.kinds[a.of], "mix": a.of, **a.row()} for a in by_mix(x))
    return frame(rows, SCHEMA)


def kind_table(x: Mixes) -> pl.DataFrame:
    """One row a kind of mix and goal."""
    return frame(({"kind": a.of, "mixes": a.mixes, **a.row()} for a in by_kind(x)), SCHEMA)
