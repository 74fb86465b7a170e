"""Timetables, limits and the search by theory; nothing is sent."""

import json
import math

import numpy as np
import pytest

from fleetlab.gpu.bench.histogram import Histogram, percentile
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.serving.load import requests
from fleetlab.gpu.serving.load.client import loopback
from fleetlab.gpu.serving.load.generator import arrival_schedule
from fleetlab.gpu.serving.load.search import (
    FAILED_TRIAL,
    INVALID,
    PASSED,
    UNDECIDED,
    LatencyGoal,
    RateSearch,
    RateTrial,
    next_rate,
    search,
    verdict,
)
from fleetlab.gpu.serving.load.settings import LoadSettings
from fleetlab.stats import Interval, share_of_windows


def due(**words):
    return arrival_schedule(LoadSettings(url="", **{"warmup": 0, "seconds": 100, **words})).due


def waits(at, service):
    """Lindley: who comes waits for what is left of those before."""
    busy = np.concatenate(([0.0], np.cumsum(service)[:-1]))
    return np.maximum.accumulate(at - busy) - (at - busy)


# -- arrival schedules ------------------------------------------------------------------------------------------------


def test_poisson_gaps_are_exponential():
    gaps = np.sort(np.diff(due(rate=200)))
    ranks = np.arange(1, len(gaps) + 1) / len(gaps)
    apart = np.abs(ranks - (1 - np.exp(-200 * gaps))).max()
    assert len(gaps) > 19_000
    assert apart * math.sqrt(len(gaps)) < 1.95  # Kolmogorov's statistic exceeds it once in 1,000 times


def test_poisson_counts_vary_as_much_as_their_mean():
    counts = np.histogram(due(rate=200), np.linspace(0, 100, 201))[0]
    assert counts.mean() == pytest.approx(100, abs=3 * math.sqrt(100 / 200))
    assert counts.var(ddof=1) / counts.mean() == pytest.approx(1, abs=3 * math.sqrt(2 / 200))


@pytest.mark.parametrize("burstiness", [0.1, 0.25, 1.0, 4.0])
def test_gamma_gaps_vary_by_one_over_the_root_of_the_burstiness(burstiness):
    gaps = np.diff(due(rate=200, arrivals=f"gamma:{burstiness}"))
    assert gaps.mean() == pytest.approx(1 / 200, rel=4 / math.sqrt(burstiness * len(gaps)))
    assert gaps.std() / gaps.mean() == pytest.approx(1 / math.sqrt(burstiness), rel=0.1)


def test_even_gaps_are_even():
    assert np.diff(due(rate=8, arrivals="uniform", seconds=10)) == pytest.approx(0.125)


def test_one_seed_gives_one_timetable_and_a_longer_one_begins_like_it():
    short, long, other = due(rate=50, seconds=5, seed=3), due(rate=50, seconds=50, seed=3), due(rate=50, seed=4)
    assert short.tolist() == long[: len(short)].tolist()
    assert short[:9].tolist() != other[:9].tolist()


def test_a_warm_up_is_the_beginning_of_the_same_timetable():
    table = arrival_schedule(LoadSettings(url="", rate=50, warmup=2, seconds=8))
    assert table.due.tolist() == due(rate=50, seconds=10).tolist()
    assert (table.opens, table.closes) == (2, 10)


def test_arrivals_of_a_list_count_from_the_first_and_come_at_the_rate_asked_for():
    times = (1000.0, 1002.0, 1003.0, 1010.0)
    assert due(times=times).tolist() == [0, 2, 3, 10]
    assert due(times=times, scale=2).tolist() == [0, 1, 1.5, 5]
    squeezed = due(times=times, rate=6)
    assert squeezed.tolist() == pytest.approx([0, 0.1, 0.15, 0.5])
    assert 3 / squeezed[-1] == pytest.approx(6)


@pytest.mark.parametrize("text", ["0\n0.5\n2.25\n", "[0, 0.5, 2.25]", "0 0.5 2.25"])
def test_a_file_of_arrivals_has_a_number_a_line_or_a_json_list(tmp_path, text):
    (tmp_path / "list").write_text(text)
    assert due(arrivals=str(tmp_path / "list")).tolist() == [0, 0.5, 2.25]


@pytest.mark.parametrize("text", ["", "one\n", "[1, null]", "[1,", "nan", "1 inf", '["a"]', "[[1]]"])
def test_a_file_that_lists_no_arrivals_is_refused(tmp_path, text):
    (tmp_path / "list").write_text(text)
    with pytest.raises(BenchError, match="not a list of arrival times"):
        due(arrivals=str(tmp_path / "list"))


def test_a_timetable_that_ends_early_ends_its_window():
    table = arrival_schedule(LoadSettings(url="", times=tuple(range(11)), warmup=2, seconds=60))
    assert (table.closes, len(table.due)) == (11, 11)
    assert "ends after 11 requests" in table.notes[0]
    table = arrival_schedule(LoadSettings(url="", rate=10, arrivals="uniform", warmup=1, seconds=100, limit=50))
    assert len(table.due) == 50
    assert 5 < table.closes < 5.2  # so that 40 requests in the window are 10 a second


def test_a_list_of_arrivals_all_at_once_is_one_burst():
    table = arrival_schedule(LoadSettings(url="", times=(7.0,) * 50, warmup=0, seconds=5))
    assert (len(table.due), table.closes) == (50, 5)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({}, "no rate"),
        ({"rate": 0}, "rate must be from"),
        ({"rate": math.nan}, "rate must be from"),
        ({"rate": 10, "seconds": -1}, "seconds must be from"),
        ({"rate": 10, "clients": 3}, "a closed loop has"),
        ({"rate": 10, "scale": 2}, "exclude each other"),
        ({"rate": 10, "arrivals": "gamma:x"}, "gamma takes a shape"),
        ({"rate": 10, "arrivals": "gamma:0"}, "gamma takes a shape"),
        ({"arrivals": "poissson"}, "no such arrivals"),
        ({"times": (5.0, 5.0), "rate": 3}, "all arrivals are at the same time"),
        ({"times": (1.0,), "warmup": 1}, "no request is scheduled"),
        ({"rate": 0.01, "seconds": 1}, "no request is scheduled"),
    ],
)
def test_what_makes_no_timetable_is_refused(words, says):
    with pytest.raises(BenchError, match=says):
        due(**words)


def test_a_poisson_timetable_waits_as_pollaczek_and_khinchine_say():
    """One worker of fixed service time, half loaded: the mean wait is half a service time."""
    at = due(rate=50, seconds=8000, limit=10**7)
    waited = waits(at, np.full(len(at), 0.01))
    parts = waited[: len(at) // 40 * 40].reshape(40, -1).mean(1)
    assert parts.mean() == pytest.approx(0.005, abs=4 * parts.std(ddof=1) / math.sqrt(40))


# -- limits -----------------------------------------------------------------------------------------------------------


def queue(rng, n, load):
    """Times in a queue with one worker of rate 1: known to be exponential, and like those of their neighbors."""
    at, service = np.cumsum(rng.exponential(1 / load, 2 * n)), rng.exponential(1, 2 * n)
    return (waits(at, service) + service)[n:]


def test_limits_of_neighbours_that_wait_alike_cover_where_simple_ones_do_not():
    rng, truth = np.random.default_rng(5), math.log(20) / (1 - 0.7)
    ours = simple = 0
    for _ in range(200):
        times = queue(rng, 4000, 0.7)
        found, naive = requests.quantile(times, 0.95), percentile(Histogram.of(times), 0.95)
        ours += found.low <= truth <= found.high
        simple += naive.low <= truth <= naive.high
    assert simple < 120
    assert ours > 170  # short of 190 by what twenty parts cannot see


def test_limits_of_independent_times_cover():
    rng, truth = np.random.default_rng(6), math.log(100)
    found = [requests.quantile(rng.exponential(1, 1500), 0.99) for _ in range(300)]
    assert np.mean([one.low <= truth * 1.001 and truth * 0.999 <= one.high for one in found]) > 0.93


def test_too_few_times_carry_no_percentile():
    assert requests.quantile_or_reason(np.ones(298), 0.99) == "n too small for P99: 298 of 299"


def test_a_stall_in_a_row_does_not_take_the_percentile_away():
    times = np.full(600, 0.01)
    times[200:400] = np.linspace(2, 0, 200)
    found = requests.quantile(times, 0.99)
    assert found.low > 1.7
    assert found.high == pytest.approx(2, rel=0.002)
    assert requests.is_autocorrelated(times, 0.99)
    assert not requests.is_autocorrelated(np.random.default_rng(0).exponential(1, 600), 0.99)
    assert not requests.is_autocorrelated(times[:100], 0.99)  # nothing is told of it


def test_shares_of_what_comes_in_a_row_are_less_sure():
    scattered, row = np.arange(1000) % 10 == 0, np.arange(1000) < 100
    a, b = share_of_windows([scattered], [1]), share_of_windows([row], [1])
    assert a.value == b.value == 0.1
    assert b.high - b.low > 3 * (a.high - a.low)
    assert share_of_windows([np.zeros(1000, bool)], [1])[:2] == (0, 0)


def test_a_rate_is_not_below_0_however_unsure_it_is():
    """Two answers in the last tenth of ten seconds: mean 0.2, half width 2.262 * 0.2 (Student, nine degrees)."""
    value, low, high = requests.event_rate(np.array([9.2, 9.7]), 0, 10)
    assert (value, high) == pytest.approx((0.2, 0.2 + 2.262 * 0.2), rel=1e-3)
    assert 0 < low < value  # the lower limit approaches 0, and is never below


@pytest.mark.parametrize(("growth", "steady"), [(0.0, True), (0.5, False)])
def test_a_server_that_grows_slower_is_not_steady(growth, steady):
    at = np.linspace(0, 10, 2000, endpoint=False)
    latency = 0.01 * (1 + growth * at / 10)
    assert requests.is_steady(at, at + latency, latency, 0, 10, by_timetable=True) is steady


def test_a_server_that_answers_less_and_less_is_not_steady():
    at = np.linspace(0, 10, 2000, endpoint=False)
    latency = np.where((at < 6) | (np.arange(2000) % 3 > 0), 0.01, np.nan)
    assert requests.is_steady(at, at[np.isfinite(latency)], latency, 0, 10, by_timetable=True) is False
    assert requests.is_steady(at[::50], at[::50], np.full(40, 0.01), 0, 10, by_timetable=True) is None
    assert requests.is_steady(at, at, np.full(2000, np.nan), 0, 10, by_timetable=True) is None


def test_bursts_of_a_timetable_are_no_unrest_of_the_server():
    at = np.sort(np.concatenate((np.linspace(0, 10, 500, endpoint=False), np.linspace(6, 8, 500, endpoint=False))))
    assert requests.is_steady(at, at, np.full(1000, 0.01), 0, 10, by_timetable=True) is True
    assert requests.is_steady(at, at, np.full(1000, 0.01), 0, 10, by_timetable=False) is False


# -- whom it goes to --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "to"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/predict"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/predict"),
        ("http://127.1.2.3/other?x=1#y", "http://127.1.2.3:80/other?x=1"),
        ("http://[::1]:9", "http://[::1]:9/predict"),
        ("http://localhost:8000", "http://127.0.0.1:8000/predict"),
    ],
)
def test_this_machine_is_named_by_number(url, to):
    assert loopback(url) == to


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://8.8.8.8", "not on this machine"),
        ("http://10.0.0.1:8000", "not on this machine"),
        ("http://0.0.0.0:8000", "not on this machine"),
        ("http://[::ffff:8.8.8.8]", "not on this machine"),
        ("http://134744072", "not on this machine"),
        ("http://127.0.0.1@8.8.8.8", "not the URL"),
        ("https://127.0.0.1", "not the URL"),
        ("127.0.0.1:8000", "not the URL"),
        ("http://127.0.0.1:99999", "not the URL"),
        ("http://[::1", "not the URL"),
        ("", "not the URL"),
        ("http://no-such-host.invalid", "no such host"),
    ],
)
def test_other_machines_are_never_loaded(url, says):
    with pytest.raises(BenchError, match=says) as caught:
        loopback(url)
    assert caught.value.hint


# -- the search -------------------------------------------------------------------------------------------------------

SURE = Interval(0.0, 0.0, 0.001)


def trial(rate, said):
    return RateTrial(rate, said, 1000, "-", SURE, 0.0, 1)


def found(trials):
    return RateSearch(LoadSettings(url="", slo=1.0), "", LatencyGoal(1.0), tuple(trials))


@pytest.mark.parametrize(
    ("latency", "lost", "says"),
    [
        (Interval(8, 7, 9), SURE, PASSED),
        (Interval(12, 11, 13), SURE, FAILED_TRIAL),
        (Interval(10, 9, 11), SURE, UNDECIDED),
        ("n too small", SURE, UNDECIDED),
        (Interval(8, 7, 9), Interval(0.2, 0.18, 0.22), FAILED_TRIAL),
        ("n too small", Interval(0.9, 0.8, 0.95), FAILED_TRIAL),
        (Interval(8, 7, 9), Interval(0.003, 0.0005, 0.01), UNDECIDED),
    ],
)
def test_a_trial_decides_only_when_its_interval_does(latency, lost, says):
    assert verdict(latency, lost, LatencyGoal(10)) == says


def test_a_search_halves_the_ratio_until_it_is_narrow_enough():
    trials = []
    while (rate := next_rate(trials, 10, 1000, 0.05)) is not None:
        trials.append(trial(rate, PASSED if rate < 123.4 else FAILED_TRIAL))
    answer = found(trials)
    assert [t.rate for t in trials[:3]] == [10, 1000, 100]
    assert answer.passed < 123.4 < answer.failed <= 1.05 * answer.passed
    assert len(trials) == 2 + math.ceil(math.log2(math.log(100) / math.log(1.05)))


@pytest.mark.parametrize(
    ("says", "passed", "failed", "note"), [(FAILED_TRIAL, None, 10, "lowest"), (PASSED, 1000, None, "no")]
)
def test_a_search_ends_at_an_end_that_says_it_all(says, passed, failed, note):
    trials = []
    while (rate := next_rate(trials, 10, 1000, 0.05)) is not None:
        trials.append(trial(rate, says))
    answer = found(trials)
    assert (answer.passed, answer.failed) == (passed, failed)
    assert any(note in line for line in answer.notes)


def test_what_stays_undecided_is_narrowed_down_from_both_sides():
    trials = []
    while (rate := next_rate(trials, 10, 1000, 0.1)) is not None:
        trials.append(trial(rate, PASSED if rate < 90 else FAILED_TRIAL if rate > 110 else UNDECIDED))
    answer = found(trials)
    assert 70 < answer.passed < 90
    assert 110 < answer.failed < 140
    assert "undecided" in answer.notes[0]


def test_rates_that_the_generator_cannot_send_decide_nothing():
    trials = []
    while (rate := next_rate(trials, 10, 1000, 0.1)) is not None:
        trials.append(trial(rate, PASSED if rate < 300 else INVALID))
    answer = found(trials)
    assert 200 < answer.passed < 300
    assert answer.failed is None
    assert json.dumps(answer.to_json())
    assert not found([trial(10, INVALID)]).valid


def test_a_search_finds_what_the_queue_can_carry():
    """One worker of rate 100: P99 of its time is ln(100)/(100 - rate), so 0.2 s is kept up to 76.97 a second."""
    goal, truth = LatencyGoal(0.2), 100 - math.log(100) / 0.2
    held = 0
    for seed in range(8):
        rng, trials = np.random.default_rng(seed), []
        while (rate := next_rate(trials, 20, 200, 0.05)) is not None:
            times = queue(rng, 20_000, rate / 100) / 100 if rate < 100 else np.linspace(1, 50, 20_000)
            trials.append(trial(rate, verdict(requests.quantile_or_reason(times, 0.99), SURE, goal)))
        answer = found(trials)
        held += answer.passed <= truth <= answer.failed
        assert 0.85 * truth < answer.passed < 1.1 * truth
        assert 0.95 * truth < answer.failed < 1.2 * truth
    assert held >= 7


@pytest.mark.parametrize(
    ("words", "ends", "says"),
    [
        ({}, (10, 100), "needs a latency goal"),
        ({"slo": 1.0}, (100, 10), "not a range of rates"),
        ({"slo": 1.0}, (0, 10), "not a range of rates"),
        ({"slo": 1.0, "rate": 5}, (1, 10), "chooses the rates"),
        ({"slo": 1.0, "clients": 5}, (1, 10), "chooses the rates"),
        ({"slo": 1.0, "times": (1.0, 2.0)}, (1, 10), "chooses the rates"),
    ],
)
def test_a_search_that_cannot_be_is_refused(words, ends, says):
    with pytest.raises(BenchError, match=says):
        search(LoadSettings(url="http://127.0.0.1:1", **words), low=ends[0], high=ends[1])
