"""Parts and variations of a workload: the first jobs, a window, another load, other arrivals."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlab.core import Workload, WorkloadError

DAY = 86_400.0


def workload(days: float, jobs: int = 400, seed: int = 0) -> Workload:
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.random(jobs) * days * DAY)
    frame = {
        "submit": submit - submit[0],
        "user": rng.choice(["ada", "bob", "eve"], jobs),
        "gpu_milli": rng.choice([500, 1000, 8000], jobs),
        "start": submit,
        "end": submit + 1,
    }
    return Workload.of(pl.DataFrame(frame), source="random", epoch=1000.0)


def test_the_head_is_the_first_jobs():
    w = workload(3)
    assert w.head(7).frame.equals(w.frame.head(7))
    assert w.head(10**6) is w


def test_a_window_counts_from_its_begin():
    w = workload(3)
    part = w.window(DAY, 2 * DAY)
    inside = w.frame.filter(pl.col("submit").is_between(DAY, 2 * DAY, closed="left"))
    assert part.frame["submit"].to_list() == (inside["submit"] - DAY).to_list()
    assert part.frame["start"].to_list() == (inside["start"] - DAY).to_list()
    assert (part.epoch, part.frame["job"].to_list()) == (1000.0 + DAY, list(range(len(part))))


def test_load_compresses_time_and_nothing_else():
    w = workload(3)
    fast = w.at_load(2.0)
    assert fast.frame["submit"].to_list() == (w.frame["submit"] / 2).to_list()
    others = pl.exclude("submit", "eligible", "start", "end")
    assert fast.frame["eligible"].to_list() == fast.frame["submit"].to_list()
    assert fast.frame.select(others).equals(w.frame.select(others))
    assert w.at_load(1.0) is w
    with pytest.raises(WorkloadError, match="a load is a number above 0"):
        w.at_load(0.0)


@given(days=st.sampled_from([0.5, 3.0, 30.0]), seed=st.integers(0, 5))
def test_resampling_keeps_the_time_of_day_of_every_job(days, seed):
    w = workload(days)
    other = w.resampled(seed)
    assert other.frame.equals(w.resampled(seed).frame)
    assert set(other.frame["gpu_milli"]) <= set(w.frame["gpu_milli"])
    assert float(other.frame["submit"][-1]) <= float(w.frame["submit"][-1]) + 1e-6


@given(growth=st.sampled_from([0.5, 1.0, 1.5, 3.0]), seed=st.integers(0, 3))
def test_growth_changes_the_number_of_jobs_by_about_so_much(growth, seed):
    w = workload(20, jobs=600)
    assert len(w.grown(growth, seed)) == pytest.approx(600 * growth, rel=0.25)
    assert float(w.grown(growth, seed).frame["submit"][-1]) <= 20 * DAY


def test_growth_does_not_depend_on_which_users_a_process_has_read_before():
    names = [f"user-{k:02}" for k in range(20)]
    kept = pl.Series([f"late {name}" for name in reversed(names)], dtype=pl.Categorical)  # known in the other order
    grown = []
    for word in ("early", "late"):
        users = np.random.default_rng(1).choice([f"{word} {name}" for name in names], 400)
        w = workload(20)
        again = Workload.of(w.frame.select("submit", "gpu_milli").with_columns(user=users), source="random")
        grown.append(again.grown(1.5, seed=7).frame["submit"].to_list())
    assert len(kept) == 20
    assert grown[0] == grown[1]
