"""Predict the mixes of a plan before it is measured, and compare with the measurement after.

Time slicing is predicted by the queueing network of `time_slicing`, for pairs and for more. Under MPS the wait model
predicts pairs, and `growing_waits` puts pairs together for more. A speed is relative to the workload alone without MPS.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import DeviceError, Estimate, Provenance, Result
from fleetlab.core.files import atomic_write, folder_at
from fleetlab.core.result import FieldsResult
from fleetlab.gpu.bench.plans import SuitePlan
from fleetlab.gpu.bench.profile.build import CONFIDENCE, PairPrediction, errors, interval
from fleetlab.gpu.bench.profile.models import (
    Group,
    PairModel,
    SpeedTable,
    TimeSlicingModel,
    WaitModel,
    groups_of,
    growing_waits,
    time_slicing,
)
from fleetlab.gpu.bench.profile.observations import PROBES, Colocation, Observations, read_observations
from fleetlab.gpu.bench.results.cells import BASELINE
from fleetlab.stats import Interval

Row = dict[str, Any]
BAR = 0.04  # of a card: mean error that the model is held to
DIGITS = 4
MODELS: dict[str, Callable[[], PairModel]] = {"time-slicing": TimeSlicingModel, "mps": WaitModel}
RULES = {"time-slicing": time_slicing, "mps": growing_waits}
# Least half-width of a 90 % interval, in logarithms, by tenants in the mix (3: three or more). Intervals from the cells
# themselves held 28 of 47 held-out speeds under MPS: these are the 90 % quantiles of those errors (h200-heldout).
LEAST_SPREAD = {("mps", 2): 0.172, ("mps", 3): 0.233}
LIMITS = {"low": "90 % low", "high": "90 % high"}  # as shown: not the 95 % of other tables


@dataclass(frozen=True, slots=True)
class PlanPrediction(Result):
    """The speed of every tenant in every mix of a plan, with a 90 % interval, from cells measured before."""

    frame: pl.DataFrame
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """Number of predictions."""
        return [Estimate.exact("predicted speeds", self.frame.height)]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every prediction."""
        return {"predictions": self.frame.rename(LIMITS)}

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        about = {"provenance": self.provenance.to_json(), "notes": self.notes, "predictions": self.frame.to_dicts()}
        atomic_write(path, (json.dumps(about, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> PlanPrediction:
        """Read what `save` wrote."""
        try:
            about = json.loads(folder_at(path).read_text("utf-8"))
            frame = pl.DataFrame(about["predictions"])
            frame.select("mode", "mix", "workload", "predicted", "low", "high")
            return cls(frame, Provenance.from_json(about["provenance"]), tuple(about["notes"]))
        except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as e:
            msg = f"{path}: not a file of predictions: {getattr(e, 'strerror', None) or e}"
            raise DeviceError(msg, hint="`fleetlab bench predict PLAN FOLDERS --out FILE` writes one") from None


def predict_plan(plan: SuitePlan, folders: Sequence[Path]) -> PlanPrediction:
    """Predict each mix of `plan` from the suites in `folders`, none of which may contain it."""
    observations = read_observations(folders)
    rows = [row for mode in MODELS for row in _of_mode(observations, mode, _mixes(plan, mode))]
    if not rows:
        msg = f"{plan.name}: nothing to predict: no mixes without limits under time slicing or MPS"
        raise DeviceError(msg, hint="plans such as heldout and pairs-mps have some")
    settings = {"plan": plan.name, "seed": plan.seed, "folders": sorted(folder.name for folder in folders)}
    notes = (
        "speeds are relative to the workload alone without MPS; PI: 90 % prediction interval",
        "time slicing: queueing network; MPS: wait model for pairs, growing waits for more",
        *observations.notes,
    )
    return PlanPrediction(pl.DataFrame(rows), Provenance("bench predict", observations.device, settings), notes)


def _mixes(plan: SuitePlan, mode: str) -> list[tuple[str, ...]]:
    """Mixes of a mode, without limits; each once."""
    cells = [cell for cell in plan.cells if cell.mode == mode and len(cell.seats) > 1]
    plain = [cell for cell in cells if all(str(seat) == seat.tenant for seat in cell.seats)]
    return list(dict.fromkeys(tuple(sorted(seat.tenant for seat in cell.seats)) for cell in plain))


def _of_mode(observations: Observations, mode: str, mixes: Sequence[tuple[str, ...]]) -> Iterable[Row]:
    # One name for each workload: what is measured under two names, with the same settings, is one
    first: dict[str, str] = {}
    for name in sorted(observations.works, key=lambda name: (name != observations.works[name].get("work"), name)):
        first.setdefault(json.dumps(observations.works[name], sort_keys=True), name)
    same = {name: first[json.dumps(settings, sort_keys=True)] for name, settings in observations.works.items()}
    table = _merged(observations.table(mode).but(PROBES), same)
    groups = {(who, tuple(sorted(others))) for who, others in _named(observations, mode, same)}
    names = {name for pair in table.speed for name in pair}
    if missing := sorted({name for mix in mixes for name in mix if same.get(name) not in names}):
        msg = f"never measured beside others: {', '.join(missing)}"
        raise DeviceError(msg, hint="a prediction needs each workload beside some other; add folders")
    measured = ["+".join(mix) for mix in mixes if (same[mix[0]], tuple(sorted(same[x] for x in mix[1:]))) in groups]
    if measured:
        msg = f"already measured in these folders: {', '.join(measured)}"
        raise DeviceError(msg, hint="a prediction is made before its measurement: leave that folder out")
    speed = RULES[mode](_filled(table, MODELS[mode]))
    spread = _spread(mode, table, observations, same)
    for mix in mixes:
        for who in dict.fromkeys(mix):
            others = list(mix)
            others.remove(who)
            group = (same[who], tuple(same[other] for other in others))
            value = _pair(table, mode, group) if len(mix) == 2 else _scaled(speed(*group), spread)
            # At least so wide, in logarithms, on both sides
            wide = _scaled(value.value, LEAST_SPREAD.get((mode, min(len(mix), 3)), 0.0))
            value = Interval(value.value, min(value.low, wide.low), max(value.high, wide.high))
            numbers = dict(zip(("predicted", "low", "high"), (round(x, DIGITS) for x in value), strict=True))
            yield {"mode": mode, "mix": "+".join(mix), "size": len(mix), "workload": who, **numbers}


def _merged(table: SpeedTable, same: dict[str, str]) -> SpeedTable:
    """The mean speed of pairs that are the same under one name."""
    by: dict[tuple[str, str], list[float]] = {}
    for (a, b), speed in table.speed.items():
        by.setdefault((same[a], same[b]), []).append(speed)
    return SpeedTable({pair: sum(x) / len(x) for pair, x in by.items()}, table.alone, table.busy)


def _named(observations: Observations, mode: str, same: dict[str, str]) -> dict[Group, float]:
    """Measured co-locations of a mode under one name for each workload."""
    colocations = [c for c in observations.rates if c.mode == mode and c.beside]
    return {
        (same[c.workload], tuple(sorted(same[b] for b in c.beside))): observations.speed(c).value for c in colocations
    }


def _filled(table: SpeedTable, make: Callable[[], PairModel]) -> SpeedTable:
    """Every pair: measured, or predicted."""
    model = make().fit(table)
    names = sorted({name for pair in table.speed for name in pair})
    every = {(a, b): table.speed.get((a, b)) or model.predict(a, b) for a in names for b in names}
    return SpeedTable(every, table.alone, table.busy)


def _pair(table: SpeedTable, mode: str, group: Group) -> Interval:
    return interval(table, MODELS[mode], (group[0], group[1][0]))


def _spread(mode: str, table: SpeedTable, observations: Observations, same: dict[str, str]) -> float:
    """The 90 % quantile of the errors of the rule on the groups that were measured, as a factor."""
    measured = groups_of(table, {g: v for g, v in _named(observations, mode, same).items() if len(g[1]) > 1})
    speed = RULES[mode](table)
    misses = sorted(abs(math.log(speed(*group) / value)) for group, value in measured.items())
    return error_quantile(misses) if misses else 0.0


def _scaled(value: float, spread: float) -> Interval:
    return Interval(value, value * math.exp(-spread), value * math.exp(spread))


def error_quantile(misses: Sequence[float]) -> float:
    """Of sorted errors in logarithms: the one that a new error exceeds with at most 10 %."""
    return misses[min(math.ceil(CONFIDENCE * (len(misses) + 1)), len(misses)) - 1]


# --- after the measurement -------------------------------------------------------------------------------------------


def compare_predictions(file: Path, folders: Sequence[Path], *, seed: int = 0) -> FieldsResult:
    """Compare predictions with the suites that measured them."""
    predicted, observations = PlanPrediction.load(file), read_observations(folders)
    rows = [
        row | {"measured": round(x, DIGITS)}
        for row in predicted.frame.to_dicts()
        if (x := _measured(observations, row))
    ]
    if not rows:
        msg = f"{file.name}: none of its mixes was measured in these folders"
        raise DeviceError(msg, hint="name folders of `fleetlab bench suite PLAN --out FOLDER` of the same plan")
    frame = pl.DataFrame(rows).with_columns(
        error=(pl.col("predicted") - pl.col("measured")).round(DIGITS),
        inside=pl.col("measured").is_between("low", "high"),
    )
    parts = [("all", "all", frame)]
    parts += [(mode, "all", frame.filter(mode=mode)) for mode in frame["mode"].unique(maintain_order=True)]
    parts += [
        (mode, str(size), frame.filter(mode=mode, size=size))
        for mode, size in frame.select("mode", "size").unique(maintain_order=True).rows()
    ]
    table = pl.DataFrame([{"mode": mode, "tenants": size, **_errors(part, seed=seed)} for mode, size, part in parts])
    notes = (
        f"bar: a mean error of at most {BAR} of a card; CI: bootstrap over mixes; PI: 90 % prediction interval",
        f"{len(rows)} of {predicted.frame.height} predicted speeds were measured",
        *observations.notes,
    )
    settings = {"predictions": file.name, "folders": sorted(folder.name for folder in folders)}
    whole = table.row(0, named=True)
    estimates = [
        Estimate("mean absolute error", whole["mae"], whole["mae_low"], whole["mae_high"], "of alone"),
        Estimate.exact("speeds inside their interval", whole["inside"]),
        Estimate.exact("speeds compared", whole["speeds"]),
    ]
    frames = {"errors": table, "speeds": frame.rename(LIMITS)}
    provenance = Provenance("bench compare", observations.device, settings, seed)
    return FieldsResult(provenance, estimates=estimates, frames=frames, notes=notes)


def _measured(observations: Observations, row: Row) -> float | None:
    names = row["mix"].split("+")
    names.remove(row["workload"])
    colocation = Colocation(row["mode"], row["workload"], tuple(sorted(names)))
    measured = colocation in observations.rates and Colocation(BASELINE, row["workload"], ()) in observations.rates
    return observations.speed(colocation).value if measured else None


def _errors(frame: pl.DataFrame, *, seed: int) -> Row:
    """Mean error with its interval, bias, worst error, and the number of speeds inside their intervals."""
    mixes = [part.to_dicts() for part in frame.partition_by("mode", "mix", maintain_order=True)]
    rows = [[PairPrediction((r["workload"], r["mix"]), r["predicted"], r["measured"]) for r in mix] for mix in mixes]
    return errors(rows, seed=seed) | {
        "bias": frame["error"].mean(),
        "worst": max(frame["error"], key=abs),
        "inside": int(frame["inside"].sum()),
    }
