"""Run times that a log does not tell: held, imputed or left out; and which jobs an answer speaks of."""

import numpy as np
import polars as pl
import pytest

from fleetlab import Cluster, Workload, simulate
from fleetlab.core.censoring import product_limit, run_times
from fleetlab.core.coverage import Coverage

DAY = 86_400.0


def log(**columns):
    return Workload.of(pl.DataFrame(columns, strict=False), source="by hand")


def test_a_job_that_still_runs_is_held_to_the_end_of_the_log():
    jobs = log(submit=[0.0, 5.0, 9.0], start=[0.0, 6.0, 9.0], end=[4.0, None, None], runtime=[4.0, None, None],
               status=["completed", "running", "running"])  # fmt: skip
    assert jobs.frame["runtime_at_least"].to_list() == [None, 3.0, 0.0]
    assert run_times(jobs, "hold", 0).workload.frame["runtime"].to_list() == [4.0, 3.0, 0.0]
    assert run_times(jobs, "hold", 0).origin.to_list() == ["complete", "held", "held"]
    assert run_times(jobs, "drop", 0).workload.frame["runtime"].to_list() == [4.0, None, None]


def test_of_a_job_that_is_older_than_the_log_what_is_left_counts():
    jobs = log(submit=[0.0, 0.0, 1.0], start=[None, None, 1.0], end=[7.0, None, 3.0], runtime=[None, None, 2.0],
               status=["completed", "running", "completed"], initial=[True, True, False])  # fmt: skip
    filled = run_times(jobs, "hold", 0)
    assert filled.workload.frame["runtime"].to_list() == [7.0, 7.0, 2.0]
    assert filled.origin.to_list() == ["complete", "held", "complete"]


def test_who_was_cancelled_before_the_start_never_runs():
    jobs = log(submit=[0.0, 1.0], runtime=[2.0, None], start=[0.0, None], status=["completed", "cancelled"])
    assert run_times(jobs, "hold", 0).workload.frame["runtime"].to_list() == [2.0, None]


def lives(count, seed):
    """Jobs of two classes with exponential run times, cut off at random: their true means are 100 and 1000 s."""
    rng = np.random.default_rng(seed)
    gpus = rng.integers(1, 3, count)
    runtime = rng.exponential(np.where(gpus == 1, 100.0, 1000.0))
    seen = rng.exponential(np.where(gpus == 1, 200.0, 2000.0))
    ended = runtime <= seen
    frame = pl.DataFrame({
        "submit": np.zeros(count), "gpu_milli": gpus * 1000, "runtime": np.where(ended, runtime, np.nan),
        "runtime_at_least": np.where(ended, np.nan, seen), "status": np.where(ended, "completed", "running"),
    }).fill_nan(None)  # fmt: skip
    return Workload.of(frame, source="lives"), gpus, ended, seen


def test_imputed_run_times_have_the_law_of_their_class_and_none_is_shorter_than_seen():
    jobs, gpus, ended, seen = lives(20_000, 3)
    runtime = run_times(jobs, "impute", 1).workload.frame["runtime"].to_numpy()
    assert (runtime[~ended] >= seen[~ended]).all()
    held = run_times(jobs, "hold", 1).workload.frame["runtime"].to_numpy()
    for size, mean in ((1, 100.0), (2, 1000.0)):
        mine = gpus == size
        # Twenty standard errors of a mean of 10,000 are 20 %: held run times are a third too short.
        assert abs(runtime[mine].mean() / mean - 1) < 0.05
        assert held[mine].mean() / mean < 0.75
    assert (run_times(jobs, "impute", 1).workload.frame["runtime"].to_numpy() == runtime).all()
    assert (run_times(jobs, "impute", 2).workload.frame["runtime"].to_numpy() != runtime).any()


def test_a_job_that_others_ended_is_drawn_and_not_held():
    jobs = log(submit=[0.0] * 4, start=[0.0] * 4, runtime=[4.0, 8.0, 2.0, None], runtime_at_least=[None] * 3 + [5.0],
               status=["completed", "completed", "completed", "cancelled"])  # fmt: skip
    filled = run_times(jobs, "hold", 0)
    assert filled.workload.frame["runtime"].to_list() == [4.0, 8.0, 2.0, 8.0]  # the only one that was longer
    assert filled.origin.to_list()[3] == "imputed"


def test_lost_ends_are_drawn_from_the_jobs_that_ended():
    rng = np.random.default_rng(0)
    runtime = rng.exponential(50.0, 5000)
    lost = rng.random(5000) < 0.2
    frame = pl.DataFrame({
        "submit": np.zeros(5000), "runtime": np.where(lost, np.nan, runtime), "start": np.zeros(5000),
        "status": np.where(lost, "running", "completed"), "runtime_at_least": np.full(5000, np.nan),
    }).fill_nan(None)  # fmt: skip
    filled = run_times(Workload.of(frame, source="lost"), "hold", 0)
    assert set(filled.origin.filter(pl.Series(lost))) == {"imputed"}
    drawn = filled.workload.frame["runtime"].to_numpy()[lost]
    assert abs(drawn.mean() / 50.0 - 1) < 0.1
    assert set(drawn) <= set(runtime[~lost])


def test_the_estimate_is_the_textbook_one():
    # Kalbfleisch and Prentice: 6, 6, 6+, 7 months of the 6-MP group of Freireich et al. (1963) and so on.
    time = np.array([6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35], dtype=float)
    ended = np.array([1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0], dtype=bool)
    when, risk, deaths = product_limit(time, ended)
    assert (when.tolist(), risk.tolist()) == ([6, 7, 10, 13, 16, 22, 23], [21, 17, 15, 12, 11, 7, 6])
    alive = np.cumprod(1 - deaths / risk)
    assert np.round(alive, 3).tolist() == [0.857, 0.807, 0.753, 0.69, 0.627, 0.538, 0.448]


# -- coverage --------------------------------------------------------------------------------------------------------


def test_gpu_time_that_is_left_out_is_said_first():
    jobs = log(submit=[0.0] * 4, runtime=[3600.0, 3600.0, 3600.0, None], gpu_milli=[2000, 8000, 500, 1000])
    assert simulate(jobs, Cluster.uniform(1, 2)).coverage.line == (
        "Simulated 3 of 4 jobs in the log, 30.4 % of its 11.5 GPU-hours. 1 had no end time; its runtime was estimated "
        "(8.7 %). Left out: an instance fits on no node (1)."
    )


@pytest.mark.parametrize(("runtime", "share"), [(1.0, "99.6 %"), (1e5, "0.249 %"), (0.0, "100 %")])
def test_a_small_share_is_not_called_nothing(runtime, share):
    jobs = log(submit=[0.0] * 2, runtime=[1000.0, runtime], gpu_milli=[1000, 4000])
    assert f", {share} of its " in simulate(jobs, Cluster.uniform(1, 1)).coverage.line


def test_without_gpus_core_hours_are_counted():
    jobs = log(submit=[0.0], runtime=[3600.0], cpu_milli=[9000])
    assert simulate(jobs, Cluster.uniform(1, 1, cpu_milli=1000)).coverage.line == (
        "Simulated 0 of 1 job in the log, 0 % of its 9 core-hours. Left out: an instance fits on no node (1)."
    )


def test_coverage_goes_to_json_and_back():
    jobs = log(submit=[0.0] * 4, runtime=[3600.0, 3600.0, 3600.0, None], gpu_milli=[2000, 8000, 500, 1000])
    coverage = simulate(jobs, Cluster.uniform(1, 2)).coverage
    assert Coverage.from_json(coverage.to_json()) == coverage
    assert sum(row["jobs"] for row in coverage.rows() if row["part"] in ("simulated", "in the log")) == 7
