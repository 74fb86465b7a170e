"""Policies compared on the same jobs, and the story of a trace on one page."""

import re
import threading
from dataclasses import replace

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, FleetlabError, PolicyError, Provenance, Trace, Workload, WorkloadError
from fleetlab.core import Drain, Policy, Scenario
from fleetlab.sim import order
from fleetlab.studies.compare import compare
from fleetlab.studies.story import about, busiest, story


def one_gpu(submit, runtime):
    """Jobs of one whole GPU, on a node that has one."""
    frame = pl.DataFrame({"submit": submit, "runtime": runtime}).with_columns(gpu_milli=pl.lit(1000))
    return Workload.of(frame, source="hand"), Cluster.uniform(1, 1)


# At 0 a job of 10 s starts; of 8 s and 1 s that wait, fifo starts the longer first.
THREE = one_gpu([0.0, 1.0, 2.0], [10.0, 8.0, 1.0])
FIFO, SJF = (0 + 9 + 16) / 3, (0 + 10 + 8) / 3


@order
def longest(s, job, now):
    """Return a key by which the longest job is first."""
    return -s.estimate[job]


def rows_of(*args, **options):
    return compare(*args, **options).tables()["policies"]


def test_waits_jct_and_slowdown_of_two_orders_by_hand():
    rows = rows_of(*THREE, policies=["fifo", "sjf"])
    assert rows["mean wait"].to_list() == pytest.approx([FIFO, SJF])
    assert rows["mean wait change"].to_list() == pytest.approx([0, SJF - FIFO])
    assert rows["mean JCT"].to_list() == pytest.approx([FIFO + 19 / 3, SJF + 19 / 3])
    assert rows["mean JCT change"].to_list() == pytest.approx([0, SJF - FIFO])
    # JCT over at least 10 s: 10, 17 and 17 s; then 10, 18 and 9 s, which counts as 1.
    assert rows["mean bounded slowdown"].to_list() == pytest.approx([(1 + 1.7 + 1.7) / 3, (1 + 1.8 + 1) / 3])


@pytest.mark.parametrize(
    "policies",
    [
        ["fifo", "sjf"],
        [Policy(), Policy(order="sjf")],
        [{}, {"order": "sjf"}],
        [Scenario.of(*THREE), Scenario.of(*THREE, order="sjf")],
        ["fifo", Policy(order="sjf")],
    ],
)
def test_a_policy_is_a_shorthand_a_policy_a_mapping_or_a_scenario(policies):
    assert rows_of(*THREE, policies=policies)["mean wait"].to_list() == pytest.approx([FIFO, SJF])


def test_variations_of_a_scenario_are_compared_with_the_first():
    found = compare(Scenario.of(*THREE).vary(order=["fifo", "sjf"], load=[1.0, 2.0]))
    rows = found.tables()["policies"]
    assert rows["policy"].to_list() == ["fifo/greedy", "fifo/greedy, load 2", "sjf/greedy", "sjf/greedy, load 2"]
    waits = [(0 + 9 + 16) / 3, (0 + 9.5 + 17) / 3, (0 + 10 + 8) / 3, (0 + 10.5 + 9) / 3]
    assert rows["mean wait"].to_list() == pytest.approx(waits)
    assert found.provenance.settings["policies"] == [{}, {"load": 2.0}, {"order": "sjf"}, {"order": "sjf", "load": 2.0}]


@pytest.mark.parametrize("workers", [0, 2])
def test_policies_of_your_own_are_compared(workers):
    def shortest(s, job, now):
        return s.estimate[job]

    rows = rows_of(*THREE, policies=["fifo", {"order": order(shortest)}, {"order": longest}], workers=workers)
    assert rows["mean wait"].to_list() == pytest.approx([FIFO, SJF, FIFO])


def test_preemption_quota_nodes_and_events_are_compared():
    # With two nodes the second job does not wait; with preemption the last one does not; a user has one job at a time.
    frame = THREE[0].frame.drop("job").with_columns(priority=pl.Series([0, 0, 1]), user=pl.Series(["a", "a", "b"]))
    jobs = Workload.of(frame, source="hand")
    policies = [
        {}, {"nodes": "+1"}, {"order": "priority", "preemption": True}, {"nodes": "+1", "quota": 1},
        {"events": [Drain(5.0, 20.0, nodes=["node-0"])]},
    ]  # fmt: skip
    for workers in (0, 2):
        rows = rows_of(jobs, THREE[1], policies=policies, workers=workers)
        assert rows["mean wait"].to_list() == pytest.approx([FIFO, 7 / 3, (1 + 10 + 0) / 3, 9 / 3, (19 + 26) / 3])


def test_words_of_the_scenario_hold_for_all_policies():
    assert rows_of(*THREE, policies=["fifo", "sjf"], nodes="+2")["mean wait"].to_list() == [0, 0]


def test_prices_give_a_cost():
    rows = rows_of(*THREE, policies=["fifo", {"nodes": "+1"}], prices={"per_gpu_hour": 36.0})
    # Per day, so that a run that ends sooner is not cheaper: 36 an hour for a GPU that is up.
    assert rows["cost per day, (currency of the prices)"].to_list() == pytest.approx([36 * 24, 2 * 36 * 24])


def test_rates_per_day_do_not_fall_because_the_same_jobs_come_in_fewer_days():
    scenario = Scenario.of(fleetlab.synthesize("pai2020", jobs=600, seed=2), prices={"per_gpu_hour": 2.0})
    rows = compare(scenario.vary(load=[1.0, 1.25])).tables()["policies"]
    cost = rows["cost per day, (currency of the prices)"]
    assert cost[1] == pytest.approx(cost[0])
    assert rows["GPU-h per day"][1] > rows["GPU-h per day"][0]
    assert rows["energy per day, kWh"][1] > rows["energy per day, kWh"][0]


def test_the_first_differs_from_itself_by_exactly_nothing():
    trace = fleetlab.synthesize("pai2020", jobs=600, seed=2)
    rows = rows_of(trace, policies=["fifo", "fifo/greedy", "smallest"])
    for metric in ("wait", "JCT", "bounded slowdown"):
        columns = [f"mean {metric} change", f"mean {metric} change low", f"mean {metric} change high"]
        assert rows.select(columns).rows()[:2] == [(0, 0, 0), (0, 0, 0)]
    assert (rows["mean wait low"] <= rows["mean wait"]).all()
    assert (rows["mean wait"] <= rows["mean wait high"]).all()


def test_a_significantly_better_policy_is_named_and_one_that_is_not_is_not():
    # Every hour a long job and then short ones come to a GPU at work: shortest first helps in every block.
    submit = [3600.0 * h + k for h in range(60) for k in range(10)]
    runtime = [{0: 60.0, 1: 900.0}.get(k, 30.0) for _ in range(60) for k in range(10)]
    workload, cluster = one_gpu(submit, runtime)
    first = compare(workload, cluster, policies=["fifo", "sjf"]).findings[0]
    assert first.startswith("Mean wait falls from 14.2 min to 2.62 min (−82 %; difference −11.6 min, 95 % CI −")
    name = "sjf/greedy (true runtimes known in advance)"
    assert first.endswith(f"under {name}, of the 600 jobs that completed under both policies.")
    turned = compare(workload, cluster, policies=["sjf", "fifo"]).findings
    assert turned[0].startswith(f"No policy has a significantly lower mean wait than {name} (")
    assert turned[1].startswith("Mean wait rises from ")


def test_a_policy_of_your_own_that_reads_estimates_is_said_to_know_true_runtimes():
    found = compare(*THREE, policies=["fifo", {"order": longest}, {"order": longest, "estimate": "user"}]).findings
    named = [line for line in found if "longest" in line]
    assert [line for line in named if "estimate user" not in line]
    assert all(("true runtimes known in advance" in line) != ("estimate user" in line) for line in named)


def test_the_last_sentence_says_for_whom_a_policy_is_better_and_at_whose_cost():
    # Every hour two long jobs and then short ones of half a GPU come: shortest first makes the second long one wait.
    submit = [3600.0 * h + k for h in range(120) for k in range(10)]
    runtime = [900.0 if k < 2 else 30.0 + k for _ in range(120) for k in range(10)]
    workload, cluster = one_gpu(submit, runtime)
    long = pl.col("runtime") > 500
    jobs = workload.frame.drop("job").with_columns(gpu_milli=pl.when(long).then(1000).otherwise(600))
    found = compare(Workload.of(jobs, source="hand"), cluster, policies=["fifo", "sjf"])
    last = found.findings[-1]
    best = "sjf/greedy (true runtimes known in advance) is better than fifo/greedy"
    assert last.startswith(f"{best} for jobs of fraction of a GPU (960 jobs, mean wait −")
    assert "at the cost of jobs of 1 GPU (240 jobs, mean wait +" in last
    classes = found.tables()["by class"]
    assert classes.filter(pl.col("class") == "1 GPU")["verdict"].to_list() == ["higher"]
    same = compare(*THREE, policies=["fifo", "fifo/greedy/worst_fit"]).findings[-1]
    assert same.startswith("No class of jobs by GPU request or runtime waits significantly longer or shorter under ")


@pytest.mark.parametrize(
    "policies", [["fifo"], [], ["fifo", "fifo"], ["fifo", "sjf//"], ["fifo", "a/b/c/d/e/f"], ["fifo", "no"]]
)
def test_what_cannot_be_compared_is_refused_with_a_hint(policies):
    with pytest.raises(FleetlabError) as e:
        compare(*THREE, policies=policies)
    assert e.value.hint


def test_scenarios_of_different_jobs_are_refused():
    other = one_gpu([0.0], [1.0])
    with pytest.raises(WorkloadError, match="different jobs"):
        compare([Scenario.of(*THREE), Scenario.of(*other)])
    with pytest.raises(WorkloadError, match="leave `policies` out"):
        compare([Scenario.of(*THREE)], policies=["fifo", "sjf"])


def test_processes_of_their_own_find_the_same():
    trace = fleetlab.synthesize("pai2020", jobs=400, seed=1)
    policies = ["fifo", "fifo/easy", {"order": "las", "preemption": True, "recovery": {"every": 60.0}}, "sjf/quota=8"]
    here, apart = (compare(trace, policies=policies, load=1.1, workers=n) for n in (0, 2))
    assert here.tables()["policies"].equals(apart.tables()["policies"])
    assert here.findings == apart.findings


def test_a_mistake_in_a_process_of_its_own_has_the_same_message():
    errors = []
    for workers in (0, 2):
        with pytest.raises(FleetlabError) as e:
            compare(*THREE, policies=["fifo", "fifo/quota=nobody=3"], workers=workers)
        errors.append((str(e.value), e.value.hint))
    assert errors[0] == errors[1]


def test_jobs_that_cannot_run_are_counted_with_the_reason():
    # The second has no run time, the third asks for more GPUs than a node has.
    frame = pl.DataFrame({"submit": [0.0, 1.0, 2.0], "runtime": [5.0, None, 5.0], "gpu_milli": [1000, 1000, 8000]})
    found = compare(Workload.of(frame, source="hand"), Cluster.uniform(1, 1), policies=["fifo", "sjf"], censored="drop")
    assert (
        found.findings[1] == "2 of 3 jobs are not compared: 1 cannot run on the cluster, 1 left out: runtime unknown."
    )
    assert sorted(found.tables()["left out"]["jobs"]) == [1, 1]


def test_jobs_that_do_not_complete_are_counted():
    found = compare(*THREE, policies=["fifo", "sjf"], until=12.0)
    # By then fifo has completed the first job, sjf the first and the last.
    said = "2 of 3 jobs are not compared: 2 do not complete under some policy."
    assert found.findings[1] == said
    assert "of the one job that completed under both policies" in found.findings[0]


def test_jobs_that_come_after_the_end_are_told_from_those_that_wait():
    workload, cluster = one_gpu([0.0, 1.0, 2.0, 90.0], [10.0, 8.0, 1.0, 1.0])
    said = "3 of 4 jobs are not compared: 1 not yet submitted when the simulation stops, 2 do not complete under "
    found = compare(workload, cluster, policies=["fifo", "sjf"], until=12.0)
    assert found.findings[1] == f"{said}some policy."


def test_preemptions_allocation_and_jobs_left_out_are_compared():
    rows = rows_of(*THREE, policies=["fifo", "srpt"])
    # Under srpt the job of 8 s preempts the one of 10 s, of which 9 s are left, and is preempted by that of 1 s.
    assert rows["preemptions"].to_list() == [0, 2]
    assert rows["GPU allocation, %"].to_list() == pytest.approx([100, 100])
    assert rows["jobs that cannot run"].to_list() == [0, 0]


def test_a_job_that_cannot_run_under_one_policy_is_counted_once():
    # Two halves of a GPU, twice: where shares take whole GPUs, the gang does not fit.
    frame = pl.DataFrame({"submit": [0.0, 1.0], "runtime": [5.0, 5.0], "gpu_milli": [500, 500], "instances": [1, 2]})
    policies = ["fifo", "fifo/sharing=exclusive"]
    found = compare(Workload.of(frame, source="hand"), Cluster.uniform(1, 1), policies=policies)
    assert found.findings[1] == "1 of 2 jobs are not compared: 1 cannot run on the cluster."
    assert found.findings[2] == (
        "1 jobs complete only under fifo/greedy (under fifo/greedy, sharing exclusive 1 of them cannot run, 0 do not "
        "complete), 0 only under fifo/greedy, sharing exclusive."
    )
    assert found.tables()["policies"]["jobs that cannot run"].to_list() == [0, 1]


def test_jobs_that_cannot_run_on_fewer_nodes_do_not_lower_the_mean_wait():
    # Jobs of two GPUs wait for each other; without the node of two GPUs they cannot run, and no other job waits.
    frame = pl.DataFrame({"submit": [0.0, 0.0, 1.0, 2.0], "runtime": 100.0, "gpu_milli": [1000, 2000, 2000, 2000]})
    nodes = pl.DataFrame(
        {"node": ["a", "b"], "gpu_type": ["A", "B"], "gpus": [1, 2], "cpu_milli": 1000, "memory_mib": 1}
    )
    policies = [{}, {"nodes": "B 0"}]
    found = compare(Workload.of(frame, source="hand"), Cluster.of(nodes, source="hand"), policies=policies)
    rows = found.tables()["policies"]
    assert rows["mean wait"].to_list() == [0, 0]
    assert rows["jobs that cannot run"].to_list() == [0, 3]
    assert any(line.startswith("3 jobs complete only under ") for line in found.findings)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_policy_may_name_a_series_of_the_trace_or_have_a_column_of_estimates(workers):
    # Known to be short the last goes second, estimated to be long it goes last.
    workload, cluster = one_gpu([0.0, 1.0, 2.0], [10.0, 8.0, 2.0])
    seconds = [10.0, 8.0, 90.0]
    series = {"requested": pl.DataFrame({"job": [0, 1, 2], "seconds": seconds}).lazy()}
    trace = Trace(workload, Provenance("make", "three"), cluster=cluster, series=series)
    policies = ["sjf", "sjf/estimate=requested", {"order": "sjf", "estimate": pl.Series(seconds)}]
    rows = rows_of(trace, policies=policies, workers=workers)
    assert rows["mean wait"].to_list() == pytest.approx([(0 + 11 + 8) / 3] + [(0 + 9 + 16) / 3] * 2)


def test_a_column_of_estimates_that_is_too_short_is_refused():
    with pytest.raises(PolicyError, match="2 values for 3 jobs"):
        compare(*THREE, policies=["fifo", {"estimate": pl.Series([1.0, 2.0])}])


def test_figures_show_every_policy():
    trace = fleetlab.synthesize("pai2020", jobs=400, seed=1)
    drawn = compare(trace, policies=["fifo", "sjf"]).figures()
    assert drawn["mean wait by policy"].frame["x"].to_list() == ["fifo/greedy", "sjf/greedy"]
    curves = drawn["waits by policy"].frame
    assert set(curves["series"]) == {"fifo/greedy", "sjf/greedy"}
    assert curves.filter(pl.col("x") == curves["x"].max())["y"].to_list() == [1, 1]


def test_five_policies_are_the_default():
    names = ["fifo/greedy", "fifo/easy", "smallest/greedy", "sjf/greedy, estimate group", "sjf/greedy"]
    assert rows_of(*THREE)["policy"].to_list() == names


def test_of_a_long_trace_the_busiest_jobs_in_a_row_are_diagnosed_with_their_own_usage():
    trace = fleetlab.synthesize("pai2020", jobs=6000, seed=1)
    heavy = pl.when(pl.col("job").is_between(3000, 3999)).then(1e7).otherwise(1.0)
    jobs = trace.workload.frame.with_columns(runtime=heavy, submit=pl.col("job").cast(pl.Float64))
    jobs = jobs.with_columns(eligible="submit").with_columns(start=pl.col("submit") + 5.0, end=pl.lit(None, pl.Float64))
    longer = replace(trace, workload=Workload.of(jobs, source="made"))
    column = pl.Series([float(k) for k in range(6000)])
    part, window = busiest(Scenario.of(longer, order="sjf", estimate=column), most=1000)
    frame = part.workload.frame
    assert frame["runtime"].to_list() == [1e7] * 1000
    assert (frame["submit"][0], frame["start"][0], part.first_row) == (0, 5, 3000)
    assert part.before.rows.tolist() == list(range(3000))
    kept = pl.col("job").is_between(3000, 3999)
    expected = trace.usage.filter(kept).with_columns(pl.col("job") - 3000).collect()
    assert part.by_job(part.trace.usage).collect().equals(expected)
    assert window.startswith("the busiest 1,000 consecutive jobs (days 0.0 to 0.0 of 0.")


def test_of_how_many_jobs_a_story_speaks_is_said_where_it_is_not_all_of_them():
    scenario = Scenario.of("builtin:2100").open()
    _, window = busiest(scenario, most=1000)
    assert "2,100 jobs submitted within" in about(scenario, window)
    assert "What follows is about a simulation of the busiest 1,000 consecutive jobs" in about(scenario, window)
    assert "What follows" not in about(scenario, "")


def test_a_short_trace_is_diagnosed_as_it_is():
    scenario = Scenario.of(fleetlab.synthesize("pai2020", jobs=500, seed=1))
    assert busiest(scenario) == (scenario, "")


@pytest.mark.slow
def test_the_story_is_three_findings_three_figures_and_a_table_before_all_else(tmp_path):
    trace = fleetlab.synthesize("pai2020", jobs=1500, seed=1)
    result = story(trace, out=tmp_path / "page.html", load=6.0)
    assert len(result.findings) == 3
    assert result.about.startswith("Synthetic: ")
    text = result.page.read_text("utf-8")
    first, folded = text.split('<details class="rest">')
    assert "Synthetic" in first[: first.index("<h1") + 100]
    assert [first.count(what) for what in ("<figure", "<h2>What to do", "<ol")] == [3, 1, 1]
    assert (
        "a simulation of all 1,500 jobs under fifo/greedy, placement worst_fit, load 6 (first come, first served;"
        in first
    )
    assert folded.count("<figure") > 10
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert "<svg" in text
    assert "http:" not in text.replace("http://www.w3.org", "")
    assert "https:" not in text
    # Here denser placements make jobs wait longer: they are no actions.
    assert "set placement to" not in first


def test_a_story_that_is_stopped_leaves_no_thread_and_no_page(tmp_path):
    def progress(what, _done, _share):
        if what.startswith("simulating changes"):
            raise KeyboardInterrupt

    trace, before = fleetlab.synthesize("pai2020", jobs=800, seed=1), threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        story(trace, out=tmp_path / "page.html", progress=progress)
    assert not list(tmp_path.iterdir())
    assert threading.active_count() == before


def test_on_the_built_in_trace_the_default_comparison_shows_what_sharing_is_worth():
    found = fleetlab.compare("builtin:20000", workers=0)
    rows = {row["policy"]: row for row in found.tables()["policies"].iter_rows(named=True)}
    alone = rows["fifo/greedy, sharing exclusive"]
    assert alone["mean wait"] > 20 * rows["fifo/greedy"]["mean wait"] > 0
    assert alone["mean wait"] > 60
    assert alone["mean wait change low"] > 0
    assert found.findings[1].startswith("Jobs wait for less than 1 % of their JCT")
    assert any("under fifo/greedy, sharing exclusive" in line for line in found.findings)
    assert found.coverage.line.startswith("All 20,000 jobs in the synthetic log are simulated")
