"""How many nodes run something, at chosen instants?"""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.sim import SimResult
from fleetlab.studies._spread import Floats


def held(result: SimResult) -> pl.DataFrame:
    """Node, start and end of every instance that was simulated."""
    times = result.jobs.select("job", "start", "end")
    return result.placements.select("job", "node").join(times, on="job").select("node", "start", "end")


def running(held: pl.DataFrame, times: Floats) -> Floats:
    """How many of these rows have begun and not ended."""
    begun, ended = (np.sort(held[c].to_numpy()) for c in ("start", "end"))
    found = np.searchsorted(begun, times, side="right") - np.searchsorted(ended, times, side="right")
    return found.astype(np.float64)


def busy_nodes(held: pl.DataFrame, times: Floats) -> Floats:
    """How many nodes run something: spells in which one is never empty, counted as `running` does."""
    ordered = held.sort("node", "start")
    # A spell begins where nothing that began before on this node lasts until then.
    before = pl.col("end").cum_max().shift(1).over("node")
    spell = (pl.col("start") > before).fill_null(value=True).cum_sum().over("node")
    spells = ordered.with_columns(spell=spell).group_by("node", "spell").agg(pl.col("start").min(), pl.col("end").max())
    return running(spells, times)
