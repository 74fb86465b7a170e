"""Intervals moved by what became of earlier forecasts: they hold as often as they say, also as things change."""

import numpy as np
import pytest

from fleetlab.studies.eta.calibration import Forecasts, correction, independent, track_record
from fleetlab.studies.eta.replay import quantiles

SHIFTS = np.array([-0.9, -0.6, 0.0, 0.6, 0.9])  # of logarithms: an answer that is half as wide as it should be


def walk(truth, usual, every=1e5):
    """Ask one after another; return what was compared_answers, corrected."""
    answer = np.expm1(np.log1p(usual[:, None] / 10) + SHIFTS) * 10
    earlier = Forecasts(np.arange(len(truth)) * every, answer, truth)
    return np.array([correction(earlier, at).apply(own) for at, own in zip(earlier.at, answer, strict=True)])


def held(answer, truth, low, high):
    return float(((answer[:, low] <= truth) & (truth <= answer[:, high])).mean())


def drawn(count, spread=0.9, seed=5):
    rng = np.random.default_rng(seed)
    usual = 600 * np.exp(rng.normal(0, 1, count))
    return usual, usual * np.exp(rng.normal(0.2, spread, count))


def test_intervals_that_are_too_narrow_are_widened_until_they_hold():
    usual, truth = drawn(1500)
    answer = walk(truth, usual)[100:]
    assert held(answer, truth[100:], 1, 3) == pytest.approx(0.8, abs=0.03)
    assert held(answer, truth[100:], 0, 4) == pytest.approx(0.95, abs=0.03)
    assert (np.diff(answer, axis=1) >= 0).all()


def test_they_hold_as_well_where_what_is_missed_changes():
    usual, truth = drawn(1500)
    drift = np.exp(np.sin(np.arange(1500) / 240))
    answer = walk(truth * drift, usual)[100:]
    assert held(answer, (truth * drift)[100:], 1, 3) == pytest.approx(0.8, abs=0.03)
    assert held(answer, (truth * drift)[100:], 0, 4) == pytest.approx(0.95, abs=0.03)


def test_jobs_that_still_wait_are_not_left_out():
    usual, truth = drawn(2000, spread=1.5)
    answer = walk(truth, usual, every=60.0)[200:]  # an ask a minute, and waits of an hour: many have not started yet
    assert held(answer, truth[200:], 1, 3) == pytest.approx(0.8, abs=0.04)
    assert (truth[200:] > answer[:, 3]).mean() == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize(("known", "low", "high"), [(25, 0.65, 0.9), (60, 0.73, 0.92), (200, 0.76, 0.935)])
def test_the_more_earlier_forecasts_there_are_the_less_replays_count(known, low, high):
    rng, found = np.random.default_rng(7), np.zeros(2)
    for _ in range(1000):
        truth = 600 * np.exp(rng.normal(0.3, 0.9, known + 1))
        answer = np.tile(np.expm1(np.log1p(60.0) + SHIFTS) * 10, (known + 1, 1))
        moved = correction(Forecasts(np.arange(known) * 1e6, answer[:-1], truth[:-1]), 1e9).apply(answer[-1])
        found += [moved[a] <= truth[-1] <= moved[b] for a, b in ((1, 3), (0, 4))]
    assert low <= found[0] / 1000 <= 0.83
    assert high <= found[1] / 1000 <= 0.97


def test_forecasts_of_few_replays_correct_an_answer_of_many():
    rng = np.random.default_rng(3)
    held = np.zeros(2)
    for _ in range(400):
        draws = 600 * np.exp(rng.normal(0, 0.5, (61, 400)))
        truth = 600 * np.exp(rng.normal(0, 0.5, 61))
        answer = np.array([quantiles(own[:19]) for own in draws[:60]])
        moved = correction(Forecasts(np.arange(60.0) * 1e6, answer, truth[:60]), 1e9).apply(quantiles(draws[60]))
        held += [moved[a] <= truth[60] <= moved[b] for a, b in ((1, 3), (0, 4))]
    assert held / 400 == pytest.approx([0.8, 0.95], abs=0.045)


def test_with_too_few_outcomes_quantiles_stay_as_they_are():
    early = Forecasts(np.arange(60.0), np.full((60, 5), 10.0), np.full(60, 1e6))
    found = correction(early, 61.0)
    answer = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.apply(answer).tolist(), found.forecasts) == (answer.tolist(), 0)


def test_what_starts_at_once_in_all_replays_does_so_calibrated():
    usual, truth = drawn(100)
    answer = np.tile(usual[:, None], (1, 5))
    found = correction(Forecasts(np.arange(100.0) * 1e6, answer, truth), 1e9)
    assert found.apply(np.zeros(5)).tolist() == [0.0] * 5


def test_the_coverage_of_earlier_answers_is_that_of_corrected_ones_as_far_as_outcomes_are_known():
    usual, truth = drawn(400)
    answer = np.expm1(np.log1p(usual[:, None] / 10) + SHIFTS) * 10
    earlier = Forecasts(np.arange(400) * 1e5, answer, truth)
    found = track_record(earlier, 4e7)
    assert found.forecasts == 400
    assert found.coverage["80 %"].value == pytest.approx(held(walk(truth, usual), truth, 1, 3))
    assert 0 < found.error < np.median(truth)
    assert track_record(earlier, 15e5) is None  # 15 forecasts


def test_a_job_that_waits_beyond_its_interval_is_one_for_which_it_did_not_hold():
    answer = np.tile([1.0, 5.0, 10.0, 20.0, 40.0], (50, 1))
    truth = np.append(np.full(40, 10.0), np.full(10, np.inf))
    found = track_record(Forecasts(np.arange(50) * 100.0, answer, truth), 1e5)
    assert (found.forecasts, found.coverage["95 %"].value) == (50, 0.8)


def test_replays_are_moved_to_the_corrected_quantiles():
    usual, truth = drawn(200)
    found = correction(Forecasts(np.arange(200.0) * 1e6, usual[:, None] * np.exp(SHIFTS), truth), 1e9)
    replays = 600 * np.exp(np.random.default_rng(1).normal(0, 0.2, 999))
    raw = np.quantile(replays, (0.025, 0.1, 0.5, 0.9, 0.975))
    answer = found.apply(raw)
    moved = found.spread(replays, answer)
    assert np.quantile(moved, (0.1, 0.5, 0.9)) == pytest.approx(answer[1:4], rel=0.02)


def test_no_wait_is_put_far_beyond_the_longest_that_was_seen():
    truth = np.tile([1.0, 3000.0], 30)
    earlier = Forecasts(np.arange(60.0) * 1e6, np.tile([10.0, 20.0, 60.0, 200.0, 400.0], (60, 1)), truth)
    found = correction(earlier, 1e9).apply(np.array([60.0, 600.0, 6000.0, 40_000.0, 50_000.0]))
    assert found[-2:].tolist() == pytest.approx([40_000.0, 50_000.0])  # of the replays, above 4 × 3000 s


def test_misses_that_follow_each_other_tell_less():
    rng = np.random.default_rng(3)
    day = np.repeat(rng.normal(0, 1.2, 60), 10)  # ten forecasts a day, missed alike
    usual = 600 * np.exp(rng.normal(0, 1, 600))
    truth = usual * np.exp(day + rng.normal(0, 0.3, 600))
    answer = walk(truth, usual)[100:]
    assert held(answer, truth[100:], 1, 3) == pytest.approx(0.8, abs=0.09)  # 50 days: a standard deviation is 0.045
    assert independent(np.repeat(rng.normal(size=60), 10)) < 80
