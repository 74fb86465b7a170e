"""How well models foretell what they have not seen: a pair left out, or all that a work did; and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from fleetlab.bench.profile.pairs import LogAdditive, Mean, Model, Pair, Table, Waits
from fleetlab.bench.profile.time_slicing import FairShare, Turns
from fleetlab.devices.errors import BenchError
from fleetlab.stats import Floats, Interval, bootstrap_units

MODELS: dict[str, Callable[[], Model]] = {
    "mean of all": Mean,
    "log-additive": LogAdditive,
    "waits": Waits,
    "fair share": FairShare,
    "turns": Turns,
}
SURE = 0.9  # two times the misses are what jackknife+ promises at worst


class Guess(NamedTuple):
    """What was foretold of a pair, and what was seen."""

    pair: Pair
    told: float
    seen: float


def works_of(table: Table, probes: Iterable[str] = ()) -> list[str]:
    """All that were measured in pairs, but for the probes, which are there to learn from."""
    return sorted({name for pair in table.speed for name in pair} - set(probes))


def pairs_of(table: Table, probes: Iterable[str] = ()) -> list[frozenset[str]]:
    """Pairs of works, whichever is slowed."""
    works = set(works_of(table, probes))
    return list(dict.fromkeys(frozenset(pair) for pair in table.speed if works >= set(pair)))


def without_each_pair(table: Table, make: Callable[[], Model], probes: Iterable[str] = ()) -> list[list[Guess]]:
    """Each pair of works foretold from all the others; a row has both sides of a pair."""
    return [_guessed(table, make, [pair]) for pair in pairs_of(table, probes)]


def without_each_work(table: Table, make: Callable[[], Model], probes: Iterable[str] = ()) -> list[list[Guess]]:
    """Each work foretold from pairs of the others alone, and, where there are, from how it fares beside the probes."""
    return [
        _guessed(table, make, [pair for pair in pairs_of(table, probes) if work in pair])
        for work in works_of(table, probes)
    ]


def _guessed(table: Table, make: Callable[[], Model], out: Sequence[frozenset[str]]) -> list[Guess]:
    model = make().fit(table.without((min(pair), max(pair)) for pair in out))
    lost = set(out)
    return [Guess(pair, model.predict(*pair), seen) for pair, seen in table.speed.items() if frozenset(pair) in lost]


# --- how far off -----------------------------------------------------------------------------------------------------


def errors(rows: Sequence[Sequence[Guess]], *, seed: int) -> dict[str, Any]:
    """Mean absolute error and R², with intervals from drawing whole rows; R² is against the mean of what was seen."""
    sums = np.array([_sums(row) for row in rows])
    found: dict[str, Any] = {"speeds": sum(map(len, rows))}
    for name, statistic in (("mae", _mae), ("r2", _r2)):
        limits = bootstrap_units(sums, statistic, seed=seed)
        found |= dict(zip((name, f"{name}_low", f"{name}_high"), limits, strict=True))
    return found


def _sums(row: Sequence[Guess]) -> Floats:
    """All that both statistics need of a row: how many, misses, squared misses, speeds, squared speeds."""
    told, seen = np.array([(guess.told, guess.seen) for guess in row]).T
    off = told - seen
    return np.array([len(row), np.abs(off).sum(), (off**2).sum(), seen.sum(), (seen**2).sum()])


def _mae(rows: Floats) -> float:
    return float(rows[:, 1].sum() / rows[:, 0].sum())


def _r2(rows: Floats) -> float:
    n, _, off, speeds, squares = rows.sum(axis=0)
    spread = squares - speeds**2 / n
    return float(1 - off / spread) if spread > 1e-12 * squares else math.nan


# --- how sure a prediction is ----------------------------------------------------------------------------------------


def interval(table: Table, make: Callable[[], Model], pair: Pair, probes: Iterable[str] = ()) -> Interval:
    """A prediction with limits by jackknife+ (Barber, Candès, Ramdas and Tibshirani, Annals of Statistics 49(1), 2021).

    Each pair left out in turn gives a prediction here and a miss there; the limits are quantiles of the one with the
    other to either side, in logarithms. They hold nine in ten of new pairs like those measured, and at least eight.
    """
    known = table.without([pair])
    told = make().fit(known).predict(*pair)
    fits = {out: make().fit(known.without([(min(out), max(out))])) for out in pairs_of(known, probes)}
    low, high = _jackknife_plus([end for out, model in fits.items() for end in _ends(known, model, out, pair)])
    return Interval(told, min(math.exp(low), told), max(math.exp(high), told))


def _ends(table: Table, model: Model, out: frozenset[str], pair: Pair) -> list[tuple[float, float]]:
    """What a model without the pair `out` says here, give or take what it is off there."""
    here = math.log(model.predict(*pair))
    misses = [abs(math.log(model.predict(*p) / table.speed[p])) for p in _sides(out) if p in table.speed]
    return [(here - miss, here + miss) for miss in misses]


def _sides(pair: frozenset[str]) -> list[Pair]:
    one, other = min(pair), max(pair)
    return [(one, other)] if one == other else [(one, other), (other, one)]


def _jackknife_plus(ends: Sequence[tuple[float, float]]) -> tuple[float, float]:
    if not ends:
        msg = "a single pair says nothing about others"
        raise BenchError(msg, hint="measure more pairs")
    k = min(math.ceil(SURE * (len(ends) + 1)), len(ends))
    lows, highs = (sorted(side) for side in zip(*ends, strict=True))
    return lows[len(ends) - k], highs[k - 1]


def coverage(table: Table, make: Callable[[], Model], probes: Iterable[str] = ()) -> tuple[int, int]:
    """How many of the measured speeds lie inside the interval that all other pairs give for them; and of how many."""
    fits = {
        frozenset(two): make().fit(table.without((min(pair), max(pair)) for pair in two))
        for two in combinations(pairs_of(table, probes), 2)
    }
    inside = []
    for out in pairs_of(table, probes):
        others = [other for other in pairs_of(table, probes) if other != out]
        for pair in _sides(out):
            if pair in table.speed:
                ends = [e for other in others for e in _ends(table, fits[frozenset((out, other))], other, pair)]
                low, high = _jackknife_plus(ends)
                inside.append(low <= math.log(table.speed[pair]) <= high)
    return sum(inside), len(inside)
