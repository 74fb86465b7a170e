"""Accuracy of the models by cross-validation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench.profile import groups
from fleetlab.bench.profile.holdout import (
    CONFIDENCE,
    MODELS,
    PairPrediction,
    coverage,
    errors,
    pairs_of,
    without_each_pair,
    without_each_work,
    works_of,
)
from fleetlab.bench.profile.observations import PROBES, Observations
from fleetlab.bench.profile.pairs import SpeedTable, WaitModel
from fleetlab.bench.profile.reader import read_observations
from fleetlab.core import DeviceError, Estimate, Provenance, Result

FEW = 5  # minimum number of pairs for cross-validation
FULL = 0.9  # utilization of a workload that saturates the GPU


@dataclass(frozen=True, slots=True)
class ProfileCheck(Result):
    """Errors on held-out pairs, on held-out workloads and of rules for several neighbors; coverage of intervals."""

    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """Mean error of the model of pairs, by mode."""
        rows = self.frames["errors"].filter((pl.col("model") == "waits") & (pl.col("among") == "all"))
        rows = rows.select("mode", "held_out", "mae", "mae_low", "mae_high")
        return [
            Estimate(f"{mode}, {held_out} held out: mean error", mae, low, high, "of alone")
            for mode, held_out, mae, low, high in rows.rows()
        ]


def check(folders: Sequence[Path], *, seed: int = 0) -> ProfileCheck:
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
                for r in groups.rule_errors(m, observations.table(m), observations.groups(m), seed=seed)
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
    return ProfileCheck(frames, Provenance("bench profile --check", observations.device, settings, seed), notes)


def _errors(tables: dict[str, SpeedTable], seen: Observations, *, seed: int) -> Iterable[dict[str, Any]]:
    for mode, whole in tables.items():
        full = [work for work in works_of(whole, PROBES) if seen.busy[work] >= FULL]
        some = {"all": whole, "saturating workloads": seen.table(mode, full)}
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
