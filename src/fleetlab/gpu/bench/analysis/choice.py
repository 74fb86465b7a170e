"""The best mode for a goal: better than every other, equivalent to some, or not known and what would decide."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from fleetlab.gpu.bench.analysis.findings import Findings
from fleetlab.gpu.bench.analysis.mixes import MixMeasures
from fleetlab.gpu.bench.analysis.serving import ServedTenant
from fleetlab.gpu.bench.analysis.values import (
    IN_ONE_PLAN,
    GoalValues,
    MeasureValues,
    PartDifference,
    ServedValues,
    best_first,
)
from fleetlab.gpu.bench.analysis.wording import capital, count_noun, join_words, mode_name, number, percent
from fleetlab.gpu.bench.histogram import interval_columns
from fleetlab.gpu.bench.results.cells import table
from fleetlab.stats import CONFIDENCE, Difference, Interval

BETTER, SAME, UNKNOWN = "better", "no difference", "not known"
WORSE = "worse"  # a mode than which the best is better
VERDICTS = {"differ": BETTER, "equivalent": SAME, "undecided": UNKNOWN}
MARGIN = 0.05  # relative difference that does not matter
LARGE = 10  # times: of larger ones, both values are told and not a percentage
NAMED = 3  # mixes that are named in a sentence


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """Modes, best first, with the difference of the best to each other one."""

    modes: tuple[str, ...]
    values: dict[str, Interval]
    differences: dict[str, Difference]
    margin: float  # relative difference below which two modes are equivalent
    no_noise: str = ""  # why the noise is not known, where it is not, and what to measure
    less: str = ""  # how a lower value is better; empty if a higher one is
    falls_behind: dict[str, str] = field(default_factory=dict)  # modes in which a server does not keep up
    not_compared: dict[str, str] = field(default_factory=dict)  # modes whose value is not known, and why
    by_mix: dict[str, dict[str, Difference]] = field(default_factory=dict)  # where the interval is that between mixes
    in_part: dict[str, PartDifference] = field(default_factory=dict)  # modes that only a part of the mixes have

    @property
    def best(self) -> str:
        """The best mode as measured."""
        return self.modes[0]

    @property
    def second(self) -> str | None:
        """The next one; None if the others fall behind."""
        return self.modes[1] if len(self.modes) > 1 else None

    @property
    def lead(self) -> Interval | None:
        """By how much the best is better than the next one, as a fraction."""
        return None if self.second is None else self.ahead(self.second)

    def verdict_on(self, mode: str) -> str:
        """Whether the best is better than a mode, equivalent, or neither is shown."""
        return VERDICTS[self.differences[mode].decide(math.log1p(self.margin))]

    @property
    def verdict(self) -> str:
        """Of the best mode against all others; a mode that is not compared leaves a single one unknown."""
        if self.second is None:
            return UNKNOWN if self.not_compared else BETTER
        verdicts = {self.verdict_on(mode) for mode in self.modes[1:]}
        return UNKNOWN if UNKNOWN in verdicts else SAME if SAME in verdicts else BETTER

    @property
    def level(self) -> list[str]:
        """The best, and modes that are equivalent or not shown to be worse."""
        return [self.best, *(mode for mode in self.modes[1:] if self.verdict_on(mode) != BETTER)]

    def ratio(self, mode: str) -> Interval:
        """By how much the best is better than a mode, as a factor."""
        return ratio_interval(self.differences[mode])

    def ahead(self, mode: str) -> Interval:
        """By how much its value is higher than that of a mode, or lower if that is better, as a fraction of it."""
        return self._fraction(self.ratio(mode))

    def _fraction(self, ratio: Interval) -> Interval:
        return Interval(*(1 - 1 / v if self.less else v - 1 for v in ratio))

    def more_blocks(self, mode: str) -> int | None:
        """How many more blocks of each would decide; None if that cannot be told, or mixes differ and not blocks."""
        if self.by_mix.get(mode):
            return None
        return self.differences[mode].samples_to_decide(math.log1p(self.margin))

    # --- in words ----------------------------------------------------------------------------------------------------

    def sentence(self) -> str:
        """The decision in words: what is shown comes first, then what is not."""
        if self.second is None:
            return self._only()
        unsure = [mode for mode in self.modes[1:] if self.verdict_on(mode) == UNKNOWN]
        shown = self.shown()
        if not unsure:
            return shown
        names = join_words([mode_name(mode) for mode in unsure])
        if not shown:
            level = all(self.differences[mode].value == 0 for mode in unsure)
            where = "level with" if level else "ahead of"
            return f"not known: {mode_name(self.best)} is {where} {names}, but {self._why_unsure(unsure)}"
        return f"{shown}; not known against {names}: it is ahead, but {self._why_unsure(unsure)}"

    def _only(self) -> str:
        words = "the only mode in which the server keeps up"
        best = mode_name(self.best)
        return f"{best}, {words}" if self.verdict == BETTER else f"not known: {best} is {words}, of those compared"

    @property
    def advises(self) -> bool:
        """Whether it is shown for a mode that it is better than another, or equivalent."""
        return self.verdict == BETTER if self.second is None else bool(self.shown())

    def shown(self) -> str:
        """Equivalent modes, and by how much the best is better than the next one that is shown to be worse."""
        best, same = mode_name(self.best), [mode for mode in self.modes[1:] if self.verdict_on(mode) == SAME]
        worse = [mode for mode in self.modes[1:] if self.verdict_on(mode) == BETTER]
        lead = self._lead_over(worse[0]) if worse else ""
        more = f" and better than {join_words([mode_name(mode) for mode in worse[1:]])}" if len(worse) > 1 else ""
        if same:
            names = join_words([best, *(mode_name(mode) for mode in same)])
            equal = f"no difference beyond {100 * self.margin:g} % between {names} (two one-sided tests)"
            return f"{equal}; {best}, {lead}{more}" if worse else equal
        return f"{best}, {lead}{more if self.verdict == UNKNOWN else ''}" if worse else ""

    def _lead_over(self, mode: str) -> str:
        name, values = mode_name(mode), self.values
        if not self.less and values[mode].low <= values[self.best].value / LARGE:  # a ratio to nearly 0 says nothing
            return f"{number(values[self.best])} against {number(values[mode])} with {name}"
        much = percent(self.ahead(mode))
        return f"{much} {self.less} than with {name}" if self.less else f"by {much} over {name}"

    def _why_unsure(self, unsure: list[str]) -> str:
        if not all(self.differences[mode].freedom for mode in unsure):
            return self.no_noise
        if any(self.by_mix.get(mode) for mode in unsure):
            against = len(unsure) > 1
            return "; ".join(
                (f"against {mode_name(mode)} " if against else "") + self._mixes_differ(mode) for mode in unsure
            )
        needed = [self.more_blocks(mode) for mode in unsure]
        if None in needed:
            return f"not beyond the noise; {IN_ONE_PLAN}"
        blocks = count_noun(max(n for n in needed if n is not None), "more block")
        return f"not beyond the noise; {blocks} of each in one plan would decide"

    def _mixes_differ(self, mode: str) -> str:
        """In which mixes the best, and in which another mode, is better; more blocks do not change that."""
        each, limit = self.by_mix[mode], math.log1p(self.margin)
        better = [mix for mix, d in each.items() if d.value > 0 and d.decide(limit) == "differ"]
        worse = [mix for mix, d in each.items() if d.value < 0 and d.decide(limit) == "differ"]
        level = len(each) - len(better) - len(worse)
        parts = [_in_mixes(mode_name(self.best), better), _in_mixes(mode_name(mode), worse)]
        parts += [f"neither in {level}"] if level else []
        return f"the {len(each)} mixes differ: {', '.join(filter(None, parts))}"

    def left_out(self) -> list[str]:
        """Modes that are no choice, and modes that are not compared, each with the reason."""
        behind = [f"{mode_name(mode)} {why}" for mode, why in self.falls_behind.items()]
        grows = "a server that falls behind has no P99, its latency grows as long as one measures"
        sentences = [f"{capital('; '.join(behind))}: {grows}."] if behind else []
        late = [f"{mode_name(mode)} ({why})" for mode, why in self.not_compared.items()]
        sentences += [f"Not compared: {join_words(late)}."] if late else []
        return [*sentences, *(capital(f"{mode_name(mode)} {self._part(mode)}.") for mode in self.in_part)]

    def _part(self, mode: str) -> str:
        """How a mode compares in the mixes that have it."""
        part, best = self.in_part[mode], mode_name(self.best)
        where = f"was measured in {part.mixes} of these {part.of} mixes only; there"
        match VERDICTS[part.difference.decide(math.log1p(self.margin))]:
            case "better":
                if part.difference.value > 0:
                    return f"{where} {best} is better, by {percent(self._fraction(ratio_interval(part.difference)))}"
                ahead = self._fraction(ratio_interval(_turned(part.difference)))
                return f"{where} it is better than {best}, by {percent(ahead)}"
            case "no difference":
                return f"{where} no difference to {best}"
        return f"{where} it is not known whether {best} is better"

    def rows(self) -> list[dict[str, Any]]:
        """One row per mode."""
        rows = [self._row(mode) for mode in self.modes]
        part = {mode: f"in {p.mixes} of {p.of} mixes only" for mode, p in self.in_part.items()}
        for mode, why in (self.falls_behind | self.not_compared | part).items():
            nothing = interval_columns("value", None) | interval_columns("margin", None)
            rows.append({"mode": mode, **nothing, "verdict": why, "more_blocks": None})
        return rows

    def _row(self, mode: str) -> dict[str, Any]:
        first = mode == self.best
        return {
            "mode": mode,
            **interval_columns("value", self.values[mode]),
            **interval_columns("margin", None if first else self.ahead(mode)),
            "verdict": "best" if first else {BETTER: WORSE}.get(verdict := self.verdict_on(mode), verdict),
            "more_blocks": None if first else self.more_blocks(mode),
        }


FLOATS = (*interval_columns("value", None), *interval_columns("margin", None))


def choice_table(choice: ModeChoice, predicted: Sequence[dict[str, Any]] = ()) -> pl.DataFrame:
    """One row per mode, and those that are predicted; without `more_blocks` if there is nothing to decide by them."""
    frame = table([*choice.rows(), *predicted]).with_columns(
        pl.col(FLOATS).cast(float), pl.col("more_blocks").cast(int)
    )
    return frame if frame["more_blocks"].count() else frame.drop("more_blocks")


def _in_mixes(name: str, mixes: list[str]) -> str:
    """In which mixes a mode is better; the first of them by name."""
    listed = ", ".join(mixes[:NAMED]) + (", …" if len(mixes) > NAMED else "")
    return f"{name} is better in {len(mixes)} ({listed})" if mixes else ""


def _turned(d: Difference) -> Difference:
    """The difference of the second to the first."""
    return d._replace(value=-d.value, variances=d.variances[::-1], samples=d.samples[::-1])


def ratio_interval(d: Difference) -> Interval:
    """The ratio of which a difference is the log."""
    half = d.half(CONFIDENCE)
    return Interval(*(math.exp(v) for v in (d.value, d.value - half, d.value + half)))


def choose_mode(values: GoalValues, margin: float = MARGIN) -> ModeChoice | None:
    """Rank the modes; None if there are fewer than two, where one in which a server falls behind counts."""
    if not values.modes or len(values.modes) + len(values.falls_behind) < 2:
        return None
    ranked = best_first(values, values.modes)
    others = ranked[1:]
    return ModeChoice(
        tuple(ranked),
        values={mode: values.value(mode) for mode in ranked},
        differences={mode: values.difference(ranked[0], mode) for mode in others},
        margin=margin,
        no_noise=values.no_noise,
        less=values.less,
        falls_behind=values.falls_behind,
        not_compared=values.not_compared,
        by_mix={mode: values.by_mix(ranked[0], mode) for mode in others},
        in_part=values.in_part(ranked[0]),
    )


# --- the recommended mode of every mix -------------------------------------------------------------------------------


SCHEMA = {"kind": pl.String, "mix": pl.String, "goal": pl.String, "best": pl.String, "verdict": pl.String}
SERVED = "open-loop requests"


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The choice of a mode for a mix or a kind of mix."""

    of: str
    goal: str
    choice: ModeChoice
    mixes: int = 1

    @property
    def verdict(self) -> str:
        """`better` than every other, `no difference` where a test shows equivalence, else `not known`."""
        return self.choice.verdict

    def row(self) -> dict[str, Any]:
        """As a table row."""
        c = self.choice
        return {
            "goal": self.goal,
            "best": c.best,
            "verdict": c.verdict,
            **interval_columns("value", c.values[c.best]),
            "second": c.second,
            **interval_columns("margin", c.lead),
            "level": ", ".join(c.level),
            "modes": ", ".join(c.modes),
            "falls_behind": ", ".join(c.falls_behind),
        }

    def sentence(self) -> str:
        """As a sentence."""
        return self.choice.sentence()


def goal_values(x: MixMeasures, mixes: Sequence[str]) -> dict[str, MeasureValues]:
    """Total throughput, the slowest tenant, and tail latency."""
    some = tuple(mixes)
    return {
        "throughput": MeasureValues(x.stp, some, high=True, one=x.throughput),
        "fair": MeasureValues(x.worst, some, high=True, one=x.fairness),
        "latency": MeasureValues(x.latency, some, high=False, one=x.latency.mean, less="shorter"),
    }


def by_mix(x: MixMeasures) -> Iterator[Recommendation]:
    """For each mix in at least two modes, and each goal."""
    for mix in x.shared():
        for goal, values in goal_values(x, [mix]).items():
            if choice := choose_mode(values):
                yield Recommendation(mix, goal, choice)


def by_kind(x: MixMeasures) -> Iterator[Recommendation]:
    """For each kind of mix, over the mixes that all of its modes have in common."""
    pairs = set(x.shared(tenants=2))
    for kind in dict.fromkeys(x.stp.kinds[mix] for mix in x.shared()):
        for goal, values in goal_values(x, []).items():
            measure = values.measure
            mixes = [mix for mix in x.shared() if x.stp.kinds[mix] == kind and len(measure.modes(mix)) > 1]
            mixes = [mix for mix in mixes if mix in pairs] or mixes
            modes, same = measure.common(mixes)
            if len(modes) > 1 and (choice := choose_mode(goal_values(x, same)[goal])):
                yield Recommendation(kind, goal, choice, len(same))


def by_serving(f: Findings) -> Iterator[Recommendation]:
    """The mode with the lowest P99 for each tenant and background in at least two modes; only valid cells."""
    by: dict[str, dict[str, ServedTenant]] = defaultdict(dict)
    for s in f.served_tenants:
        by[f"{s.tenant} beside {s.background}"][s.mode] = s
    for of, served in by.items():
        if choice := choose_mode(ServedValues(served, f.mixes.noise)):
            yield Recommendation(of, "latency", choice)


def advice_table(f: Findings) -> pl.DataFrame:
    """One row per mix and goal, and per tenant with open-loop requests."""
    rows = [{"kind": f.mixes.stp.kinds[r.of], "mix": r.of, **r.row()} for r in by_mix(f.mixes)]
    return table([*rows, *({"kind": SERVED, "mix": r.of, **r.row()} for r in by_serving(f))], SCHEMA)


def kind_table(x: MixMeasures) -> pl.DataFrame:
    """One row per kind of mix and goal."""
    return table(({"kind": r.of, "mixes": r.mixes, **r.row()} for r in by_kind(x)), SCHEMA)
