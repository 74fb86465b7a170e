"""A scenario compared with the baseline: paired where it can be, and never surer than it is."""

import math

import pytest

from fleetlab import Provenance, simulate
from fleetlab.core.scenario import Scenario
from fleetlab.stats import BlockBootstrap, paired_difference
from fleetlab.web.comparison import METRICS, as_result, compare_runs
from fleetlab.web.link import Link
from fleetlab.web.runs import decode, run_scenario


def beside(base, now):
    return compare_runs(Link.of("order=sjf"), base, now, "")


def outcome_of(trace, **words):
    return run_scenario(Scenario.of(trace, **words)) | {"seconds": 1.0, "cpu_seconds": 1.0}


def rows(told):
    return {row["metric"]: row for row in told["rows"]}


@pytest.fixture(scope="module")
def base(small):
    return outcome_of(small)


@pytest.fixture(scope="module")
def sjf(small):
    return outcome_of(small, order="sjf")


@pytest.fixture(scope="module")
def busier(small):
    return outcome_of(small, load=2.0)


def test_the_same_run_is_the_same_and_says_so(base):
    told = beside(base, base)
    assert {row["verdict"] for row in told["rows"]} == {"same"}
    assert all(row["change"]["value"] == 0 for row in told["rows"])


def test_the_same_scenario_played_twice_has_no_change_and_an_interval_of_none(small, base):
    again = outcome_of(small)
    change = rows(beside(base, again))["mean wait"]["change"]
    assert (change["value"], change["low"], change["high"]) == (0.0, 0.0, 0.0)


def test_values_are_those_of_the_simulator_and_changes_their_differences(base, sjf):
    told, said = rows(beside(base, sjf)), {e["metric"]: e["value"] for e in sjf["result"]["summary"]}
    before = {e["metric"]: e["value"] for e in base["result"]["summary"]}
    assert set(told) == set(METRICS)
    for metric, row in told.items():
        assert row["now"]["value"] == said[metric]
        assert row["change"]["value"] == pytest.approx(said[metric] - before[metric])


def test_replicates_are_of_the_metrics_of_the_simulator(base):
    summary = {e["metric"]: e["value"] for e in base["result"]["summary"]}
    for metric, values in base["replicates"].items():
        assert decode(values).values[0] == pytest.approx(summary[metric])


def test_the_interval_of_a_change_is_that_of_stats(small, base, sjf):
    runs = [simulate(small, order=order).jobs for order in ("fifo", "sjf")]
    bootstrap = BlockBootstrap.of_times(runs[0]["submit"].to_numpy(), small.workload.frame["submit"].max())
    before, after = (bootstrap.means(jobs["wait"].to_numpy()) for jobs in runs)
    change = rows(beside(base, sjf))["mean wait"]["change"]
    assert (change["value"], change["low"], change["high"]) == pytest.approx(
        paired_difference(before, after).interval()
    )


def test_the_reasons_together_are_the_mean_wait(base, sjf):
    told = beside(base, sjf)
    for side in ("base", "now"):
        total = sum(reason[side]["value"] for reason in told["wait_reasons"])
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
        if row["verdict"] in ("lower", "higher"):
            assert change["low"] > 0 or change["high"] < 0
        elif row["verdict"] == "not significant":
            assert change["low"] <= 0 <= change["high"]


def test_sentences_say_what_moved(base, busier):
    said = beside(base, busier)["findings"]
    assert any("mean wait" in line.lower() and "from" in line for line in said)
    assert any(line.startswith("The most wait is due to") for line in said)


def test_few_jobs_have_numbers_without_intervals(hostile):
    few = hostile.workload.frame.head(50)
    from dataclasses import replace

    from fleetlab import Workload

    trace = replace(hostile, workload=Workload.of(few.drop("job"), source="few"))
    found = outcome_of(trace)
    told = beside(found, dict(found))
    assert rows(told)["mean wait"]["change"]["low"] is None
    assert rows(told)["mean wait"]["verdict"] == "unknown"
    assert any("too few jobs" in note for note in told["notes"])


def test_other_jobs_that_can_never_run_are_pointed_out(small, base):
    fewer = outcome_of(small, nodes="V100 0")
    assert any("more jobs than in the baseline can never run" in note for note in beside(base, fewer)["notes"])


def test_the_report_of_a_comparison_has_the_intervals_of_the_page(small, base, busier):
    answer = beside(base, busier)
    frame = as_result(answer, Provenance("simulate", "small")).tables()["difference from the baseline"]
    change = rows(answer)["mean wait"]["change"]
    assert frame.row(0, named=True)["low"] == change["low"]


@pytest.mark.parametrize(
    "words",
    [
        {"preemption": True, "order": "las"},
        {"quota": 4},
        {"nodes": "T4 +20%"},
        {"until": 3600},
        {"placement": "random", "seed": 3},
        {"events": '[{"event":"faults","mtbf":86400,"mttr":600}]', "recovery": "every=600"},
        {"sharing": "mps", "speed": "h200"},
    ],
    ids=lambda words: next(iter(words)),
)
def test_what_the_simulator_can_do_the_page_can_do(small, words):
    scenario = Scenario.of(small, **words)
    summary = {e["metric"]: e["value"] for e in run_scenario(scenario)["result"]["summary"]}
    direct = simulate(scenario)
    assert summary["mean wait"] == pytest.approx(direct.summary()[0].value, nan_ok=True)
