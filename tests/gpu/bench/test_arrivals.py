import numpy as np
import pytest

from fleetlab.gpu.bench.loops import arrivals
from fleetlab.gpu.devices.console import BenchError


def test_a_timetable_is_the_same_for_the_same_seed_and_a_longer_one_begins_like_it():
    short, long = arrivals(50, 10, seed=3), arrivals(50, 20, seed=3)
    assert (long[: len(short)] == short).all()
    assert (arrivals(50, 10, seed=4)[:5] != short[:5]).all()


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_and_the_spread_that_was_asked_for(burstiness):
    gaps = np.diff(arrivals(100, 2000, seed=1, burstiness=burstiness))
    # 200,000 gaps: the mean's error is CV/√n, here at most 2/447; that of the CV is below 2 % for these shapes.
    assert gaps.mean() == pytest.approx(0.01, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)


@pytest.mark.parametrize("words", [{"rate": 0}, {"rate": float("nan")}, {"seconds": -1}, {"burstiness": 0}])
def test_a_timetable_that_cannot_be_is_refused(words):
    with pytest.raises(BenchError, match="not an arrival process"):
        arrivals(**({"rate": 1, "seconds": 1, "seed": 0} | words))


def test_no_time_has_no_arrivals():
    assert arrivals(10, 0, seed=0).size == 0
