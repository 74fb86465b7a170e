"""Where the running jobs are: as recorded, or packed anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core.resample import Ints
from fleetlab.studies.eta.history import Snapshot
from fleetlab.studies.eta.jobs import Present


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The running jobs, and where they are."""

    rows: Ints  # of the history
    node: Ints | None  # of each of their instances; None: the policy places them
    gpus: Ints | None
    left_out: int = 0  # jobs for which there is no place


def places_of(present: Present) -> Places:
    """Return where the running jobs are."""
    snapshot = present.snapshot
    history = snapshot.history
    if history.places is None:
        return placed_anew(snapshot)
    rows = snapshot.running[np.argsort(history.start[snapshot.running], kind="stable")]
    first, node, gpus = history.places
    count = history.frame["instances"].cast(pl.Int64).to_numpy()[rows]
    at = np.repeat(first[rows] - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
    return Places(rows, node[at], gpus[at])


def placed_anew(snapshot: Snapshot) -> Places:
    """Return the running jobs for the policy to place: where nobody knows where they are, or its loop begins empty."""
    return Places(_largest_first(snapshot), None, None)


def _largest_first(snapshot: Snapshot) -> Ints:
    """Return the running jobs in an order in which a packed cluster holds them again."""
    jobs = snapshot.history.frame[snapshot.running]
    total = jobs["gpu_milli"].cast(pl.Int64).to_numpy() * 1000 + jobs["instances"].to_numpy()
    return snapshot.running[np.argsort(-total, kind="stable")]
