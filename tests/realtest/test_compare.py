"""Our schedule beside a recorded one."""

import pytest
from realtest.archives import recorded_runs
from realtest.compare import allowed, closeness, groups_of, is_met, recorded, repetitions, row, simulated, table
from realtest.spread import Run, compare, load

RUNS = recorded_runs("slurm")
REAL = Run("x", dict.fromkeys("abcd", 0.0), {"a": 10.0, "b": 20.0, "c": 40.0, "d": 5.0}, 4, 0.0)
OURS = Run("x", dict.fromkeys("abcd", 0.0), {"a": 10.0, "b": 23.0, "c": 60.0, "d": 5.0}, 4, 0.0)
CLOSE = compare(REAL, OURS)


def pair(**values):
    return {"mean_ratio": 1.0, "tail_ratio": 1.0, "correlation": 1.0} | values


def test_a_line_says_how_far_starts_are_apart():
    assert row("x", CLOSE, []).startswith("| x | 4 | 18.8 | **1.31** |  | **1.44** |  | 50% |  | 75% |  | 5.8 |")


def test_beside_a_line_stands_how_far_real_runs_are_apart():
    other = pair(within_2s=0.4, within_10s=0.8, mean_apart=6.0, mean_ratio=0.5)
    assert "| 1.31 | 2.00 |" in row("x", CLOSE, [other])


def test_a_simulation_is_to_be_close_to_a_real_run():
    assert allowed([])["correlation"] == 0.95
    assert is_met(pair(mean_ratio=1.04, tail_ratio=0.92), []) == dict.fromkeys(pair(), True)
    assert not any(is_met(pair(mean_ratio=1.06, tail_ratio=0.89, correlation=0.94), []).values())


def test_it_is_not_asked_to_be_closer_than_real_runs_are_to_each_other():
    pairs = [pair(mean_ratio=0.9, correlation=0.8), pair(tail_ratio=1.3)]
    assert is_met(pair(mean_ratio=1.1, tail_ratio=0.8, correlation=0.85), pairs) == dict.fromkeys(pair(), True)


def test_jobs_are_compared_by_partition_and_account():
    kinds = {"partition": dict.fromkeys(map(str, range(40)), "gpu"), "account": {}}
    kinds["account"] = {str(job): "big" if job < 35 else "small" for job in range(40)}
    run = Run("x", {}, dict.fromkeys(map(str, range(40)), 1.0), 40, 0.0, kinds)
    assert {name: len(jobs) for name, jobs in groups_of(run).items()} == {"x": 40, "· account big": 35}


@pytest.mark.parametrize("name", ["deps-1", "everything-2", "preempt-1"])
def test_a_recorded_run_is_read_as_by_a_second_reader(name):
    ours, other = recorded(RUNS / name), load(RUNS / name)
    first = min(other.start.values()) - min(ours.start.values())
    assert {job: at + first for job, at in ours.start.items()} == other.start
    # Slurm logs tasks of an array as eligible when its throttle lets them start; here that is waiting.
    tasks = {job for job in ours.start if "_" in job}
    assert all(ours.eligible[job] + first <= other.eligible[job] for job in tasks)
    assert {job: at + first for job, at in ours.eligible.items() if job not in tasks} == {
        job: at for job, at in other.eligible.items() if job not in tasks
    }


def test_repetitions_are_the_other_runs_of_a_setting():
    assert [path.name for path in repetitions(RUNS / "qos-2")] == ["qos-1", "qos-3"]


def test_a_log_without_a_configuration_is_compared_too(fixtures):
    good = fixtures / "slurm" / "good"
    assert "| good |" in table([closeness(good, backfill="conservative")])
    assert set(simulated(good, backfill="conservative").start) & set(recorded(good).start)
