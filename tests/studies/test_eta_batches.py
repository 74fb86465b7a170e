"""Jobs of a batch run alike, and what has ended of it tells of the rest."""

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab.core import Trace, Workload
from fleetlab.studies.eta.batches import ODD, Likeness, Observations, levels, normal, score, together
from fleetlab.studies.eta.run_times import RunTimes
from fleetlab.studies.eta.snapshot import History


def seen(batches, alike, following, *, size=5, seed=0, ended=True):
    """Scores of batches whose levels follow each other; a share of the jobs is not like its batch."""
    rng = np.random.default_rng(seed)
    level = np.zeros(batches)
    for k in range(1, batches):
        level[k] = following * level[k - 1] + np.sqrt(1 - following**2) * rng.normal()
    own = np.sqrt(alike) * np.repeat(level, size) + np.sqrt(1 - alike) * rng.normal(size=batches * size)
    odd = rng.random(batches * size) < ODD
    scores = np.where(odd, rng.normal(size=batches * size), own)
    submit = np.repeat(np.arange(batches) * 3600.0, size) + np.tile(np.arange(size), batches)
    return Observations(np.zeros(len(scores), dtype=np.int64), submit, scores, np.full(len(scores), ended))


def test_scores_and_shares_are_those_of_the_normal_distribution():
    assert score(np.array([0.025, 0.5, 0.975])) == pytest.approx([-1.959964, 0.0, 1.959964], abs=1e-3)
    assert normal(score(np.array([0.001, 0.2, 0.999]))) == pytest.approx([0.001, 0.2, 0.999], abs=1e-6)


def test_submissions_within_a_minute_of_each_other_are_a_burst():
    jobs = Observations(np.array([0, 0, 1, 0]), np.array([0.0, 50.0, 60.0, 200.0]), np.zeros(4), np.ones(4, dtype=bool))
    found = jobs.batches()
    assert found.order.tolist() == [0, 1, 3, 2]
    assert found.burst.tolist() == [1, 1, 2, 3]
    assert found.batch.tolist() == [0, 0, 1, 0]


def test_a_burst_is_cut_into_batches_of_ten():
    jobs = Observations(np.zeros(25, dtype=np.int64), np.arange(25.0), np.zeros(25), np.ones(25, dtype=bool))
    assert jobs.batches().batch.tolist() == [0] * 10 + [1] * 10 + [2] * 5


@pytest.mark.parametrize(("alike", "following"), [(0.0, 0.0), (0.5, 0.0), (0.8, 0.6)])
def test_likeness_is_found_again(alike, following):
    jobs = seen(3000, alike, following)
    found = Likeness.of(jobs, jobs.batches())
    assert found.alike == pytest.approx(alike, abs=0.06)
    if alike:
        assert found.next == pytest.approx(following, abs=0.1)


def test_without_likeness_draws_stay_each_for_itself():
    chance, left = np.random.default_rng(0).random((3, 2000, 2)), np.array([1.0, 0.5, 0.01])
    shared = together(chance, np.zeros((3, 2000)), Likeness(0.0, 0.0, 0.0), left)
    assert shared == pytest.approx(chance[..., 0], abs=1e-3)


def test_chances_of_a_batch_are_uniform_where_nothing_is_known():
    jobs = seen(400, 0.6, 0.0, seed=1)
    waiting = Observations(np.zeros(1, dtype=np.int64), np.array([1e9]), np.array([8.0]), np.zeros(1, dtype=bool))
    every = Observations.joined([jobs, waiting])
    level, alike = levels(every, np.array([2000]), 20_000, np.random.default_rng(0))
    shared = together(np.random.default_rng(1).random((1, 20_000, 2)), level, alike, np.ones(1))
    assert np.quantile(shared, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.03)


def test_levels_hold_the_truth_as_often_as_they_should():
    """The mean score of seven jobs to come of a batch of which three have ended: 80 % intervals over 300 batches."""
    found = []
    for seed in range(300):
        jobs = seen(200, 0.7, 0.4, size=10, seed=seed)
        ended = np.ones(2000, dtype=bool)
        ended[-7:] = False
        known = Observations(jobs.kind, jobs.submit, np.where(ended, jobs.score, 8.0), ended)
        level, alike = levels(known, np.arange(1993, 2000), 199, np.random.default_rng(seed))
        chance = np.random.default_rng([seed, 1]).random((7, 199, 2))
        drawn = score(together(chance, level, alike, np.ones(7))).mean(axis=0)
        found.append(np.quantile(drawn, 0.1) <= jobs.score[-7:].mean() <= np.quantile(drawn, 0.9))
    assert np.mean(found) == pytest.approx(0.8, abs=0.06)  # two standard deviations are 0.046


def batch_log(ended_of_last, *, running=0.0):
    """30 batches of ten jobs, every other one short (about 60 s) or long (about 6000 s), and a last one of ten."""
    rng = np.random.default_rng(2)
    runtime = np.repeat(np.where(rng.random(31) < 0.5, 60.0, 6000.0), 10) * np.exp(0.1 * rng.normal(size=310))
    submit = np.repeat(np.arange(31) * 20_000.0, 10) + np.tile(np.arange(10), 31)
    runtime[300:] = 1e9
    runtime[300 : 300 + len(ended_of_last)] = ended_of_last
    start = submit.copy()
    start[300 + len(ended_of_last) + (running > 0) :] = 1e9
    frame = pl.DataFrame({"submit": submit, "start": start, "runtime": runtime, "gpu_milli": [1000] * 310})
    jobs = frame.with_columns(end=pl.col("start") + pl.col("runtime"))
    history = History.of_log(Trace(Workload.of(jobs, source="by hand"), fleetlab.Provenance("read", "by hand"), None))
    known = RunTimes(history).at(history.at(30 * 20_000.0 + (running or 10_000.0)))
    return known.draw(np.arange(305, 310), np.zeros(5), 400, np.random.default_rng(0))


def test_a_batch_whose_first_jobs_were_long_is_long():
    assert np.median(batch_log([6000.0, 6100.0, 5900.0])) > 3000
    assert np.median(batch_log([60.0, 61.0, 59.0])) < 100


def test_a_batch_that_has_run_for_some_time_is_long():
    assert np.median(batch_log([], running=300.0)) > 3000


def test_jobs_of_a_batch_are_long_or_short_together():
    drawn = batch_log([]) > 1000
    alone = drawn.mean() * (1 - drawn.mean())
    together_ = np.mean([np.cov(drawn[a], drawn[b])[0, 1] for a, b in ((0, 1), (1, 2), (3, 4))])
    assert together_ > 0.4 * alone
