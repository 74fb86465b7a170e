"""Intervals over a few replicas cover the mean of many, and verdicts do not have the wrong sign."""

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab.core import Cluster, Scenario, Workload
from fleetlab.stats import BETTER, LEAST_BLOCKS, NOT_DECIDED, POSITIVE, WORSE, over_replicas, verdict, wilson
from fleetlab.studies.compare import compare

from .coverage_worlds import (
    DAYS,
    GOALS,
    PHILLY,
    WEEKS,
    WORLDS,
    by_day,
    drawn_again,
    gangs,
    goal_by_replica,
    held_out,
    judged,
    lined_up,
    measured,
    of_words,
    small,
)

REPLICAS = 200
ORDERS = of_words({}, {"order": "smallest"}, {"backfill": "easy"})


@pytest.fixture(scope="module")
def busy():
    base = gangs(0.9, jobs=500)
    return base, measured(base, ORDERS, range(1, 61))


@pytest.mark.parametrize("count", [5, 10, None])
def test_intervals_of_few_replicas_cover_the_mean_of_sixty(busy, count):
    for row in judged(busy[1], count=count):
        assert row["covered"] > 0.88
        assert row["wrong"] < 0.025


def test_what_compare_says_is_what_its_replicas_give(busy):
    base, waits = busy
    found = compare(base, policies=["fifo", "smallest", "fifo/easy"], replicas=5, workers=0)
    rows = found.tables()["policies"]
    assert rows["mean wait"].to_list() == pytest.approx(waits[:, :5].mean(axis=1).tolist())


@pytest.mark.validate
@pytest.mark.parametrize("name", WORLDS)
def test_nominal_95_percent_cover_90_to_98_and_wrong_signs_are_rare(name):
    if name.startswith("Philly") and not PHILLY.is_file():
        pytest.skip("needs the submissions of Philly")
    base, changes = WORLDS[name]()
    count = REPLICAS if len(base.trace.workload) <= 10_000 else 60
    rows = judged(measured(base, changes, range(1, count + 1)), draws=2000)
    two_outcomes = ["sharing"] if name == "the same, --warm-up none" else []  # five replicas may all have the same one
    for change, row in zip(changes, rows, strict=True):
        assert (0.8 if change in two_outcomes else 0.895) <= row["covered"] <= 0.99
        assert row["wrong"] < 0.025


# -- sizes, weeks and days -------------------------------------------------------------------------------------------


def check_sizes(name, *, replicas, draws):
    """Check that the goal at the answer is covered by twenty of many replicas, and the share that meets it."""
    make, slo = GOALS[name]
    base, limit = make(), float(slo.split("<")[1])
    answer = fleetlab.capacity(base, slo=slo, scope="log", replicas=20, workers=0)
    values = goal_by_replica(base, slo, int(answer.summary()[0].value), replicas)
    rng, share = np.random.default_rng(0), (values < limit).mean()
    assert share >= 0.8  # of nine in ten
    some = [rng.choice(values, 20, replace=False) for _ in range(draws)]
    goals = [over_replicas(x, POSITIVE).interval() for x in some]
    shares = [wilson((x < limit).sum(), 20) for x in some]
    assert np.mean([x.low <= values.mean() <= x.high for x in goals]) >= 0.9
    assert np.mean([x.low <= share <= x.high for x in shares]) >= 0.9


def check_sets(before, after, *, least):
    """Check how often intervals of sets of replicas cover the mean of all, and that no verdict has the wrong sign."""
    right = (after - before).mean()
    found = [over_replicas(y - x, levels=x).interval() for x, y in zip(before, after, strict=True)]
    assert np.mean([np.isnan(x.low) or x.low <= right <= x.high for x in found]) >= least
    wrong = BETTER if right > 0 else WORSE
    said = [verdict(y - x, x.mean(), levels=x) for x, y in zip(before, after, strict=True)]
    assert np.mean([x == wrong for x in said]) < 0.025


def in_sets(days, count):
    return [values.reshape(-1, count) for values in days]


def test_intervals_of_a_size_of_held_out_weeks_and_of_days_cover_the_mean_of_many():
    check_sizes("one GPU each, load 0.7", replicas=60, draws=200)
    check_sets(*held_out(lined_up(0.7, 20_000), 10, 6), least=0.8)
    check_sets(*in_sets(by_day(40, *DAYS["load 0.7"]), 4), least=0.8)


@pytest.mark.validate
@pytest.mark.parametrize("name", GOALS)
def test_the_goal_at_the_answer_of_capacity_is_covered_by_twenty_of_200_replicas(name):
    check_sizes(name, replicas=REPLICAS, draws=2000)


@pytest.mark.validate
@pytest.mark.parametrize("name", WEEKS)
def test_differences_of_tune_on_six_held_out_weeks_cover_that_of_1200_weeks(name):
    """Where few weeks have most of the waiting, six cannot know of the others; the sign is never the wrong one."""
    make, few = WEEKS[name]
    check_sets(*held_out(make(1_202_000), 200, 6), least=0.4 if few else 0.9)


@pytest.mark.validate
@pytest.mark.parametrize("name", DAYS)
def test_differences_of_autoscale_on_six_days_cover_that_of_1200_days(name):
    check_sets(*in_sets(by_day(1200, *DAYS[name]), 6), least=0.9)


# -- other logs ------------------------------------------------------------------------------------------------------


def check_that_other_logs_are_covered(logs, jobs, load, *, least, others=0):
    """Draw each of some logs five times again: intervals of those that are long enough cover the mean of fresh logs."""
    bases = [gangs(load, jobs=jobs, seed=seed) for seed in range(logs)]
    fresh = [*bases, *(gangs(load, jobs=jobs, seed=10_000 + seed) for seed in range(others))]
    truth = np.hstack([measured(base, ORDERS, range(1)) for base in fresh]).mean(axis=1)
    drawn = [drawn_again(base, ORDERS, 5) for base in bases]
    long_enough = [runs for runs in drawn if runs.blocks >= LEAST_BLOCKS]
    assert len(long_enough) >= 0.6 * logs
    for change in range(len(truth)):
        values = [changes_of(runs)[change] for runs in long_enough]
        right = truth[change] - (truth[0] if change else 0.0)
        within = (-np.inf if change else 0.0, np.inf)
        intervals = [runs.statistic(x, within).interval() for runs, x in zip(long_enough, values, strict=True)]
        assert np.mean([low <= right <= high for _, low, high in intervals]) >= least
        wrong = BETTER if right > 0 else WORSE
        verdicts = [runs.verdict(x, changes_of(runs)[0].mean()) for runs, x in zip(long_enough, values, strict=True)]
        assert not change or np.mean([said == wrong for said in verdicts]) < 0.025


def changes_of(runs):
    """Return the mean wait by replica, and how each change differs from it."""
    waits = np.array([[arrays["wait"].mean() for arrays in replica.values()] for replica in runs.results]).T
    return [waits[0], *(waits[1:] - waits[0])]


def test_intervals_of_logs_like_it_cover_the_mean_of_other_logs():
    check_that_other_logs_are_covered(24, jobs=400, load=1.1, least=0.8)


@pytest.mark.validate
@pytest.mark.parametrize(("load", "others"), [(0.7, 1300), (0.9, 0)])
def test_intervals_of_logs_like_it_cover_the_mean_of_200_other_logs(load, others):
    check_that_other_logs_are_covered(200, jobs=2000, load=load, least=0.9, others=others)


def test_a_log_whose_waiting_is_in_one_hour_is_too_short_to_tell_of_others():
    burst = [100.0 * k for k in range(380)] + [19_000.0] * 20
    jobs = pl.DataFrame({"submit": sorted(burst), "runtime": [50.0, 40.0] * 200, "gpu_milli": [1000] * 400})
    base = Scenario.of(Workload.of(jobs, source="one hour"), Cluster.uniform(8, 1))
    few = {"policies": ["fifo", "sjf"], "replicas": 10, "workers": 0}
    found = compare(base, scope="like", **few)
    row = found.tables()["policies"].row(1, named=True)
    assert row["verdict"] == NOT_DECIDED
    assert np.isnan(row["mean wait change low"])
    assert found.notes[0].startswith("the log is too short for intervals of logs like it: ")
    assert compare(base, scope="log", **few).notes[0].startswith("intervals are of this log")


# -- the example of the guide ----------------------------------------------------------------------------------------


@pytest.mark.validate
def test_the_example_of_the_guide_ranks_alike_for_20_seeds_or_decides_nothing():
    changes = ["types", "cpu", "memory", "fragmentation"]
    firsts = set()
    for seed in range(20):
        base = Scenario.of("builtin:2000", small(), seed=seed)
        table = fleetlab.diagnose(base, changes=changes, workers=0).tables()["changes"]
        firsts |= {row["change"] for row in table.iter_rows(named=True) if row["P(first)"] >= 0.975}
    assert len(firsts) <= 1
