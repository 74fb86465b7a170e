"""When a job starts: by hand, without a look into the future, and as often right as promised."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from benchmarks.eta import random_jobs
from benchmarks.eta import small_cluster as nodes

import fleetlab
from fleetlab import Scenario, Trace, Workload, WorkloadError
from fleetlab.core.events import Recovery
from fleetlab.core.resample import ahead
from fleetlab.sim.engine.begin import running_of
from fleetlab.sim.simulate import play_from, simulate
from fleetlab.sim.world_rows import Times, take
from fleetlab.studies.eta import calibration
from fleetlab.studies.eta.judge import compared_answers, judge, judged_rows, pinball
from fleetlab.studies.eta.question import as_job, read_request
from fleetlab.studies.eta.replay import last_horizon, quantiles
from fleetlab.studies.eta.run_times import RunTimes, Survival
from fleetlab.studies.eta.snapshot import History, ReplaySetup, replay_jobs


def regular(last_runtime=100.0, later=()):
    """One GPU, on which a job of 100 s comes each 100 s; the 31st has run for 40 s when another comes."""
    jobs = [(100.0 * k, 100.0 * k, 100.0) for k in range(30)] + [
        (3000.0, 3000.0, last_runtime),
        (3040.0, 3100.0, 100.0),
    ]
    submit, start, runtime = zip(*jobs, *later, strict=True)
    frame = pl.DataFrame({"submit": submit, "start": start, "runtime": runtime, "gpu_milli": [1000] * len(submit)})
    workload = Workload.of(frame.with_columns(end=pl.col("start") + pl.col("runtime")), source="by hand")
    return Trace(workload, fleetlab.Provenance("read", "by hand"), nodes(1, 1))


def test_a_job_behind_one_of_known_length_starts_when_that_ends():
    found = fleetlab.eta(regular(), job=31)
    assert found.frames["start"]["start in, s"].to_list() == [60.0] * 5
    assert found.frames["chances"]["chance, %"].to_list() == [100.0] * 4
    assert found.frames["waits for"]["reason"].to_list() == ["gpu"]


def test_replays_of_a_job_that_never_starts_end():

    frame = regular().workload.frame.with_columns(runtime=pl.when(pl.col("job") == 30).then(1e12).otherwise("runtime"))
    trace = replace(regular(), workload=replace(regular().workload, frame=frame.with_columns(end=pl.lit(None, float))))
    snapshot = History.of_log(trace).at(3040.0, 31)
    setup = ReplaySetup(Scenario.of(trace), snapshot, None, 8, 0)
    assert last_horizon(setup) == 4 * 3040.0
    assert last_horizon(replace(setup, snapshot=replace(snapshot, at=3e7))) == 30 * 86_400.0


def test_what_comes_later_changes_no_answer():
    longer = regular(last_runtime=5000.0, later=[(3041.0 + k, 9000.0 + 10 * k, 7.0) for k in range(20)])
    now, other = (fleetlab.eta(trace, job=31, at=3040) for trace in (regular(), longer))
    assert now.frames["start"].equals(other.frames["start"])
    assert now.frames["state"].equals(other.frames["state"])


def test_a_job_that_has_outlasted_all_others_runs_on():
    trace = regular(last_runtime=5000.0)
    frame = trace.workload.frame.with_columns(start=pl.when(pl.col("job") == 31).then(8000.0).otherwise("start"))
    history = History.of_log(replace(trace, workload=replace(trace.workload, frame=frame)))
    snapshot = replace(history.at(3040.0), at=3400.0)  # it has run 400 s, and none ran longer than 100
    drawn = RunTimes(history).at(snapshot).draw(np.array([30]), np.array([400.0]), 2000, np.random.default_rng(0))
    assert np.median(drawn) == pytest.approx(800, rel=0.1)  # as likely twice as long as not


def test_a_time_limit_bounds_every_draw():
    frame = regular().workload.frame.with_columns(limit=pl.lit(90.0))
    trace = regular()
    history = History.of_log(replace(trace, workload=replace(trace.workload, frame=frame)))
    known = RunTimes(history).at(history.at(3040.0, 31))
    assert known.draw(np.array([31]), np.zeros(1), 50, np.random.default_rng(0)).max() == 90.0


def test_a_limit_that_was_never_used_is_used_as_others_are():
    shares = np.random.default_rng(0).permutation(np.linspace(0.1, 0.5, 40))  # of limits that are asked for once each
    frame = {"limit": np.arange(1, 42) * 100.0, "submit": np.arange(41) * 1e4, "gpu_milli": [1000] * 41}
    frame |= {"start": np.append(np.arange(40) * 1e4, 1e9), "runtime": np.append(shares, 0.3) * frame["limit"]}
    jobs = pl.DataFrame(frame).with_columns(end=pl.col("start") + pl.col("runtime"))
    history = History.of_log(Trace(Workload.of(jobs, source="by hand"), fleetlab.Provenance("read", "by hand"), None))
    known = RunTimes(history).at(history.at(4e5))
    drawn = known.draw(np.array([40]), np.zeros(1), 4000, np.random.default_rng(0)) / 4100
    assert np.quantile(drawn, [0.1, 0.5, 0.9]) == pytest.approx([0.14, 0.3, 0.46], abs=0.02)


def test_what_outlasts_all_that_ended_is_not_cut_at_the_longest():
    survival = Survival.of(np.array([10.0, 20.0, 40.0, 40.0]), np.array([True, True, False, False]))
    found = survival.runtime(np.array([[0.9, 0.6, 0.5, 0.25, 0.001]]), np.zeros(1))
    assert found.tolist() == [[10.0, 20.0, 20.0, 80.0, 800.0]]


def test_what_a_job_is_drawn_to_run_does_not_depend_on_those_after_it():
    history = History.of_simulation(simulate(Scenario.of(random_jobs(300, load=2.0), nodes(12))))
    snapshot = history.at(float(np.quantile(history.submit, 0.7)))
    known, rows = RunTimes(history).at(snapshot), np.append(snapshot.waiting, np.arange(30))
    every = known.draw(rows, np.zeros(len(rows)), 9, np.random.default_rng(1))
    some = known.draw(snapshot.waiting, np.zeros(len(snapshot.waiting)), 9, np.random.default_rng(1))
    assert np.array_equal(every[: len(some)], some)


def test_an_answer_says_that_it_is_not_calibrated_where_too_few_jobs_have_waited():
    assert fleetlab.eta(regular(), job=31).notes[0].startswith("not calibrated")


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fleetlab" / "eta"


def crowded():
    """A queue late in a log, and the instant."""
    scenario = Scenario.of(random_jobs(300, load=1.4), nodes(12))
    return scenario, float(np.quantile(scenario.workload.frame["submit"].to_numpy(), 0.95))


def test_earlier_forecasts_calibrate_an_answer_and_stay_in_the_cache(own_cache, monkeypatch):
    scenario, at = crowded()
    first = fleetlab.eta(scenario, request="4 A100", at=at, calibrate=40)
    assert first.notes[0] == "calibrated on 40 earlier forecasts of this log"
    count = len(json.loads(next(own_cache.iterdir()).read_text()))
    monkeypatch.setattr(calibration, "forecast_of", None)  # nothing is predicted again
    again = fleetlab.eta(scenario, request="4 A100", at=at, calibrate=40)
    assert (count, again.frames["start"].rows()) == (40, first.frames["start"].rows())


@pytest.mark.parametrize("text", ["{broken", "[1]", '{"3": [1.0, 2.0]}', '{"x": [1]}'])
def test_a_broken_cache_is_as_none(own_cache, text):
    scenario, _ = crowded()
    history = History.of_log(scenario.trace)
    cache = calibration.ForecastCache.of(scenario, history)
    cache.path.write_text(text)
    assert calibration.ForecastCache.of(scenario, history).answers == {}


def test_a_request_is_a_job_that_comes_now():
    found = fleetlab.eta(regular(), request="1 A100, 50 s", at=3040)
    assert found.frames["start"]["start in, s"].to_list() == [160.0] * 5  # behind job 31, which runs 100 s


def test_all_that_wait_are_answered_where_no_job_is_named():
    found = fleetlab.eta(regular())
    assert found.frames["queue"].select("job", "median, s").rows() == [("31", 60.0)]


def named(names):
    """The same jobs, with ids of the log's own."""
    table = pl.DataFrame({"job": range(len(names)), "name": names}).lazy()
    return replace(regular(), names=table)


def test_the_queue_lists_ids_that_name_the_same_job():
    trace = named([str(k + 5) for k in range(32)])  # the id of one job is the number of another
    own = fleetlab.eta(trace).frames["queue"]["job"][0]
    assert (own, fleetlab.eta(trace, job=own).median) == ("36", 60.0)


def test_a_number_sign_tells_the_number_of_a_job_from_an_id():
    trace = named([*(str(k) for k in range(1, 31)), "31", "40"])
    assert fleetlab.eta(trace, job="#31", at=3040).median == 60.0
    with pytest.raises(WorkloadError, match="has started"):  # the id 31 is another job's
        fleetlab.eta(trace, job="31", at=3040)


def test_a_job_is_the_one_that_explain_means_and_is_named_with_its_user_and_size():
    trace = named([f"lab/{k + 1}" for k in range(32)])  # the id without its cluster is the number of another job
    frame = trace.workload.frame.with_columns(user=pl.lit("ann"))
    trace = replace(trace, workload=replace(trace.workload, frame=frame))
    answer = fleetlab.eta(trace, job="32", calibrate=0)
    assert answer.median == 60.0
    assert answer.findings[0].startswith("Job lab/32 (#31) of ann, 1 GPU, at ")
    assert fleetlab.explain(trace, job="32", what_if=False).to_json()["job"]["name"] == "lab/32"


def test_words_that_mean_several_jobs_are_refused():
    frame = regular().workload.frame.with_columns(user=pl.lit("ann"))
    trace = replace(regular(), workload=replace(regular().workload, frame=frame))
    with pytest.raises(WorkloadError, match="32 jobs are meant"):
        fleetlab.eta(trace, job="user=ann")


def own_placement(s, job, node):
    return s.free_gpu[node]


@pytest.mark.parametrize(
    "words",
    [
        {"backfill": "conservative"},
        {"quota": 1},
        {"cycle": 10},
        {"backfill": "easy", "placement": "random"},
        {"placement": own_placement},
        {"recovery": Recovery(every=1000.0)},
    ],
)
def test_where_only_the_loop_of_all_rules_knows_a_policy_running_jobs_are_placed_anew(words):
    found = fleetlab.eta(regular(), job=31, starts="simulated", replays=8, calibrate=0, **words)
    assert found.frames["start"]["start in, s"].to_list() == [60.0] * 5


def test_with_several_queues_and_one_reservation_running_jobs_are_placed_anew():
    trace = regular()
    parts = pl.when(pl.col("job") % 2 == 0).then(pl.lit(["a"])).otherwise(pl.lit(["b"]))
    both = trace.cluster.frame.with_columns(partitions=pl.lit(["a", "b"]))
    workload = replace(trace.workload, frame=trace.workload.frame.with_columns(partitions=parts))
    trace = replace(trace, workload=workload, cluster=replace(trace.cluster, frame=both))
    found = fleetlab.eta(trace, job=31, starts="simulated", replays=8, calibrate=0, backfill="easy")
    assert found.frames["start"]["start in, s"].to_list() == [60.0] * 5


def test_dates_count_from_the_begin_of_a_window():
    trace = regular()
    trace = replace(trace, workload=replace(trace.workload, epoch=1_700_000_000.0))
    whole, part = (
        fleetlab.eta(trace, job=job, replays=8, calibrate=0, starts="simulated", **words).frames["start"]["start"][2]
        for job, words in ((31, {}), (21, {"window": "1000.."}))
    )
    assert whole == part == "2023-11-14 23:05:00"


def test_at_another_load_there_are_no_dates():
    trace = regular()
    trace = replace(trace, workload=replace(trace.workload, epoch=1_700_000_000.0))
    found = fleetlab.eta(trace, job=31, load=1.01, replays=8, calibrate=0)
    assert found.frames["start"]["start"][2].endswith("after the first submission")


def test_starts_of_a_log_without_nodes_are_used_on_the_nodes_given():
    trace = replace(regular(), cluster=None)
    assert fleetlab.eta(trace, nodes(1, 1), job=31, calibrate=0).provenance.settings["starts"] == "log"


def limited(limit):
    trace = regular()
    frame = trace.workload.frame.with_columns(limit=pl.Series(limit, dtype=pl.Float64))
    return History.of_log(replace(trace, workload=replace(trace.workload, frame=frame)))


@pytest.mark.parametrize(("text", "limit"), [("1 A100", 131.0), ("1 A100, 50 s", 50.0)])
def test_a_request_without_a_duration_has_the_time_limit_of_the_latest_job_like_it(text, limit):
    history = limited([100.0 + k for k in range(32)])
    job, note = as_job(read_request(text, nodes(1, 1)), history.at(3040.0))
    assert (job["limit"][0], "time limit" in note) == (limit, limit == 131.0)


def test_a_request_in_a_window_is_planned_with_its_own_limit():
    trace = regular()
    frame = trace.workload.frame.with_columns(limit=pl.lit(700.0))
    trace = replace(trace, workload=replace(trace.workload, frame=frame))
    scenario = Scenario.of(trace, estimate=pl.Series([700.0] * 32), window="1000..")
    history = History.of_simulation(simulate(scenario))
    job, _ = as_job(read_request("1 A100, 50 s", nodes(1, 1)), history.at(2040.0))
    longer, row = history.with_request(job, 2040.0)
    snapshot = longer.at(2040.0, row)
    made = replay_jobs(
        ReplaySetup(scenario, snapshot, RunTimes(longer).at(snapshot), 1, 0), snapshot.running,
        np.ones(len(snapshot.running)), np.zeros(0, dtype=np.int64),
    )  # fmt: skip
    assert made.estimate[-1] == 50.0


@pytest.mark.parametrize("words", [{"replays": 0}, {"calibrate": -1}])
def test_counts_that_make_no_sense_are_refused(words):
    with pytest.raises(WorkloadError, match="or more"):
        fleetlab.eta(regular(), job=31, **words)


def test_a_judgement_of_few_forecasts_says_that_they_are_too_few():
    found = judge(random_jobs(300, load=1.4), nodes(12), forecasts=3, replays=8)
    assert any(line.startswith("Too few forecasts") for line in found.findings)


@pytest.mark.parametrize("backfill", ["greedy", "easy", "none"])
def test_a_loop_that_begins_in_the_middle_goes_on_as_the_whole_one(backfill):
    scenario = Scenario.of(random_jobs(400, load=2.0), nodes(12), backfill=backfill)
    whole = simulate(scenario)
    world, played = whole.world, whole.played
    at = float(np.median(world.submit))
    runs = np.flatnonzero((played.start <= at) & (played.end > at))
    later = np.flatnonzero(~(played.start <= at))
    rows = np.append(runs[np.argsort(played.start[runs], kind="stable")], later)
    assert len(runs) > 5
    assert (world.submit[later] <= at).sum() > 5  # some wait
    look = np.append(played.start[rows[: len(runs)]], np.maximum(world.submit[later], at)) - at
    zeros = np.zeros(len(rows))
    times = Times(look, look, world.runtime[rows], world.estimate[rows], zeros)
    made, place = take(world, rows, times, frame=False)
    instances = [range(world.first[row], world.first[row + 1]) for row in rows[: len(runs)]]
    spots = np.array([k for part in instances for k in part])
    running = running_of(made, look[: len(runs)], played.where[spots], played.got[spots])
    again = play_from(scenario, made, running)
    assert np.allclose(again.start[place] + at, played.start[rows], atol=1e-3)


def test_a_loop_may_end_when_one_job_has_started():
    scenario = Scenario.of(random_jobs(400, load=2.0), nodes(12))
    whole = simulate(scenario)
    world, start, none = whole.world, whole.played.start, np.zeros(0, dtype=np.int64)
    job = int(np.argmax(start - world.submit))
    short = play_from(scenario, world, running_of(world, np.zeros(0), none, none), job)
    assert short.start[job] == start[job]
    assert np.isnan(short.start[start > start[job]]).all()


@pytest.mark.parametrize(
    ("text", "milli", "instances", "gpu_type", "limit"),
    [
        ("8 A100, 4 h", 8000, 1, "A100", 14_400.0),
        ("2x8 a100, 30 min", 8000, 2, "A100", 1800.0),
        ("1 GPU", 1000, 1, None, None),
        ("0.5 A100, 2 days", 500, 1, "A100", 172_800.0),
        ("32", 8000, 4, None, None),
        ("1 GPU, 4:00:00", 1000, 1, None, 14_400.0),
        ("1 GPU, 1-00:00:30", 1000, 1, None, 86_430.0),
    ],
)
def test_a_request_is_read(text, milli, instances, gpu_type, limit):
    found = read_request(text, nodes(4))
    assert (found.milli, found.instances, found.gpu_type, found.limit) == (milli, instances, gpu_type, limit)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "begins with a number of GPUs"),
        ("A100", "begins with a number of GPUs"),
        ("8 H100", "no GPU type by that name"),
        ("1.5 A100", "whole number"),
        ("0 A100", "whole number"),
        ("8 A100, soon", "a duration"),
        ("8 A100, color=red", "no part of a request"),
        ("12 A100", "not a multiple"),
        ("2x4 A100, 1 h, 2 h", "one duration"),
        ("1 A100, user=", "without a value"),
        ("1 A100, user=a, user=b", "twice"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(text, what):
    with pytest.raises(WorkloadError, match=what):
        read_request(text, nodes(4))


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ({"job": 31, "request": "1 GPU"}, "not both"),
        ({"job": "none"}, "no job is called that"),
        ({"job": 31, "at": 10}, "is submitted later"),
        ({"job": 3, "at": 3040}, "has started"),
        ({"at": "9d"}, "the log has submissions up to"),
        ({"at": "soon"}, "not an instant"),
        ({"at": 50}, "no job waits"),
        ({"request": "2x1 A100"}, "can never start"),
        ({"request": "1 A100, partition=nope"}, "no partition by that name"),
        ({"starts": "tomorrow"}, "no source of starts"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(words, what):
    with pytest.raises(fleetlab.FleetlabError, match=what):
        fleetlab.eta(regular(), **words)


def test_arrivals_ahead_are_those_of_the_same_hours_and_none_of_later():
    hour, day = 3600.0, 86_400.0
    submit = np.sort(np.concatenate([d * day + np.arange(9, 17, 0.05) * hour for d in range(10)]))  # office hours
    at = 6 * day + 8 * hour
    for seed in range(20):
        rows, after = ahead(submit, at, day, np.random.default_rng(seed))
        assert (submit[rows] <= at).all()
        hours = (at + after) / hour % 24
        assert ((hours >= 8.99) & (hours <= 17.01)).all()
        assert len(rows) == pytest.approx(160, abs=2)


def test_of_39_draws_the_outermost_hold_95_of_100_to_come():
    rng = np.random.default_rng(3)
    held = [low <= rng.random() <= high for low, _, _, _, high in (quantiles(rng.random(39)) for _ in range(4000))]
    assert np.mean(held) == pytest.approx(0.95, abs=0.012)


def test_the_pinball_loss_of_a_median_is_half_the_distance():
    assert pinball(np.array([10.0, 10.0]), np.array([4.0, 20.0]), 0.5).tolist() == [3.0, 5.0]
    assert pinball(np.array([10.0]), np.array([20.0]), 0.9).tolist() == [9.0]


def test_the_command_prints_an_answer(command):
    done = command("eta", "builtin:500", "--load", "30", "--request", "1 GPU, 1 h", "--calibrate", "0", "--json")
    said = json.loads(done.stdout)
    assert {"start", "chances", "state"} <= set(said["tables"])
    assert said["findings"][0] == "The jobs are synthetic."


def test_the_command_refuses_a_judgement_of_one_job(command):
    done = command("eta", "builtin:500", "--judge", "50", "--job", "3")
    assert done.returncode == 2
    assert "takes no job" in done.stderr


@pytest.mark.validate
def test_where_jobs_are_independent_intervals_hold_as_promised():
    scenario = Scenario.of(random_jobs(3000), nodes(12))
    history = History.of_simulation(simulate(scenario))
    rows = judged_rows(history, 400, 0)
    rows = rows[history.wait[rows] > 0]
    answer, truth = compared_answers(scenario, history, rows, 15)["replays, calibrated"], history.wait[rows]
    for low, high, level in ((1, 3, 0.8), (0, 4, 0.95)):
        held = (answer[:, low] <= truth) & (truth <= answer[:, high])
        assert held[40:].mean() == pytest.approx(level, abs=0.05)  # forecasts that are close in time share their jobs
