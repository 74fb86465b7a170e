"""Limits of classes, accounts and partitions, and time limits that kill: small worlds, worked out by hand."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.sim.test_slurm import jobs, nodes, starts

import fleetlab
from fleetlab.core.catalog.reasons import ABOVE_SUBMIT_LIMIT, CLOSED_PARTITION
from fleetlab.core.queues import JobLimits, Limits, Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Priority, Slurm

MAIN = Slurm(main=MainLoop(delay=0.0), backfill=BackfillLoop(on=False), enforce=("associations", "limits", "qos"))
DECAYS = Priority(multifactor=True, half_life=60.0, calc_period=60.0)
KEEPS = replace(DECAYS, half_life=0.0)
SAFE = (*MAIN.enforce, "safe")


def of_class(qos, **words):
    return replace(MAIN, qos=(replace(qos, name="q"),), **words)


def with_account(account, *classes, **words):
    queues = QueueTree([Queue("root"), replace(account, parent="root"), Queue("a/ann", account.name, user="ann")])
    return replace(MAIN, queues=queues, qos=classes, **words)


def left_out(log, cluster, site):
    result = fleetlab.simulate(log, cluster, scheduler=site)
    return {reason: part.jobs for reason, part in result.coverage.left_out.items()}


def first_of(log, site, cluster=None):
    return starts(log, cluster or nodes(), site)


# -- minutes -----------------------------------------------------------------------------------------------------------


def test_running_minutes_hold_a_job_back_until_another_ends():
    """Two GPUs for 3 min are 6 GPU-minutes to the limit: two such jobs are above 10, one and a small one are not."""
    site = of_class(Qos("", limits=Limits(running_minutes={"gpu": 10})))
    found = first_of(jobs((0, 50, 2, 3), (1, 10, 2, 3), (2, 10, 1, 3), qos="q"), site)
    assert found[2] <= 4
    assert 50 <= found[1] <= 53


def test_running_minutes_fall_in_each_pass_over_usage():
    """After the pass at 60 s the first job has 4 GPU-minutes left, and 6 more are within 10."""
    site = of_class(Qos("", limits=Limits(running_minutes={"gpu": 10})), priority=DECAYS)
    assert 60 <= first_of(jobs((0, 170, 2, 3), (1, 10, 2, 3), qos="q"), site)[1] <= 122


def test_running_minutes_of_one_user_leave_others_alone():
    site = of_class(Qos("", per_user=Limits(running_minutes={"cpu": 5})))
    found = first_of(jobs((0, 50, 1, 3), (1, 10, 1, 3), (2, 10, 1, 3), qos="q", user=["ann", "ann", "bob"]), site)
    assert found[2] <= 4
    assert 50 <= found[1] <= 53


def test_with_safe_a_job_waits_until_what_was_used_has_decayed():
    """The first is charged 112 of its 200 GPU-seconds, one whole minute; the pass at 60 s halves that."""
    site = of_class(Qos("", limits=Limits(minutes={"gpu": 4})), priority=DECAYS, enforce=SAFE)
    assert 60 <= first_of(jobs((0, 50, 4, 1), (10, 10, 4, 1), qos="q"), site)[1] <= 122


def test_usage_of_a_class_with_no_decay_stays():
    site = of_class(Qos("", flags=("NoDecay",), limits=Limits(minutes={"gpu": 4})), priority=DECAYS, enforce=SAFE)
    assert math.isnan(first_of(jobs((0, 50, 4, 1), (10, 10, 4, 1), qos="q"), site)[1])


def test_without_safe_a_job_starts_while_minutes_are_left_and_is_killed_when_they_are_used():
    """One GPU uses its minute by the pass at 60 s; time limits are looked at within half a minute after that."""
    site = of_class(Qos("", limits=Limits(minutes={"gpu": 1})), priority=KEEPS)
    result = fleetlab.simulate(jobs((0, 300, 1, 10), qos="q"), nodes(), scheduler=site)
    assert 60 <= result.jobs["end"][0] <= 152


def test_the_wall_time_of_a_group_is_the_sum_over_its_jobs():
    site = with_account(Queue("a", limits=Limits(wall_minutes=1)), priority=KEEPS)
    found = first_of(jobs((0, 70, 1, 5), (80, 10, 1, 5), queue="a", user="ann"), site)
    assert math.isnan(found[1])


# -- one job -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [
        JobLimits(resources={"gpu": 3}),
        JobLimits(resources={"cpu": 0}),
        JobLimits(at_least={"gpu": 5}),
        JobLimits(per_node={"gpu": 3}),
        JobLimits(minutes={"gpu": 19}),
        JobLimits(wall=240.0),
        JobLimits(resources={"billing": 0}),
    ],
)
def test_a_job_above_a_limit_on_one_job_waits_and_is_passed_over(limits):
    site = replace(MAIN, qos=(Qos("normal"), Qos("q", job=limits)))
    found = first_of(jobs((0, 10, 4, 5), (1, 10, 1, 5), qos=["q", "normal"]), site)
    assert math.isnan(found[0])
    assert found[1] <= 3


def test_with_deny_on_limit_such_a_job_is_refused_and_counted():
    site = of_class(Qos("", flags=("DenyOnLimit",), job=JobLimits(resources={"gpu": 3})))
    assert left_out(jobs((0, 10, 4, 5), (1, 10, 1, 5), qos="q"), nodes(), site) == {ABOVE_SUBMIT_LIMIT: 1}


def test_limits_on_one_job_are_inherited_from_the_nearest_account():
    account = Queue("a", job=JobLimits(resources={"gpu": 2}))
    found = first_of(jobs((0, 10, 4, 5), (1, 10, 2, 5), queue="a", user="ann"), with_account(account))
    assert math.isnan(found[0])
    assert found[1] <= 3


# -- submitted jobs ----------------------------------------------------------------------------------------------------


def test_a_submission_above_the_limit_is_refused_and_one_after_an_end_is_not():
    site = of_class(Qos("", per_user=Limits(submitted=1)))
    log = jobs((0, 20, 1, 5), (5, 20, 1, 5), (30, 20, 1, 5), qos="q", user="ann")
    result = fleetlab.simulate(log, nodes(), scheduler=site)
    assert result.jobs["job"].to_list() == [0, 2]
    assert {reason: part.jobs for reason, part in result.coverage.left_out.items()} == {ABOVE_SUBMIT_LIMIT: 1}


def test_an_array_is_taken_whole_or_refused_whole():
    site = of_class(Qos("", limits=Limits(submitted=3)))
    log = jobs(*[(0, 20, 1, 5)] * 4, qos="q", array=7)
    assert left_out(log, nodes(), site) == {ABOVE_SUBMIT_LIMIT: 4}


# -- resources ---------------------------------------------------------------------------------------------------------


def test_a_limit_on_a_type_of_gpu_holds_for_jobs_that_name_it():
    site = of_class(Qos("", limits=Limits(resources={"gpu:a100": 2})))
    log = jobs((0, 50, 2, 5), (1, 10, 1, 5), (2, 10, 1, 5), qos="q", gpu_types=[["a100"], ["a100"], []])
    found = first_of(log, site)
    assert found[2] <= 4
    assert 50 <= found[1] <= 53


def test_a_group_holds_a_node_once():
    """Two jobs on one node are one node; a third needs another, which is above the limit."""
    site = of_class(Qos("", limits=Limits(resources={"node": 1})))
    found = first_of(jobs((0, 50, 4, 5), (1, 50, 4, 5), (2, 10, 4, 5), qos="q"), site, nodes(2))
    assert max(found[:2]) <= 3
    assert 50 <= found[2] <= 53


# -- which limit holds -------------------------------------------------------------------------------------------------


def test_what_a_class_limits_is_not_asked_of_the_account():
    site = with_account(Queue("a", limits=Limits(jobs=1)), Qos("q", limits=Limits(jobs=2)))
    found = first_of(jobs((0, 50, 1, 5), (1, 50, 1, 5), (2, 10, 1, 5), qos="q", queue="a", user="ann"), site)
    assert found[1] <= 3
    assert 50 <= found[2] <= 53


@pytest.mark.parametrize(("flags", "waits"), [((), True), (("OverPartQOS",), False)])
def test_the_class_of_a_partition_comes_first_unless_the_jobs_own_overrides_it(flags, waits):
    part = Partition("p", default=True, qos="part")
    classes = (Qos("q", flags=flags, limits=Limits(jobs=2)), Qos("part", limits=Limits(jobs=1)))
    site = replace(MAIN, qos=classes, partitions=(part,))
    found = first_of(jobs((0, 50, 1, 5), (1, 10, 1, 5), qos="q", partitions=[["p"], ["p"]]), site, P_NODE)
    assert (found[1] >= 50) == waits


P_NODE = nodes(1, partitions=(("p",),))


def test_the_limit_of_a_user_on_jobs_is_the_nearest_accounts():
    site = with_account(Queue("a", per_user=Limits(jobs=1)))
    found = first_of(jobs((0, 50, 1, 5), (1, 10, 1, 5), queue="a", user="ann"), site)
    assert 50 <= found[1] <= 53


def test_with_assoc_limit_stop_a_job_at_a_limit_blocks_its_partition():
    site = replace(of_class(Qos("", per_user=Limits(jobs=1))), parameters=("assoc_limit_stop",))
    found = first_of(jobs((0, 50, 1, 5), (1, 10, 1, 5), (2, 10, 1, 5), qos="q", user=["ann", "ann", "bob"]), site)
    assert min(found[1:]) >= 50


# -- partitions --------------------------------------------------------------------------------------------------------


NOT_FOR_IT = (
    {"max_time": 60.0},
    {"min_nodes": 2},
    {"max_nodes": 0},
    {"allow_accounts": ("b",)},
    {"deny_accounts": ("a",)},
    {"allow_qos": ("other",)},
    {"deny_qos": ("q",)},
)
IN_P = {"qos": "q", "queue": "a", "partitions": [["p"]]}


@pytest.mark.parametrize("state", ["drain", "inactive"])
def test_a_partition_that_is_drained_or_inactive_takes_no_jobs(state):
    site = of_class(Qos(""), partitions=(Partition("p", default=True, state=state),))
    assert left_out(jobs((0, 10, 1, 5), **IN_P), P_NODE, site) == {CLOSED_PARTITION: 1}


@pytest.mark.parametrize("rules", [{"state": "down"}, *NOT_FOR_IT], ids=lambda rules: next(iter(rules)))
def test_a_job_that_a_partition_does_not_allow_waits(rules):
    site = of_class(Qos(""), partitions=(Partition("p", default=True, **rules),))
    assert math.isnan(first_of(jobs((0, 10, 1, 5), **IN_P), site, P_NODE)[0])


@pytest.mark.parametrize("rules", NOT_FOR_IT, ids=lambda rules: next(iter(rules)))
def test_with_enforced_limits_such_a_job_is_refused(rules):
    site = of_class(Qos(""), partitions=(Partition("p", **rules),), enforce_partitions="all")
    assert left_out(jobs((0, 10, 1, 5), **IN_P), P_NODE, site) == {CLOSED_PARTITION: 1}


def test_a_class_may_lift_the_time_limit_of_a_partition():
    part = Partition("p", max_time=60.0)
    site = of_class(Qos("", flags=("PartitionTimeLimit",)), partitions=(part,))
    assert first_of(jobs((0, 10, 1, 5), qos="q", partitions=[["p"]]), site, P_NODE)[0] <= 2


# -- time limits -------------------------------------------------------------------------------------------------------


def test_a_job_is_killed_at_the_next_look_at_time_limits():
    result = fleetlab.simulate(jobs((0, 300, 1, 1)), nodes(), scheduler=MAIN)
    assert 60 <= result.jobs["end"][0] <= 92
    assert "time limits end 1 job" in result.notes


def test_over_time_limit_lets_jobs_run_on():
    result = fleetlab.simulate(jobs((0, 300, 1, 1)), nodes(), scheduler=replace(MAIN, over_time=120.0))
    assert 180 <= result.jobs["end"][0] <= 212


def test_a_job_that_the_log_saw_killed_keeps_its_run_time():
    log = jobs((0, 85, 1, 1), start=[0.0], end=[85.0], status="failed")
    result = fleetlab.simulate(log, nodes(), scheduler=MAIN)
    assert result.jobs["end"][0] - result.jobs["start"][0] == 85


@pytest.mark.parametrize("backfill", ["none", "greedy", "easy", "conservative"])
def test_event_driven_loops_kill_at_the_limit(backfill):
    result = fleetlab.simulate(jobs((0, 300, 8, 1), (0, 10, 8, 1)), nodes(), backfill=backfill, scheduler="event")
    assert result.jobs["start"].to_list() == [0, 60]
    assert "time limits end 1 job" in result.notes


def test_event_driven_loops_keep_what_the_log_saw():
    log = jobs((0, 85, 8, 1), start=[0.0], end=[85.0])
    assert fleetlab.simulate(log, nodes(), scheduler="event").jobs["end"].to_list() == [85]


# -- compiled against plain --------------------------------------------------------------------------------------------

PLAIN = """
import json
from tests.schedulers.slurm.test_limits import mixed
print(json.dumps(mixed()))
"""


def mixed():
    classes = (
        Qos("q", limits=Limits(minutes={"gpu": 6}, running_minutes={"gpu": 12}, resources={"gpu:a100": 4})),
        Qos("r", per_user=Limits(jobs=2, submitted=4), job=JobLimits(resources={"gpu": 3})),
    )
    rows = [(7 * k % 40, 5 + 11 * k % 60, 1 + k % 4, 1 + k % 3) for k in range(24)]
    log = jobs(*rows, qos=["q", "r"] * 12, user=["ann", "bob", "bob"] * 8, gpu_types=[["a100"], []] * 12)
    site = replace(MAIN, qos=classes, priority=DECAYS, backfill=BackfillLoop(interval=2.0, resolution=1.0))
    return [start if start == start else None for start in starts(log, nodes(2), site)]


def test_compiled_equals_plain():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(run.stdout) == mixed()
