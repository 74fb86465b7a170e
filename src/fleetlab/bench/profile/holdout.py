"""Cross-validation of models of pairs: hold out a pair or a workload; and prediction intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from fleetlab.bench.profile.pairs import LogAdditiveModel, MeanModel, Pair, PairModel, SpeedTable, WaitModel
from fleetlab.bench.profile.time_slicing import FairShareModel, TimeSlicingModel
from fleetlab.devices.errors import BenchError
from fleetlab.stats import Floats, Interval, bootstrap_units

MODELS: dict[str, Callable[[], PairModel]] = {
    "mean of all": MeanModel,
    "log-additive": LogAdditiveModel,
    "waits": WaitModel,
    "fair share": FairShareModel,
    "turns": TimeSlicingModel,
}
CONFIDENCE = 0.9  # jackknife+ guarantees at least 1 - 2 (1 - confidence)


class PairPrediction(NamedTuple):
    """Predicted and measured speed of a pair."""

    pair: Pair
    predicted: float
    measured: float


def works_of(table: SpeedTable, probes: Iterable[str] = ()) -> list[str]:
    """All workloads of the pairs, without stressors."""
    return sorted({name for pair in table.speed for name in pair} - set(probes))


def pairs_of(table: SpeedTable, probes: Iterable[str] = ()) -> list[frozenset[str]]:
    """Unordered pairs of workloads."""
    works = set(works_of(table, probes))
    return list(dict.fromkeys(frozenset(pair) for pair in table.speed if works >= set(pair)))


def without_each_pair(
    table: SpeedTable, make: Callable[[], PairModel], probes: Iterable[str] = ()
) -> list[list[PairPrediction]]:
    """Predict each pair from all others; a row has both sides of a pair."""
    return [_predict_pairs(table, make, [pair]) for pair in pairs_of(table, probes)]


def without_each_work(
    table: SpeedTable, make: Callable[[], PairModel], probes: Iterable[str] = ()
) -> list[list[PairPrediction]]:
    """Predict each workload from pairs of the others and, if present, from its speed beside stressors."""
    return [
        _predict_pairs(table, make, [pair for pair in pairs_of(table, probes) if work in pair])
        for work in works_of(table, probes)
    ]


def _predict_pairs(
    table: SpeedTable, make: Callable[[], PairModel], out: Sequence[frozenset[str]]
) -> list[PairPrediction]:
    model = make().fit(table.without((min(pair), max(pair)) for pair in out))
    lost = set(out)
    return [
        PairPrediction(pair, model.predict(*pair), seen)
        for pair, seen in table.speed.items()
        if frozenset(pair) in lost
    ]


# --- errors ----------------------------------------------------------------------------------------------------------


def errors(rows: Sequence[Sequence[PairPrediction]], *, seed: int) -> dict[str, Any]:
    """Mean absolute error and R² with bootstrap intervals over rows; R² is against the mean of the measured speeds."""
    sums = np.array([_sums(row) for row in rows])
    summary: dict[str, Any] = {"speeds": sum(map(len, rows))}
    for name, statistic in (("mae", _mae), ("r2", _r2)):
        limits = bootstrap_units(sums, statistic, seed=seed)
        summary |= dict(zip((name, f"{name}_low", f"{name}_high"), limits, strict=True))
    return summary


def _sums(row: Sequence[PairPrediction]) -> Floats:
    """Sums for both statistics: count, errors, squared errors, speeds, squared speeds."""
    told, seen = np.array([(guess.predicted, guess.measured) for guess in row]).T
    off = told - seen
    return np.array([len(row), np.abs(off).sum(), (off**2).sum(), seen.sum(), (seen**2).sum()])


def _mae(rows: Floats) -> float:
    return float(rows[:, 1].sum() / rows[:, 0].sum())


def _r2(rows: Floats) -> float:
    n, _, off, speeds, squares = rows.sum(axis=0)
    spread = squares - speeds**2 / n
    return float(1 - off / spread) if spread > 1e-12 * squares else math.nan


# --- prediction intervals --------------------------------------------------------------------------------------------


def interval(table: SpeedTable, make: Callable[[], PairModel], pair: Pair, probes: Iterable[str] = ()) -> Interval:
    """A prediction with a jackknife+ interval (Barber, Candès, Ramdas and Tibshirani, Ann. Statist. 49(1), 2021).

    Each held-out pair gives a prediction here and an error there; the bounds are quantiles of prediction minus and plus
    error, in logarithms. They cover about 90 % of new pairs like those measured, and at least 80 %.
    """
    known = table.without([pair])
    value = make().fit(known).predict(*pair)
    fits = {out: make().fit(known.without([(min(out), max(out))])) for out in pairs_of(known, probes)}
    low, high = _jackknife_plus([end for out, model in fits.items() for end in _ends(known, model, out, pair)])
    return Interval(value, min(math.exp(low), value), max(math.exp(high), value))


def _ends(table: SpeedTable, model: PairModel, out: frozenset[str], pair: Pair) -> list[tuple[float, float]]:
    """Prediction of a model without the pair `out`, minus and plus its error on that pair."""
    here = math.log(model.predict(*pair))
    misses = [abs(math.log(model.predict(*p) / table.speed[p])) for p in _sides(out) if p in table.speed]
    return [(here - miss, here + miss) for miss in misses]


def _sides(pair: frozenset[str]) -> list[Pair]:
    one, other = min(pair), max(pair)
    return [(one, other)] if one == other else [(one, other), (other, one)]


def _jackknife_plus(ends: Sequence[tuple[float, float]]) -> tuple[float, float]:
    if not ends:
        msg = "a single pair does not predict others"
        raise BenchError(msg, hint="measure more pairs")
    k = min(math.ceil(CONFIDENCE * (len(ends) + 1)), len(ends))
    lows, highs = (sorted(side) for side in zip(*ends, strict=True))
    return lows[len(ends) - k], highs[k - 1]


def coverage(table: SpeedTable, make: Callable[[], PairModel], probes: Iterable[str] = ()) -> tuple[int, int]:
    """Number of measured speeds inside the interval predicted from all other pairs, and their total."""
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
