"""The factors of a job, one at a time, and priority/basic."""

import math

import numpy as np
import pytest

from fleetlab.core.queues import Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import Partition, Priority, Slurm, Weights
from fleetlab.schedulers.slurm.priority import (
    FIRST_BASIC,
    HIGHEST,
    Request,
    basic_priority,
    priority_rules,
    total_priority,
    weighted_factors,
)
from fleetlab.schedulers.slurm.usage import billing_of, billing_rules

QUEUES = QueueTree([Queue("root"), Queue("root/a", "root", "a", priority=5), Queue("root/b", "root", "b", priority=10)])
JOB = Request(association=1, qos=0, accrue=0.0, cpus=32.0, nodes=1.0, limit=600.0, nice=0.0, site=0.0)
ASK = np.array([32.0, 4.0])
RESOURCES = ("cpu", "gpu")
HAVE = {"one": {"cpu": 64.0, "gpu": 8.0}, "two": {"cpu": 128.0, "gpu": 16.0}}


def rules_of(*flags, favor_small=False, **weights):
    slurm = Slurm(
        partitions=(Partition("one", factor=10), Partition("two", factor=40)),
        qos=(Qos("normal", 10), Qos("high", 50)),
        queues=QUEUES,
        priority=Priority(weights=Weights(**weights), max_age=1000.0, flags=flags, favor_small=favor_small),
    )
    return priority_rules(slurm, RESOURCES, {"cpu": 640.0, "node": 10.0}, HAVE)


def priority_of(*flags, favor_small=False, at=0, share=0.0, now=0.0, job=JOB, **weights):
    rules = rules_of(*flags, favor_small=favor_small, **weights)
    return total_priority(rules, weighted_factors(rules, job, ASK, at, share, now), 0, 0)


@pytest.mark.parametrize(("now", "priority"), [(-5.0, 1), (0.5, 1), (500.9, 500), (999.0, 999), (5000.0, 1000)])
def test_age_is_whole_seconds_over_the_greatest_age(now, priority):
    assert priority_of(age=1000, now=now) == priority


def test_a_job_that_is_not_eligible_has_no_age():
    assert priority_of(age=1000, now=500.0, job=JOB._replace(accrue=math.inf)) == 1


def test_fair_share_is_cut_not_rounded():
    assert priority_of(fair_share=10_000, share=2 / 7) == 2857


def test_large_jobs_are_the_mean_of_their_nodes_and_cpus():
    assert priority_of(job_size=1000) == 75  # (1/10 + 32/640) / 2


def test_small_jobs_are_the_mean_of_what_they_leave():
    assert priority_of(job_size=1000, favor_small=True) == 925


def test_small_relative_to_time_divides_by_minutes():
    assert priority_of("SMALL_RELATIVE_TO_TIME", job_size=1000) == 10  # a node's 64 CPUs / 10 min / 640
    assert priority_of("SMALL_RELATIVE_TO_TIME", job_size=1000, favor_small=True) == 990


def test_partitions_classes_and_associations_are_relative_to_the_highest():
    assert priority_of(partition=1000) == 250
    assert priority_of(partition=1000, at=1) == 1000
    assert priority_of(qos=1000) == 200
    assert priority_of(association=1000) == 500


@pytest.mark.parametrize(
    ("flag", "weight", "priority"), [("PART", "partition", 10), ("QOS", "qos", 10), ("ASSOC", "association", 5)]
)
def test_factors_that_are_not_normalized_are_multiplied_as_they_are(flag, weight, priority):
    assert priority_of(f"NO_NORMAL_{flag}", **{weight: 1}) == priority_of("NO_NORMAL_ALL", **{weight: 1}) == priority


def test_tres_are_relative_to_the_partition():
    assert priority_of(tres={"cpu": 100.0, "gpu": 1000.0}) == 550
    assert priority_of(tres={"cpu": 100.0, "gpu": 1000.0}, at=1) == 275
    assert priority_of("NO_NORMAL_TRES", tres={"gpu": 7.0}) == 28


def test_nice_and_site_factor_are_added_and_nothing_is_below_one():
    assert priority_of(job=JOB._replace(site=500.0, nice=100.0)) == 400
    assert priority_of(job=JOB._replace(nice=100.0)) == 1
    assert priority_of(job=JOB._replace(nice=-1e12)) == HIGHEST


def test_a_priority_that_may_only_increase_does():
    rules = rules_of("INCR_ONLY", age=1000)
    factors = weighted_factors(rules, JOB, ASK, 0, 0.0, 10.0)

    assert [total_priority(rules, factors, 0, before) for before in (0, 50)] == [10, 50]


def test_basic_priorities_fall_by_one_with_each_job():
    given, lowest = [], FIRST_BASIC
    for nice in (0, 0, 100, 0, -5):
        priority, lowest = basic_priority(lowest, nice)
        given.append(FIRST_BASIC - priority)

    assert given == [1, 2, 103, 4, 0]


def test_a_job_is_charged_its_cpus_or_the_weights_of_its_partition():
    weighted = Partition("two", billing={"cpu": 1.0, "memory": 0.25, "gpu": 8.0})
    slurm = Slurm(partitions=(Partition("one"), weighted))
    amounts, resources = np.array([4.0, 64.0, 1.0, 5.0]), ("cpu", "memory", "gpu", "license")
    sums = billing_rules(slurm, resources)
    largest = billing_rules(Slurm(slurm.partitions, priority=Priority(flags=("MAX_TRES",))), resources)

    assert billing_of(sums, 0, amounts, 4.0) == 4.0
    assert billing_of(sums, 1, amounts, 4.0) == 28.0
    assert billing_of(largest, 1, amounts, 4.0) == 16.0
