"""A first guess of the size, by square-root staffing for the load that jobs offer at a busy hour."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.nodes import chosen
from fleetlab.queueing import solve
from fleetlab.stats import Floats
from fleetlab.studies.capacity.goal import ServiceGoal
from fleetlab.studies.capacity.sizes import node_count, scaled

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
    found: dict[str, tuple[int, int]] = {}
    for name, part in (*nodes.group_by("gpu_type"), ((ANY,), nodes)):
        some = int(part.filter("scales")["gpus"].cast(pl.Int64).sum())
        found[str(name[0] or ANY)] = (int(part["gpus"].cast(pl.Int64).sum()) - some, some)
    return found


def _offered(scenario: Scenario, pool: str | None, q: float) -> dict[str, Offered]:
    """Return what jobs offer by the GPU type that they name first; of those that cannot use the pool, none counts."""
    cluster = scenario.cluster
    ample = scenario.replace(cluster=scaled(cluster, None, AMPLE * len(cluster)), nodes="")
    before = [] if ample.before is None else [ample.before.frame.select(COLUMNS)]
    jobs = pl.concat([*before, scenario.workload.frame.select(COLUMNS)])
    jobs = jobs.filter(pl.col("runtime").is_not_null() & (pl.col("gpu_milli") > 0))
    kind = pl.col("gpu_types").list.first().fill_null(ANY)
    kinds = {str(name): _of(part, q) for (name,), part in jobs.group_by(kind.cast(pl.String).alias("kind"))}
    scales = {ANY, *cluster.frame.filter(chosen(cluster.frame, pool))["gpu_type"].drop_nulls()}
    there = [name for name in (ANY, *cluster.frame["gpu_type"].drop_nulls().unique().sort()) if name in kinds]
    return {name: kinds[name] if name in scales else kinds[name]._replace(jobs=0) for name in there}


def _of(jobs: pl.DataFrame, q: float) -> Offered:
    submit, runtime = jobs["submit"].to_numpy(), jobs["runtime"].to_numpy()
    gpus = jobs["gpu_milli"].to_numpy() * jobs["instances"].to_numpy() / WHOLE
    load = float(np.quantile(_offered_load(submit, submit + runtime, gpus), q))
    return Offered(load, float(gpus @ runtime / runtime.sum()), int((submit >= 0).sum()))


def _offered_load(begin: Floats, end: Floats, gpus: Floats) -> Floats:
    """Return the GPUs in use if no job waited, at instants while jobs arrive."""
    times = np.linspace(0.0, float(begin.max()), INSTANTS)
    load = np.zeros(INSTANTS)
    for at, sign in ((begin, 1), (end, -1)):
        by = np.argsort(at, kind="stable")
        load += sign * np.append(0.0, np.cumsum(gpus[by]))[np.searchsorted(at[by], times, side="right")]
    return load


def _share(kinds: Mapping[str, Offered], gpus: Mapping[str, float]) -> float:
    """Return the share of jobs that wait: for GPUs of their type, or for any."""
    everywhere = sum(min(one.load, gpus[name]) for name, one in kinds.items())
    loads = sum(one.load for one in kinds.values())
    each = sum(one.load for one in kinds.values()) / sum(one.load / one.each for one in kinds.values())
    jobs = sum(one.jobs for one in kinds.values())
    crowd = Offered(loads, each, jobs).waits(gpus[ANY], everywhere)
    own = {name: one.waits(gpus[name]) if name != ANY else 0.0 for name, one in kinds.items()}
    return sum(one.jobs * max(crowd, own[name]) for name, one in kinds.items()) / jobs
