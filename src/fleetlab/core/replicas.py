"""Replicas of a scenario: the same jobs, nudged by less than anyone knows of them; or other jobs of the same kind.

A schedule is chaotic: a submission that moves by a millisecond may change the mean wait by half. So a number of one run
is one draw, and a study takes several. A replica of *this log* moves each submission within the resolution of the log
(by a second at least, where jobs are not much shorter), which reorders ties, and each run time by one percent. It draws
again what the log does not tell: run times, the order of equal nodes, and what runs when a repeated log begins. One of
*logs like it* draws the jobs too: blocks of the same hours of other days, or a new synthetic trace.

Replica 0 is the log as it is. A change of a scenario keeps its replica, so that both sides of a pair are nudged alike.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from fleetlab.core.cluster import Cluster
    from fleetlab.core.data import Data
    from fleetlab.core.scenario import Scenario

Scope = Literal["log", "like"]
SCOPES: tuple[Scope, ...] = ("log", "like")

CLOCKS = (86_400.0, 3600.0, 60.0, 1.0)  # seconds between the ticks of a log
ON_TICK = 0.95  # share of the submissions that are on ticks, for a log of that resolution
NUDGE = 1.0  # second, to either side
PART = 0.01  # of the run times; and of the median one, where that is less than a second
EARLIEST = 1e-6  # seconds: what came before second 0 stays before it


def perturbed(scenario: Scenario, replica: int, scope: Scope = "log") -> Scenario:
    """Return a replica of a scenario; 0 is the scenario itself.

    Parameters
    ----------
    scenario
        The scenario; changes of its policy, nodes or jobs may be made before or after.
    replica
        Which one, from 1 on.
    scope
        `log`: the same jobs; `like`: other jobs of the same kind.

    Returns
    -------
    Scenario
        The same for the same seed of the scenario. Jobs of `log` have the same numbers.

    Examples
    --------
    >>> from fleetlab.core import Scenario
    >>> base = Scenario.of("builtin:200")
    >>> moved = perturbed(base, 1).workload.frame["submit"] - base.workload.frame["submit"]
    >>> bool(0 < moved.abs().max() <= 1)
    True
    """
    if not replica:
        return scenario
    seed = int(np.random.SeedSequence([scenario.seed, replica]).generate_state(1)[0])
    return replace(drawn(scenario, seed) if scope == "like" else scenario, seed=seed, replica=replica)


def drawn(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with other jobs of the same kind: a new synthetic trace, or blocks of the log."""
    from fleetlab.core.words import BUILTIN

    if is_drawn_anew(scenario):
        jobs = len(scenario.trace.workload)
        return replace(
            scenario, data=_synthetic(f"{BUILTIN}:{jobs}:{seed % 2**31}").with_cluster(scenario.data.cluster)
        )
    rows, submit = scenario.workload.resampled_rows(seed)
    others = scenario.on(scenario.workload.take(rows, submit, f"resampled with seed {seed}"), rows)
    return others.after(scenario) if scenario.window else others


def is_drawn_anew(scenario: Scenario) -> bool:
    """Return whether other jobs of its kind are a new synthetic trace, and not blocks of the log."""
    from fleetlab.core.words import SYNTHETIC

    return (scenario.data.name or "").split(":")[0] in SYNTHETIC and not scenario.window


@lru_cache(maxsize=2)
def _synthetic(name: str) -> Data:
    """Return the synthetic trace of this name, which all scenarios of a replica share."""
    from fleetlab.core.data import Data

    return Data(name)


def resolution(times: NDArray[np.float64]) -> float:
    """Return the seconds between ticks of the clock that a log has its times by; 0: they cannot be told.

    >>> resolution(np.array([0.0, 60.0, 180.0])), resolution(np.array([0.0, 3.0])), resolution(np.array([0.0, 0.5]))
    (60.0, 1.0, 0.0)
    """
    later = times[times > 0]
    on = (clock for clock in CLOCKS if len(later) and float((later % clock == 0).mean()) >= ON_TICK)
    return next(on, 0.0)


def reach(frame: pl.DataFrame) -> float:
    """Return by how much submissions are moved to either side, in seconds."""
    median = frame["runtime"].median()
    short = NUDGE if median is None else PART * float(median)  # type: ignore[arg-type]
    return max(resolution(frame["submit"].to_numpy()) / 2, min(NUDGE, short))


def moved(frame: pl.DataFrame, half: float, seed: int) -> pl.DataFrame:
    """Return jobs with submissions moved by up to `half` seconds, and run times by a percent, up to their limits.

    Rows stay where they are, and tasks of an array and parts of a gang together. Jobs that were there when the log
    began are not submitted.
    """
    import polars as pl

    rng = np.random.default_rng([seed, 0x5EED])
    submit, (own, factor) = frame["submit"].to_numpy(), rng.uniform(-1, 1, (2, frame.height))
    groups = frame.select("array", "gang", "submit", by=pl.Series(own))
    alone = pl.col("array").is_null() & pl.col("gang").is_null()
    together = pl.when(alone).then("by").otherwise(pl.col("by").first().over("array", "gang", "submit"))
    by = groups.select(together.alias("by"))["by"].to_numpy()
    at = np.where(submit >= 0, np.abs(submit + half * by), np.minimum(submit + half * by, -EARLIEST))
    at = np.where(frame["initial"].to_numpy(), submit, at)
    runtime, limit = pl.col("runtime"), pl.col("limit")
    other, tick = runtime * pl.Series(1 + PART * factor), resolution(frame["runtime"].drop_nulls().to_numpy())
    other = (other / tick).round() * tick if tick else other  # as the log would have it
    return frame.with_columns(
        submit=pl.Series(at),
        eligible=pl.col("eligible") + pl.Series(at - submit),
        # A job that was killed at its limit runs as long in every replica.
        runtime=pl.when(runtime >= limit).then(runtime).otherwise(pl.min_horizontal(other, limit)),
    )


def equal_nodes_reordered(cluster: Cluster, seed: int) -> Cluster:
    """Return the cluster with nodes that differ in their names alone in another order."""
    import polars as pl

    kinds = cluster.frame.select(pl.struct(pl.exclude("node")).rank("dense")).to_series().to_numpy()
    order, rng = np.arange(len(cluster)), np.random.default_rng([seed, 0x0DE5])
    for kind in np.unique(kinds):
        same = np.flatnonzero(kinds == kind)
        order[same] = rng.permutation(same)
    return replace(cluster, frame=cluster.frame[order])
