"""Two traces beside each other."""

import numpy as np
import pytest

import fleetlab
from fleetlab.describe.curves import ecdf
from fleetlab.describe.published import distances, wasserstein, widest


def test_a_trace_is_at_no_distance_from_itself():
    trace = fleetlab.synthesize("pai2020", jobs=3000)
    rows = fleetlab.describe(trace, against=trace, only=["runtimes", "requests"]).tables()["distances"]
    assert rows.height > 20
    assert rows["KS distance, points"].max() == rows["Wasserstein"].max() == rows["difference"].max() == 0
    assert (rows["difference low"] <= 0).all()
    assert (rows["difference high"] >= 0).all()


def test_values_moved_by_seven_are_at_a_distance_of_seven():
    x = np.random.default_rng(0).exponential(10.0, 500)
    assert wasserstein(ecdf("x", x), ecdf("x", x + 7)) == pytest.approx(7)


def test_the_widest_gap_of_a_pair_by_hand():
    a, b = ecdf("x", np.array([1.0, 2.0, 3.0, 4.0])), ecdf("x", np.array([3.0, 4.0, 5.0, 6.0]))
    assert widest(a, b) == (0.5, 2)
    assert wasserstein(a, b) == 2


def test_the_gap_of_two_uniform_laws_lies_in_its_interval():
    rng, inside = np.random.default_rng(5), 0
    for _ in range(40):
        a, b = ecdf("x", rng.random(2000)), ecdf("x", 0.9 * rng.random(3000))
        row = distances({"f": [a]}, {"f": [b]}, {"f": "s"}).row(0, named=True)
        assert row["KS distance, points"] == pytest.approx(10, abs=5)
        inside += row["KS low"] <= 10 <= row["KS high"]
    assert inside == 40  # the bands are wide: they hold for the whole curve


def test_medians_of_one_law_are_apart_by_less_than_is_sure():
    rng, inside = np.random.default_rng(6), 0
    for _ in range(100):
        pair = [{"f": [ecdf("x", rng.exponential(1.0, 300))]} for _ in range(2)]
        row = distances(*pair, {}).row(0, named=True)
        inside += row["difference low"] <= 0 <= row["difference high"]
    assert inside >= 90


def test_what_only_one_trace_has_is_left_out(traced):
    ours = traced(submit=[0.0, 1.0], runtime=[1.0, 2.0])
    theirs = traced(submit=[0.0, 1.0], start=[0.0, 1.0])
    found = fleetlab.describe(ours, against=theirs, only=["runtimes"])
    assert found.tables()["distances"].is_empty()


def test_both_are_drawn_on_the_same_axes_and_bear_their_names(traced):
    ours = traced(submit=[0.0, 1.0], runtime=[1.0, 2.0], source="ours")
    theirs = traced(submit=[0.0, 1.0], runtime=[3.0, 4.0], source="theirs")
    found = fleetlab.describe(ours, against=theirs, only=["runtimes"])
    assert set(found.figures()["runtime"].frame["series"]) == {"ours: jobs", "theirs: jobs"}
    assert found.provenance.settings["against"] == "theirs"
