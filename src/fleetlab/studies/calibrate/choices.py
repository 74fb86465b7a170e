"""Which order explains whom the scheduler took, in the state that the log recorded: no simulation is needed.

At each recorded start some jobs were waiting that ask for no more than the one that started, and may run where it did:
they would have fitted in its place. An order takes the first of them by its rank, or, with a small probability that is
fitted, any other. That is robust against latency, hidden nodes and load that the log does not show, because the state
is the recorded one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster
from fleetlab.core.catalog import ORDERS, REQUESTS
from fleetlab.sim.orders import fixed_ranks
from fleetlab.stats import Floats, Ints, divide
from fleetlab.studies.calibrate.recorded import Recorded

MOST = 4000  # starts that are looked at
SHARES = {"gpu_milli": 1000, "cpu_milli": 1, "memory_mib": 1}  # what a dominant share is of; in units of the cluster
FAIR = ("fair", "")
COLUMNS = ("submit", "instances", "cpu_milli", "memory_mib", "gpu_milli", "priority")  # that orders rank by
RARE = 1e-3  # the least probability of not taking the first


Ranking = tuple[str, str]  # an order, and the estimate that it ranks by; none: empty


def ranking(order: str, estimate: str) -> Ranking:
    """Return what decides whom an order takes: itself, and its estimate if it has one."""
    return order, estimate if order in ORDERS and ORDERS[order].needs_estimate else ""


class Choices:
    """The recorded starts of the first `jobs` jobs at which other jobs could have been taken instead."""

    def __init__(
        self, log: Recorded, cluster: Cluster, jobs: int, latency: Floats, estimates: Mapping[str, Floats]
    ) -> None:
        self.log, self.jobs = log, jobs
        start = np.where(np.isnan(log.start), np.inf, log.start)[:jobs]
        self.allocated = np.maximum(start - latency[:jobs], log.submit[:jobs])
        self.submit, self.end, self.user = log.submit[:jobs], log.end[:jobs], log.user[:jobs]
        frame = log.jobs[:jobs]
        self.requests = np.array([frame[name].to_numpy() for name in (*REQUESTS, "instances")])
        self.types = frame["gpu_types"].list.sort().list.join("\n").to_numpy()
        self.wants = _wants(frame, cluster)
        self.keys = _fixed_keys(log, jobs, estimates)

    def log_likelihoods(self, compared: NDArray[np.bool_]) -> tuple[dict[Ranking, Floats], int]:
        """Return by order the log-likelihood that each compared job was taken, and how many starts were contested."""
        events = self._events(compared)
        first = {name: np.zeros(len(events), dtype=bool) for name in (*self.keys, FAIR)}
        options = np.ones(len(events))
        for k, job in enumerate(events):
            others = self._others(job)
            options[k] = len(others) + 1
            if len(others):
                for name, keys in self._keys_now(job).items():
                    first[name][k] = _is_first(keys, job, others)
        contested = options > 1
        by_order = {}
        for name, taken in first.items():
            by_job = np.zeros(self.jobs)
            by_job[events[contested]] = _log_likelihood(taken[contested], options[contested])
            by_order[name] = by_job[compared]
        return by_order, int(contested.sum())

    def _events(self, compared: NDArray[np.bool_]) -> Ints:
        """Return the jobs whose starts are looked at, in order of time: those that waited, or a part of them."""
        waited = np.flatnonzero(compared & (self.allocated > self.submit) & np.isfinite(self.allocated))
        waited = waited[np.argsort(self.allocated[waited], kind="stable")]
        return waited[:: max(1, -(-len(waited) // MOST))]

    def _others(self, job: int) -> Ints:
        """Return the jobs that waited when this one was taken, and would have fitted in its place."""
        now = self.allocated[job]
        waiting = np.flatnonzero((self.submit <= now) & (self.allocated > now))
        no_more = (self.requests[:, waiting] <= self.requests[:, [job]]).all(axis=0)
        types = self.types[waiting]
        return np.asarray(waiting[no_more & ((types == "") | (types == self.types[job]))])

    def _keys_now(self, job: int) -> Mapping[Ranking, Floats]:
        return self.keys | {FAIR: self._dominant_shares(self.allocated[job])[self.user]}

    def _dominant_shares(self, now: float) -> Floats:
        """Return the largest share of a resource that each user holds."""
        running = (self.allocated < now) & ~(self.end <= now)
        users = len(self.log.users)
        in_use = [np.bincount(self.user[running], weights=want[running], minlength=users) for want in self.wants]
        return np.asarray(np.max(in_use, axis=0))


def _wants(frame: pl.DataFrame, cluster: Cluster) -> list[Floats]:
    """Return what each job asks for, as a share of what there is of each resource."""
    there = {name.replace("gpu_milli", "gpus"): name for name in SHARES}
    wants = []
    for column, name in there.items():
        total = float(cluster.frame[column].cast(pl.Int64).sum()) * SHARES[name]
        amount = (frame[name].cast(pl.Int64) * frame["instances"]).to_numpy().astype(np.float64)
        wants.append(amount / total if total else np.zeros(len(amount)))
    return wants


def _fixed_keys(log: Recorded, jobs: int, estimates: Mapping[str, Floats]) -> dict[Ranking, Floats]:
    """Return the ranks of jobs under each order whose ranks do not change while a job waits for its first start."""
    submit, milli = log.submit[:jobs], log.milli[:jobs]
    columns = {name: log.jobs[name][:jobs].cast(pl.Float64).to_numpy() for name in COLUMNS}
    keys: dict[Ranking, Floats] = {}
    for order in ORDERS:
        if order.needs_estimate:
            for name, estimate in estimates.items():
                known = SimpleNamespace(**columns, estimate=estimate)
                sized = milli if order.chooses_set else 1.0  # the dynamic ones: before a first start all of it is left
                keys[order.name, name] = sized * estimate if order.dynamic else fixed_ranks(order.name, known)
        else:  # before a first start the dynamic ones take all jobs alike, in the order of arrival
            alike = order.dynamic or order.name == "fifo"
            keys[order.name, ""] = submit if alike else fixed_ranks(order.name, SimpleNamespace(**columns))
    return keys


def learned(log: Recorded, columns: Sequence[str]) -> Floats:
    """Return for each job the mean run time of the jobs like it that had finished when it came, or of all that had."""
    codes = log.jobs.select(pl.struct(columns).rank("dense")).to_series().to_numpy().astype(np.int64)
    ended = ~np.isnan(log.end) & ~np.isnan(log.runtime)
    estimate = _finished_mean(log, np.flatnonzero(ended), np.arange(len(log)))
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        own = _finished_mean(log, rows[ended[rows]], rows)
        estimate[rows] = np.where(np.isnan(own), estimate[rows], own)
    return np.nan_to_num(estimate)


def _finished_mean(log: Recorded, done: Ints, rows: Ints) -> Floats:
    """Return the mean run time of some jobs that had finished when others came; NaN where none had."""
    done = done[np.argsort(log.end[done])]
    sums, count = (
        np.append(0.0, np.cumsum(log.runtime[done])),
        np.searchsorted(log.end[done], log.submit[rows], "right"),
    )
    return divide(sums[count], count)


def _is_first(keys: Floats, job: int, others: Ints) -> bool:
    """Whether a job is ahead of others; ties by arrival."""
    ahead = (keys[others] < keys[job]) | ((keys[others] == keys[job]) & (others < job))
    return not ahead.any()


def _log_likelihood(taken: NDArray[np.bool_], options: Floats) -> Floats:
    if not len(taken):
        return np.zeros(0)
    other = float(np.clip(1 - taken.mean(), RARE, 1 - RARE))
    return np.asarray(np.where(taken, np.log(1 - other), np.log(other / (options - 1))))
