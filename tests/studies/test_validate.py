"""Validation: its intervals are honest, its recursions right, and a simulator with another tie order fails it."""

import json

import numpy as np
import polars as pl
import pytest
from benchmarks import approximations, helios
from benchmarks import real_logs as logs
from benchmarks.real_logs import busy_nodes

import fleetlab
from fleetlab import order
from fleetlab.sim import simulate
from fleetlab.stats import Statistic
from fleetlab.studies.validate import Validation, means, schedules
from fleetlab.studies.validate.line import (
    AGREES,
    CHANCE,
    DIFFERS,
    INCONCLUSIVE,
    KNOWN,
    Line,
    agree,
    each_of,
    exactly,
    table,
)
from fleetlab.studies.validate.schedules import RuntimeLaw


def silent(_what, _done, _share):
    pass


# -- a changed tie order -------------------------------------------------------------------------------------------


@order
def backwards(s, job, now):
    """First come, first served; but of those that come at one instant, the last."""
    return s.submit[job] - 1e-6 * job


@order
def priority_backwards(s, job, now):
    """The highest priority first; of equals, who came last."""
    return -s.priority[job] - 1e-9 * job


def with_order(word, other):
    def simulated(workload, cluster, **words):
        return simulate(
            workload, cluster, **(words | {"order": other} if words.get("order", "fifo") == word else words)
        )

    return simulated


@pytest.fixture(scope="module")
def equal():
    return schedules.compare_schedules(simulate, seed=0, progress=silent)


def test_every_schedule_is_that_of_its_recursion_bit_for_bit(equal):
    assert [line.case for line in equal if line.simulated.value != line.expected] == []
    assert len(equal) >= 20


@pytest.mark.parametrize(("word", "other"), [("fifo", backwards), ("priority", priority_backwards)])
def test_a_simulator_that_breaks_ties_the_other_way_fails(word, other):
    lines = schedules.compare_schedules(with_order(word, other), seed=0, progress=silent)
    failed = {line.case for line in lines if line.verdict(each_of(lines)) == DIFFERS}
    assert not agree(lines)
    assert {case for case in failed if case.startswith(f"{word}/") or case.startswith(f"{word},")}


def test_a_simulator_that_lets_jobs_pass_a_gang_fails():
    def passing(workload, cluster, **words):
        return simulate(workload, cluster, **(words | {"backfill": "greedy"}))

    lines = schedules.compare_schedules(passing, seed=0, progress=silent)
    assert [line.case for line in lines if line.verdict() == DIFFERS] == [
        "gangs of 1, 2, 4 and 8 without backfill, 8 GPUs"
    ]


def test_a_simulator_that_takes_the_last_of_equal_nodes_fails():
    def last(s, job, node):
        return -1.0 * node

    def from_the_end(workload, cluster, **words):
        return simulate(
            workload, cluster, **(words | {"placement": last} if words.get("placement") == "first_fit" else words)
        )

    lines = schedules.compare_schedules(from_the_end, seed=0, progress=silent)
    assert [line.case.split(",")[0] for line in lines if line.verdict() == DIFFERS] == ["first_fit"]


def test_bursts_have_ties_that_matter():
    for case in schedules._single_gpu():
        stream = case.input(0)
        starts = np.array(case.recursion(stream, case.servers))
        assert (np.diff(stream.submit) == 0).mean() > 0.5
        assert (starts > stream.submit).mean() > 0.2


# -- recursions, by hand -------------------------------------------------------------------------------------------


def put_in(gap, runtime, *, need=None, priority=None):
    count = len(gap)
    ones, zeros = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    return schedules.JobStream(
        np.array(gap, dtype=float), zeros, np.array(runtime, dtype=float),
        ones if need is None else np.array(need), zeros if priority is None else np.array(priority),
    )  # fmt: skip


def test_two_servers_take_whoever_came_first():
    assert schedules.by_arrival(put_in([0, 0, 0, 1], [5, 2, 4, 1]), 2) == [0, 0, 2, 5]


def test_a_gang_at_the_head_keeps_all_behind_it():
    assert schedules.in_line(put_in([0, 0, 0], [5, 2, 1], need=[1, 2, 1]), 2) == [0, 5, 7]


def test_the_lowest_key_goes_first_and_of_equals_who_came_first():
    stream = put_in([0, 0, 0, 0], [4, 3, 1, 3])
    assert schedules.lowest_first(lambda p: p.runtime.tolist())(stream, 1) == [7, 1, 0, 4]


def test_the_shortest_left_puts_others_off():
    recursion = schedules.with_preemption(schedules.shortest_remaining)
    assert recursion(put_in([0, 1], [5, 2]), 1) == [7, 3]


def test_server_filling_takes_the_largest_of_the_shortest_line_that_fills():
    stream = put_in([0, 0, 0], [1, 1, 1], need=[1, 2, 1])
    assert schedules.filling(stream, {0: 1.0, 1: 1.0, 2: 1.0}, 2) == [1]


# -- verdicts ------------------------------------------------------------------------------------------------------


def line(off, **more):
    """A line whose found value is so many standard errors off."""
    return Line("case", "metric", 100.0, Statistic.symmetric(100.0 + off, 1.0, 10**6), **more)


def test_a_verdict_counts_how_many_lines_there_are():
    lines = [line(0.0)] * 49 + [line(2.5)]
    assert [one.verdict(each_of(lines)) for one in (lines[0], lines[-1])] == [AGREES, CHANCE]
    assert line(5.0).verdict(each_of(lines)) == DIFFERS
    assert agree(lines)
    assert not agree([*lines, line(5.0)])


def test_too_many_near_misses_fail_together():
    assert not agree([line(0.0)] * 40 + [line(2.5)] * 10)


def test_a_known_difference_is_said_and_fails_nothing():
    lines = [line(9.0, why="so it is", counts=False)]
    assert agree(lines)
    assert table(lines).select("verdict", "explanation").row(0) == (KNOWN, "so it is")


def test_an_interval_that_would_hold_anything_cannot_tell():
    assert Line("c", "m", 5.0, Statistic.symmetric(0.0, 10.0, 20)).verdict() == INCONCLUSIVE


def test_a_bound_agrees_with_less_and_not_with_more():
    assert line(-9.0, most=True).verdict() == AGREES
    assert line(9.0, most=True).verdict() == DIFFERS


def test_what_was_counted_is_right_or_wrong():
    assert exactly("c", "m", 10, 10).verdict() == AGREES
    assert exactly("c", "m", 10, 9).verdict(0.99999) == DIFFERS


# -- comparisons ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "law",
    [
        RuntimeLaw("exponential", 2.0), RuntimeLaw("deterministic", 2.0, 0.0),
        RuntimeLaw("hyperexponential", 2.0, 4.0), RuntimeLaw("lognormal", 2.0, 4.0),
    ],
)  # fmt: skip
def test_run_times_are_drawn_from_the_law_that_theory_is_asked_about(law):
    drawn = law.draw(np.random.default_rng(1), 400_000)
    known = fleetlab.solve("M/G/1", lam=0.1, service=law.spelling)
    assert 0.1 * drawn.mean() == pytest.approx(known["utilization"], rel=0.01)
    assert law.second / law.mean**2 - 1 == pytest.approx(law.scv)
    assert (drawn**2).mean() == pytest.approx(law.second, rel=0.05)


def test_a_mean_beside_theory_agrees_and_one_of_another_load_does_not():
    case = means._many_servers(2, 0.7)
    assert agree(case.lines(simulate, 0))
    wrong = means.ExactCase(case.name, case.exact, case.classes, 2, 0.95 * case.rate, case.length)
    assert not agree(wrong.lines(simulate, 0))


def test_an_approximation_that_is_exact_with_constant_runtimes_agrees_and_another_does_not():
    lines = approximations.SYSTEMS[0].lines(simulate, 0)
    verdicts = {line.metric.rpartition(" by ")[2]: line.verdict() for line in lines}
    assert verdicts == {"Allen-Cunneen": KNOWN, "Whitt GI/G/m": AGREES, "Cosmetatos M/D/c": AGREES}


def test_busy_nodes_are_counted_once_however_many_run_there():
    held = pl.DataFrame({"node": ["a", "a", "b", "a"], "start": [0.0, 1.0, 1.0, 9.0], "end": [3.0, 5.0, 2.0, 10.0]})
    assert busy_nodes(held, np.array([0.0, 1.5, 4.0, 6.0, 9.5])).tolist() == [1, 2, 1, 0, 1]


def test_first_come_takes_longer_than_shortest_first_where_the_head_blocks():
    found = helios.ratios([1, 2])
    assert 1.2 < found["Uranus"] < found["Saturn"]


def test_a_virtual_cluster_larger_than_a_node_is_a_gang_of_nodes():
    jobs = pl.DataFrame({"timestamp": [0, 1, 2], "duration": [1.0, 1.0, 1.0], "num_gpus": [4, 32, 12], "cluster": "v"})
    jobs = jobs.with_columns(pl.from_epoch("timestamp"))
    found = logs.philly_jobs(jobs)
    assert found.select("instances", "gpu_milli").rows() == [(1, 4000), (4, 8000), (12, 1000)]


# -- the verb ------------------------------------------------------------------------------------------------------


def test_one_part_can_be_named():
    result = fleetlab.validate(only=["schedules"])
    assert list(result.parts) == ["schedules"]
    assert result.passed


def test_a_validation_with_a_line_that_differs_fails():
    found = Validation({"schedules": [exactly("c", "m", 10, 9)]}, fleetlab.Provenance("validate", "test"))
    assert not found.passed
    assert found.summary()[0].value == 1
    assert found.tables()["verdicts"]["verdict"].to_list() == ["fails"]


def test_a_part_that_does_not_exist_is_refused():
    with pytest.raises(fleetlab.WorkloadError, match="no part") as e:
        fleetlab.validate(only=["theory"])
    assert e.value.hint


def test_the_command_gives_a_line_for_each_schedule_with_its_interval(command):
    done = command("validate", "--only", "schedules", "--json")
    rows = json.loads(done.stdout)["tables"]["schedules"]
    assert done.returncode == 0
    assert all(row["low"] <= row["simulated"] <= row["high"] and row["verdict"] == AGREES for row in rows)


def test_the_command_says_which_parts_there_are(command):
    done = command("validate", "--only", "theory")
    assert done.returncode == 2
    assert "schedules" in done.stderr.partition("hint: ")[2]


def one_of_each_kind():
    return [
        means._many_servers(8, 0.7),
        means._one_server(means.HYPER_4, 0.7),
        means._by_run_time("sjf", means.EXPONENTIAL, 0.8),
        means._by_run_time("srpt", means.EXPONENTIAL, 0.8),
        means._priorities(1, 0.7, preempt=False),
        means._priorities(1, 0.8, preempt=True),
    ]


# The second is the whole grid, and has everything that the first has: loads of 0.9, more GPUs, other laws.
@pytest.mark.parametrize(
    "grid", [one_of_each_kind, pytest.param(means.grid, marks=pytest.mark.validate)], ids=["one of each kind", "all"]
)
def test_means_agree_with_theory_together(grid, monkeypatch):
    monkeypatch.setattr(means, "grid", grid)
    found = fleetlab.validate(only=["means"], seed=1)
    assert found.passed, found.tables()["means"].filter(pl.col("verdict") != AGREES)


@pytest.mark.data
@pytest.mark.slow
def test_real_logs_agree_where_they_must(data):
    result = logs.compare(data)
    assert result.passed
    assert {line.case.split(",")[0] for line in result.parts["real"]} >= {"Philly", "openb 2023", "PAI"}
    assert {line.case for line in result.parts["audit"]} == {"openb 2023", "PAI, tail of instances"}
