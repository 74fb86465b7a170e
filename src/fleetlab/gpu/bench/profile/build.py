"""Build a profile: measured speeds, predictions for pairs that were not measured, and predictions for MIG."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.core import DeviceError, Provenance, Speed
from fleetlab.gpu.bench.histogram import interval_columns
from fleetlab.gpu.bench.profile.mig import half_gpu
from fleetlab.gpu.bench.profile.models import Pair, PairModel, SpeedTable, WaitModel
from fleetlab.gpu.bench.profile.observations import PROBES, Colocation, Observations, read_observations
from fleetlab.gpu.devices.console import BenchError
from fleetlab.stats import Floats, Interval, bootstrap_units

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


# --- errors ----------------------------------------------------------------------------------------------------------


def errors(rows: Sequence[Sequence[PairPrediction]], *, seed: int) -> dict[str, Any]:
    """Mean absolute error and R² with bootstrap intervals over rows; R² is against the mean of the measured speeds."""
    sums = np.array([_sums(row) for row in rows])
    summary: dict[str, Any] = {"speeds": sum(map(len, rows))}
    for name, statistic in (("mae", _mae), ("r2", _r2)):
        limits = bootstrap_units(sums, statistic, seed=seed)
        summary |= interval_columns(name, limits)
    return summary


def _sums(row: Sequence[PairPrediction]) -> Floats:
    """Sums for both statistics: count, errors, squared errors, speeds, squared speeds."""
    predicted, measured = np.array([(guess.predicted, guess.measured) for guess in row]).T
    off = predicted - measured
    return np.array([len(row), np.abs(off).sum(), (off**2).sum(), measured.sum(), (measured**2).sum()])


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
    others = table.without([pair])
    value = make().fit(others).predict(*pair)
    fits = {out: make().fit(others.without([(min(out), max(out))])) for out in pairs_of(others, probes)}
    low, high = jackknife_plus([end for out, model in fits.items() for end in jackknife_ends(others, model, out, pair)])
    return Interval(value, min(math.exp(low), value), max(math.exp(high), value))


def jackknife_ends(table: SpeedTable, model: PairModel, out: frozenset[str], pair: Pair) -> list[tuple[float, float]]:
    """Prediction of a model without the pair `out`, minus and plus its error on that pair."""
    here = math.log(model.predict(*pair))
    misses = [abs(math.log(model.predict(*p) / table.speed[p])) for p in sides(out) if p in table.speed]
    return [(here - miss, here + miss) for miss in misses]


def sides(pair: frozenset[str]) -> list[Pair]:
    """Both orders of a pair."""
    one, other = min(pair), max(pair)
    return [(one, other)] if one == other else [(one, other), (other, one)]


def jackknife_plus(ends: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Quantiles of predictions minus and plus errors."""
    if not ends:
        raise BenchError("a single pair does not predict others", hint="measure more pairs")
    k = min(math.ceil(CONFIDENCE * (len(ends) + 1)), len(ends))
    lows, highs = (sorted(side) for side in zip(*ends, strict=True))
    return lows[len(ends) - k], highs[k - 1]


Row = dict[str, Any]
LIGHT, MEDIUM = 0.37, 0.75  # GPU utilization alone: light below the first, medium below the second, heavy above
CLASSES = ("light", "medium", "heavy")


def profile(
    folders: Sequence[Path], *, workloads: Collection[str] = (), classes: bool = False, keep: Collection[str] = ()
) -> Speed:
    """Speeds of workloads alone and beside each other, by mode, relative to alone without MPS.

    `workloads` selects those in the profile (default: all that were measured beside others, without stressors). With
    `classes` they are grouped as light, medium and heavy by utilization: the speed of a class is the geometric
    mean over its workloads, and its interval covers all of theirs. Workloads of `keep` stay classes of their own.
    """
    observations = read_observations(folders)
    chosen = _chosen(observations, workloads)
    rows = [row for mode in observations.modes() for row in _of_mode(observations, mode, chosen)]
    met = [work for work in chosen if any(row["workload"] == work for row in rows)]
    rows = [_row("exclusive", work, None, Interval(1.0, 1.0, 1.0), "measured") for work in met] + rows
    rows += [
        _row("mig", work, beside, speed, "predicted")
        for work, speed in half_gpu(observations, met).items()
        for beside in (None, *met)
    ]
    if missing := [work for work in keep if work not in met]:
        raise DeviceError(f"not in the profile: {', '.join(missing)}", hint=f"there are {', '.join(met)}")
    if classes:
        named = {work: work if work in keep else class_by_utilization(observations.busy[work]) for work in met}
        rows = list(_by_class(rows, named))
    busy = {work: round(observations.busy[work], 3) for work in met}
    settings = {"folders": sorted(str(folder) for folder in folders), "busy": busy, "classes": classes}
    settings |= {"keep": sorted(keep)} if keep else {}
    provenance = Provenance("bench profile", observations.device, settings)
    frame = pl.DataFrame(rows, infer_schema_length=None)
    notes = tuple(_notes(observations, met, frame, classes=classes))
    return Speed.of(frame, device=observations.device, provenance=provenance, notes=notes)


def _chosen(observations: Observations, workloads: Collection[str]) -> list[str]:
    paired = [met.workload for met in observations.rates if len(met.beside) == 1 and met.workload not in PROBES]
    there = list(dict.fromkeys(name for name in observations.works if name in paired))
    if missing := [work for work in workloads if work not in there]:
        msg = f"not measured beside others: {', '.join(missing)}"
        raise DeviceError(msg, hint=f"there are {', '.join(there) or 'none'}")
    if not there:
        msg = "no pairs were measured"
        raise DeviceError(msg, hint="measure pairs: `fleetlab bench suite pairs-mps --out pairs-mps`")
    return [name for name in there if not workloads or name in workloads]


def _row(mode: str, work: str, beside: str | None, speed: Interval, kind: str) -> Row:
    numbers = {"speed": speed.value, "low": speed.low, "high": speed.high}
    return {"mode": mode, "workload": work, "neighbour": beside, **numbers, "kind": kind}


def _of_mode(observations: Observations, mode: str, chosen: Sequence[str]) -> Iterable[Row]:
    probed = observations.table(mode, chosen).gentle(PROBES)
    table = probed.but(PROBES)
    ties, loose = tied(table), tied(probed)
    here = [
        work
        for work in chosen
        if any(work in pair for pair in probed.speed) and Colocation(mode, work, ()) in observations.rates
    ]
    for work in here:
        yield _row(mode, work, None, observations.speed(Colocation(mode, work, ())), "measured")
        for other in here:
            colocation = Colocation(mode, work, (other,))
            if colocation in observations.rates:
                yield _row(mode, work, other, observations.speed(colocation), "measured")
            elif (work, other) in loose:
                source = table if (work, other) in ties else probed
                yield _row(mode, work, other, interval(source, WaitModel, (work, other), PROBES), "predicted")


def tied(table: SpeedTable) -> set[Pair]:
    """Pairs whose sensitivity and pressure are identified by the measured pairs."""
    island = {("slowed", a): {("slowed", a)} for a, _ in table.speed}
    island |= {("slows", b): {("slows", b)} for _, b in table.speed}
    for a, b in table.speed:
        one, other = island["slowed", a], island["slows", b]
        if one is not other:
            one |= other
            island.update(dict.fromkeys(other, one))
    slowed, slows = ([name for side, name in island if side == which] for which in ("slowed", "slows"))
    return {(a, b) for a in slowed for b in slows if island["slowed", a] is island["slows", b]}


# --- classes ---------------------------------------------------------------------------------------------------------


def class_by_utilization(busy: float) -> str:
    """The class of a workload that uses the GPU so much of the time when alone."""
    return CLASSES[(busy >= LIGHT) + (busy >= MEDIUM)]


def _by_class(rows: Sequence[Row], classes: dict[str, str]) -> Iterable[Row]:
    by: dict[tuple[str, str, str | None], list[Row]] = {}
    for row in rows:
        beside = row["neighbour"] and classes[row["neighbour"]]
        by.setdefault((row["mode"], classes[row["workload"]], beside), []).append(row)
    for mode in dict.fromkeys(row["mode"] for row in rows):
        names = list(dict.fromkeys((*CLASSES, *classes.values())))
        for one in names:
            for other in (None, *names):
                if same := by.get((mode, one, other)):
                    kind = "predicted" if any(row["kind"] == "predicted" for row in same) else "measured"
                    yield _row(mode, one, other, _together(same), kind)


def _together(rows: Sequence[Row]) -> Interval:
    middle = math.exp(sum(math.log(row["speed"]) for row in rows) / len(rows))
    return Interval(middle, min(row["low"] for row in rows), max(row["high"] for row in rows))


# --- notes -----------------------------------------------------------------------------------------------------------


def _notes(observations: Observations, works: Sequence[str], frame: pl.DataFrame, *, classes: bool) -> Iterable[str]:
    yield "speeds are relative to the workload alone without MPS; intervals are 95 %, of predictions 90 %"
    if classes:
        yield (
            f"classes by GPU utilization alone: light below {LIGHT:.0%}, "
            f"medium to {MEDIUM:.0%}, heavy above; means over {', '.join(works)}, with intervals that cover all of them"
        )
    if "mig" in frame["mode"]:
        yield "mig: half a GPU, predicted from runs on fewer SMs; interference between slices is neglected"
    if (guessed := frame.filter((pl.col("kind") == "predicted") & (pl.col("mode") != "mig"))).height:
        yield f"{guessed.height} speeds beside others were not measured and are predicted by the model of pairs"
    if "mig" not in frame["mode"]:
        yield "no mig: not all workloads were measured on fewer SMs, or the GPU does not support MIG"
    if any(len(runs) == 1 for met, runs in observations.rates.items() if met.workload in works and met.beside):
        yield "speeds measured only once: the interval covers variation within the run, not between runs"
    yield from observations.notes
