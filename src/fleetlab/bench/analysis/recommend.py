"""The recommended mode of every mix, kind of mix and open-loop tenant, by each goal, as `advise` chooses it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from fleetlab.bench.analysis.choice import ModeChoice, choose_mode
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.mixes import MixMeasures, interval_columns
from fleetlab.bench.analysis.serving import ServedTenant
from fleetlab.bench.analysis.values import MeasureValues, ServedValues
from fleetlab.bench.results.cells import table

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
