"""What a log does not show: nodes that nobody may use, quotas of users, and load that is not in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Scenario
from fleetlab.stats import SHARE, BlockBootstrap, Floats, Interval
from fleetlab.studies.calibrate.fit import Fit, Score
from fleetlab.studies.calibrate.recorded import WHOLE, Recorded

FEW_NODES = 8  # numbers of hidden nodes that are all tried; of more, a grid is
AT_LIMIT = 0.5  # of the time that a user's jobs wait, at what he never exceeds: taken for a quota
FEW_USERS = 8  # whose quotas are questioned one by one
LONG = 60.0  # seconds: shorter waits tell nothing of limits


# -- nodes -----------------------------------------------------------------------------------------------------------


def pools(cluster: Cluster) -> pl.DataFrame:
    """Return nodes and GPUs by GPU type, the most GPUs first."""
    gpu = cluster.frame.filter(pl.col("gpus") > 0)
    table = gpu.group_by("gpu_type").agg(nodes=pl.len().cast(pl.Int64), gpus=pl.col("gpus").cast(pl.Int64).sum())
    return table.sort("gpus", "gpu_type", descending=[True, False])


def peaks(log: Recorded, cluster: Cluster) -> pl.DataFrame:
    """Return by GPU type what there is, the most that was ever in use at once, and how many nodes that leaves."""
    table = pools(cluster)
    one = table.height == 1
    peak = [
        (log.use if one else log.held((log.gpu_type == name).to_numpy())).peak / WHOLE for name in table["gpu_type"]
    ]
    per_node = table["gpus"] / table["nodes"]
    spare = ((table["gpus"] - pl.Series(peak)) / per_node + 1e-9).floor().clip(0, None)
    most = pl.min_horizontal(spare.cast(pl.Int64), table["nodes"] - 1)
    return table.with_columns(
        pl.Series("most in use at once", peak), table.select(most.alias("spare nodes")).to_series()
    )


def without_nodes(scenario: Scenario, gpu_type: str, count: int) -> Scenario:
    """Return a scenario with fewer nodes of a type."""
    if not count:
        return scenario
    return scenario.replace(nodes=", ".join(filter(None, (scenario.nodes, f"{gpu_type} -{count}"))))


def fit_nodes(fit: Fit, start: Score, table: pl.DataFrame) -> tuple[Score, dict[str, int]]:
    """Search the nodes of each type that nobody may use: those without which the starts are explained best."""
    best, hidden = start, dict.fromkeys(table["gpu_type"], 0)
    for name, spare in table.select("gpu_type", "spare nodes").iter_rows():
        tried = {0: best}
        for count in _grid(spare):
            scenario = without_nodes(best.scenario, name, count)
            tried[count] = replace(fit.score(scenario, best.choices), words=best.words)
        at = max(tried, key=lambda n: tried[n].total)
        for count in _around(at, tried, spare):
            tried[count] = replace(fit.score(without_nodes(best.scenario, name, count), best.choices), words=best.words)
        at = max(tried, key=lambda n: (tried[n].total, -n))
        if at and fit.better(best, tried[at]):
            best, hidden[name] = tried[at], at
    return best, hidden


def _grid(spare: int) -> list[int]:
    if spare <= FEW_NODES:
        return list(range(1, spare + 1))
    return sorted({round(x) for x in np.linspace(0, spare, FEW_NODES + 1)[1:]})


def _around(at: int, tried: dict[int, Score], spare: int) -> Sequence[int]:
    """Return numbers between the best one and its neighbors that were tried."""
    if spare <= FEW_NODES:
        return []
    lower, upper = max((n for n in tried if n < at), default=0), min((n for n in tried if n > at), default=spare)
    inside = np.unique(np.linspace(lower, upper, FEW_NODES + 2).round().astype(int)).tolist()
    return [n for n in inside if n not in tried]


# -- quotas ----------------------------------------------------------------------------------------------------------


def limits(log: Recorded, rows: np.ndarray, latency: Floats) -> pl.DataFrame:
    """Return for each user the most GPUs at once, and how much of the waiting was at that limit with GPUs to spare.

    A job is at the limit of its user when, with it, the user would hold more than ever, although the cluster has held
    as much as that.
    """
    waited = np.flatnonzero(rows & log.known & (log.milli > 0) & (log.wait - latency > LONG))
    job, time, seconds = log.waiting_moments(waited, latency)
    room = log.use.at(time) + log.milli[job] <= log.use.peak
    found = []
    for user in np.unique(log.user[job]):
        held = log.held(log.user == user)
        mine = log.user[job] == user
        over = held.at(time[mine]) + log.milli[job[mine]] > held.peak
        total = float(seconds[mine].sum())
        at_limit = float(seconds[mine][over & room[mine]].sum())
        found.append((log.users[user], len(np.unique(job[mine])), held.peak / WHOLE, total, at_limit / total))
    schema = {"user": pl.String, "jobs that waited": pl.Int64, "most GPUs at once": pl.Float64,
              "total wait": pl.Float64, "share of it at this limit": pl.Float64}  # fmt: skip
    table = pl.DataFrame(found, schema=schema, orient="row")
    return table.sort("total wait", "user", descending=[True, False])


def quotas(table: pl.DataFrame) -> list[float | dict[str, float]]:
    """Return quotas that the limits suggest: one for all users, or one for each user who is at his limit."""
    at_limit = table.filter(pl.col("share of it at this limit") >= AT_LIMIT)
    if not at_limit.height:
        return []
    own = dict(at_limit.select("user", "most GPUs at once").iter_rows())
    most = float(max(own.values()))
    return [most, own] if len(own) > 1 else [own]


def fit_quota(fit: Fit, start: Score, options: Sequence[float | dict[str, float]]) -> Score:
    """Return the quota that explains the starts best, or the scenario as it is."""
    best = start
    for quota in options:
        score = replace(fit.score(start.scenario.replace(quota=quota), start.choices), words=start.words)
        if fit.better(best, score):
            best = score
    quota = best.scenario.policy.quota
    return _fewest_users(fit, best, dict(quota)) if isinstance(quota, Mapping) else best


def _fewest_users(fit: Fit, best: Score, quota: dict[str, float]) -> Score:
    """Leave out the users without whose quota the starts are explained as well."""
    for user in list(quota)[:FEW_USERS]:
        fewer = {name: gpus for name, gpus in quota.items() if name != user}
        if fewer:
            score = replace(fit.score(best.scenario.replace(quota=fewer), best.choices), words=best.words)
            if score.total >= best.total:
                best, quota = score, fewer
    return best


# -- load ------------------------------------------------------------------------------------------------------------


def hidden_load(log: Recorded, rows: np.ndarray, latency: Floats, gpus: int) -> Interval | None:
    """Return the share of the GPUs that was not in recorded use while jobs of at most one GPU waited.

    Such a job fits wherever a GPU is free: what the log does not show in use, something else holds, or nobody may use.
    """
    small = (log.milli > 0) & (log.milli <= WHOLE) & (log.jobs["gpu_types"].list.len() == 0).to_numpy()
    waited = np.flatnonzero(rows & log.known & small & (log.wait - latency > LONG))
    if not len(waited) or not gpus:
        return None
    job, time, seconds = log.waiting_moments(waited, latency)
    free = np.clip(1 - log.use.at(time) / (gpus * WHOLE), 0.0, 1.0)
    blocks = BlockBootstrap.of_times(log.submit[job])
    return blocks.ratio(blocks.sums(free * seconds), blocks.sums(seconds), SHARE).interval()
