"""Cross-validation of the models of pairs and rules for several neighbors, beside those that were not chosen.

`python -m benchmarks.profile_models FOLDER…` predicts each measurement of suites from the others and prints the errors
of each model. The baseline is the mean of all pairs; `LogAdditiveModel` is the model of published tables;
`FairShareModel` splits the GPU evenly and redistributes unused shares, as if workloads always had queued work.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from fleetlab.commands import screen
from fleetlab.core import DeviceError, Estimate, Provenance
from fleetlab.core.result import FieldsResult
from fleetlab.gpu.bench.profile.build import (
    CONFIDENCE,
    PairPrediction,
    errors,
    jackknife_ends,
    jackknife_plus,
    pairs_of,
    sides,
    works_of,
)
from fleetlab.gpu.bench.profile.models import (
    RIDGE,
    AdditiveFit,
    Group,
    PairModel,
    Speed,
    SpeedTable,
    TimeSlicingModel,
    WaitModel,
    fitted_cost,
    groups_of,
    growing_waits,
    names_of,
    time_slicing,
)
from fleetlab.gpu.bench.profile.observations import PROBES, Observations, read_observations
from fleetlab.stats import Interval, bootstrap_units


@dataclass
class MeanModel:
    """The mean speed of all pairs: the baseline."""

    def fit(self, table: SpeedTable) -> Self:
        """Compute the mean."""
        self.mean_ = float(np.mean(list(table.speed.values())))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """Return the mean."""
        return self.mean_


@dataclass
class LogAdditiveModel:
    """log(speed) = intercept + s + p: the model of published tables of pairs."""

    def fit(self, table: SpeedTable) -> Self:
        """Fit by least squares."""
        self.rows_ = AdditiveFit(names_of(table))
        pairs = list(table.speed)
        design = self.rows_.design(pairs)
        keep = np.sqrt(RIDGE) * np.eye(design.shape[1])[1:]
        logs = np.log([table.speed[pair] for pair in pairs])
        self.rows_.take(np.linalg.lstsq(np.vstack([design, keep]), np.append(logs, np.zeros(len(keep))))[0])
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """For an unknown workload: the mean of all."""
        return math.exp(self.rows_.at(workload, neighbour))


@dataclass
class FairShareModel:
    """Max-min fair shares of the GPU, with a relative switching overhead."""

    def fit(self, table: SpeedTable) -> Self:
        """Fit the switching overhead."""
        self.busy_ = table.busy
        self.cost_ = fitted_cost(table, lambda cost, pair: fair_share(pair, cost))
        return self

    def predict(self, workload: str, neighbour: str) -> float:
        """Predict from the utilization of both."""
        return fair_share((self.busy_[workload], self.busy_[neighbour]), self.cost_)


def fair_share(busy: Sequence[float], cost: float) -> float:
    """Speed of the first of several with max-min fair shares.

    >>> fair_share((1.0, 0.2), 0.0), fair_share((0.2, 1.0), 0.0), fair_share((1.0, 1.0), 0.1)
    (0.8, 1.0, 0.45)
    """
    left, others = 1.0 - cost * (len(busy) > 1), sorted(busy)
    for k, need in enumerate(others):
        share = left / (len(others) - k)
        if need > share:
            return min(1.0, share / busy[0]) if busy[0] > share else 1.0
        left -= need
    return 1.0


MODELS: dict[str, Callable[[], PairModel]] = {
    "mean of all": MeanModel,
    "log-additive": LogAdditiveModel,
    "waits": WaitModel,
    "fair share": FairShareModel,
    "turns": TimeSlicingModel,
}


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
        PairPrediction(pair, model.predict(*pair), measured)
        for pair, measured in table.speed.items()
        if frozenset(pair) in lost
    ]


def coverage(table: SpeedTable, make: Callable[[], PairModel], probes: Iterable[str] = ()) -> tuple[int, int]:
    """Number of measured speeds inside the interval predicted from all other pairs, and their total."""
    fits = {
        frozenset(two): make().fit(table.without((min(pair), max(pair)) for pair in two))
        for two in combinations(pairs_of(table, probes), 2)
    }
    inside = []
    for out in pairs_of(table, probes):
        others = [other for other in pairs_of(table, probes) if other != out]
        for pair in sides(out):
            if pair in table.speed:
                ends = [
                    e for other in others for e in jackknife_ends(table, fits[frozenset((out, other))], other, pair)
                ]
                low, high = jackknife_plus(ends)
                inside.append(low <= math.log(table.speed[pair]) <= high)
    return sum(inside), len(inside)


def product(table: SpeedTable) -> Speed:
    """Slowdowns multiply."""

    def speed(workload: str, others: Sequence[str]) -> float:
        alone = table.alone[workload]
        return alone * math.prod(table.speed[workload, other] / alone for other in others)

    return speed


def fair_product(table: SpeedTable) -> Speed:
    """Slowdowns multiply, down to an equal share."""
    least = product(table)
    return lambda workload, others: max(least(workload, others), table.alone[workload] / (1 + len(others)))


def added_waits(table: SpeedTable) -> Speed:
    """Waits add up: 1/speed = 1/alone + the sum of (1/beside - 1/alone)."""

    def speed(workload: str, others: Sequence[str]) -> float:
        alone = 1 / table.alone[workload]
        return 1 / (alone + sum(1 / table.speed[workload, other] - alone for other in others))

    return speed


Rule = Callable[[SpeedTable], Speed]
RULES: dict[str, Rule] = {
    "product": product,
    "product, at least an equal share": fair_product,
    "added waits": added_waits,
    "growing waits": growing_waits,
    "turns": time_slicing,
}


def rule_errors(mode: str, table: SpeedTable, groups: dict[Group, float], *, seed: int) -> Iterable[dict[str, Any]]:
    """Error of each rule for three and for more workloads, with an interval if there are enough groups."""
    measured = groups_of(table, groups)
    for name, rule in RULES.items():
        speed = rule(table)
        predicted = {group: speed(*group) for group in measured}
        for size, few in (("3", True), ("4 and more", False)):
            here = [group for group in measured if (len(group[1]) == 2) == few]
            if here:
                logs = [math.log(predicted[group] / measured[group]) for group in here]
                off = [abs(predicted[group] - measured[group]) for group in here]
                # The mix of each speed: speeds of one mix are correlated
                error = _interval(off, [tuple(sorted((who, *others))) for who, others in here], seed=seed)
                about = {"mode": mode, "works": size, "rule": name, "speeds": len(here)}
                yield (
                    about
                    | dict(zip(("error", "low", "high"), error, strict=True))
                    | {"bias": math.exp(float(np.mean(logs))) - 1, "worst": math.exp(max(logs, key=abs)) - 1}
                )


def _interval(off: Sequence[float], mixes: Sequence[tuple[str, ...]], *, seed: int) -> Interval:
    by = [[x for x, m in zip(off, mixes, strict=True) if m == mix] for mix in dict.fromkeys(mixes)]
    rows = np.array([(sum(x), len(x)) for x in by])

    def mean(some: Any) -> float:  # noqa: ANN401
        return float(some[:, 0].sum() / some[:, 1].sum())

    return bootstrap_units(rows, mean, seed=seed)


FEW = 5  # minimum number of pairs for cross-validation
FULL = 0.9  # utilization of a workload that saturates the GPU


def check(folders: Sequence[Path], *, seed: int = 0) -> FieldsResult:
    """Predict each measurement from the others, and report the errors."""
    observations = read_observations(folders)
    tables = {
        mode: table for mode in observations.modes() if len(pairs_of(table := observations.table(mode), PROBES)) >= FEW
    }
    if not tables:
        msg = f"too few pairs in any mode for cross-validation: below {FEW}"
        raise DeviceError(msg, hint="the plans pairs-ts, pairs-mps and classes measure enough")
    frames = {
        "errors": pl.DataFrame(_errors(tables, observations, seed=seed)),
        "intervals": pl.DataFrame(_coverage(tables)),
        "several": pl.DataFrame(
            [
                r
                for m in observations.modes()
                for r in rule_errors(m, observations.table(m), observations.groups(m), seed=seed)
            ]
        ),
    }
    settings = {"folders": sorted(str(folder) for folder in folders)}
    notes = (
        "errors are relative to the speed alone; R² is against the mean of the measured speeds",
        "the coverage of the intervals is partly by construction: only new pairs are an independent test",
        "published: R² 0.29 on unseen workloads (Lucid's pairs, from utilization), mean error 0.043 on seen ones",
        *observations.notes,
    )
    errors_of_waits = frames["errors"].filter((pl.col("model") == "waits") & (pl.col("among") == "all"))
    estimates = [
        Estimate(f"{mode}, {held_out} held out: mean error", mae, low, high, "of alone")
        for mode, held_out, mae, low, high in errors_of_waits.select(
            "mode", "held_out", "mae", "mae_low", "mae_high"
        ).rows()
    ]
    provenance = Provenance("benchmarks.profile_models", observations.device, settings, seed)
    return FieldsResult(provenance, estimates=estimates, frames=frames, notes=notes)


def _errors(tables: dict[str, SpeedTable], observations: Observations, *, seed: int) -> Iterable[dict[str, Any]]:
    for mode, whole in tables.items():
        full = [work for work in works_of(whole, PROBES) if observations.busy[work] >= FULL]
        some = {"all": whole, "saturating workloads": observations.table(mode, full)}
        for among, table in some.items():
            if among != "all" and (len(table.speed) == len(whole.speed) or len(pairs_of(table, PROBES)) < FEW):
                continue
            for held_out, model, rows in _holdout_runs(table):
                about = {"mode": mode, "held_out": held_out, "among": among, "model": model}
                yield about | errors(rows, seed=seed)


def _holdout_runs(table: SpeedTable) -> Iterable[tuple[str, str, list[list[PairPrediction]]]]:
    works_only = table.but(PROBES)
    for name, make in MODELS.items():
        yield "a pair", name, without_each_pair(works_only, make)
    for name, make in MODELS.items():
        yield "a workload", name, without_each_work(works_only, make)
    if len(works_only.speed) < len(table.speed):
        yield "a workload", "waits, with all stressors", without_each_work(table, WaitModel, PROBES)
        yield "a workload", "waits, with mild stressors", without_each_work(table.gentle(PROBES), WaitModel, PROBES)


def _coverage(tables: dict[str, SpeedTable]) -> Iterable[dict[str, Any]]:
    for mode, table in tables.items():
        inside, total = coverage(table.but(PROBES), WaitModel)
        yield {"mode": mode, "speeds": total, "inside": inside, "share": inside / total, "promised": CONFIDENCE}


if __name__ == "__main__":
    screen.show(check([Path(word) for word in sys.argv[1:]]), json=False, most=200)
