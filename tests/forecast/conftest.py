"""Traces made by hand, whose demand can be counted on paper."""

import numpy as np
import polars as pl
import pytest

from fleetlab.core import Provenance, Trace, Workload
from fleetlab.forecast import Panel


def trace_of(**columns):
    """A trace of jobs given by columns."""
    return Trace(Workload.of(pl.DataFrame(columns), source="by hand"), Provenance("read", "by hand"))


@pytest.fixture
def make():
    return trace_of


@pytest.fixture
def noise():
    """Two series of independent draws: nothing can be known of the next one."""
    draws = np.random.default_rng(7).gamma(2.0, 5.0, (900, 2))
    return Panel(draws, np.random.default_rng(8).gamma(2.0, 5.0, (900, 2)), ("cpu", "gpu"), 3600.0)


@pytest.fixture
def busy():
    """A trace of twelve days with a daily rhythm: more instances by day than by night."""
    draw = np.random.default_rng(3)
    hours = np.arange(12 * 24)
    counts = draw.poisson(20 + 15 * np.sin(hours / 24 * 2 * np.pi))
    submit = np.sort(np.repeat(hours, counts) * 3600.0 + draw.uniform(0, 3600, counts.sum()))
    submit -= submit[0]
    start = submit + 1.0
    runtime = draw.exponential(7200.0, len(submit))
    end = start + runtime
    last = submit[-1]
    alive = end > last
    return trace_of(
        submit=submit,
        start=start,
        end=[None if a else e for a, e in zip(alive, end, strict=True)],
        runtime=[None if a else s for a, s in zip(alive, runtime, strict=True)],
        status=np.where(alive, "running", "completed"),
        cpu_milli=draw.integers(1, 5, len(submit)) * 1000,
        gpu_milli=draw.integers(0, 2, len(submit)) * 1000,
        group=draw.choice(["CN", "HN"], len(submit)),
        app=draw.choice([f"app_{k}" for k in range(10)], len(submit)),
    )
