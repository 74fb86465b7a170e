"""What a log does not show: start-up latency, nodes that nobody may use, quotas of users, and load outside of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Scenario
from fleetlab.core.steps import Steps
from fleetlab.core.words import OTHER_JOBS
from fleetlab.sim.start_up import size_of
from fleetlab.stats import POSITIVE, SHARE, BlockBootstrap, Floats, Interval, Replicates, paired_difference
from fleetlab.studies.calibrate.likelihood import Fit, Score
from fleetlab.studies.calibrate.recorded import WHOLE, RecordedJobs

# -- start-up latency: the waits of jobs that had nothing in their way -------------------------------------------------

MARGINS = (0.5, 0.75, 1.0)  # of the most GPUs ever in use at once: the lowest at which there are enough jobs
ENOUGH_OF_A_CLASS = 30  # jobs of a class
FENCE = 3.0  # interquartile ranges above the upper quartile: beyond, it is no start-up
LAW_VALUES = 20  # equally likely values of a law
BETTER = 0.9  # of the deviation from the median: classes that are worth having
RESOLUTION = 1.0  # seconds: the resolution of most logs

Law = float | dict[str, list[float]]


def unobstructed(log: RecordedJobs, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the jobs that had nothing in their way when they were submitted.

    All that was running or waiting then, themselves included, was less than what has been in use at once: in the
    cluster, on the GPU types that they name, and by their user.
    """
    jobs = rows & log.compared
    free = np.ones(len(log), dtype=bool)
    for name in log.gpu_type.unique().to_list():
        same = (log.gpu_type == name).to_numpy()
        free[same] &= log.demanded(same).at(log.submit[same]) <= log.in_use(same).peak
    for user in range(len(log.users)):
        same = log.user == user
        free[same] &= log.demanded(same).at(log.submit[same]) <= log.in_use(same).peak
    demand, most = log.demanded(log.everyone).at(log.submit), log.use.peak
    for margin in MARGINS:
        chosen = jobs & free & (demand <= margin * most)
        if chosen.sum() >= ENOUGH_OF_A_CLASS:
            break
    return np.asarray(chosen)


def fit_latency(log: RecordedJobs, free: NDArray[np.bool_], *, every: bool = False) -> tuple[Law, pl.DataFrame]:
    """Return the law of the start-up latency, by class where classes differ, and a table of it.

    Waits far above the others are taken for waits for something else, unless `every` wait counts.
    """
    waits = log.wait[free]
    keep = waits <= (np.inf if every else _fence(waits))
    jobs = log.jobs.filter(pl.Series(free)).filter(pl.Series(keep))
    waits, submit = waits[keep], jobs["submit"].to_numpy()
    if len(waits) < ENOUGH_OF_A_CLASS:
        return 0.0, _table({}, waits, submit)
    all_jobs = pl.repeat(OTHER_JOBS, len(waits), eager=True)
    ways = [all_jobs, jobs.select(size_of()).to_series(), log.gpu_type.filter(pl.Series(free)).filter(pl.Series(keep))]
    best, classes = _deviation(waits, all_jobs), _classes(waits, all_jobs)
    for way in ways[1:]:
        if _deviation(waits, way) < BETTER * best:
            best, classes = _deviation(waits, way), _classes(waits, way)
    law = {name: _values(waits[rows]) for name, rows in classes.items()}
    return _simplified(law), _table(classes, waits, submit)


def median_latency(law: Law, log: RecordedJobs) -> Floats:
    """Return the median start-up latency of each job's class."""
    if not isinstance(law, Mapping):
        return np.full(len(log), float(law))
    seconds = np.full(len(log), float(np.median(law.get(OTHER_JOBS, [0.0]))))
    for classes in (log.jobs.select(size_of()).to_series(), log.gpu_type):
        for name in set(classes) & set(law):
            seconds[(classes == name).to_numpy()] = float(np.median(law[name]))
    return seconds


def _fence(waits: Floats) -> float:
    if not len(waits):
        return 0.0
    low, high = np.quantile(waits, [0.25, 0.75])
    return float(high + FENCE * max(high - low, RESOLUTION))


def _classes(waits: Floats, names: pl.Series) -> dict[str, NDArray[np.bool_]]:
    """Return the jobs of each class that has enough of them, and all others; those of a class that has few, too."""
    counted = (
        names.value_counts().filter(pl.col("count") >= ENOUGH_OF_A_CLASS).sort("count", descending=True)[names.name]
    )
    classes = {name: (names == name).to_numpy() for name in counted.to_list() if name != OTHER_JOBS}
    rest = ~np.any(list(classes.values()), axis=0) if classes else np.ones(len(waits), dtype=bool)
    return classes | {OTHER_JOBS: rest if rest.sum() >= ENOUGH_OF_A_CLASS else np.ones(len(waits), dtype=bool)}


def _deviation(waits: Floats, names: pl.Series) -> float:
    medians = np.zeros(len(waits))
    for rows in reversed(list(_classes(waits, names).values())):
        medians[rows] = np.median(waits[rows])
    return float(np.abs(waits - medians).sum())


def _values(waits: Floats) -> list[float]:
    """Return equally likely values with the mean of the waits; one, where they hardly differ."""
    low, middle, high = np.quantile(waits, [0.1, 0.5, 0.9])
    if high - low < RESOLUTION:
        return [round(float(middle), 3)]
    # The integral of the quantile function: of however many waits, each value stands for as much of them.
    total = np.append(0.0, np.cumsum(np.sort(waits)))
    at = np.interp(np.linspace(0, len(waits), LAW_VALUES + 1), np.arange(len(waits) + 1), total)
    return [round(float(part), 3) for part in np.diff(at) * LAW_VALUES / len(waits)]


def _simplified(law: dict[str, list[float]]) -> Law:
    if all(float(np.mean(values)) < RESOLUTION for values in law.values()):
        return 0.0
    only = law.get(OTHER_JOBS, [])
    return only[0] if len(law) == len(only) == 1 else law


def _table(classes: Mapping[str, NDArray[np.bool_]], waits: Floats, submit: Floats) -> pl.DataFrame:
    rows = []
    blocks = BlockBootstrap.of_times(submit) if len(submit) else None
    for name, inside in classes.items():
        mean = blocks.part(inside).mean(waits[inside], POSITIVE).interval() if blocks else (None, None, None)
        p10, median, p90 = np.quantile(waits[inside], [0.1, 0.5, 0.9])
        rows.append((name, int(inside.sum()), *mean, float(p10), float(median), float(p90)))
    schema = {"class": pl.String, "jobs": pl.Int64} | dict.fromkeys(
        ("mean wait", "mean wait low", "mean wait high", "P10 wait", "median wait", "P90 wait"), pl.Float64
    )
    return pl.DataFrame(rows, schema=schema, orient="row")


SPARE = "nodes to spare"
PLACED = 0.9  # of the jobs, whose nodes the log has: then those that no job had are known
GUESSES = 3  # sets of hidden nodes with which all policies are simulated
FEW_NODES = 8  # numbers of hidden nodes that are all tried; of more, a grid is
AT_LIMIT = 0.5  # of the time that a user's jobs wait, at what he never exceeds: taken for a quota
FEW_USERS = 8  # whose quotas are questioned one by one
LONG = 60.0  # seconds: shorter waits tell nothing of limits


# -- nodes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pools:
    """The GPUs of a cluster by type, and how many of its nodes could be hidden."""

    table: pl.DataFrame  # GPU type, nodes, GPUs, most in use at once, nodes in use (null: not known), spare nodes
    peak: float  # the most GPUs ever in use at once

    @classmethod
    def of(cls, log: RecordedJobs, cluster: Cluster, placements: pl.LazyFrame | None) -> Pools:
        """Count nodes and GPUs, and what of them was ever in use; with the nodes of jobs, where the log has them."""
        gpu = cluster.frame.filter(pl.col("gpus") > 0)
        table = gpu.group_by("gpu_type").agg(nodes=pl.len().cast(pl.Int64), gpus=pl.col("gpus").cast(pl.Int64).sum())
        table = table.sort("gpus", "gpu_type", descending=[True, False])
        nodes_of_jobs = None if placements is None else _nodes_of_instances(log, gpu, placements)
        rows = [(*_use(log, name, nodes_of_jobs, only=table.height == 1),) for name in table["gpu_type"]]
        schema = {"most in use at once": pl.Float64, "nodes in use": pl.Int64}
        table = table.hstack(pl.DataFrame(rows, schema=schema, orient="row"))
        per_node = pl.col("gpus") / pl.col("nodes")
        by_use = ((pl.col("gpus") - pl.col("most in use at once")) / per_node + 1e-9).floor().clip(0).cast(pl.Int64)
        spare = pl.coalesce(pl.col("nodes") - pl.col("nodes in use"), by_use)
        return cls(table.with_columns(spare.alias(SPARE)), log.use.peak / WHOLE)

    @property
    def spare(self) -> dict[str, int]:
        """The most nodes of each GPU type that could be hidden."""
        return dict(self.table.select("gpu_type", SPARE).iter_rows())

    def most(self, hidden: Mapping[str, int]) -> dict[str, int]:
        """Return as many hidden nodes of each type as leave the GPUs that have been in use, in proportion."""
        size = {name: gpus / nodes for name, nodes, gpus in self.table.select("gpu_type", "nodes", "gpus").iter_rows()}
        gpus = sum(size[name] * count for name, count in hidden.items())
        unused = int(self.table["gpus"].sum()) - self.peak
        share = min(1.0, unused / gpus) if gpus else 0.0
        return {name: int(count * share + 1e-9) for name, count in hidden.items()}

    def guesses(self) -> list[dict[str, int]]:
        """Return sets of nodes that may be hidden: all spare ones, and, where jobs run on any type, those of one."""
        every = self.most(self.spare)
        each = [self.most({name: count}) for name, count in self.spare.items()] if len(self.spare) > 1 else []
        some = [guess for guess in (every, *each) if any(guess.values())]
        return [guess for k, guess in enumerate(some) if guess not in some[:k]][:GUESSES]


def _nodes_of_instances(log: RecordedJobs, nodes: pl.DataFrame, placements: pl.LazyFrame) -> pl.DataFrame | None:
    """Return the node and its GPU type of each instance that started; None where few of them are known."""
    jobs = pl.DataFrame({"job": np.flatnonzero(~np.isnan(log.start) & (log.milli > 0))})
    instances = placements.select("job", pl.col("node").cast(pl.String)).collect().join(jobs, on="job")
    typed = instances.join(nodes.select("node", "gpu_type"), on="node")
    return typed if typed["job"].n_unique() >= PLACED * jobs.height else None


def _use(
    log: RecordedJobs, gpu_type: str, nodes_of_jobs: pl.DataFrame | None, *, only: bool
) -> tuple[float, int | None]:
    """Return the most GPUs of a type ever in use at once, and how many of its nodes were."""
    if nodes_of_jobs is None:
        steps = log.use if only else log.in_use((log.gpu_type == gpu_type).to_numpy())
        return steps.peak / WHOLE, None
    mine = nodes_of_jobs.filter(pl.col("gpu_type") == gpu_type)
    rows = mine["job"].to_numpy()
    end = np.where(np.isnan(log.end), np.inf, log.end)[rows]
    each = log.jobs["gpu_milli"].to_numpy()[rows].astype(np.float64)
    return Steps.of(log.start[rows], end, each).peak / WHOLE, mine["node"].n_unique()


def without_nodes(scenario: Scenario, hidden: Mapping[str, int]) -> Scenario:
    """Return a scenario with fewer nodes of some types."""
    edits = [f"{name} -{count}" for name, count in hidden.items() if count]
    return scenario.replace(nodes=", ".join(filter(None, (scenario.nodes, *edits)))) if edits else scenario


def fit_nodes(fit: Fit, start: Score, pools: Pools) -> tuple[Score, dict[str, int]]:
    """Search the nodes of each type that nobody may use: those without which the starts are explained best."""
    best, hidden = start, dict.fromkeys(pools.spare, 0)
    score_of: dict[tuple[int, ...], Score] = {tuple(hidden.values()): start}

    def attempt(counts: Mapping[str, int]) -> Score:
        key = tuple(counts.values())
        if key not in score_of:
            score = fit.score(without_nodes(start.scenario, counts), start.choices)
            score_of[key] = replace(score, words=start.words)
        return score_of[key]

    for name in sorted(hidden, key=lambda n: -pools.spare[n]):
        most = pools.most({k: (pools.spare[k] if k == name else n) for k, n in hidden.items()})[name]
        scores = {count: attempt(hidden | {name: count}) for count in (0, *_grid(most))}
        at = max(scores, key=lambda n: (scores[n].total, -n))
        scores |= {count: attempt(hidden | {name: count}) for count in _around(at, scores, most)}
        at = max(scores, key=lambda n: (scores[n].total, -n))
        if at and fit.better(best, scores[at]):
            best, hidden[name] = scores[at], at
    return best, hidden


def _grid(spare: int) -> list[int]:
    if spare <= FEW_NODES:
        return list(range(1, spare + 1))
    return sorted({round(x) for x in np.linspace(0, spare, FEW_NODES + 1)[1:]})


def _around(at: int, scores: dict[int, Score], spare: int) -> Sequence[int]:
    """Return numbers between the best one and its neighbors that were tried."""
    if spare <= FEW_NODES:
        return []
    lower, upper = max((n for n in scores if n < at), default=0), min((n for n in scores if n > at), default=spare)
    inside = np.unique(np.linspace(lower, upper, FEW_NODES + 2).round().astype(int)).tolist()
    return [n for n in inside if n not in scores]


# -- quotas ----------------------------------------------------------------------------------------------------------


def limits(log: RecordedJobs, rows: np.ndarray, latency: Floats) -> pl.DataFrame:
    """Return for each user the most GPUs at once, and how much of the waiting was at that limit with GPUs to spare.

    A job is at the limit of its user when, with it, the user would hold more than ever, although the cluster has in_use
    as much as that.
    """
    waited = np.flatnonzero(rows & log.compared & (log.milli > 0) & (log.wait - latency > LONG))
    job, time, seconds = log.waiting_moments(waited, latency)
    fits = log.use.at(time) + log.milli[job] <= log.use.peak
    quotas = []
    for user in np.unique(log.user[job]):
        in_use = log.in_use(log.user == user)
        mine = log.user[job] == user
        over = in_use.at(time[mine]) + log.milli[job[mine]] > in_use.peak
        total = float(seconds[mine].sum())
        at_limit = float(seconds[mine][over & fits[mine]].sum())
        quotas.append((log.users[user], len(np.unique(job[mine])), in_use.peak / WHOLE, total, at_limit / total))
    schema = {"user": pl.String, "jobs that waited": pl.Int64, "most GPUs at once": pl.Float64,
              "total wait": pl.Float64, "share of it at this limit": pl.Float64}  # fmt: skip
    table = pl.DataFrame(quotas, schema=schema, orient="row")
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
    best_quota = best.scenario.policy.quota
    return _fewest_users(fit, best, dict(best_quota)) if isinstance(best_quota, Mapping) else best


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


class HiddenLoad(NamedTuple):
    """The share of the GPUs that nothing seems to use while jobs of at most one GPU wait."""

    recorded: Interval
    simulated: float  # of the calibrated scenario: what a policy keeps free, or an order leaves in pieces
    more: Interval  # that the recorded share is above the simulated one


def hidden_load(
    log: RecordedJobs, simulated: RecordedJobs, latency: Floats, gpus: int, until: float
) -> HiddenLoad | None:
    """Return how many more GPUs are not in use while small jobs wait than simulation explains; None: none waits.

    A job of at most one GPU fits wherever a GPU is free. What the log does not show in use, something else holds.
    """
    sides = [_unused(side, latency, gpus, until) for side in (log, simulated)]
    if sides[0] is None:
        return None
    if sides[1] is None:  # no such job waits in the simulation: whatever is free is unexplained
        return HiddenLoad(sides[0].interval(SHARE), 0.0, sides[0].interval(SHARE))
    more = paired_difference(sides[1], sides[0]).interval()
    return HiddenLoad(sides[0].interval(SHARE), float(sides[1].values[0]), more)


def _unused(log: RecordedJobs, latency: Floats, gpus: int, until: float) -> Replicates | None:
    """Return the share of the GPUs not in use, over the time in which jobs of at most one GPU of any type wait."""
    small = (log.milli > 0) & (log.milli <= WHOLE) & (log.jobs["gpu_types"].list.len() == 0).to_numpy()
    waited = np.flatnonzero(log.compared & small & (log.wait - latency > LONG))
    if not len(waited) or not gpus:
        return None
    job, time, seconds = log.waiting_moments(waited, latency)
    in_use = log.in_use(log.everyone, latency).at(time)  # GPUs are held while a job starts up
    free = np.clip(1 - in_use / (gpus * WHOLE), 0.0, 1.0)
    blocks = BlockBootstrap.of_times(log.submit[job], until)
    return blocks.ratios(blocks.sums(free * seconds), blocks.sums(seconds))
