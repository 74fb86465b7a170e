"""The verdict, from hand-made weeks."""

import pytest

from fleetlab.core import PolicyError
from fleetlab.studies.tune.result import Baseline, Verdict, orders, verdict_findings, verdict_table

TRAIN = {0: 100.0, 1: 100.0}


def verdict(mine, **baselines):
    """The first baseline is the best in training; srpt preempts."""
    listed = [Baseline(name, "best_fit", {} if name == "srpt" else {w: v + k for w, v in TRAIN.items()})
              for k, name in enumerate(baselines)]  # fmt: skip
    held = {r.name: dict(enumerate(v)) for r, v in zip(listed, baselines.values(), strict=True)}
    return Verdict(dict(enumerate(mine)), held, listed, 90.0)


def test_the_interval_is_students_over_weeks():
    change = verdict([99.0, 98.0, 97.0], sjf=[100.0, 100.0, 100.0]).difference("sjf/best_fit")
    # The mean of -1, -2, -3, and 4.303 standard errors of 1/√3.
    assert tuple(change.interval()) == pytest.approx((-2, -2 - 2.4842, -2 + 2.4842), abs=1e-3)


def test_it_is_better_only_if_it_surely_beats_every_one():
    case = verdict([80.0, 81.0, 82.0], sjf=[100.0, 100.0, 103.0], fifo=[200.0, 210.0, 190.0])
    assert case.better
    assert verdict_findings(case, "mean wait", "s")[0].startswith("the tuned policy is better than every baseline")
    case = verdict([80.0, 81.0, 82.0], sjf=[100.0, 100.0, 103.0], fifo=[70.0, 210.0, 190.0])
    assert not case.better
    assert verdict_findings(case, "mean wait", "s")[0].startswith(
        "the tuned policy is better than sjf/best_fit, but not significantly than fifo/best_fit: "
    )


def test_a_gain_that_may_be_luck_is_not_called_one():
    case = verdict([99.0, 98.0, 97.0], sjf=[100.0, 100.0, 100.0])
    said = verdict_findings(case, "mean wait", "s")
    assert said[0].startswith("no policy is better than the best baseline, sjf/best_fit: ")
    assert "no different" in said[0]  # within 5 %
    assert case.word("sjf/best_fit") == "no difference"
    assert said[1] == "in training, where it was chosen, it is 10.0% lower; on held-out weeks 2.0% lower"


def test_a_policy_fitted_to_its_weeks_is_called_worse():
    case = verdict([110.0, 111.0, 112.0], sjf=[100.0, 100.0, 103.0])
    assert "the tuned one is worse" in verdict_findings(case, "mean wait", "s")[0]


def test_preemptive_baselines_do_not_decide_but_are_named():
    case = verdict([80.0, 81.0, 82.0], sjf=[100.0, 100.0, 103.0], srpt=[10.0, 11.0, 12.5])
    assert case.better
    assert verdict_findings(case, "mean wait", "s")[-1].startswith("better still: srpt/best_fit")


def test_lines_of_the_table_hold_all_at_once():
    one = verdict([80.0, 81.0, 82.0], sjf=[100.0, 100.0, 103.0])
    two = verdict([80.0, 81.0, 82.0], sjf=[100.0, 100.0, 103.0], fifo=[200.0, 210.0, 190.0])
    wide = [
        t.filter(t["policy"] == "sjf/best_fit").row(0, named=True) for t in (verdict_table(one), verdict_table(two))
    ]
    assert wide[1]["low"] < wide[0]["low"] < wide[0]["high"] < wide[1]["high"]
    # Student's 97.5 % for two degrees is 6.205, against 4.303 of 95 %.
    assert (wide[1]["high"] - wide[1]["low"]) / (wide[0]["high"] - wide[0]["low"]) == pytest.approx(6.205 / 4.303, 1e-3)


def test_the_orders_to_be_held_against():
    assert orders((), "greedy")[:2] == ["fifo", "sjf"]
    assert "srpt" in orders((), "none")
    assert "srpt" not in orders((), "easy")
    with pytest.raises(PolicyError):
        orders(["srpt", "server_filling"], "greedy")
