"""How far the model can be trusted: what was measured, foretold from everything else that was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench.profile import groups as several
from fleetlab.bench.profile.gather import gather
from fleetlab.bench.profile.holdout import (
    MODELS,
    SURE,
    Guess,
    coverage,
    errors,
    pairs_of,
    without_each_pair,
    without_each_work,
    works_of,
)
from fleetlab.bench.profile.observations import PROBES, Seen
from fleetlab.bench.profile.pairs import Table, Waits
from fleetlab.core import DeviceError, Estimate, Provenance, Result

FEW = 5  # pairs, below which nothing can be held out
FULL = 0.9  # of the time busy: a work that saturates


@dataclass(frozen=True, slots=True)
class Checked(Result):
    """Errors on pairs held out, on works never seen, and of rules for several neighbours; how often intervals hold."""

    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """What the model of pairs is off, by mode."""
        rows = self.frames["errors"].filter((pl.col("model") == "waits") & (pl.col("among") == "all"))
        rows = rows.select("mode", "held_out", "mae", "mae_low", "mae_high")
        return [
            Estimate(f"{mode}, {held_out} held out: mean error", mae, low, high, "of alone")
            for mode, held_out, mae, low, high in rows.rows()
        ]


def check(folders: Sequence[Path], *, seed: int = 0) -> Checked:
    """Foretell what was measured from the rest, and see how far off that is."""
    seen = gather(folders)
    tables = {mode: table for mode in seen.modes() if len(pairs_of(table := seen.table(mode), PROBES)) >= FEW}
    if not tables:
        msg = f"too few pairs in any mode to hold some out: below {FEW}"
        raise DeviceError(msg, hint="the plans pairs-ts, pairs-mps and classes measure enough")
    frames = {
        "errors": pl.DataFrame(_errors(tables, seen, seed=seed)),
        "intervals": pl.DataFrame(_coverage(tables)),
        "several": pl.DataFrame(
            [r for m in seen.modes() for r in several.judged(m, seen.table(m), seen.groups(m), seed=seed)]
        ),
    }
    settings = {"folders": sorted(str(folder) for folder in folders)}
    notes = (
        "errors are in parts of the speed alone; R² is against the mean of what was seen, and of few works it flatters",
        "that intervals hold about as often as promised is partly so by their making: new pairs are the proof",
        "published bars: R² 0.29 on unseen works (Lucid's pairs, from utilisation), mean error 0.043 on seen ones",
        *seen.notes,
    )
    return Checked(frames, Provenance("bench profile --check", seen.device, settings, seed), notes)


def _errors(tables: dict[str, Table], seen: Seen, *, seed: int) -> Iterable[dict[str, Any]]:
    for mode, whole in tables.items():
        full = [work for work in works_of(whole, PROBES) if seen.busy[work] >= FULL]
        some = {"all": whole, "works that saturate": seen.table(mode, full)}
        for among, table in some.items():
            if among != "all" and (len(table.speed) == len(whole.speed) or len(pairs_of(table, PROBES)) < FEW):
                continue
            for held_out, model, rows in _foretold(table):
                about = {"mode": mode, "held_out": held_out, "among": among, "model": model}
                yield about | errors(rows, seed=seed)


def _foretold(table: Table) -> Iterable[tuple[str, str, list[list[Guess]]]]:
    bare = table.but(PROBES)
    for name, make in MODELS.items():
        yield "a pair", name, without_each_pair(bare, make)
    for name, make in MODELS.items():
        yield "a work", name, without_each_work(bare, make)
    if len(bare.speed) < len(table.speed):
        yield "a work", "waits, and all stressors", without_each_work(table, Waits, PROBES)
        yield "a work", "waits, and gentle stressors", without_each_work(table.gentle(PROBES), Waits, PROBES)


def _coverage(tables: dict[str, Table]) -> Iterable[dict[str, Any]]:
    for mode, table in tables.items():
        inside, total = coverage(table.but(PROBES), Waits)
        yield {"mode": mode, "speeds": total, "inside": inside, "share": inside / total, "promised": SURE}
