"""A scenario beside the baseline: paired where it can be, and never surer than it is."""

import math

import numpy as np
import pytest

from fleetlab.web.beside import SHOWN, answer, paired
from fleetlab.web.outcome import BLOCKS, PAIRED, played
from fleetlab.web.scenario import Link, Scenario

T19 = 2.093024  # Student's t of 19 degrees of freedom at 95 %, from tables


def beside(base, now):
    return answer(Link(Scenario(order="sjf"), Scenario()), base, now, "")


def rows(told):
    return {row["metric"]: row for row in told["rows"]}


@pytest.fixture(scope="module")
def base(small):
    return played(small, Scenario()) | {"seconds": 1.0, "cpu_seconds": 1.0}


@pytest.fixture(scope="module")
def sjf(small):
    return played(small, Scenario(order="sjf")) | {"seconds": 1.0, "cpu_seconds": 1.0}


@pytest.fixture(scope="module")
def busier(small):
    return played(small, Scenario(load=2.0)) | {"seconds": 1.0, "cpu_seconds": 1.0}


def test_an_interval_of_a_change_is_students_over_the_differences_of_blocks():
    apart = np.random.default_rng(1).normal(3.0, 2.0, BLOCKS)
    assert paired([0.0] * BLOCKS, apart.tolist()) == pytest.approx(T19 * apart.std(ddof=1) / BLOCKS**0.5, rel=1e-6)


def test_what_two_runs_share_cancels():
    busy = np.random.default_rng(1).exponential(1000.0, BLOCKS)
    assert paired(busy.tolist(), (busy + 5.0).tolist()) == pytest.approx(0.0, abs=1e-9)


def test_blocks_that_do_not_match_give_no_interval():
    assert math.isnan(paired([1.0, 2.0], [1.0]))
    assert math.isnan(paired([1.0, None], [1.0, 2.0]))
    assert math.isnan(paired([], []))


def test_the_same_run_is_the_same_and_says_so(base):
    told = beside(base, base)
    assert {row["verdict"] for row in told["rows"]} == {"same"}
    assert all(row["change"]["value"] == 0 for row in told["rows"])


def test_the_same_scenario_played_twice_has_no_change_and_an_interval_of_none(small, base):
    again = played(small, Scenario()) | {"seconds": 1.0, "cpu_seconds": 1.0}
    change = rows(beside(base, again))["mean wait"]["change"]
    assert (change["value"], change["low"], change["high"]) == (0.0, 0.0, 0.0)


def test_values_are_those_of_the_simulator_and_changes_their_differences(base, sjf):
    told, said = rows(beside(base, sjf)), {e["metric"]: e["value"] for e in sjf["result"]["summary"]}
    before = {e["metric"]: e["value"] for e in base["result"]["summary"]}
    assert set(told) == set(SHOWN)
    for metric, row in told.items():
        assert row["now"]["value"] == said[metric]
        assert row["change"]["value"] == pytest.approx(said[metric] - before[metric])


def test_the_mean_of_the_blocks_is_about_the_mean(base):
    # Blocks hold as many jobs, but for those that were refused.
    mean = next(e["value"] for e in base["result"]["summary"] if e["metric"] == "mean wait")
    assert np.mean(base["blocks"]["mean wait"]) == pytest.approx(mean, rel=0.1)
    assert {len(base["blocks"][metric]) for metric in PAIRED} == {BLOCKS}


def test_the_reasons_together_are_the_mean_wait(base, sjf):
    told = beside(base, sjf)
    for side in ("base", "now"):
        total = sum(reason[side]["value"] for reason in told["ledger"])
        assert total == pytest.approx(rows(told)["mean wait"][side]["value"])


def test_twice_the_load_makes_jobs_wait_more_and_gpus_busier(base, busier):
    told = rows(beside(base, busier))
    assert told["mean wait"]["change"]["value"] > 0
    assert told["GPU allocation while jobs arrive"]["change"]["value"] > 0


def test_a_paired_interval_is_not_wider_than_one_as_if_runs_were_apart(base, sjf):
    row = rows(beside(base, sjf))["mean JCT"]
    apart = math.hypot(*((row[side]["high"] - row[side]["low"]) / 2 for side in ("base", "now")))
    assert (row["change"]["high"] - row["change"]["low"]) / 2 < apart


def test_a_verdict_is_given_only_where_the_interval_leaves_out_zero(base, busier):
    for row in rows(beside(base, busier)).values():
        change = row["change"]
        if row["verdict"] in ("less", "more"):
            assert change["low"] > 0 or change["high"] < 0
        elif row["verdict"] == "unclear":
            assert change["low"] <= 0 <= change["high"]


def test_sentences_say_what_moved(base, busier):
    said = beside(base, busier)["findings"]
    assert any("mean wait" in line.lower() and "from" in line for line in said)
    assert any(line.startswith("Most waiting is charged to") for line in said)


def test_few_jobs_have_numbers_without_intervals(hostile):
    few = hostile.workload.frame.head(50)
    from dataclasses import replace

    from fleetlab import Workload

    trace = replace(hostile, workload=Workload.of(few.drop("job"), source="few"))
    found = played(trace, Scenario()) | {"seconds": 0.0, "cpu_seconds": 0.0}
    told = beside(found, dict(found))
    assert rows(told)["mean wait"]["change"]["low"] is None
    assert rows(told)["mean wait"]["verdict"] == "unknown"
    assert any("too few jobs" in note for note in told["notes"])


def test_other_jobs_that_can_never_run_are_pointed_out(small, base):
    fewer = played(small, Scenario(nodes=(("V100", 0),))) | {"seconds": 1.0, "cpu_seconds": 1.0}
    assert any("more jobs than in the baseline can never run" in note for note in beside(base, fewer)["notes"])
