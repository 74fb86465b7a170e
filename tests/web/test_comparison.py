"""A scenario compared with the baseline: paired where it can be, and never surer than it is."""

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest

from fleetlab import Prices, Provenance, compare, simulate
from fleetlab.core.data import open_trace
from fleetlab.core.scenario import Scenario
from fleetlab.studies.compare.runs import Runs
from fleetlab.web.comparison import METRICS, as_result, compare_runs
from fleetlab.web.link import Link
from fleetlab.web.runs import RunRecord, check_size, measure_replica, save


def beside(base, now, query="order=sjf"):
    return compare_runs(Link.of(query), base, now)


@pytest.fixture(scope="module")
def record_of(tmp_path_factory):
    """Simulates as the page does, and stores the run."""

    def record(trace, **words):
        run = simulate(check_size(Scenario.of(trace, **words)))
        folder = tmp_path_factory.mktemp("records") / "one"
        save(run, folder)
        return RunRecord.load(folder)

    return record


@pytest.fixture(scope="module")
def refined(small, record_of):
    """Compares two scenarios of one trace by replicas, as the page does."""

    def refine(before, after, query="order=sjf", trace=small):
        words = {"baseline": before, "scenario": after}
        records = {name: record_of(trace, **own) for name, own in words.items()}
        arguments = {name: {"folder": r.folder, "progress": lambda *_: None} for name, r in records.items()}
        scenarios = {name: check_size(Scenario.of(trace, **own)) for name, own in words.items()}
        runs = Runs.of(
            scenarios, workers=0, progress=lambda *_: None, function=measure_replica, arguments=arguments
        )  # fmt: skip
        return compare_runs(Link.of(query), *records.values(), drawn=False, runs=runs)

    return refine


@pytest.fixture(scope="module")
def twice(refined):
    """Twice the load, from an empty cluster."""
    return refined({"warm_up": "none"}, {"warm_up": "none", "load": 2.0}, "warm_up=none&load=2&base=warm_up%3Dnone")


def rows(told):
    return {row["metric"]: row for row in told["rows"]}


@pytest.fixture(scope="module")
def base(small, record_of):
    return record_of(small)


@pytest.fixture(scope="module")
def sjf(small, record_of):
    return record_of(small, order="sjf")


@pytest.fixture(scope="module")
def busier(small, record_of):
    return record_of(small, load=2.0)


def test_the_same_run_is_the_same_and_says_so(base):
    told = beside(base, base)
    assert {row["verdict"] for row in told["rows"]} == {"no difference"}
    assert all(row["change"]["value"] == 0 for row in told["rows"])


def test_the_same_scenario_played_twice_makes_no_difference(small, base, record_of):
    again = record_of(small)
    told = rows(beside(base, again))
    assert {row["change"]["value"] for row in told.values()} == {0.0}
    assert {row["verdict"] for row in told.values()} == {"no difference"}


def test_values_are_those_of_the_simulator_and_changes_their_differences(base, sjf):
    said, before = ({m: e.value for m, e in one.measure(Prices()).estimates.items()} for one in (sjf, base))
    told = rows(beside(base, sjf))
    assert set(told) == set(METRICS)
    for metric, row in told.items():
        assert row["now"]["value"] == said[metric]
        assert row["change"]["value"] == pytest.approx(said[metric] - before[metric])


def test_replicas_have_the_numbers_of_compare(small, twice):
    result = compare([Scenario.of(small, warm_up="none", load=load) for load in (1.0, 2.0)], workers=0)
    assert len(result.records) == 3
    for record in result.records:
        row = rows(twice)[record.metric]
        assert (row["verdict"], twice["scope"], twice["replicas"]) == (record.verdict, record.scope, record.replicas)
        ours = [row[side]["value"] for side in ("base", "now")], *(row["change"][x] for x in ("value", "low", "high"))
        theirs = [record.before, record.after], record.difference, record.low, record.high
        assert ours[0] == pytest.approx(theirs[0])
        assert ours[1:] == pytest.approx(theirs[1:])


def test_one_run_has_no_interval_and_decides_only_what_cannot_run(base, busier):
    told = beside(base, busier)
    assert (told["replicas"], told["planned"]) == (1, 5)
    assert {row[side]["low"] for row in told["rows"] for side in ("base", "now", "change")} - {0.0, 13.0} == {None}
    assert {row["verdict"] for row in told["rows"]} == {"not decided", "no difference"}


def test_a_part_of_the_jobs_has_replicas_of_that_part(refined):
    part = rows(refined({}, {"order": "sjf"}, "order=sjf&submitted=2000..5000"))
    whole = rows(refined({}, {"order": "sjf"}))
    assert part["mean wait"]["base"]["value"] != whole["mean wait"]["base"]["value"]
    assert part["mean wait"]["change"]["low"] is not None
    assert part["energy per day"]["change"]["low"] is None  # of one run


def test_the_reasons_together_are_the_mean_wait(base, sjf):
    told = beside(base, sjf)
    for side in ("base", "now"):
        total = sum(reason[side]["value"] for reason in told["wait_reasons"])
        assert total == pytest.approx(rows(told)["mean wait"][side]["value"])


def test_twice_the_load_makes_jobs_wait_more_and_gpus_busier(small, record_of):
    # From empty: in a steady state GPUs that are always asked for cannot become busier.
    told = rows(beside(record_of(small, warm_up="none"), record_of(small, warm_up="none", load=2.0)))
    assert told["mean wait"]["change"]["value"] > 0
    assert told["GPU allocation while jobs arrive"]["change"]["value"] > 0


def test_a_paired_interval_is_not_wider_than_one_as_if_runs_were_apart(refined):
    row = rows(refined({}, {"order": "sjf"}))["mean JCT"]
    apart = math.hypot(*((row[side]["high"] - row[side]["low"]) / 2 for side in ("base", "now")))
    assert (row["change"]["high"] - row["change"]["low"]) / 2 < apart


def test_a_verdict_is_given_only_where_the_interval_leaves_out_zero(twice):
    for row in twice["rows"]:
        change = row["change"]
        if row["verdict"] in ("better", "worse", "lower", "higher"):
            assert change["low"] > 0 or change["high"] < 0
    assert rows(twice)["mean wait"]["verdict"] == "worse"
    assert "mean wait rises from" in twice["headline"]


def test_one_run_says_what_moved_without_a_claim(base, busier):
    said = beside(base, busier)["findings"]
    assert any("mean wait" in line.lower() and "in one run" in line for line in said)
    assert any(line.startswith("The most wait is due to") for line in said)


@pytest.mark.parametrize("nodes", ["V100 0", "MISC 0", "P100 0", "T4 0", "MISC 0, V100 0"])
def test_jobs_that_cannot_run_are_the_first_row_and_make_no_wait_look_better(small, base, record_of, nodes):
    told = beside(base, record_of(small, nodes=nodes))
    first, wait = told["rows"][0], rows(told)["mean wait"]
    assert (first["metric"], first["better"], first["verdict"]) == ("jobs that cannot run", "lower", "worse")
    assert f"{first['now']['text']} of 2,000 jobs (" in told["findings"][0]
    assert not any(row["verdict"] == "better" for row in told["rows"])  # nothing is green
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


def test_fewer_nodes_never_look_like_an_improvement(small, base, refined, record_of):
    told = refined({}, {"nodes": "V100M32 -2"}, "nodes=V100M32 -2")
    assert not any(row["verdict"] == "better" for row in told["rows"])
    more = beside(base, record_of(small, nodes="MISC +10"), "nodes=MISC +10")
    assert rows(more)["mean wait"]["better"] == "lower"


def test_jobs_that_cannot_run_make_no_wait_look_better_in_replicas(refined):
    told = refined({}, {"nodes": "MISC 0"}, "nodes=MISC 0")
    assert told["rows"][0]["verdict"] == "worse"
    assert not any(row["verdict"] == "better" for row in told["rows"])


def test_rates_are_per_day_and_do_not_fall_because_the_same_jobs_come_in_fewer_days(small, refined):
    # Of a cluster that is full already, the rates rise by less than the margin of no difference.
    told = rows(refined({"warm_up": "none", "load": 0.5}, {"warm_up": "none", "load": 2.0}))
    assert told["cost per day"]["verdict"] == "no difference"
    assert told["energy per day"]["verdict"] == told["GPU-hours allocated per day"]["verdict"] == "higher"
    # GPU-hours of nodes that are up: all GPUs, 24 hours a day.
    assert told["cost per day"]["now"]["value"] == pytest.approx(24 * small.cluster.frame["gpus"].sum())


@pytest.fixture(scope="module")
def logged(small):
    """The same jobs as the log of a cluster."""
    return replace(small, workload=replace(small.workload, source="csv:jobs"))


def test_the_wait_in_the_log_stands_beside_that_of_the_baseline(logged, record_of):
    base = record_of(logged)
    told, jobs = beside(base, base)["recorded"], logged.workload.frame
    both = jobs.filter(pl.col("job").is_in(base.done["job"].implode()) & pl.col("start").is_not_null())
    assert told["recorded"]["value"] == pytest.approx((both["start"] - both["submit"]).mean())
    waits = dict(zip(*simulate(logged).jobs.select("job", "wait"), strict=True))
    assert told["simulated"]["value"] == pytest.approx(np.mean([waits[job] for job in both["job"]]))
    assert told["jobs"] == both.height
    never = sum(base.measure(Prices()).refused.values())
    assert never
    assert f"not simulated: {never} cannot run on the cluster" in told["why"]


def test_all_numbers_of_the_page_begin_with_the_mean_over_replicas(logged, refined, record_of):
    answer, of_one = refined({}, {"order": "sjf"}, trace=logged), record_of(logged)
    waits, reasons = rows(answer)["mean wait"], answer["wait_reasons"]
    for side in ("base", "now"):
        assert sum(row[side]["value"] for row in reasons) == pytest.approx(waits[side]["value"])
    simulated = answer["recorded"]["simulated"]["value"]
    assert simulated != pytest.approx(beside(of_one, of_one)["recorded"]["simulated"]["value"])
    if answer["recorded"]["jobs"] == of_one.done.height:
        assert simulated == pytest.approx(waits["base"]["value"])


def test_waits_that_nobody_had_are_no_recorded_ones(base):
    assert beside(base, base)["recorded"] is None  # of a synthetic trace


def test_why_they_differ_is_said_only_where_they_do():
    trace = open_trace("sample")
    scenario = check_size(Scenario.of(trace))
    run = simulate(scenario)
    with TemporaryDirectory() as folder:
        save(run, Path(folder) / "one")
        close = RunRecord.load(Path(folder) / "one")
        told = beside(close, close, "")
    assert told["recorded"]["simulated"]["value"] == pytest.approx(told["recorded"]["recorded"]["value"], rel=0.05)
    assert told["recorded"]["why"] == ""
    assert told["scheduler"] == {
        "title": "Slurm as configured", "replaces": "", "settings": [], "notes": [], "error": "±14 %",
        "accuracy": "simulated mean waits are within ±14 % of real ones in 42 of 50 recorded runs of Slurm 22.05.8",
    }  # fmt: skip
    assert (told["title"], told["base_title"]) == ("slurm", "slurm")


def test_a_policy_in_the_place_of_the_scheduler_of_a_site_is_named(record_of):
    ideal = record_of(open_trace("sample"), backfill="easy")
    told = beside(ideal, ideal, "backfill=easy")
    assert (told["scheduler"]["title"], told["scheduler"]["replaces"]) == ("fifo/easy/best_fit", "Slurm")
    assert "Slurm is not simulated, but fifo/easy/best_fit" in told["recorded"]["why"]


def test_a_log_without_starts_has_no_recorded_wait(hostile, record_of):
    found = record_of(hostile)
    assert beside(found, found)["recorded"] is None


def test_the_report_of_a_comparison_has_the_intervals_of_the_page(twice):
    answer = twice
    result = as_result(answer, Provenance("simulate", "small"))
    frame = result.tables()["difference from the baseline"]
    change = rows(answer)["mean wait"]["change"]
    row = frame.row(by_predicate=pl.col("metric") == "mean wait", named=True)
    assert (row["low"], row["verdict"]) == (change["low"], "worse")


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
def test_what_the_simulator_can_do_the_page_can_do(small, record_of, words):
    measured = record_of(small, **words).measure(Prices()).estimates
    direct = simulate(Scenario.of(small, **words).replace(min_coverage=0.0))
    assert measured["mean wait"].value == pytest.approx(direct.summary()[0].value, nan_ok=True)
