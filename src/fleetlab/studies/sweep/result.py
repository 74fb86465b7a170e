"""What a sweep found: the mean of every case, paired differences that hold all at once, and what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result
from fleetlab.studies.sweep._found import (
    Words,
    case_table,
    difference_figures,
    difference_table,
    load_figures,
    varying,
)
from fleetlab.studies.sweep._plan import Plan
from fleetlab.studies.sweep._rounds import Rounds
from fleetlab.studies.sweep._store import Record
from fleetlab.studies.sweep.study import Study

MEANS = {
    "new": "each seed makes a built-in trace of its own: intervals are of what such traces give on average",
    "blocks": "each seed draws parts of the log again: intervals are of the mean over such draws, and narrow with "
    "seeds; how far one log may be from another is `sd`",
    "none": "seeds do not change the jobs, only what the simulator draws",
}


class Effort(NamedTuple):
    """What it took this time."""

    engine: str
    played: int  # cells
    busy: float  # seconds that workers were at work on cells
    held: float  # seconds that workers were there
    wall: float


@dataclass(slots=True)
class Told:
    """What the records of a sweep say, without what nobody asked for: there may be a million of them."""

    found: dict[Words, dict[int, dict[str, float | None]]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    failed: list[Record] = field(default_factory=list)

    def add(self, case: Words, seed: int, record: Record, study: Study) -> None:
        """One more record."""
        metrics = record.get("metrics") or {}
        asked = dict.fromkeys((*study.compare.metrics, study.seeds.metric))
        self.found.setdefault(case, {})[seed] = {name: metrics[name] for name in asked if name in metrics}
        self.units.update({name: unit for name, unit in record.get("units", {}).items() if name in asked})
        if record.get("failed"):
            self.failed.append(record)

    def __len__(self) -> int:
        return sum(map(len, self.found.values()))


@dataclass(frozen=True, slots=True, repr=False)
class Sweep(Result):
    """The cells of a study, and what they say together."""

    provenance: Provenance
    estimates: tuple[Estimate, ...]
    frames: Mapping[str, pl.DataFrame]
    charts: Mapping[str, Figure]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, rounds: Rounds, told: Told, effort: Effort) -> Sweep:
        """Add up all records."""
        study, metrics = plan.study, plan.study.compare.metrics
        ordered = {words: told.found.get(words, {}) for words in rounds.cases}
        cases = case_table(ordered, metrics, told.units, rounds.seeds_of, rounds.wrong_of)
        differences = difference_table(ordered, rounds.pairs, metrics, told.units, rounds.seeds_of, rounds.wrong_of)
        failed = _failures(told.failed)
        settings = {
            "traces": list(study.traces), "loads": list(study.loads), "nodes": list(study.nodes),
            "cases": len(rounds.cases), "seeds": str(study.seeds), "against": dict(study.compare.against),
            "sure": study.compare.sure, "engine": effort.engine,
        }  # fmt: skip
        frames = {"differences": differences, "cases": cases, "failed": failed}
        figures = {**load_figures(cases, metrics), **difference_figures(differences, metrics)}
        first = study.seeds.listed[0]
        return cls(
            Provenance("sweep", study.name, settings, first),
            tuple(_summary(rounds, len(told), failed, effort)),
            {name: frame for name, frame in frames.items() if frame.height},
            figures,
            tuple(_notes(plan, rounds, failed)),
        )

    def __repr__(self) -> str:
        by = {e.metric: e.value for e in self.estimates}
        return f"<Sweep {self.provenance.source}: {by['cells']:,} cells, {by['cells failed']:,} failed>"

    @property
    def failed(self) -> int:
        """How many cells failed."""
        return sum(self.frames["failed"]["cells"].to_list()) if "failed" in self.frames else 0


def _summary(rounds: Rounds, cells: int, failed: pl.DataFrame, effort: Effort) -> list[Estimate]:
    found = [
        Estimate.exact("cases", len(rounds.cases)),
        Estimate.exact("cells", cells),
        Estimate.exact("cells played now", effort.played),
        Estimate.exact("cells failed", sum(failed["cells"].to_list())),
    ]
    if rounds.study.seeds.within is not None:
        wide = len(rounds.open)
        found.append(
            Estimate.exact("comparisons wider than asked for" if rounds.pairs else "cases wider than asked for", wide)
        )
    if effort.played:
        found += [
            Estimate.exact("took", effort.wall, "s"),
            Estimate.exact("a cell", effort.busy / effort.played, "s"),
            Estimate.exact("workers busy", 100 * min(1.0, effort.busy / effort.held) if effort.held else 0.0, "%"),
        ]
    return found


def _failures(records: Sequence[Record]) -> pl.DataFrame:
    """Why cells failed, how many, and the first of them."""
    by: dict[str, list[Record]] = {}
    for record in records:
        by.setdefault(record["failed"], []).append(record)
    rows = [
        {"why": why, "cells": len(some), "first": some[0]["key"], "hint": some[0].get("hint") or ""}
        for why, some in sorted(by.items(), key=lambda pair: -len(pair[1]))
    ]
    return pl.DataFrame(rows, schema={"why": pl.String, "cells": pl.Int64, "first": pl.String, "hint": pl.String})


def _notes(plan: Plan, rounds: Rounds, failed: pl.DataFrame) -> list[str]:
    study = plan.study
    sure = f"{100 * study.compare.sure:g} %"
    said = [MEANS[draw] for draw in dict.fromkeys(one.source.draw for one in plan.prepared.values())]
    if rounds.pairs:
        said.append(
            f"the {rounds.lines:,} intervals of differences hold all at once with {sure} (Bonferroni); "
            "pairs have the same jobs seed by seed"
        )
    if study.seeds.within is not None:
        said.append(
            "intervals are honest though seeds were added until they were narrow: look k may be wrong with α/(k(k+1))"
        )
    elif study.seeds.most < 2:
        said.append("one seed gives no interval: ask for more")
    if failed.height:
        said.append("cells whose workers died are played again by the same command; others would fail again")
    same = [a for a in varying(list(rounds.cases)) if a == "load"]
    if same:
        said.append("at another load the same jobs come faster or slower: bursts grow sharper with it")
    return said
