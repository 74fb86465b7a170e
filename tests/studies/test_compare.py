"""Policies compared on the same jobs, and the story of a trace on one page."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, FleetlabError, PolicyError, Provenance, Trace, Workload, WorkloadError
from fleetlab.core import Drain, Policy, Scenario
from fleetlab.core.result import SavedResult, as_json
from fleetlab.sim import order
from fleetlab.studies.compare import compare
from fleetlab.studies.demo import busiest


def one_gpu(submit, runtime):
    """Jobs of one whole GPU, on a node that has one."""
    frame = pl.DataFrame({"submit": submit, "runtime": runtime}).with_columns(gpu_milli=pl.lit(1000))
    return Workload.of(frame, source="hand"), Cluster.uniform(1, 1)


# At 0 a job of 10 s starts; of 8 s and 1 s that wait, fifo starts the longer first.
THREE = one_gpu([0.0, 1.0, 2.0], [10.0, 8.0, 1.0])
OF_ANN = replace(THREE[0], frame=THREE[0].frame.with_columns(user=pl.lit("ann", dtype=pl.Categorical))), THREE[1]
FIFO, SJF = (0 + 9 + 16) / 3, (0 + 10 + 8) / 3


@order
def longest(s, job, now):
    """Return a key by which the longest job is first."""
    return -s.estimate[job]


def rows_of(*args, replicas=1, **options):
    return compare(*args, replicas=replicas, **options).tables()["policies"]


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
    found = compare(Scenario.of(*THREE).vary(order=["fifo", "sjf"], load=[1.0, 2.0]), replicas=1)
    rows = found.tables()["policies"]
    assert rows["policy"].to_list() == ["fifo/greedy", "fifo/greedy, load 2", "sjf/greedy", "sjf/greedy, load 2"]
    waits = [(0 + 9 + 16) / 3, (0 + 9.5 + 17) / 3, (0 + 10 + 8) / 3, (0 + 10.5 + 9) / 3]
    assert rows["mean wait"].to_list() == pytest.approx(waits)
    assert found.provenance.settings["policies"] == [{}, {"load": 2.0}, {"order": "sjf"}, {"order": "sjf", "load": 2.0}]


@pytest.mark.parametrize("workers", [0, 1])
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
    for workers in (0, 1):
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
    rows = compare(scenario.vary(load=[1.0, 1.25]), replicas=1).tables()["policies"]
    cost = rows["cost per day, (currency of the prices)"]
    assert cost[1] == pytest.approx(cost[0])
    assert rows["GPU-h per day"][1] > rows["GPU-h per day"][0]
    assert rows["energy per day, kWh"][1] > rows["energy per day, kWh"][0]


def test_the_first_differs_from_itself_by_exactly_nothing():
    trace = fleetlab.synthesize("pai2020", jobs=600, seed=2)
    rows = rows_of(trace, policies=["fifo", "fifo/greedy", "smallest"], replicas=3)
    for metric in ("wait", "JCT", "bounded slowdown"):
        columns = [f"mean {metric} change", f"mean {metric} change low", f"mean {metric} change high"]
        assert rows.select(columns).rows()[:2] == [(0, 0, 0), (0, 0, 0)]
    assert (rows["mean wait low"] <= rows["mean wait"]).all()
    assert (rows["mean wait"] <= rows["mean wait high"]).all()


@pytest.fixture(scope="module")
def shortest_first():
    """Every hour a long job and then short ones come to a GPU at work: shortest first helps in every hour."""
    submit = [3600.0 * h + k for h in range(60) for k in range(10)]
    runtime = [{0: 60.0, 1: 900.0}.get(k, 30.0) for _ in range(60) for k in range(10)]
    return one_gpu(submit, runtime)


def record(result, metric="mean wait"):
    """Return the first finding about a metric."""
    return next(f for f in result.records if f.metric == metric)


def test_a_better_policy_is_called_so_with_its_pairs_of_runs(shortest_first):
    found = compare(*shortest_first, policies=["fifo", "sjf"])
    wait = record(found)
    assert (wait.verdict, wait.scope, wait.replicas, wait.unit) == ("better", "this log", 5, "s")
    assert wait.subject == "sjf/greedy (true runtimes known in advance)"
    assert wait.population == "the 600 jobs that complete under every policy"
    assert wait.low < wait.difference < wait.high < 0
    assert wait.after == pytest.approx(wait.before + wait.difference)
    assert record(found, "mean JCT").verdict == "better"
    rows = found.tables()["policies"]
    assert (rows["verdict"].to_list(), rows["P(first)"].to_list()) == (["no difference", "better"], [0.0, 1.0])


def test_a_worse_policy_is_called_so(shortest_first):
    found = compare(*shortest_first, policies=["sjf", "fifo"])
    assert record(found).verdict == "worse"
    assert found.findings[0].startswith("No policy is known to have a lower mean wait than sjf/greedy (true ")


def test_every_two_policies_are_compared_by_their_pairs_of_runs(shortest_first):
    found = compare(*shortest_first, policies=["fifo", "sjf", "smallest"])
    pairs = {(r["policy"], r["other"], r["metric"]): r for r in found.tables()["pairs"].iter_rows(named=True)}
    names = ("fifo/greedy", "sjf/greedy", "smallest/greedy")
    assert set(pairs) == {
        (*pair, f"mean {m}")
        for pair in (names[1::-1], names[2::-2], names[:0:-1])
        for m in ("wait", "JCT", "bounded slowdown")
    }
    for f in found.records:
        name, row = f.subject.split(" ")[0], found.tables()["policies"].row(0, named=True)
        own = pairs[name, row["policy"], f.metric]
        assert [own[k] for k in ("difference", "low", "high", "unit", "verdict")] == [
            f.difference, f.low, f.high, f.unit, f.verdict,
        ]  # fmt: skip
    between = pairs["smallest/greedy", "sjf/greedy", "mean wait"]  # all jobs ask for as much: smallest is fifo
    assert (between["verdict"], between["low"] > 0) == ("worse", True)
    means = dict(found.tables()["policies"].select("policy", "mean wait").iter_rows())
    assert between["difference"] == pytest.approx(means["smallest/greedy"] - means["sjf/greedy"])
    saved = SavedResult.from_json(json.loads(as_json(found)))
    assert saved.tables()["pairs"].equals(found.tables()["pairs"])


def test_two_policies_have_one_pair_which_is_in_their_table():
    assert "pairs" not in compare(*THREE, policies=["fifo", "sjf"], replicas=1).tables()


def test_each_job_has_its_wait_and_jct_under_each_policy_in_the_log_as_it_is():
    found = compare(*THREE, policies=["fifo", "sjf"], until=12.0, replicas=3)
    assert "jobs" not in found.tables()  # as long as the log
    assert found.to_polars("jobs").rows(named=True) == [
        {"job": 0, "wait, fifo/greedy": 0, "JCT, fifo/greedy": 10, "wait, sjf/greedy": 0, "JCT, sjf/greedy": 10},
        {"job": 1, "wait, fifo/greedy": None, "JCT, fifo/greedy": None,
         "wait, sjf/greedy": None, "JCT, sjf/greedy": None},
        {"job": 2, "wait, fifo/greedy": None, "JCT, fifo/greedy": None, "wait, sjf/greedy": 8, "JCT, sjf/greedy": 9},
    ]  # fmt: skip
    assert found.to_polars().equals(found.tables()["policies"])


def test_jobs_of_a_comparison_are_those_of_simulations():
    base = Scenario.of(fleetlab.synthesize("pai2020", jobs=400, seed=1), load=2.0)
    found = compare(base, policies=["fifo", "sjf"], replicas=2, workers=0)
    own = fleetlab.simulate(base.replace(order="sjf")).completed.sort("job")
    jobs = found.to_polars("jobs")
    assert jobs["job"].to_list() == base.workload.frame["job"].to_list()
    assert (
        jobs.drop_nulls("wait, sjf/greedy").select("job", "wait, sjf/greedy").rows() == own.select("job", "wait").rows()
    )


def test_one_replica_is_the_log_as_it_is_and_decides_nothing():
    found = compare(*THREE, policies=["fifo", "sjf"], replicas=1)
    wait = record(found)
    assert (wait.before, wait.after) == (pytest.approx(FIFO), pytest.approx(SJF))
    assert (wait.verdict, wait.replicas) == ("not decided", 1)
    assert np.isnan([wait.low, wait.high]).all()


def test_so_many_replicas_as_asked_for_are_simulated_of_the_log_or_of_logs_like_it(shortest_first):
    for scope, called in (("log", "this log"), ("like", "logs like it")):
        found = compare(*shortest_first, policies=["fifo", "sjf"], replicas=4, scope=scope)
        assert (record(found).replicas, record(found).scope) == (4, called)
        assert found.provenance.settings["replicas"] == 4
        assert found.provenance.settings["scope"] == scope


def test_logs_like_it_differ_more_than_nudges_of_one(shortest_first):
    widths = []
    for scope in ("log", "like"):
        wait = record(compare(*shortest_first, policies=["fifo", "sjf"], replicas=5, scope=scope))
        widths.append(wait.high - wait.low)
    assert widths[1] > widths[0]


def test_a_policy_of_your_own_that_reads_estimates_is_said_to_know_true_runtimes():
    policies = ["fifo", {"order": longest}, {"order": longest, "estimate": "user"}]
    found = compare(*OF_ANN, policies=policies, replicas=1)
    subjects = [f.subject for f in found.records if f.metric == "mean wait"]
    assert ["true runtimes known in advance" in name for name in subjects] == [True, False]


def test_the_last_sentence_says_for_whom_a_policy_is_better_and_at_whose_cost():
    # Every hour two long jobs and then short ones of half a GPU come: shortest first makes the second long one wait.
    submit = [3600.0 * h + k for h in range(120) for k in range(10)]
    runtime = [900.0 if k < 2 else 30.0 + k for _ in range(120) for k in range(10)]
    workload, cluster = one_gpu(submit, runtime)
    long = pl.col("runtime") > 500
    jobs = workload.frame.drop("job").with_columns(gpu_milli=pl.when(long).then(1000).otherwise(600))
    found = compare(Workload.of(jobs, source="hand"), cluster, policies=["fifo", "sjf"])
    last = found.findings[-1]
    assert last.startswith("Jobs of fraction of a GPU")
    assert "Jobs of 1 GPU" in last
    classes = found.tables()["by class"]
    rows = classes.select("class", "jobs", "verdict").rows()
    assert rows[:2] == [("fraction of a GPU", 960, "better"), ("1 GPU", 240, "worse")]
    same = compare(*THREE, policies=["fifo", "fifo/greedy/worst_fit"]).tables()["by class"]
    assert set(same["verdict"]) == {"no difference"}


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
    here, apart = (compare(trace, policies=policies, load=1.1, workers=n, replicas=2) for n in (0, 2))
    assert here.tables()["policies"].equals(apart.tables()["policies"])
    assert here.findings == apart.findings


def test_a_mistake_in_a_process_of_its_own_has_the_same_message():
    errors = []
    for workers in (0, 1):
        with pytest.raises(FleetlabError) as e:
            compare(*THREE, policies=["fifo", "fifo/quota=nobody=3"], workers=workers, replicas=1)
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
    found = compare(*THREE, policies=["fifo", "sjf"], until=12.0, replicas=1)
    # By then fifo has completed the first job, sjf the first and the last.
    said = "2 of 3 jobs are not compared: 2 do not complete under some policy."
    assert found.findings[1] == said
    assert record(found).population == "the one job that complete under every policy"


def test_jobs_that_come_after_the_end_are_told_from_those_that_wait():
    workload, cluster = one_gpu([0.0, 1.0, 2.0, 90.0], [10.0, 8.0, 1.0, 1.0])
    said = "3 of 4 jobs are not compared: 1 not yet submitted when the simulation stops, 2 do not complete under "
    found = compare(workload, cluster, policies=["fifo", "sjf"], until=12.0, replicas=1)
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
    found = compare(Workload.of(frame, source="hand"), Cluster.uniform(1, 1), policies=policies, replicas=1)
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
    found = compare(Workload.of(frame, source="hand"), Cluster.of(nodes, source="hand"), policies=policies, replicas=1)
    rows = found.tables()["policies"]
    assert rows["mean wait"].to_list() == [0, 0]
    assert rows["jobs that cannot run"].to_list() == [0, 3]
    assert any(line.startswith("3 jobs complete only under ") for line in found.findings)


@pytest.mark.parametrize("workers", [0, 1])
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
    drawn = compare(trace, policies=["fifo", "sjf"], replicas=1).figures()
    assert drawn["mean wait by policy"].frame["x"].to_list() == ["fifo/greedy", "sjf/greedy"]
    curves = drawn["waits by policy"].frame
    assert set(curves["series"]) == {"fifo/greedy", "sjf/greedy"}
    assert curves.filter(pl.col("x") == curves["x"].max())["y"].to_list() == [1, 1]


def test_five_policies_are_the_default():
    names = ["fifo/greedy", "fifo/easy", "smallest/greedy", "sjf/greedy, estimate group", "sjf/greedy"]
    assert rows_of(*OF_ANN)["policy"].to_list() == names


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


def test_a_short_trace_is_diagnosed_as_it_is():
    scenario = Scenario.of(fleetlab.synthesize("pai2020", jobs=500, seed=1))
    assert busiest(scenario) == (scenario, "")


def test_on_the_built_in_trace_the_default_comparison_shows_what_sharing_is_worth():
    found = fleetlab.compare("builtin:20000", policies=["fifo", "fifo/sharing=exclusive"], replicas=3, workers=0)
    rows = {row["policy"]: row for row in found.tables()["policies"].iter_rows(named=True)}
    alone = rows["fifo/greedy, sharing exclusive"]
    assert alone["mean wait"] > 20 * rows["fifo/greedy"]["mean wait"] > 0
    assert alone["mean wait"] > 60
    assert alone["verdict"] == "worse"
    assert found.findings[1].startswith("This cluster has almost no queue, so no policy can help")
    assert found.coverage.line.startswith("Simulated all 20,000 jobs in the synthetic log")


def test_without_owners_no_policy_estimates_by_group_unless_it_is_asked_for():
    jobs = pl.DataFrame({"submit": [0.0, 0.0, 1.0], "runtime": [9.0, 5.0, 3.0], "gpu_milli": [1000] * 3})
    workload, cluster = Workload.of(jobs, source="no names"), Cluster.uniform(1, 1)
    policies = compare(workload, cluster, warm_up="none", workers=0).tables()["policies"]["policy"].to_list()
    assert len(policies) == 4
    assert not [name for name in policies if "estimate" in name]
    found = fleetlab.diagnose(workload, cluster, warm_up="none", changes=["sjf", "nothing"], workers=0)
    assert found.tables()["changes"]["change"].to_list() == ["nothing"]
    with pytest.raises(PolicyError, match="`group`"):
        compare(workload, cluster, policies=["fifo", "sjf/estimate=group"], workers=0)
