"""What a watch says in the end: how busy each card was, and what it cost.

Energy is the sum of its counter's steps, and power is that over the time: never the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.nvml import BAD_REASONS
from fleetlab.monitor.log import rows_of
from fleetlab.monitor.parquet import frames, pack
from fleetlab.monitor.run import KEPT, Seen
from fleetlab.stats import mean_of_runs

BATCHES = 10  # parts of a watch: neighbouring looks are alike, so single ones would be far too sure


@dataclass(frozen=True, slots=True)
class Watched(Result):
    """Cards and the processes seen on them."""

    found: dict[str, pl.DataFrame]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """Use and energy of each card."""
        found = []
        for row in self.found["cards"].iter_rows(named=True):
            name = f"card {row['card']}"
            if row["util"] is not None:
                found.append(Estimate(f"{name}: use", row["util"], _nan(row["low"]), _nan(row["high"]), "%"))
            if row["joules"] is not None:
                found.append(Estimate.exact(f"{name}: energy", row["joules"], "J"))
        return [*found, Estimate.exact("looks", max(self.found["cards"]["looks"], default=0))]

    def tables(self) -> dict[str, pl.DataFrame]:
        """As told."""
        return self.found

    def __repr__(self) -> str:
        return f"<Watched {self.provenance.source}, {self.found['cards'].height} cards>"


def of(seen: Seen) -> Watched:
    """What a watch that is over saw; its log, if it has one, is packed."""
    late = [f"{seen.late} looks were left out: the one before took too long"] if seen.late else []
    if seen.path is not None:
        found = packed(seen.path)
        return Watched(found.found, found.provenance, (*late, *found.notes))
    if seen.looks > KEPT:
        late.append(f"of the last {KEPT} rows only; --out keeps them all")
    return _told(frames(seen.rows), "this machine", late)


def packed(path: Path) -> Watched:
    """Make the Parquet files of a log, and say what it holds."""
    made = frames(rows_of(path))
    samples, processes = pack(path, made)
    return _told(made, str(path.parent), [f"packed into {samples} and {processes.name}"])


def _told(found: dict[str, pl.DataFrame], source: str, notes: Iterable[str]) -> Watched:
    samples, processes = found["samples"], found["processes"]
    cards = [_card(int(key[0]), rows.sort("at")) for key, rows in samples.group_by("card", maintain_order=True)]
    tables = {"cards": pl.DataFrame(cards, schema=CARDS, orient="row"), "processes": _processes(processes)}
    return Watched(tables, Provenance("bench monitor", source), (*notes, *_noted(samples)))


CARDS: dict[str, Any] = {
    "card": pl.Int64,
    "looks": pl.Int64,
    "seconds": pl.Float64,
    "util": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "used_mib": pl.Float64,
    "celsius": pl.Float64,
    "joules": pl.Float64,
    "watts": pl.Float64,
    "sm_mhz_low": pl.Float64,
    "held_down": pl.Float64,
}


def _card(card: int, rows: pl.DataFrame) -> dict[str, Any]:
    counter = rows.drop_nulls("joules").select("at", "joules")
    span = counter["at"][-1] - counter["at"][0] if counter.height > 1 else 0.0
    joules = float(counter["joules"].diff().clip(lower_bound=0).sum()) if span else None
    reasons = rows["reasons"].drop_nulls()
    return {
        "card": card,
        "looks": rows.height,
        "seconds": rows["at"][-1] - rows["at"][0],
        **_use(rows["util"].drop_nulls().to_numpy()),
        "used_mib": rows["used_mib"].max(),
        "celsius": rows["celsius"].max(),
        "joules": joules,
        "watts": None if joules is None else joules / span,
        "sm_mhz_low": rows["sm_mhz"].min(),
        "held_down": float(((reasons.to_numpy() & BAD_REASONS) != 0).mean()) if len(reasons) else None,
    }


def _use(util: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """The mean with limits from batch means, where there are enough looks for batches."""
    if not util.size:
        return {"util": None, "low": None, "high": None}
    if util.size < 2 * BATCHES:
        return {"util": float(util.mean()), "low": None, "high": None}
    mean = mean_of_runs([part.mean() for part in np.array_split(util, BATCHES)], (0.0, 100.0)).interval()
    return {"util": float(util.mean()), "low": mean.low, "high": mean.high}


def _processes(seen: pl.DataFrame) -> pl.DataFrame:
    # A process id is a name: written as a number it would get separators.
    return (
        seen.with_columns(pl.col("pid").cast(pl.String))
        .group_by("card", "pid", "name", "kind", maintain_order=True)
        .agg(looks=pl.len(), memory_mib=pl.col("memory_mib").max(), util=pl.col("util").mean())
        .sort("card", "memory_mib", descending=[False, True], nulls_last=True)
    )


def _noted(samples: pl.DataFrame) -> Iterable[str]:
    for key, rows in samples.drop_nulls("joules").group_by("card", maintain_order=True):
        if (rows.sort("at")["joules"].diff() < 0).any():
            yield f"card {key[0]}: its energy counter began anew; what it counted in between is lost"
    if samples.height < 2 * BATCHES * samples["card"].n_unique():
        yield f"fewer than {2 * BATCHES} looks: too few for limits"


def _nan(value: float | None) -> float:
    return math.nan if value is None else value
