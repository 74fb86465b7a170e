"""No policy can read what a job brings before it arrives: an oracle is planted in every field of the last arrival."""

import math

import numba
import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab.sim.policy import JOB_COLUMNS, hide_arrivals, order, placement

NODES = fleetlab.Cluster.uniform(3, 1)
EARLY = 12  # jobs that compete before the last one arrives
LAST = {
    "submit": 500.0, "runtime": 50.0, "instances": 1, "cpu_milli": 1000, "memory_mib": 100, "gpu_milli": 1000,
    "priority": 0, "user": "ann", "limit": 100.0, "qos": "low", "queue": "a",
}  # fmt: skip
OTHER = {
    "submit": 60.0, "runtime": 90.0, "instances": 2, "cpu_milli": 3000, "memory_mib": 300, "gpu_milli": 500,
    "priority": 7, "user": "bob", "limit": 900.0, "qos": "high", "queue": "b",
}  # fmt: skip


@numba.njit
def planted(s):
    """Everything that the columns of jobs hold."""
    total = 0.0
    for j in range(len(s.submit)):
        for number in (s.submit[j], s.estimate[j], s.limit[j]):
            if number == number:
                total += (j + 1) * min(number, 1e6)
        for whole in (
            s.instances[j], s.cpu_milli[j], s.memory_mib[j], s.gpu_milli[j], s.priority[j], s.user[j], s.qos[j],
            s.partition_id[j], s.account[j],
        ):  # fmt: skip
            total += (j + 1) * whole
    return total + 0.1 * len(s.attained)


@numba.njit
def peek(s, job):
    return s.submit[job + 1]


@order
def oracle_at_arrival(s, job, now):
    return math.sin(planted(s) * (job + 1))


@order
def oracle(s, job, now):
    return math.sin((planted(s) + now) * (job + 1))


@placement
def oracle_of_nodes(s, job, node):
    return math.sin(planted(s) * (node + 1))


def starts(last, **policy):
    """When and where early jobs start; users, accounts and classes of service are the site's, known from the start."""
    early = pl.DataFrame({
        "submit": np.arange(EARLY) * 1.0, "runtime": 10.0 + np.arange(EARLY), "instances": 1, "cpu_milli": 1000,
        "memory_mib": 100, "gpu_milli": 1000, "priority": np.arange(EARLY) % 3, "user": ["ann", "bob"] * (EARLY // 2),
        "limit": 100.0, "qos": ["low", "high"] * (EARLY // 2), "queue": ["a", "a", "b", "b"] * (EARLY // 4),
    })  # fmt: skip
    jobs = fleetlab.Workload.of(pl.concat([early, pl.DataFrame(last)], how="vertical_relaxed"), source="drawn")
    result = fleetlab.simulate(jobs, NODES, estimate="oracle", warm_up="none", **policy)
    frame = result.jobs.sort("job")
    nodes = [result.played.where[first] for first in result.world.first[:-1]]
    rows = zip(frame["start"], nodes, strict=True)
    return [row for row, runtime in zip(rows, frame["runtime"], strict=True) if row[0] < 50.0 and runtime < 40.0]


POLICIES = {"order": oracle, "order at arrival": oracle_at_arrival, "placement": oracle_of_nodes}


@pytest.mark.parametrize("backfill", ["none", "greedy", "easy"])
@pytest.mark.parametrize("which", POLICIES)
def test_nothing_that_the_last_arrival_brings_moves_a_job_before_it_arrives(which, backfill):
    words = {"backfill": backfill, which.partition(" ")[0]: POLICIES[which]}
    known = starts(LAST, **words)
    assert len(known) >= EARLY - 2
    for field, value in OTHER.items():
        assert starts(LAST | {field: value}, **words) == known, field


@pytest.mark.parametrize("which", POLICIES)
def test_what_an_arrived_job_brings_is_seen(which):
    words = {which.partition(" ")[0]: POLICIES[which]}
    first = LAST | {"submit": 0.5}
    seen, fields = starts(first, **words), ("instances", "priority", "user", "limit", "qos", "queue")
    differ = [starts(first | {field: OTHER[field]}, **words) != seen for field in fields]
    assert sum(differ) >= (2 if which == "placement" else 5)  # it seldom has a choice of nodes


def test_columns_of_jobs_end_with_the_last_arrival():
    @order
    def how_many(s, job, now):
        return -abs(len(s.submit) - (job + 1.0)) + 0.0 * now

    assert how_many.moves
    assert {"submit", "estimate", "limit", "account"} < set(JOB_COLUMNS)
    assert starts(LAST, order=how_many)


def test_an_order_by_the_rows_of_others_is_asked_again_as_they_arrive():
    assert order(lambda s, job, now: s.submit[job] + 1.0).moves is False
    assert order(lambda s, job, now: s.submit[job - 1]).moves
    assert order(lambda s, job, now: s.submit[-1]).moves
    assert order(lambda s, job, now: s.shares[s.account[job]]).moves is False


@pytest.mark.parametrize("rank", [lambda s, job, now: s.submit[job + 1], lambda s, job, now: peek(s, job)])
def test_a_row_behind_the_last_arrival_is_refused(rank):
    with pytest.raises(fleetlab.PolicyError, match="raises IndexError"):
        fleetlab.check_order(rank)


def test_what_is_behind_the_end_of_a_column_is_blank(monkeypatch):
    seen = {}

    def spy(state):
        seen["state"], seen["arrivals"] = hide_arrivals(state)
        raise KeyboardInterrupt  # before anything arrives

    monkeypatch.setattr("fleetlab.sim.reference.play.hide_arrivals", spy)
    with pytest.raises(KeyboardInterrupt):
        starts(LAST, order=oracle)
    columns = [getattr(seen["state"], name) for name in JOB_COLUMNS]
    assert all(len(column) == EARLY + 1 and not np.nan_to_num(column).any() for column in columns)
    assert all(column.any() for column in seen["arrivals"].floats)
