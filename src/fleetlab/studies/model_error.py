"""How far simulated mean waits are from real ones beyond chance, by recorded runs of the scheduler that is simulated.

A scheduler that declares `recorded_runs` has a file of ratios of simulated to real mean waits, several a setting. What
settings differ by beyond the noise of their repetitions widens the intervals of mean waits simulated under it. Two
simulations of one site have most of that error in common, so intervals of differences stay as they are; how far
predicted differences were from real ones is a note.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl

from fleetlab.core import Scenario
from fleetlab.stats import Interval, Spread, spread_beyond_repeats, widened

TABLE = "intervals by chance alone"


@dataclass(frozen=True, eq=False)
class ModelError:
    """What recorded runs say of the simulated mean waits of a scheduler."""

    title: str  # the scheduler and its version
    date: str  # when its runs were simulated
    ratios: Mapping[str, tuple[float, ...]]  # simulated to real mean waits, for each setting those of its runs
    changes: tuple[tuple[float, float], ...] = ()  # of the mean wait: predicted, and measured once a change was made

    @classmethod
    def of(cls, scenario: Scenario) -> ModelError | None:
        """Return that of the scheduler which is simulated; None where none was recorded."""
        simulated = scenario.scheduler
        return None if simulated is None or simulated.recorded_runs is None else _read(simulated.recorded_runs)

    @property
    def spread(self) -> Spread:
        """The variance of the logarithm of a ratio beyond that of repetitions."""
        return spread_beyond_repeats([[math.log(ratio) for ratio in each] for each in self.ratios.values()])

    @property
    def percent(self) -> str:
        """By how much a simulated mean wait may be off, with 95 % confidence."""
        return f"±{100 * math.expm1(self.spread.half()):.0f} %"

    def accuracy(self) -> str:
        """Return how many recorded runs have a simulated mean wait that near the real one."""
        each = [abs(math.log(ratio)) for ratios in self.ratios.values() for ratio in ratios]
        near = sum(log <= self.spread.half() for log in each)
        of = f"{near} of {len(each)} recorded runs of {self.title}"
        return f"simulated mean waits are within {self.percent} of real ones in {of}"

    def notes(self) -> tuple[str, ...]:
        """Return what intervals have of it, and how far predicted differences were from real ones."""
        runs = sum(map(len, self.ratios.values()))
        level = (
            f"intervals of mean waits have {self.percent} for the error of the model itself, beside chance: it was "
            f"measured in {runs} recorded runs of {self.title}; `{TABLE}` has them without"
        )
        if not self.changes:
            return (level,)
        off = sorted(predicted / real for predicted, real in self.changes)
        return level, (
            f"intervals of differences have none of it, as both sides share most: of {len(off)} changes made at a real "
            f"site, predicted differences were {off[0]:.2g} to {off[-1]:.2g} times the real ones"
        )


@cache
def _read(path: Path) -> ModelError:
    values = tomllib.loads(path.read_text("utf-8"))
    changes = tuple((change["predicted"], change["real"]) for change in values["changes"])
    return ModelError(values["title"], values["date"], values["ratios"], changes)


def with_model_error(wait: Interval, scenario: Scenario) -> Interval:
    """Return the interval of a simulated mean wait, widened by the error of the model where that was recorded."""
    error = ModelError.of(scenario)
    return wait if error is None else widened(wait, error.spread)


def notes_of(scenarios: Iterable[Scenario]) -> tuple[str, ...]:
    """Return the notes of the first model with recorded runs."""
    return next((error.notes() for s in scenarios if (error := ModelError.of(s)) is not None), ())


def by_chance(waits: Mapping[str, tuple[Interval, Scenario]]) -> dict[str, pl.DataFrame]:
    """Return, as a table by its name, the intervals of mean waits before they were widened; nothing where none were."""
    own = {name: wait for name, (wait, s) in waits.items() if ModelError.of(s) and not math.isnan(wait.low)}
    rows = [{"run": name} | wait.columns("mean wait") for name, wait in own.items()]
    return {TABLE: pl.DataFrame(rows)} if rows else {}
