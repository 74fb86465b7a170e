"""The numbers of a run, of the jobs submitted in some time: waits, JCT, slowdowns, GPU allocation and fairness.

Intervals are from blocks of that time, so that they are of these jobs: a part of a run has blocks of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from fleetlab.core import Estimate, Prices
from fleetlab.core.catalog import METRICS
from fleetlab.sim import accounts, estimates
from fleetlab.sim.accounts import DAY, HOUR
from fleetlab.sim.timeline import ClusterUsage
from fleetlab.stats import BLOCKS, SHARE, BlockBootstrap, Range, Replicates

ALLOCATION = "GPU allocation while jobs arrive"
FAIRNESS = "Jain index of users' mean bounded slowdown"


def blocks_of(jobs: pl.DataFrame, begin: float, end: float) -> BlockBootstrap:
    """Return the blocks of the time from `begin` to `end` in which some jobs were submitted."""
    return BlockBootstrap.of_times(jobs["submit"].to_numpy() - begin, end - begin)


@dataclass(frozen=True, eq=False)
class Measures:
    """What is measured of some completed jobs, and of the cluster while they were submitted."""

    done: pl.DataFrame  # the columns of `METRICS`, `submit` and `user`
    usage: ClusterUsage  # its first BLOCKS pieces are from `begin` to `end`
    begin: float
    end: float

    def blocks(self, jobs: pl.DataFrame) -> BlockBootstrap:
        """Return the blocks of time in which some of the jobs were submitted."""
        return blocks_of(jobs, self.begin, self.end)

    @cached_property
    def numbers(self) -> dict[str, tuple[Replicates, Range, str]]:
        """What is estimated: its replicates, the range of possible values, and its unit."""
        numbers: dict[str, tuple[Replicates, Range, str]] = {}
        for metric in METRICS:
            measured = self.done.drop_nulls(metric.column) if metric.column else self.done.clear()
            if measured.height:
                values = measured[metric.column].to_numpy()
                for name, replicates in estimates.distribution(metric.name, values, self.blocks(measured)).items():
                    numbers[name] = replicates, (metric.least, math.inf), metric.unit
        there, allocated = (x.sum(axis=1)[:BLOCKS] for x in self.usage.both)
        if there.sum():
            share = BlockBootstrap.of_series(BLOCKS).ratios(100 * allocated, there)
            numbers[ALLOCATION] = share, (0.0, 100.0), "%"
        by_user = self.done.group_by("user", maintain_order=True)  # so that sums have one order
        users = by_user.agg(pl.col("bounded_slowdown").mean()).sort("user", nulls_last=True)
        if users.height > 1:
            numbers[FAIRNESS] = estimates.fairness(users["bounded_slowdown"].to_numpy()), SHARE, ""
        return numbers

    @property
    def replicates(self) -> dict[str, Replicates]:
        """What the intervals come from; `paired_difference` compares two runs of the same jobs."""
        return {name: replicates for name, (replicates, _, _) in self.numbers.items()}

    def estimates(self) -> list[Estimate]:
        """Return the numbers with their intervals."""
        return [Estimate(name, *r.interval(within), unit) for name, (r, within, unit) in self.numbers.items()]


def per_day(usage: ClusterUsage, prices: Prices) -> list[Estimate]:
    """Return GPU-hours, energy and cost per day: what runs of different span can be compared by."""
    seconds, allocation = float(usage.edges[-1] - usage.edges[0]), usage.held()
    if not seconds:
        return []
    totals = {
        ("GPU-hours allocated", "GPU-h"): sum(allocation.allocated.values()) / HOUR,
        ("energy", "kWh"): accounts.energy_kwh(allocation, prices),
        ("cost", prices.unit): accounts.cost(allocation, prices),
    }
    return [Estimate.exact(f"{name} per day", x * DAY / seconds, unit) for (name, unit), x in totals.items()]
