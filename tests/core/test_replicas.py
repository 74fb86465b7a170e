"""Replicas of a scenario."""

import numpy as np
import polars as pl
import pytest

from fleetlab.core import Cluster, Scenario, Workload
from fleetlab.core.replicas import equal_nodes_reordered, moved, perturbed, reach, resolution
from fleetlab.sim import simulate


def jobs(**columns):
    return Workload.of(pl.DataFrame(columns), source="by hand")


def scenario(**words):
    return Scenario.of("builtin:300", load=8, **words)


def test_replica_0_is_the_log_as_it_is():
    base = scenario()
    assert perturbed(base, 0) is base


def test_replicas_are_the_same_for_the_same_seed_and_differ_from_each_other():
    one, again, two = (perturbed(scenario(), k) for k in (1, 1, 2))
    assert one.workload.frame.equals(again.workload.frame)
    assert one.key == again.key != two.key
    assert not one.workload.frame.equals(two.workload.frame)


def test_jobs_keep_their_numbers_and_requests():
    base = scenario()
    timeless = pl.exclude("submit", "eligible", "runtime")
    assert perturbed(base, 3).workload.frame.select(timeless).equals(base.workload.frame.select(timeless))


def test_run_times_that_the_log_tells_move_by_a_percent_at_most():
    known = (scenario().run_times.origin == "complete") | (scenario().run_times.origin == "held")
    before, after = (s.workload.frame["runtime"].filter(known) for s in (scenario(), perturbed(scenario(), 1)))
    ratio = after / before
    assert ((after - before).abs() <= 0.01 * before + 0.5).all()  # rounded to whole seconds
    assert ratio.n_unique() > 100


@pytest.mark.parametrize(("ticks", "half"), [(60.0, 30.0), (1.0, 1.0), (0.37, 1.0)])
def test_submissions_move_within_the_resolution_of_the_log_and_by_a_second_at_least(ticks, half):
    workload = jobs(submit=ticks * np.arange(50), runtime=[1000.0] * 50)
    assert reach(workload.frame) == half


def test_jobs_of_milliseconds_are_moved_by_less_than_a_second():
    assert reach(jobs(submit=0.0013 * np.arange(50), runtime=[0.2] * 50).frame) == pytest.approx(0.002)


def test_a_log_whose_times_are_whole_hours_but_for_a_few_has_the_resolution_of_an_hour():
    assert resolution(np.append(3600.0 * np.arange(99), 5.0)) == 3600


def test_jobs_of_the_begin_stay_and_limits_still_hold():
    frame = jobs(
        submit=[0.0, 0.0, 5.0, 9.0], initial=[True, False, False, False], runtime=[50.0, 60.0, 60.0, 59.9],
        limit=[None, None, 60.0, 60.0],
    ).frame  # fmt: skip
    many = [moved(frame, 1.0, seed) for seed in range(20)]
    assert {m["submit"][0] for m in many} == {0.0}
    assert {m["runtime"][2] for m in many} == {60.0}
    assert max(m["runtime"][3] for m in many) == 60
    assert min(m["submit"].min() for m in many) >= 0


def test_run_times_in_whole_seconds_stay_so():
    frame = jobs(submit=[0.0, 5.0, 9.0], runtime=[20.0, 1000.0, 1000.0]).frame
    runtime = np.concatenate([moved(frame, 1.0, seed)["runtime"].to_numpy() for seed in range(5)])
    assert (runtime % 1 == 0).all()
    assert set(runtime[::3]) == {20.0}
    assert len(set(runtime)) > 5


def test_tasks_of_an_array_and_parts_of_a_gang_come_together():
    frame = jobs(
        submit=[0.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0], runtime=[60.0] * 7, array=[None, 7, 7, 8, None, None, None],
        gang=[None, None, None, None, 3, 3, None],
    ).frame  # fmt: skip
    at = moved(frame, 1.0, 4)["submit"].to_list()
    assert (at[1], at[4]) == (at[2], at[5])
    assert len(set(at)) == 5


def test_a_change_of_a_scenario_keeps_its_nudge():
    one = perturbed(scenario(), 1)
    workload = one.workload
    assert one.on(workload).workload.frame.equals(workload.frame)
    assert one.replace(order="sjf").workload.frame.equals(workload.frame)


def test_the_initial_state_of_a_repeated_log_is_drawn_alike_for_both_sides_of_a_pair():
    one, two = perturbed(scenario(), 1), perturbed(scenario(), 2)
    before = one.before.frame.select("submit", "runtime")
    assert before.equals(one.on(one.workload).before.frame.select("submit", "runtime"))
    assert not before.equals(two.before.frame.select("submit", "runtime"))


def test_the_initial_state_holds_as_many_jobs_on_average_as_a_stationary_queue():
    large = Cluster.uniform(20_000, 8)  # on which no state is cut
    replicas = [perturbed(Scenario.of("builtin:300", large, load=8), k) for k in range(1, 30)]
    there = [int(one.before.frame["initial"].sum()) for one in replicas]
    periods = [one.before.frame["submit"].min() for one in replicas]  # negative
    expected = [-one.workload.frame["runtime"].sum() / p for one, p in zip(replicas, periods, strict=True)]
    errors = (np.array(there) - expected) / np.sqrt(expected)
    assert abs(errors.mean()) < 4 / 29**0.5
    assert 0.5 < errors.std() < 1.5  # Poisson


def test_logs_like_it_have_other_jobs():
    base = Scenario.of("builtin:300", window="0d..2d")
    drawn = perturbed(base, 1, "like")
    assert drawn.workload.frame["runtime"].to_list() != base.workload.frame["runtime"].to_list()
    assert abs(len(drawn.workload) - len(base.workload)) < len(base.workload)


def test_a_synthetic_trace_like_another_is_a_new_one():
    assert perturbed(Scenario.of("builtin:200"), 1, "like").data.name.startswith("builtin:200:")


def test_nodes_are_reordered_among_equals_alone():
    cluster = Cluster.uniform(20, 8).with_nodes("GPU +1")
    frame = cluster.frame.with_columns(cpu_milli=pl.int_range(pl.len(), dtype=pl.Int64) // 10)
    other = equal_nodes_reordered(Cluster(frame, "by hand"), 1).frame
    assert other["node"].to_list() != frame["node"].to_list()
    assert other["cpu_milli"].equals(frame["cpu_milli"])
    assert other.sort("node").equals(frame.sort("node"))


def test_waits_of_a_replica_are_those_of_the_job_with_the_same_number():
    workload = jobs(submit=[0.0, 0.0, 100.0], runtime=[10.0, 10.0, 10.0], gpu_milli=[1000] * 3)
    base = Scenario.of(workload, Cluster.uniform(1, 1))
    for k in (1, 2, 3):
        wait = simulate(perturbed(base, k)).jobs.sort("job")["wait"]
        assert wait[2] == 0
        assert wait.max() > 8
