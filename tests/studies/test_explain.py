"""Why one job waited: hand-worked schedules, searches, what would have started it sooner, and the command."""

import json

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Scenario, Workload, WorkloadError
from fleetlab.core.progress import silent
from fleetlab.report.draw import ready, svg
from fleetlab.studies.explain.job import find_jobs, names_of, simulation_of, timeline_of
from fleetlab.studies.explain.wording import letters, strip_figure, strip_text

FOUR = Cluster.uniform(1, 4, gpu_type="A")


def workload(**columns):
    return Workload.of(pl.DataFrame(columns), source="by hand")


def three_jobs():
    """On 4 GPUs: A has 3 for 10 s. B wants 4, and is the head. C wants 1 for 5 s, and ends before B could start."""
    return workload(
        submit=[0.0, 1.0, 2.0], runtime=[10.0, 6.0, 5.0], gpu_milli=[3000, 4000, 1000], user=["ann", "bob", "cyd"]
    )


def test_a_backfilled_job_passes_the_head_and_the_head_waits_for_gpus():
    told = fleetlab.explain(three_jobs(), FOUR, job=1, backfill="easy")
    tables = told.tables()
    assert tables["segments"].select("from", "until", "wait", "reason").rows() == [(1.0, 10.0, 9.0, "gpu")]
    # A holds 3 GPUs from 1 to 10, C one from 2 to 7: of 5 s A has three quarters.
    held = {job: (kind, wait) for job, kind, wait in tables["holders"].select("job", "held by", "wait").iter_rows()}
    assert held == {0: ("ran_before", pytest.approx(1 + 5 * 3 / 4 + 3)), 2: ("overtook", pytest.approx(5 / 4))}
    assert tables["overtakers"].select("job", "start", "how").rows() == [(2, 2.0, "behind it in the queue")]
    assert tables["placement"].select("from", "until", "GPUs").rows() == [(10.0, 16.0, "0-3")]
    assert "1 job that came later started before it" in " ".join(told.findings)


def test_without_backfill_the_third_waits_behind_the_head():
    told = fleetlab.explain(three_jobs(), FOUR, job=2, backfill="none")
    assert told.tables()["segments"].select("from", "until", "reason").rows() == [
        (2.0, 10.0, "head_of_line"), (10.0, 16.0, "gpu"),
    ]  # fmt: skip
    assert "overtakers" not in told.tables()
    assert "No job that came later started before it" in " ".join(told.findings)


def test_who_was_at_the_head_of_the_queue_while_a_job_fitted_is_named_with_its_time():
    told = fleetlab.explain(three_jobs(), FOUR, job=2, backfill="none")
    # From 2 to 10 C would fit beside A, but B is first and does not; once B runs, C lacks a GPU and nobody is first.
    assert told.tables()["heads"].select("job", "wait", "from", "until").rows() == [(1, 8.0, 2.0, 10.0)]
    assert "at the head of the queue was #1 (bob), 4 GPUs, for 8 s" in " ".join(told.findings)


def test_heads_of_the_queue_follow_each_other_and_sum_to_the_time_behind_them():
    # A has 3 of 4 GPUs until 10. B and C want 4 each: B is first until 10, C from then until B ends. D fits at once.
    jobs = workload(submit=[0.0, 1.0, 2.0, 3.0], runtime=[10.0, 6.0, 5.0, 2.0], gpu_milli=[3000, 4000, 4000, 1000])
    told = fleetlab.explain(jobs, FOUR, job=3, backfill="none")
    heads, segments = told.tables()["heads"], told.tables()["segments"]
    behind = segments.filter(pl.col("reason").is_in(["head_of_line", "reservation"]))["wait"].sum()
    assert heads["job"].to_list() == [1]
    assert heads["wait"].sum() == behind == 7.0


@pytest.mark.parametrize("backfill", ["easy", "conservative", "none"])
def test_of_any_job_the_heads_of_the_queue_take_all_the_time_behind_a_reservation(backfill):
    result = fleetlab.simulate("builtin:400", load=4.0, nodes="-90%", backfill=backfill)
    behind = result.ledger.select("job", seconds=pl.col("reservation") + pl.col("head_of_line"))
    some = behind.filter(pl.col("seconds") > 0).sort("seconds", descending=True).head(20)
    assert some.height
    for job, seconds in some.iter_rows():
        heads = result.queue_heads(job)
        assert (heads["end"] - heads["begin"]).sum() == pytest.approx(seconds)
        assert (result.world.submitted[heads["row"].to_numpy()] <= heads["begin"].to_numpy()).all()


def test_the_recorded_wait_stands_beside_the_simulated_one_of_the_longest_waits():
    jobs = three_jobs().frame.with_columns(start=pl.Series([0.0, 12.0, None]), end=pl.Series([10.0, 18.0, None]))
    told = fleetlab.explain(Workload.of(jobs.drop("job"), source="by hand"), FOUR, longest=3, backfill="easy")
    table = told.tables()["jobs"]
    assert dict(table.select("job", "recorded wait").iter_rows()) == {0: 0.0, 1: 11.0, 2: None}
    without = fleetlab.explain(three_jobs(), FOUR, longest=3)
    assert "recorded wait" not in without.tables()["jobs"].columns


def test_who_comes_later_and_is_shorter_is_ahead_by_the_order_not_backfilled():
    # The first runs 4 s. Of those behind it the shorter one, which comes last, goes first.
    jobs = workload(submit=[0.0, 1.0, 2.0], runtime=[4.0, 9.0, 3.0], gpu_milli=[4000, 4000, 4000])
    told = fleetlab.explain(jobs, FOUR, job=1, order="sjf")
    assert told.tables()["overtakers"].select("job", "start", "how").rows() == [(2, 4.0, "ahead of it by the order")]
    assert "all of them ahead of it by the order" in " ".join(told.findings)
    assert dict(told.tables()["holders"].select("job", "held by").iter_rows()) == {0: "ran_before", 2: "ahead"}
    fair = fleetlab.explain(three_jobs(), FOUR, job=1, order="fair")  # shares change with time
    assert fair.tables()["overtakers"].select("job", "how").rows() == [(2, "submitted after it")]


def test_a_job_that_did_not_wait_says_so():
    told = fleetlab.explain(three_jobs(), FOUR, job=0)
    assert "It did not wait: it started at once." in told.findings
    assert set(told.tables()) == {"placement"}


def test_fewer_gpus_would_have_started_the_head_at_once_and_it_is_ranked_first():
    told = fleetlab.explain(three_jobs(), FOUR, job=1, backfill="none").tables()
    tried = told["what would have started it sooner"]
    # With 2 GPUs it still waits for A, which leaves one; it starts with A's end either way.
    assert tried.select("change", "wait change", "verdict").rows() == [("2 GPUs instead of 4", 0.0, "the same")]
    two = workload(submit=[0.0, 1.0], runtime=[10.0, 6.0], gpu_milli=[2000, 4000])
    tried = fleetlab.explain(two, FOUR, job=1).tables()["what would have started it sooner"]
    assert tried.select("change", "start", "wait change", "verdict").rows() == [
        ("2 GPUs instead of 4", 1.0, -9.0, "sooner")
    ]


def test_another_type_and_half_the_instances_are_tried_and_only_this_job_changes():
    nodes = Cluster.of(
        pl.DataFrame({"node": ["a", "b"], "gpu_type": ["A", "B"], "gpus": [4, 2], "cpu_milli": [8000, 8000]}),
        source="two types",
    )
    # A is full until 20, B until 5. The second job may use A; on B it would start at 5, half of it too late for both.
    jobs = workload(
        submit=[0.0, 0.0, 1.0], runtime=[20.0, 5.0, 3.0], gpu_milli=[4000, 2000, 1000], instances=[1, 1, 2],
        gpu_types=[["A"], ["B"], ["A"]],
    )  # fmt: skip
    told = fleetlab.explain(jobs, nodes, job=2)
    tried = told.tables()["what would have started it sooner"]
    starts = dict(tried.select("change", "start").iter_rows())
    assert starts == {
        "any GPU type": 5.0, "GPU type B": 5.0, "1 instance instead of 2": 20.0, "0.5 GPUs each instead of 1": 20.0,
    }  # fmt: skip
    assert tried["wait change"].is_sorted()
    assert "any GPU type: 15 s sooner" in told.findings[-1]


def test_a_job_that_another_request_cannot_run_says_so():
    nodes = Cluster.of(
        pl.DataFrame({"node": ["a", "b"], "gpu_type": ["A", "B"], "gpus": [4, 1], "cpu_milli": [8000, 8000]}),
        source="two types",
    )
    jobs = workload(submit=[0.0, 1.0], runtime=[9.0, 3.0], gpu_milli=[4000, 2000], gpu_types=[["A"], ["A"]])
    tried = fleetlab.explain(jobs, nodes, job=1).tables()["what would have started it sooner"]
    verdicts = dict(tried.select("change", "verdict").iter_rows())
    assert verdicts["GPU type B"] == "cannot run: an instance fits on no node"
    assert verdicts["any GPU type"] == "the same"


def test_preempted_twice_it_waits_thrice_and_all_of_it_is_told():
    jobs = workload(
        submit=[0.0, 2.0, 5.0], runtime=[6.0, 1.0, 1.0], gpu_milli=[4000, 4000, 4000], priority=[0, 1, 1],
        user=["low", "high", "high"],
    )  # fmt: skip
    told = fleetlab.explain(jobs, FOUR, job=0, order="priority", preemption=True)
    assert told.tables()["segments"].select("from", "until").rows() == [(2.0, 3.0), (5.0, 6.0)]
    assert told.tables()["placement"].select("from", "until").rows() == [(0.0, 2.0), (3.0, 5.0), (6.0, 8.0)]
    assert "stopped 2 times, 2 by preemption" in " ".join(told.findings)
    assert told.timeline.wait == 2.0


def test_neighbors_on_the_same_gpu_slow_it_and_are_named():
    jobs = workload(submit=[0.0, 0.0], runtime=[100.0, 100.0], gpu_milli=[500, 500], user=["ann", "bob"])
    told = fleetlab.explain(jobs, Cluster.uniform(1, 1), job=0, sharing="time-slicing")
    beside = told.tables()["neighbors"].row(0, named=True)
    assert (beside["job"], beside["user"], beside["GPUs shared"]) == (1, "bob", 1)
    ran = told.timeline.simulated["end"]
    assert beside["together, s"] == ran > 100
    assert f"ran at {10000 / ran:.0f} % of the speed it has alone" in " ".join(told.findings)


def test_what_the_log_recorded_stands_beside_it():
    jobs = workload(submit=[0.0, 1.0], runtime=[5.0, 5.0], gpu_milli=[4000, 4000], start=[0.0, 7.0], end=[5.0, 12.0])
    told = fleetlab.explain(jobs, FOUR, job=1)
    assert told.timeline.wait == 4.0
    assert told.to_json()["job"]["recorded"] == {"start": 7.0, "end": 12.0, "wait": 6.0}
    assert "The log recorded a wait of 6 s for it" in " ".join(told.findings)


def test_a_queue_with_quota_left_and_a_shorter_estimate_are_tried():
    jobs = workload(
        submit=[0.0, 1.0, 1.5], runtime=[10.0, 6.0, 1.0], gpu_milli=[2000, 2000, 1000], queue=["full", "full", "free"]
    )
    told = fleetlab.explain(jobs, FOUR, job=1, quota={"queue:full": 2})
    assert told.tables()["segments"].select("from", "until", "reason").rows() == [(1.0, 10.0, "quota")]
    tried = told.tables()["what would have started it sooner"]
    assert tried.row(0)[:3] == ("queue free", "queue", 1.0)
    # EASY believes estimates: B reserves 10 s; C, believed to take 9 s, would delay it, with half of that it does not.
    estimate = pl.Series([10.0, 6.0, 9.0])
    told = fleetlab.explain(three_jobs(), FOUR, job=2, backfill="easy", estimate=estimate)
    assert told.tables()["segments"].select("from", "until", "reason").rows() == [
        (2.0, 10.0, "reservation"), (10.0, 16.0, "gpu"),
    ]  # fmt: skip
    tried = told.tables()["what would have started it sooner"]
    assert tried.row(0)[:5] == ("estimate 5 s instead of 9 s", "limit", 2.0, 0.0, -14.0)


# -- the strip ---------------------------------------------------------------------------------------------------------


def test_a_character_of_the_strip_stands_for_what_took_most_of_its_time():
    told = fleetlab.explain(three_jobs(), FOUR, job=2, backfill="none")  # 8 s, 6 s, and it runs 5 s
    strip, axis, *legend = strip_text(told.timeline, width=19)
    assert strip == "h" * 8 + "g" * 6 + "=" * 5
    assert axis == "0" + "19 s".rjust(18)
    assert [line.replace("\u00a0", " ") for line in legend] == [
        "h head_of_line 8 s",
        "g gpu 6 s   = runs 5 s"[:9],
        "= runs 5 s",
    ]
    assert len(set(letters().values())) == len(letters())


def test_the_figure_has_a_bar_for_each_stretch_and_is_drawn():
    told = fleetlab.explain(three_jobs(), FOUR, job=2, backfill="none")
    figure = strip_figure(told.timeline)
    assert figure.frame.select("x", "low", "high", "y").rows() == [
        ("head_of_line", 0.0, 8.0, 8.0), ("gpu", 8.0, 14.0, 6.0), ("runs", 14.0, 19.0, 5.0),
    ]  # fmt: skip
    assert figure.alt == "head_of_line 8 s; gpu 6 s; runs 5 s"
    drawing = svg(ready(figure), whole=True)
    assert all(name in drawing for name in ("head_of_line", "gpu", "runs", "time since it was submitted, s"))
    assert drawing.count("Z") == 3  # one closed bar each


# -- large logs --------------------------------------------------------------------------------------------------------


def test_of_a_large_log_the_days_around_the_job_are_simulated():
    days = 12
    arrivals = [3600.0 * k for k in range(24 * days)]
    jobs = workload(submit=arrivals, runtime=[5400.0] * len(arrivals), gpu_milli=[3000] * len(arrivals))
    scenario = Scenario.of(jobs, Cluster.uniform(2, 4))
    job = 24 * 8 + 5
    whole, part = (simulation_of(scenario, job, silent, large=most) for most in (10**6, 100))
    assert whole.notes == ()
    assert "of 288 jobs, the 72 that were submitted from 24 h before to 2 days after it" in part.notes[0]
    fates = [scene.result.jobs.filter(pl.col("job") == scene.job).row(0, named=True) for scene in (whole, part)]
    assert [fate["wait"] for fate in fates] == [0.0, 0.0]
    begin = float(part.scenario.begin)
    assert fates[1]["start"] + begin == fates[0]["start"]
    # Told by the numbers and times of the whole log.
    assert (part.jobs_before + part.job, part.begin) == (job, begin)
    of_part = timeline_of(part.result, part.job, part.scenario.workload, names_of(part.scenario))
    told = of_part.counted_from(part.jobs_before, part.begin)
    assert (told.job, told.start, told.simulated["submit"]) == (job, 3600.0 * job, 3600.0 * job)
    assert told.runs["from"].to_list() == [3600.0 * job]


# -- searches ----------------------------------------------------------------------------------------------------------


def test_a_user_lists_the_jobs_with_their_waits_the_longest_first():
    jobs = workload(
        submit=[0.0, 1.0, 2.0], runtime=[5.0, 5.0, 5.0], gpu_milli=[4000, 4000, 4000], user=["ann", "bob", "bob"]
    )
    told = fleetlab.explain(jobs, FOUR, job="user=bob")
    assert told.tables()["jobs"].select("job", "wait", "main reason").rows() == [(2, 8.0, "gpu"), (1, 4.0, "gpu")]
    assert fleetlab.explain(jobs, FOUR, longest=1).tables()["jobs"]["job"].to_list() == [2]
    assert fleetlab.explain(jobs, FOUR, job="ann").timeline.job == 0  # a name that one job has


@pytest.mark.parametrize(
    ("job", "error", "hint"),
    [
        ("user=bib", "no job has the user: `bib`", "near to it are bob"),
        ("bobb", "no job is called that: `bobb`", "near to it are bob"),
        ("99", "no job is called that: `99`", "#0 to #2"),
        ("group=x", "no job has the group: `x`", "names no group"),
        ("", "which job?", "longest=10"),
    ],
)
def test_a_search_without_a_match_names_what_is_near(job, error, hint):
    with pytest.raises(WorkloadError, match=error.replace("?", r"\?")) as found:
        fleetlab.explain(three_jobs(), FOUR, job=job)
    assert hint in found.value.hint


@pytest.mark.parametrize(
    ("words", "jobs"),
    [("lab/2", [1]), ("2", [1]), ("#2", [2]), ("7", [2, 3]), ("7_1", [2]), ("lab/7", [2, 3]), ("0", [0])],
)
def test_an_id_of_the_log_is_meant_without_its_cluster_too(words, jobs):
    names = pl.DataFrame({"job": [0, 1, 2, 3], "name": ["lab/1", "lab/2", "lab/7_1", "lab/7_2"]})
    assert find_jobs(Scenario.of(three_jobs(), FOUR), words, names) == jobs


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_fits_80_columns_and_its_json_has_the_same_timeline(command):
    words = ("explain", "builtin:200", "--load", "6", "--longest", "1")
    listed = json.loads(command(*words, "--json").stdout)
    longest = listed["tables"]["jobs"][0]
    assert longest["wait"] > 0
    done = command("explain", "builtin:200", longest["name"], "--load", "6", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    told = json.loads(command("explain", "builtin:200", longest["name"], "--load", "6", "--json").stdout)
    assert told["job"]["job"] == longest["job"]
    assert sum(part["wait"] for part in told["tables"]["segments"]) == pytest.approx(longest["wait"], rel=1e-12)
    assert told["job"]["name"] == longest["name"]


def test_the_command_writes_a_page_and_refuses_what_it_does_not_know(command, tmp_path):
    done = command("explain", "builtin:200", "#3", "--load", "6", "--out", tmp_path / "job.html")
    assert done.returncode == 0, done.stderr
    assert "job-3" in (tmp_path / "job.html").read_text("utf-8")
    done = command("explain", "builtin:200", "job-xyz")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no job is called that: `job-xyz`\n\nhint: near to it are job-")
    assert command("explain", "builtin:200").returncode == 2
