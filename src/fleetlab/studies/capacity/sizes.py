"""Clusters of other sizes: the goal, the jobs it is measured on, the simulation of one size, and a first guess."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Scenario, WorkloadError
from fleetlab.core.catalog import METRICS
from fleetlab.core.catalog.reasons import FITS_NOWHERE, GANG_TOO_LARGE
from fleetlab.core.durations import in_seconds
from fleetlab.core.nodes import chosen, kinds_of
from fleetlab.core.steps import Steps
from fleetlab.queueing import solve
from fleetlab.sim import simulate
from fleetlab.sim.simulate import world_of
from fleetlab.stats import Floats
from fleetlab.studies.replicas import BLOCKS
from fleetlab.studies.sentences import unmet_requests

# -- a goal as text: p90 wait < 600, mean JCT < 2h, p99 slowdown < 3 ---------------------------------------------------

METRIC_NAMES = {metric.name.lower(): metric for metric in METRICS if metric.column}
GRAMMAR = re.compile(r"(mean|p\d{1,2}(?:\.\d+)?)\s+([a-z ]+?)\s*<\s*(.+)", re.IGNORECASE)
HINT = f"such as p90 wait < 600, mean JCT < 2h or p99 slowdown < 3; metrics are {', '.join(METRIC_NAMES)}"


@dataclass(frozen=True, slots=True)
class ServiceGoal:
    """A statistic of the jobs that must stay below a limit."""

    quantile: float | None  # None: the mean
    metric: str
    limit: float  # seconds, or a ratio

    @classmethod
    def read(cls, text: str) -> ServiceGoal:
        """Read a goal.

        >>> ServiceGoal.read("p90 wait < 10m")
        ServiceGoal(quantile=0.9, metric='wait', limit=600.0)
        """
        match = GRAMMAR.fullmatch(" ".join(str(text).split()))
        if match is None or (name := match[2].lower()) not in METRIC_NAMES:
            msg = f"not a goal: `{text}`"
            raise WorkloadError(msg, hint=HINT)
        metric, statistic = METRIC_NAMES[name], match[1].lower()
        limit = _limit(match[3], seconds=metric.unit == "s")
        if not 0 < limit < math.inf:
            kind = "a duration" if metric.unit else "a number"
            msg = f"a limit of {metric.name} is {kind} above 0, not: `{match[3]}`"
            raise WorkloadError(msg, hint=HINT)
        quantile = None if statistic == "mean" else float(statistic[1:]) / 100
        if quantile == 0:
            msg = f"a percentile lies between 0 and 100: `{text}`"
            raise WorkloadError(msg, hint=HINT)
        return cls(quantile, metric.name, limit)

    def __str__(self) -> str:
        statistic = "mean" if self.quantile is None else f"P{100 * self.quantile:g}"
        return f"{statistic} {self.metric}"

    @property
    def unit(self) -> str:
        """Unit of the limit."""
        return METRICS[self.metric].unit

    @property
    def column(self) -> str:
        """Column of the table of simulated jobs."""
        return METRICS[self.metric].column

    def of(self, values: Floats) -> float:
        """Return the statistic alone."""
        return float(values.mean() if self.quantile is None else np.quantile(values, self.quantile))


def _limit(text: str, *, seconds: bool) -> float:
    try:
        return in_seconds(text) if seconds else float(text)
    except ValueError:
        return math.nan


# -- one size ----------------------------------------------------------------------------------------------------------

NEVER = 1e15  # seconds that stand for a wait without end
FAR = NEVER / 1e6  # a statistic above it includes some of those


def node_count(cluster: Cluster, pool: str | None) -> int:
    """Return how many nodes are scaled: those of the pool or GPU type of that name, or all."""
    return int(chosen(cluster.frame, pool).sum())


def scaled(cluster: Cluster, pool: str | None, size: int) -> Cluster:
    """Return so many nodes in the pool, or in all pools in proportion, with at least one of each kind."""
    return cluster.scaled(Fraction(size, node_count(cluster, pool)), pool)


def distinct(cluster: Cluster, pool: str | None, most: int) -> list[int]:
    """Return the sizes up to some number that differ, of those that are rounded up to the same nodes the largest.

    >>> distinct(Cluster.uniform(4, 8), None, 3)
    [1, 2, 3]
    """
    counts = np.array([[kind.height] for kind in kinds_of(cluster.frame, chosen(cluster.frame, pool))])
    nodes = (-(-counts * np.arange(1, most + 1) // counts.sum())).sum(axis=0)
    return (np.flatnonzero(np.diff(nodes, append=0)) + 1).tolist()


def measured_jobs(jobs: pl.DataFrame, cluster: Cluster, pool: str | None) -> pl.Series:
    """Return which jobs a goal is measured on: those that may run on the nodes that are scaled."""
    if pool is None:
        return pl.repeat(value=True, n=jobs.height, eager=True, dtype=pl.Boolean)
    types = cluster.frame.filter(chosen(cluster.frame, pool))["gpu_type"].drop_nulls().unique().to_list()
    gpu_types = pl.col("gpu_types")
    named = pl.any_horizontal([pl.lit(value=False), *(gpu_types.list.contains(t) for t in types)])
    if not types:
        return jobs.select(ok=pl.col("gpu_milli") == 0)["ok"]
    return jobs.select(ok=(pl.col("gpu_milli") > 0) & ((gpu_types.list.len() == 0) | named))["ok"]


def measure(scenario: Scenario, size: int, pool: str | None, slo: str) -> dict[str, Any]:
    """Simulate one size: the goal, where jobs that never run wait for ever, and how many jobs it speaks of."""
    goal, cluster, jobs = ServiceGoal.read(slo), scenario.cluster, scenario.workload.frame
    result = simulate(scenario.replace(cluster=scaled(cluster, pool, size), nodes="", min_coverage=0.0))
    measured = measured_jobs(jobs, cluster, pool)
    ran = result.jobs.filter(measured.gather(result.jobs["job"]) & ~pl.col("initial"))
    ended = pl.col("status").is_in(["done", "cut short"])
    refused = jobs.filter(measured & ~pl.col("initial")).join(result.refused, on="job")
    unable = refused.filter(pl.col("reason").is_in([GANG_TOO_LARGE, FITS_NOWHERE]))
    never = ran.filter(~ended).height + unable.height
    values = np.append(ran.filter(ended)[goal.column].drop_nulls().to_numpy(), np.full(never, NEVER))
    value = goal.of(values) if len(values) else 0.0
    return {
        "value": np.array(math.inf if value > FAR else value), "jobs": np.array(len(values)), "never": np.array(never),
        "nodes": np.array(len(result.cluster) - len(cluster) + node_count(cluster, pool)),
        "gpus": np.array(result.cluster.gpus),
        "waits": np.array([part.sum() for part in np.array_split(ran.filter(ended)["wait"].to_numpy(), BLOCKS)]),
    }  # fmt: skip


def check_requests(scenario: Scenario, jobs: pl.DataFrame, best: Floats, goal: ServiceGoal) -> None:
    """Refuse a goal that jobs break which fit on no node, however many nodes there are."""
    refused = world_of(scenario.replace(min_coverage=0.0)).refused.filter(pl.col("reason") == FITS_NOWHERE)
    stays = jobs["job"].is_in(refused["job"].implode()).to_numpy()
    nowhere = jobs.filter(pl.Series(stays, dtype=pl.Boolean))
    if not nowhere.height:
        return
    unmet, hint = unmet_requests(nowhere, scenario.cluster.frame), "`fleetlab simulate` lists the jobs that cannot run"
    if nowhere.height == jobs.height:
        msg = f"no job can run on such nodes, however many there are: {unmet}".removesuffix(": ")
        raise WorkloadError(msg, hint=hint)
    if goal.of(np.where(stays, NEVER, best)) >= goal.limit:
        some = f"{nowhere.height:,} of {jobs.height:,} jobs fit on no node"
        msg = f"no number of nodes meets the goal: {some}, and wait forever: {unmet}"
        raise WorkloadError(msg, hint=hint)


def at_best(jobs: pl.DataFrame, goal: ServiceGoal) -> Floats:
    """Return the metric of each job if it does not wait: no number of nodes does better."""
    runtime = jobs["runtime"].to_numpy()
    return {"wait": np.zeros(len(runtime)), "JCT": runtime}.get(goal.metric, np.ones(len(runtime)))


# -- a first guess, by square-root staffing for the load of a busy hour ------------------------------------------------

WHOLE = 1000
QUANTILE = 0.8  # stands for a mean
INSTANTS = 1000  # at which the offered load is measured
AMPLE = 20  # times the nodes: on so many no job that came before is turned away
ANY = ""  # of jobs that may use any GPU type
COLUMNS = ("submit", "runtime", "gpu_milli", "instances", "gpu_types")


class Offered(NamedTuple):
    """What the jobs of one kind offer at a busy hour."""

    load: float  # GPUs in use if no job waited
    each: float  # GPUs of a job, on average over time
    jobs: int

    def waits(self, gpus: float, load: float | None = None) -> float:
        """Return the probability that a job waits, as if every job had the average number of GPUs (Halfin-Whitt)."""
        load = self.load if load is None else load
        if not load:
            return 0.0
        servers = max(1, int(gpus / self.each))
        return solve("Halfin-Whitt", lam=load / self.each, mu=1.0, c=servers)["probability of waiting"]


def guess(scenario: Scenario, pool: str | None, goal: ServiceGoal) -> int:
    """Return the fewest nodes with which no more jobs wait at a busy hour than the goal leaves out.

    It is the modified offered load (Jennings et al. 1996) of the arrivals of the log, with what runs before them. Jobs
    that name a GPU type wait for its GPUs; those that name none have all GPUs, and are counted once.
    """
    now = node_count(scenario.cluster, pool)
    q = QUANTILE if goal.quantile is None else goal.quantile
    kinds = _offered(scenario, pool, q)
    if not any(one.load for one in kinds.values()):
        return now
    gpus = _gpus(scenario, pool)

    def few_wait(size: int) -> bool:
        there = {name: fixed + some * size / now for name, (fixed, some) in gpus.items()}
        return _share(kinds, there) <= 1 - q

    most = now
    while not few_wait(most) and most < AMPLE * now:
        most *= 2
    return bisect.bisect_left(range(1, most), True, key=few_wait) + 1  # noqa: FBT003


def _gpus(scenario: Scenario, pool: str | None) -> dict[str, tuple[int, int]]:
    """Return the GPUs of each type, of nodes that stay and of those that are scaled; and those of all types."""
    nodes = scenario.cluster.frame.with_columns(scales=chosen(scenario.cluster.frame, pool)).filter(pl.col("gpus") > 0)
    gpus: dict[str, tuple[int, int]] = {}
    for name, part in (*nodes.group_by("gpu_type"), ((ANY,), nodes)):
        some = int(part.filter("scales")["gpus"].cast(pl.Int64).sum())
        gpus[str(name[0] or ANY)] = (int(part["gpus"].cast(pl.Int64).sum()) - some, some)
    return gpus


def _offered(scenario: Scenario, pool: str | None, q: float) -> dict[str, Offered]:
    """Return what jobs offer by the GPU type that they name first; of those that cannot use the pool, none counts."""
    cluster = scenario.cluster
    ample = scenario.replace(cluster=scaled(cluster, None, AMPLE * len(cluster)), nodes="")
    before = [] if ample.before is None else [ample.before.frame.select(COLUMNS)]
    jobs = pl.concat([*before, scenario.workload.frame.select(COLUMNS)])
    jobs = jobs.filter(pl.col("runtime").is_not_null() & (pl.col("gpu_milli") > 0))
    kind = pl.col("gpu_types").list.first().fill_null(ANY)
    kinds = {
        str(name): _offered_by_kind(part, q) for (name,), part in jobs.group_by(kind.cast(pl.String).alias("kind"))
    }
    scales = {ANY, *cluster.frame.filter(chosen(cluster.frame, pool))["gpu_type"].drop_nulls()}
    there = [name for name in (ANY, *cluster.frame["gpu_type"].drop_nulls().unique().sort()) if name in kinds]
    return {name: kinds[name] if name in scales else kinds[name]._replace(jobs=0) for name in there}


def _offered_by_kind(jobs: pl.DataFrame, q: float) -> Offered:
    submit, runtime = jobs["submit"].to_numpy(), jobs["runtime"].to_numpy()
    gpus = jobs["gpu_milli"].to_numpy() * jobs["instances"].to_numpy() / WHOLE
    # The GPUs in use if no job waited, at instants while jobs arrive.
    in_use = Steps.of(submit, submit + runtime, gpus).at(np.linspace(0.0, float(submit.max()), INSTANTS))
    return Offered(float(np.quantile(in_use, q)), float(gpus @ runtime / runtime.sum()), int((submit >= 0).sum()))


def _share(kinds: Mapping[str, Offered], gpus: Mapping[str, float]) -> float:
    """Return the share of jobs that wait: for GPUs of their type, or for any."""
    everywhere = sum(min(one.load, gpus[name]) for name, one in kinds.items())
    loads = sum(one.load for one in kinds.values())
    each = sum(one.load for one in kinds.values()) / sum(one.load / one.each for one in kinds.values())
    jobs = sum(one.jobs for one in kinds.values())
    together = Offered(loads, each, jobs).waits(gpus[ANY], everywhere)
    own = {name: one.waits(gpus[name]) if name != ANY else 0.0 for name, one in kinds.items()}
    return sum(one.jobs * max(together, own[name]) for name, one in kinds.items()) / jobs
