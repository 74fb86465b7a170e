import time
from dataclasses import dataclass

import numpy as np
import pytest

from fleetlab.gpu.bench.histogram import Histogram, percentile
from fleetlab.gpu.bench.loops import StepLog, closed_loop, open_loop, summarize_window
from fleetlab.gpu.devices.clock import HostClock


@dataclass
class Sleeper:
    """A work whose speed is known; once it stalls."""

    seconds: float = 0.002
    stall_at: int = -1
    stall: float = 0.0
    fails_at: int = -1
    count: int = 0

    def setup(self, device):
        pass

    def step(self):
        self.count += 1
        if self.count == self.fails_at:
            msg = "broken"
            raise RuntimeError(msg)
        time.sleep(self.stall if self.count == self.stall_at else self.seconds)
        return 3


def test_a_saturated_work_is_never_without_a_step():
    begin = time.monotonic()
    fed = closed_loop(Sleeper(), HostClock(), until=begin + 1.0)
    told = summarize_window(fed, begin + 0.1, begin + 0.9)
    assert told["busy"] > 0.9  # less than all: a busy machine may take the process away between two steps
    assert told["rate"] <= 3 / 0.002
    assert told["rate"] == pytest.approx(sum(fed.items) / (fed.ended[-1] - fed.begun[0]), rel=0.25)


def test_a_work_that_rests_rests():
    work = Sleeper(0.01)
    work.rests, work.pause = True, lambda busy: 3 * busy
    begin = time.monotonic()
    fed = closed_loop(work, HostClock(), until=begin + 0.5)
    assert summarize_window(fed, begin, begin + 0.5)["busy"] == pytest.approx(0.25, abs=0.1)


def test_any_work_rests_alike_for_the_same_seed_however_long_its_steps():
    def starts(seconds):
        begin = time.monotonic()
        fed = closed_loop(Sleeper(seconds), HostClock(), until=begin + 0.6, rest=0.03, seed=5)
        return np.diff(fed.begun) - (np.array(fed.ended) - np.array(fed.begun))[:-1]

    quick, slow = starts(0.001), starts(0.02)
    n = min(len(quick), len(slow))
    assert n >= 5
    assert (quick[:n] >= 0.015 - 1e-3).all()
    # A busy machine may wake a sleeper late, so the middle one is asked.
    assert np.median(np.abs(quick[:n] - slow[:n])) < 0.005
    assert np.median(quick) < 0.06


def test_a_few_pauses_already_have_their_mean_whatever_the_seed():
    class Fast(Sleeper):
        def step(self):
            return 1

    for seed in range(3):
        begin = time.monotonic()
        fed = closed_loop(Fast(), HostClock(), until=begin + 0.4, rest=0.01, seed=seed)
        gaps = np.diff(fed.begun)
        assert len(gaps) < 0.4 / 0.0095
        assert np.quantile(gaps, 0.1) < 0.0085  # they differ: a machine's lateness only adds


def test_a_step_across_a_windows_edge_counts_by_its_part():
    # Steps of 10 items from 0 to 4 and from 4 to 8: by 6 one and a half are done, by 2 half of one.
    fed = StepLog(begun=[0.0, 4.0], ended=[4.0, 8.0], items=[10, 10])
    assert summarize_window(fed, 2.0, 6.0)["rate"] == pytest.approx(10 / 4)


def test_idle_time_in_a_window_lowers_its_rate():
    fed = StepLog(begun=[0.0, 8.0], ended=[2.0, 10.0], items=[10, 10])
    told = summarize_window(fed, 0.0, 10.0)
    assert told["rate"] == pytest.approx(2.0)
    assert told["busy"] == pytest.approx(0.4)
    assert told["rates"][4:6] == [0, 0]


def test_a_tenant_that_does_nothing_has_rate_0():
    told = summarize_window(StepLog(), 0.0, 1.0)
    assert (told["rate"], told["steps"], told["p50"]) == (0, 0, "n too small for P50: 0 of 6")


def test_a_failure_keeps_what_was_done_before_it():
    fed = closed_loop(Sleeper(fails_at=5), HostClock(), until=time.monotonic() + 5)
    assert str(fed.error) == "broken"
    assert len(fed.ended) >= 3


def test_a_stall_is_seen_by_all_whom_it_kept_waiting():
    """400 requests in 0.8 s, a stall of 0.4 s in the middle: half of them wait, and P99 says how long."""
    begin = time.monotonic() + 0.01
    due = begin + np.arange(400) * 0.002
    fed = open_loop(Sleeper(0.0002, stall_at=150, stall=0.4), HostClock(), due=due, until=begin + 5)
    told = summarize_window(fed, begin, begin + 0.8)
    assert told["steps"] == 400
    assert percentile(Histogram.from_json(told["times"]), 0.99).low > 0.3
    waited = np.mean(np.array(fed.ended) - np.array(fed.begun) > 0.02)
    assert waited > 0.3


def test_a_timetable_beyond_its_time_says_what_it_did_not_send():
    begin = time.monotonic()
    fed = open_loop(Sleeper(0.02), HostClock(), due=begin + np.arange(100) * 0.001, until=begin + 0.2)
    assert fed.unsent + len(fed.ended) == 100
    assert fed.unsent > 50


def test_a_feeder_that_keeps_up_sends_on_time():
    begin = time.monotonic() + 0.01
    fed = open_loop(Sleeper(0.0001), HostClock(), due=begin + np.arange(50) * 0.004, until=begin + 5)
    assert np.median(fed.lags) < 0.002
