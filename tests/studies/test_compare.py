"""Policies compared on the same arrivals, and the story told in one go."""

import threading
from dataclasses import replace

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, FleetlabError, Workload
from fleetlab.studies.compare import FIVE, compare, rules_of
from fleetlab.studies.story import busiest, story


def one_gpu(submit, runtime):
    """Jobs of one whole GPU, on a node that has one."""
    frame = pl.DataFrame({"submit": submit, "runtime": runtime}).with_columns(gpu_milli=pl.lit(1000))
    return Workload.of(frame, source="hand"), Cluster.uniform(1, 1)


def test_waits_of_two_orders_by_hand():
    # At 0 a job of 10 s starts; of 8 s and 1 s that wait, fifo takes the longer first.
    workload, cluster = one_gpu([0.0, 1.0, 2.0], [10.0, 8.0, 1.0])
    rows = compare(workload, cluster, policies=["fifo", "sjf"]).tables()["policies"]
    by_fifo, by_sjf = (0 + 9 + 16) / 3, (0 + 10 + 8) / 3
    assert rows["mean wait"].to_list() == pytest.approx([by_fifo, by_sjf])
    assert rows["difference"].to_list() == pytest.approx([0, by_sjf - by_fifo])


def test_the_first_differs_from_itself_by_exactly_nothing():
    trace = fleetlab.synthesize("pai2020", jobs=600, seed=2)
    rows = compare(trace.workload, trace.cluster, policies=["fifo", "fifo/greedy", "smallest"]).tables()["policies"]
    assert rows.select("difference", "difference low", "difference high").rows()[:2] == [(0, 0, 0), (0, 0, 0)]
    assert (rows["low"] <= rows["mean wait"]).all()
    assert (rows["mean wait"] <= rows["high"]).all()


def test_a_policy_that_surely_helps_is_named_and_one_that_does_not_is_not():
    # Every hour a long job and then short ones come to a GPU at work: shortest first helps in every block.
    submit = [3600.0 * h + k for h in range(60) for k in range(10)]
    runtime = [{0: 60.0, 1: 900.0}.get(k, 30.0) for _ in range(60) for k in range(10)]
    workload, cluster = one_gpu(submit, runtime)
    helped = compare(workload, cluster, policies=["fifo", "sjf"])
    assert helped.findings[0].startswith("by sjf, which knows run times beforehand, jobs wait ")
    turned = compare(workload, cluster, policies=["sjf", "fifo"])
    assert turned.findings == ("of 2 policies none surely has jobs wait less than sjf",)


@pytest.mark.parametrize(
    "policies", [["fifo"], [], ["fifo", "fifo"], ["fifo", "sjf//"], ["fifo", "a/b/c/d/e/f"], ["fifo", "no"]]
)
def test_what_cannot_be_compared_is_refused_with_a_hint(policies):
    workload, cluster = one_gpu([0.0], [1.0])
    with pytest.raises(FleetlabError) as e:
        compare(workload, cluster, policies=policies)
    assert e.value.hint


def test_processes_of_their_own_find_the_same():
    trace = fleetlab.synthesize("pai2020", jobs=400, seed=1)
    policies = ["fifo", "fifo/easy", "smallest"]
    here, apart = (compare(trace.workload, trace.cluster, policies=policies, workers=n) for n in (0, 2))
    assert here.tables()["policies"].equals(apart.tables()["policies"])


def test_what_is_refused_in_a_process_of_its_own_is_told_in_the_same_words():
    workload, cluster = one_gpu([0.0], [1.0])
    told = []
    for workers in (0, 2):
        with pytest.raises(FleetlabError) as e:
            compare(workload, cluster, policies=["fifo", "no"], workers=workers)
        told.append((str(e.value), e.value.hint))
    assert told[0] == told[1]


def test_jobs_that_are_refused_are_counted_and_the_reason_told():
    # The second has no run time, the third asks for more GPUs than a node has.
    frame = pl.DataFrame({"submit": [0.0, 1.0, 2.0], "runtime": [5.0, None, 5.0], "gpu_milli": [1000, 1000, 8000]})
    found = compare(Workload.of(frame, source="hand"), Cluster.uniform(1, 1), policies=["fifo", "sjf"])
    assert found.notes == ("2 jobs are refused and left out: see the table",)
    assert dict(found.tables()["refused"].rows()) == {
        "an instance fits on no node": 1, "its run time is not known": 1
    }  # fmt: skip


def test_a_job_that_one_policy_refuses_is_told_once():
    # Two halves of a GPU, twice: where shares take whole GPUs, the gang does not fit.
    frame = pl.DataFrame({"submit": [0.0, 1.0], "runtime": [5.0, 5.0], "gpu_milli": [500, 500], "instances": [1, 2]})
    policies = ["fifo", "fifo/greedy/best_fit/oracle/exclusive"]
    found = compare(Workload.of(frame, source="hand"), Cluster.uniform(1, 1), policies=policies)
    assert found.notes == ("1 jobs are refused and left out: see the table",)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_policy_may_name_a_column_of_estimates(workers):
    # Known to be short the last goes second, believed to be long it goes last.
    workload, cluster = one_gpu([0.0, 1.0, 2.0], [10.0, 8.0, 2.0])
    policies = ["sjf", "sjf/greedy/best_fit/requested"]
    asked = {"requested": pl.Series([10.0, 8.0, 90.0])}
    rows = compare(workload, cluster, policies=policies, estimates=asked, workers=workers).tables()["policies"]
    assert rows["mean wait"].to_list() == pytest.approx([(0 + 11 + 8) / 3, (0 + 9 + 16) / 3])


def test_figures_show_every_policy():
    trace = fleetlab.synthesize("pai2020", jobs=400, seed=1)
    drawn = compare(trace.workload, trace.cluster, policies=["fifo", "sjf"]).figures()
    assert drawn["mean wait by policy"].frame["x"].to_list() == ["fifo", "sjf"]
    curves = drawn["waits by policy"].frame
    assert set(curves["series"]) == {"fifo", "sjf"}
    assert curves.filter(pl.col("x") == curves["x"].max())["y"].to_list() == [1, 1]


def test_the_words_of_a_policy():
    assert rules_of(FIVE[3]) == {"order": "sjf", "backfill": "greedy", "placement": "best_fit", "estimate": "group"}


def test_of_a_long_trace_the_busiest_jobs_in_a_row_are_diagnosed_with_their_own_use():
    trace = fleetlab.synthesize("pai2020", jobs=6000, seed=1)
    heavy = pl.when(pl.col("job").is_between(3000, 3999)).then(1e7).otherwise(1.0)
    jobs = trace.workload.frame.with_columns(runtime=heavy, submit=pl.col("job").cast(pl.Float64))
    jobs = jobs.with_columns(start=pl.col("submit") + 5.0, end=pl.lit(None, pl.Float64))
    longer = replace(trace, workload=Workload.of(jobs, source="made"))
    part, usage, when = busiest(longer, most=1000)
    assert part.frame["runtime"].to_list() == [1e7] * 1000
    assert (part.frame["submit"][0], part.frame["start"][0]) == (0, 5)
    kept = pl.col("job").is_between(3000, 3999)
    assert usage.collect().equals(trace.usage.filter(kept).with_columns(pl.col("job") - 3000).collect())
    assert when == " (days 0.0 to 0.0, the busiest 1,000 jobs)"


def test_a_short_trace_is_diagnosed_as_it_is():
    trace = fleetlab.synthesize("pai2020", jobs=500, seed=1)
    assert busiest(trace) == (trace.workload, trace.usage, "")


@pytest.mark.slow
def test_the_story_ends_in_five_sentences_and_a_page(tmp_path):
    trace = fleetlab.synthesize("pai2020", jobs=1500, seed=1)
    told = story(trace, out=tmp_path / "page.html")
    assert len(told.findings) == 5
    text = told.page.read_text("utf-8")
    assert "<svg" in text
    assert "http:" not in text.replace("http://www.w3.org", "")
    assert "https:" not in text


def test_a_story_that_is_stopped_leaves_no_thread_and_no_page(tmp_path):
    def progress(what, _done, _share):
        if what == "changes":
            raise KeyboardInterrupt

    trace, before = fleetlab.synthesize("pai2020", jobs=800, seed=1), threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        story(trace, out=tmp_path / "page.html", progress=progress)
    assert not list(tmp_path.iterdir())
    assert threading.active_count() == before
