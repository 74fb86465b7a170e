"""Runtimes of which some were not seen to their end."""

import numpy as np
import pytest

from fleetlab.describe.curves import kaplan_meier
from fleetlab.stats import NORMAL

# Weeks of remission under 6-MP, of Freireich and others (Blood 21, 1963), the textbook's example; + was still in it.
WEEKS = "6 6 6 6+ 7 9+ 10 10+ 11+ 13 16 17+ 19+ 20+ 22 23 25+ 32+ 32+ 34+ 35+"
PRINTED = {6: (0.857, 0.0764), 7: (0.807, 0.0869), 10: (0.753, 0.0963), 13: (0.690, 0.1068), 16: (0.627, 0.1141),
           22: (0.538, 0.1282), 23: (0.448, 0.1346)}  # fmt: skip


@pytest.fixture
def remission():
    time = np.array([float(w.rstrip("+")) for w in WEEKS.split()])
    return kaplan_meier("6-MP", time, np.array([not w.endswith("+") for w in WEEKS.split()]))


def test_the_textbook_s_example_comes_out_as_printed(remission):
    assert remission.time.tolist() == list(PRINTED)
    assert remission.alive.tolist() == pytest.approx([share for share, _ in PRINTED.values()], abs=5e-4)
    error = remission.alive * np.sqrt(np.cumsum(remission._spread))
    assert error.tolist() == pytest.approx([error for _, error in PRINTED.values()], abs=5e-5)


def test_the_textbook_s_median_comes_out_and_its_upper_end_is_beyond_the_study(remission):
    assert remission.quantile(0.5) == (23, 13, np.inf)
    assert (remission.count, remission.ended, remission.censored) == (21, 9, 12)


def test_intervals_are_greenwood_s_on_the_double_logarithm(remission):
    share, error = remission.alive[0], remission.alive[0] * np.sqrt(remission._spread[0])
    wide = np.exp(NORMAL * error / (share * abs(np.log(share))))
    assert (remission.low[0], remission.high[0]) == pytest.approx((share**wide, share ** (1 / wide)))


def test_without_anybody_still_running_it_is_the_plain_distribution():
    time = np.array([3.0, 1.0, 2.0, 2.0, 8.0])
    found = kaplan_meier("all", time, np.ones(5, dtype=bool))
    assert dict(zip(found.time.tolist(), found.alive.tolist(), strict=True)) == pytest.approx(
        {1: 0.8, 2: 0.4, 3: 0.2, 8: 0.0}
    )
    assert found.mean()[0] == pytest.approx(time.mean())


def test_an_exponential_law_is_found_again_though_half_are_cut_off():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(60):
        life, cut = rng.exponential(1.0, 400), rng.exponential(1.0, 400)
        found = kaplan_meier("exp", np.minimum(life, cut), life <= cut)
        value, low, high = found.quantile(0.5)
        inside += low <= np.log(2) <= high
        assert value == pytest.approx(np.log(2), abs=0.3)
    assert inside >= 51  # of 60 intervals of 95 %: fewer come once in ten thousand times


def test_nobody_ended_and_nobody_there_are_no_accident():
    alive = kaplan_meier("alive", np.array([5.0, 6.0]), np.zeros(2, dtype=bool))
    assert alive.quantile(0.5)[0] == np.inf
    assert (len(alive.points()), alive.mean()[0]) == (0, 6)
    assert kaplan_meier("none", np.zeros(0), np.zeros(0, dtype=bool)).count == 0
