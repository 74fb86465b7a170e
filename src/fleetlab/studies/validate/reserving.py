"""Reserving and packing against load balancing, as "MLaaS in the Wild" (NSDI 2022) has it in its text and figure 19."""

from __future__ import annotations

import math

import polars as pl

from fleetlab.core import Trace
from fleetlab.sim import simulate
from fleetlab.stats import PERCENT, POSITIVE, Range

RATE = 1.75
PLACEMENTS = ("worst_fit", "reserve_and_pack")
QUANTILES = {"P80": 0.8, "P90": 0.9, "P95": 0.95}
REDUCTION: Range = (-math.inf, 1.0)  # a time can at most fall to nothing, and can rise without end


def reserving(trace: Trace, _seed: int) -> dict[str, float]:
    """Load balancing against keeping V100s for those that need one, at 1.75 times the trace's rate.

    The rate is the one number that is fitted: about as many V100 jobs start at once under load balancing as published.
    """
    assert trace.cluster is not None
    workload, means = trace.workload.at_load(RATE), []
    found: dict[str, float] = {}
    for placement in PLACEMENTS:
        jobs = simulate(workload, trace.cluster, placement=placement).jobs.filter(pl.col("gpu_milli") > 0)
        picky = jobs.filter(pl.col("gpu_types").list.first().is_in(["V100", "V100M32"]))
        means.append([float(some["wait"].mean()) for some in (jobs, picky)])  # type: ignore[arg-type]
        found |= {figure_metric(placement, name): value for name, value in _figure_19(jobs, picky).items()}
    balanced, kept = means
    return found | {
        "V100 jobs that start at once, balanced": found[figure_metric("worst_fit", "V100 jobs")] / 100,
        "reduction of V100 waits": 1 - kept[1] / balanced[1],
        "reduction of all waits": 1 - kept[0] / balanced[0],
    }


def figure_metric(placement: str, name: str) -> str:
    """Return what a number of figure 19 is called."""
    return f"figure 19, {placement}: {name}"


def possible(metric: str) -> Range:
    """Return the range of what a number of figure 19 can be: seconds, or percent."""
    return POSITIVE if metric.endswith(tuple(QUANTILES)) else PERCENT


def _figure_19(jobs: pl.DataFrame, picky: pl.DataFrame) -> dict[str, float]:
    """Return which jobs start at once, in percent, and the waits of V100 jobs."""
    shares = {
        f"{who} {what}": x for who, some in (("all", jobs), ("V100", picky)) for what, x in _at_once(some).items()
    }
    return shares | {name: float(picky["wait"].quantile(q)) for name, q in QUANTILES.items()}  # type: ignore[arg-type]


def _at_once(jobs: pl.DataFrame) -> dict[str, float]:
    """Percent of jobs, and of instances, that wait a second at most."""
    quick, many = jobs["wait"].to_numpy() <= 1, jobs["instances"].to_numpy()
    return {"jobs": 100 * float(quick.mean()), "instances": 100 * float(many[quick].sum() / many.sum())}
