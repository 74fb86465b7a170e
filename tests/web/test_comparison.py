"""A scenario compared with the baseline: paired where it can be, and never surer than it is."""

import math

import numpy as np
import polars as pl
import pytest

from fleetlab import Prices, Provenance, simulate
from fleetlab.core.scenario import Scenario
from fleetlab.stats import BlockBootstrap, paired_difference
from fleetlab.web.comparison import METRICS, as_result, compare_runs
from fleetlab.web.link import Link
from fleetlab.web.records import Part, RunRecord, save
from fleetlab.web.runs import completed_by_both, decode, of_part, pack, run_scenario, unpack


def beside(base, now):
    return compare_runs(Link.of("order=sjf"), base, now, "")


def outcome_of(trace, record=None, **words):
    measured = {} if record is None else {"measured": lambda run: save(run, record)}
    return run_scenario(Scenario.of(trace, **words), **measured) | {"seconds": 1.0, "cpu_seconds": 1.0}


def on_the_same_jobs(trace, folder, **words):
    """Compare a scenario with the defaults, as the page does: on the jobs that completed in both."""
    outcomes = outcome_of(trace, folder / "base"), outcome_of(trace, folder / "now", **words)
    part = Part(among=pack(completed_by_both(*outcomes)))
    records = (RunRecord.load_from(folder / name) for name in ("base", "now"))
    return beside(*(of_part(o, r.measure(part, Prices())) for o, r in zip(outcomes, records, strict=True)))


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
    said, before = ({e["metric"]: e["value"] for e in (*o["exact"], *o["result"]["summary"])} for o in (sjf, base))
    told = rows(beside(base, sjf))
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


def test_twice_the_load_makes_jobs_wait_more_and_gpus_busier(small):
    # From empty: in a steady state GPUs that are always asked for cannot become busier.
    told = rows(beside(outcome_of(small, warm_up="none"), outcome_of(small, warm_up="none", load=2.0)))
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


@pytest.mark.parametrize("nodes", ["V100 0", "MISC 0", "P100 0", "T4 0", "MISC 0, V100 0"])
def test_jobs_that_cannot_run_are_the_first_row_and_make_no_wait_look_better(small, tmp_path, nodes):
    told = on_the_same_jobs(small, tmp_path, nodes=nodes)
    first, wait = told["rows"][0], rows(told)["mean wait"]
    assert (first["metric"], first["better"], first["verdict"]) == ("jobs that cannot run", "lower", "higher")
    assert f"{first['now']['text']} of 2,000 jobs (" in told["findings"][0]
    assert not any(row["verdict"] == row["better"] for row in told["rows"])  # nothing is green
    runs = [simulate(small, nodes=words, min_coverage=0.0) for words in ("", nodes)]
    jobs = [run.jobs.filter(pl.col("status") == "done") for run in runs]
    both = jobs[0].join(jobs[1], on="job", how="inner")
    assert (wait["base"]["value"], wait["now"]["value"]) == pytest.approx(
        (both["wait"].mean(), both["wait_right"].mean())
    )
    only = jobs[0].height - both.height
    assert f"of the {both.height:,} of 2,000 jobs" in told["population"]
    assert f"{only:,} completed only in the baseline, 0 only in the scenario" in told["population"]
    for side in ("base", "now"):
        total = sum(reason[side]["value"] for reason in told["wait_reasons"])
        assert total == pytest.approx(wait[side]["value"])


def test_fewer_nodes_never_look_like_an_improvement(small, base):
    # On this trace the mean wait falls when a rack is lost: the jobs of another type go first.
    link = Link.of("nodes=MISC -8")
    told = compare_runs(link, base, outcome_of(small, nodes="MISC -8"), "")
    wait = rows(told)["mean wait"]
    assert (wait["verdict"], wait["better"]) == ("lower", None)
    assert "Fewer nodes do not make jobs wait less" in told["headline"]
    more = compare_runs(Link.of("nodes=MISC +10"), base, outcome_of(small, nodes="MISC +10"), "")
    assert rows(more)["mean wait"]["better"] == "lower"
    assert "Fewer nodes" not in more["headline"]


def test_flags_of_jobs_are_packed_into_text_and_back():
    flags = np.random.default_rng(1).random(1001) < 0.3
    assert (unpack(pack(flags), 1001) == flags).all()


def test_rates_are_per_day_and_do_not_fall_because_the_same_jobs_come_in_fewer_days(small):
    told = rows(beside(outcome_of(small, warm_up="none"), outcome_of(small, warm_up="none", load=1.25)))
    assert told["cost per day"]["verdict"] == "same"
    assert told["energy per day"]["verdict"] == told["GPU-hours allocated per day"]["verdict"] == "higher"
    # GPU-hours of nodes that are up: all GPUs, 24 hours a day.
    assert told["cost per day"]["now"]["value"] == pytest.approx(24 * small.cluster.frame["gpus"].sum())


def test_the_wait_in_the_log_stands_beside_that_of_the_baseline(small, base, busier):
    told, jobs = beside(base, busier)["recorded"], small.workload.frame
    both = jobs.filter(pl.Series(unpack(base["completed"], base["jobs"])) & pl.col("start").is_not_null())
    assert told["recorded"]["value"] == pytest.approx((both["start"] - both["submit"]).mean())
    waits = dict(zip(*simulate(small).jobs.select("job", "wait"), strict=True))
    assert told["simulated"]["value"] == pytest.approx(np.mean([waits[job] for job in both["job"]]))
    assert told["jobs"] == both.height
    never = sum(base["refused"].values())
    assert never
    assert f"of the 2,000 jobs of the log, {never} cannot run on the cluster" in told["why"]
    assert "had other rules than" in told["why"]
    assert "start-up latency" in told["why"]


def test_a_log_without_starts_has_no_recorded_wait(hostile):
    found = outcome_of(hostile)
    assert beside(found, found)["recorded"] is None


def test_the_report_of_a_comparison_has_the_intervals_of_the_page(small, base, busier):
    answer = beside(base, busier)
    result = as_result(answer, Provenance("simulate", "small"))
    assert any("recorded in the log" in note for note in result.notes)
    frame = result.tables()["difference from the baseline"]
    change = rows(answer)["mean wait"]["change"]
    assert frame.row(by_predicate=pl.col("metric") == "mean wait", named=True)["low"] == change["low"]


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
    direct = simulate(scenario.replace(min_coverage=0.0))
    assert summary["mean wait"] == pytest.approx(direct.summary()[0].value, nan_ok=True)
