"""How many nodes? As many as Erlang C says where it holds; growth draws again and does not squeeze."""

import json
import math

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Trace, Workload, WorkloadError, cli, queueing
from fleetlab.core import Estimate, Faults, Scenario
from fleetlab.studies.capacity.capacity import Run, SizeCurve
from fleetlab.studies.capacity.sizes import ServiceGoal, distinct, guess
from fleetlab.studies.replicas import Plan, Replication

DAY = 86_400.0


def work(source="made", **columns):
    return Workload.of(pl.DataFrame(columns), source=source)


def erlang(jobs, load, seed=0):
    """Poisson arrivals and exponential run times of 100 s, each for one GPU."""
    rng = np.random.default_rng(seed)
    submit = np.append(0.0, np.cumsum(rng.exponential(100 / load, jobs))[:-1])
    return work(submit=submit, runtime=rng.exponential(100.0, jobs), gpu_milli=[1000] * jobs)


def fewest(load, goal):
    """The fewest servers by Erlang C: P(W > t) = C exp(-(c - a) t / 100)."""
    c = math.ceil(load) + 1
    while True:
        chance = queueing.solve("M/M/c", lam=load / 100, mu=0.01, c=c)["probability of waiting"]
        mean, late = chance * 100 / (c - load), chance * math.exp(-(c - load) * 20 / 100)
        if mean < 20 if goal == "mean" else late < 0.1:
            return c
        c += 1


# -- theory and hand-worked ------------------------------------------------------------------------------------------


def metric(result, name):
    return next(e for e in result.summary() if e.metric.startswith(name))


@pytest.mark.parametrize("goal", ["mean", "p90"])
def test_as_many_nodes_as_erlang_c_says(goal):
    result = fleetlab.capacity(erlang(20_000, 20.0), Cluster.uniform(30, 1), slo=f"{goal} wait < 20", seed=1)
    assert 0 <= result.summary()[0].value - fewest(20.0, goal) <= 2


@pytest.mark.parametrize("goal", ["mean", "p90"])
def test_of_few_jobs_the_answer_is_rarely_too_small(goal):
    answers = [
        fleetlab.capacity(erlang(600, 8.0, seed=k), Cluster.uniform(10, 1), slo=f"{goal} wait < 20") for k in range(12)
    ]
    errors = np.array([answer.summary()[0].value for answer in answers]) - fewest(8.0, goal)
    assert (errors < 0).mean() <= 0.25  # 10 % of many: one run without replicas is too small in half of them
    assert abs(np.median(errors)) <= 1


def test_clockwork_needs_exactly_what_it_needs():
    # One job a second that runs for 3.5 s: three GPUs fall behind for ever, four never let anybody wait.
    jobs = work(submit=np.arange(1000.0), runtime=[3.5] * 1000, gpu_milli=[1000] * 1000)
    result = fleetlab.capacity(jobs, Cluster.uniform(1, 1), slo="p99 wait < 1", replicas=1)
    assert result.summary()[0].value == 4
    assert metric(result, "P99 wait with these nodes").value == 0
    assert metric(result, "replicas in which it does").value == 100


def test_the_share_of_replicas_passes_the_probability_at_the_answer():
    result = fleetlab.capacity(erlang(1000, 10.0), Cluster.uniform(10, 1), slo="mean wait < 30")
    nodes, curve = result.summary()[0].value, result.tables()["curve"]
    shares = dict(curve.select("nodes", "meets the goal").iter_rows())
    assert list(shares.values()) == sorted(shares.values())
    assert shares[nodes] >= 90 > shares[nodes - 1]
    assert curve.filter(pl.col("nodes").is_between(nodes - 1, nodes))["replicas"].to_list() == [20, 20]
    assert curve["nodes"].max() >= 1.2 * nodes


def test_a_smaller_probability_needs_no_more_nodes():
    sure, even = (
        fleetlab.capacity(erlang(1000, 10.0), Cluster.uniform(10, 1), slo="mean wait < 30", probability=p)
        for p in (0.95, 0.5)
    )
    assert even.summary()[0].value <= sure.summary()[0].value
    assert metric(sure, "nodes that do in half").value <= sure.summary()[0].value


def test_only_the_pool_that_is_named_grows_and_only_its_jobs_count():
    n = 600
    both = pl.DataFrame({"submit": np.arange(n) * 5.0, "runtime": [50.0] * n, "gpu_milli": [1000] * n})
    types = pl.Series("gpu_types", [["V100"] if k % 2 else ["T4"] for k in range(n)])
    frames = [Cluster.uniform(1, 1, gpu_type=t).frame.with_columns(node=pl.lit(t)) for t in ("V100", "T4")]
    cluster = Cluster.of(pl.concat(frames), source="two")
    found = fleetlab.capacity(
        Workload.of(both.with_columns(types), source="two"), cluster, slo="p90 wait < 1", pool="V100", replicas=1
    )
    # A job every 10 s for 50 s: five V100s; the queue for the one T4 is nobody's concern.
    then = {row["GPU type"]: row["needed"] for row in found.tables()["nodes"].iter_rows(named=True)}
    assert then == {"V100": 5, "T4": 1}


def test_a_gang_that_does_not_fit_waits_for_ever():
    jobs = work(
        submit=np.arange(10.0) * 100, runtime=[1.0] * 10, gpu_milli=[1000] * 10, instances=[1, 4] * 5
    )  # fmt: skip
    assert fleetlab.capacity(jobs, Cluster.uniform(1, 1), slo="p90 wait < 1", scope="log").summary()[0].value == 4


def one_in_twenty_too_large():
    """One job in twenty asks for a node of sixteen GPUs, which there is not."""
    gpus = [16_000 if k % 20 == 7 else 1000 for k in range(200)]
    return work(submit=np.arange(200.0) * 100, runtime=[1.0] * 200, gpu_milli=gpus)


def test_a_job_that_fits_on_no_node_counts_as_waiting_for_ever():
    found = fleetlab.capacity(one_in_twenty_too_large(), Cluster.uniform(1, 8), slo="p90 wait < 1", scope="log")
    assert found.summary()[0].value == 1
    assert set(found.tables()["curve"]["jobs that never run"]) == {10}
    assert "the 200 jobs (10 jobs cannot run on this cluster and count as waiting forever)" in found.findings[-1]


def test_a_job_that_fits_on_no_node_is_not_said_to_be_simulated():
    found = fleetlab.capacity(one_in_twenty_too_large(), Cluster.uniform(1, 8), slo="p90 wait < 1", scope="log")
    assert found.coverage.covered.jobs == 190
    assert "Left out: an instance fits on no node (10)." in found.coverage.line


def test_jobs_that_may_use_any_gpu_type_are_counted_once_in_the_first_guess():
    # A job a second that runs for 50.5 s holds 51 GPUs at most: 62 by the rule; two nodes have one V100 and three T4s.
    jobs = work(submit=np.arange(2000.0), runtime=[50.5] * 2000, gpu_milli=[1000] * 2000)
    nodes = [Cluster.uniform(1, n, gpu_type=t).frame.with_columns(node=pl.lit(t)) for t, n in (("V100", 1), ("T4", 3))]
    scenario = Scenario.of(jobs, Cluster.of(pl.concat(nodes), source="two"))
    rule = queueing.solve("square-root staffing", lam=51, mu=1, chance=0.1)["servers by the square-root rule"]
    assert (rule, guess(scenario, None, ServiceGoal.read("p90 wait < 1"))) == (62, 31)


def test_a_type_that_few_jobs_name_does_not_set_the_first_guess():
    # Of the jobs of the last test, one in forty needs the V100: that these wait leaves nine of ten that do not.
    types = [["V100"] if k % 40 == 0 else [] for k in range(2000)]
    columns = {"submit": np.arange(2000.0), "runtime": [50.5] * 2000, "gpu_milli": [1000] * 2000}
    jobs = Workload.of(pl.DataFrame(columns | {"gpu_types": types}), source="made")
    nodes = [Cluster.uniform(1, n, gpu_type=t).frame.with_columns(node=pl.lit(t)) for t, n in (("V100", 1), ("T4", 99))]
    scenario = Scenario.of(jobs, Cluster.of(pl.concat(nodes), source="two"))
    assert guess(scenario, None, ServiceGoal.read("p90 wait < 1")) <= 2


def curve_of(waits, probability=0.9):
    """Return a curve of a goal of 10: `waits` returns the wait of a size in a replica."""
    return SizeCurve(
        10.0,
        probability,
        lambda new: [
            Run(waits(size, k), jobs=100, never=0, nodes=size, gpus=size, waits=np.ones(20)) for size, k in new
        ],
    )


@pytest.mark.parametrize("least", [1, 9, 20, 333])
@pytest.mark.parametrize("guess", [1, 30])
def test_a_search_ends_at_the_smallest_size_that_meets_the_goal(least, guess):
    curve = curve_of(lambda size, k: 5.0 if size >= least else 50.0)
    curve.add([guess], 5)
    assert least <= curve.answer(first=5, count=20, most=1000) <= 1.01 * least + 0.5
    assert sum(map(len, curve.runs.values())) <= 160


def test_a_size_that_meets_the_goal_by_chance_in_few_replicas_is_no_answer():
    curve = curve_of(lambda size, k: 5.0 if size >= 12 or (size == 10 and k < 5) else 50.0)
    curve.add([16], 5)
    assert curve.answer(first=5, count=20, most=1000) == 12


def test_sizes_that_are_rounded_up_to_the_same_nodes_are_one_with_all_of_its_replicas():
    nodes = {"node": [*"abcd"], "pool": [*"xyyy"], "gpus": 1, "gpu_type": [*"XYYY"]}
    cluster = Cluster.of(pl.DataFrame(nodes), source="two kinds")
    assert distinct(cluster, None, 10) == [1, 2, 4, 5, 6, 8, 9, 10]  # of 3, X and Y are rounded up to 1 + 3, as of 4
    result = fleetlab.capacity(erlang(300, 4.0), cluster, slo="mean wait < 20")
    curve, found = result.tables()["curve"], {e.metric: e.value for e in result.summary()}
    assert curve["nodes"].is_unique().all()
    assert curve.filter(nodes=result.summary()[0].value)["meets the goal"][0] == found["replicas in which it does"]


def test_a_share_that_falls_with_the_size_is_averaged():
    curve = curve_of(lambda size, k: 5.0 if (k < 18 if size == 20 else k < 14) else 50.0)
    curve.add([20, 21], 20)
    assert curve.shares() == {20: pytest.approx(0.8), 21: pytest.approx(0.8)}


def test_that_more_nodes_make_it_worse_is_said_where_replicas_agree():
    curve = curve_of(lambda size, k: (20.0 if size == 21 else 5.0) + 0.1 * k)
    curve.add([20, 21, 22], 10)
    assert curve.worse(Replication(Plan(scope="like"), [{}] * 10)) == [(20, 21)]


@pytest.mark.parametrize("slo", ["p99 wait < 1", "mean wait < 1e9", "p99 JCT < 1e6"])
def test_a_goal_that_jobs_without_a_node_break_is_refused_and_says_what_they_lack(slo):
    said = r"10 of 200 jobs fit on no node, and wait forever: 10 request more `gpus` than any node has \(8\)"
    with pytest.raises(WorkloadError, match=said):
        fleetlab.capacity(one_in_twenty_too_large(), Cluster.uniform(1, 8), slo=slo)


def test_preemption_load_events_and_prices_are_words_of_capacity():
    # At twice the load, a job every half second that runs for 3.5 s: seven GPUs.
    jobs = work(submit=np.arange(1000.0), runtime=[3.5] * 1000, gpu_milli=[1000] * 1000)
    result = fleetlab.capacity(
        jobs, Cluster.uniform(1, 1), slo="p99 JCT < 4", order="las", preemption=True, load=2.0, replicas=1,
        prices={"per_gpu_hour": 2.0}, events=[Faults(mtbf=1e9, mttr=1.0)],
    )  # fmt: skip
    assert (result.summary()[0].value, metric(result, "P99 JCT").value, metric(result, "nodes now").value) == (
        7,
        3.5,
        1,
    )
    assert result.summary()[-1] == Estimate.exact(
        "cost of all GPUs per hour, with these nodes", 14.0, "(currency of the prices)"
    )
    costs = dict(result.tables()["curve"].select("nodes", "cost per hour, (currency of the prices)").iter_rows())
    assert (costs[1], costs[7]) == (2.0, 14.0)


def test_the_same_seed_gives_the_same_answer_with_any_number_of_processes():
    one, two = (
        fleetlab.capacity(erlang(2000, 5.0), Cluster.uniform(8, 1), slo="mean wait < 60", growth=1.5, seed=4, workers=k)
        for k in (0, 2)
    )
    assert one.summary() == two.summary()
    assert one.tables()["curve"].equals(two.tables()["curve"])


# -- growth ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def weeks():
    """Three weeks of thirty users, each with a burst a day at an hour of their own."""
    rng = np.random.default_rng(5)
    rows = [
        (day * DAY + user * 1800.0 + 60.0 * k, f"u{user}", float(rng.integers(1, 4000)))
        for day in range(21)
        for user in range(30)
        for k in range(3)
    ]
    frame = pl.DataFrame(rows, schema=["submit", "user", "runtime"], orient="row").sort("submit")
    return Workload.of(frame.with_columns(gpu_milli=1000), source="weeks", epoch=0.0)


def test_no_growth_is_the_workload_itself(weeks):
    assert weeks.grown(1.0, seed=0) is weeks


@pytest.mark.parametrize("growth", [0.5, 1.3, 2.0, 2.5])
def test_growth_is_more_of_the_same_and_no_squeezing(weeks, growth):
    found = weeks.grown(growth, seed=1)
    more = found.frame.with_columns(pl.col("submit") + found.epoch)
    assert more.height / len(weeks) == pytest.approx(growth, abs=0.1)
    # Who submits at which time of the day, and the gaps inside a burst, stay as they were.
    of_day = (pl.col("user").cast(pl.String), pl.col("submit") % DAY)
    assert set(more.select(of_day).rows()) == set(weeks.frame.select(of_day).rows())
    assert more["submit"].max() <= weeks.frame["submit"].max()


def test_growth_to_the_double_is_everybody_twice(weeks):
    more = weeks.grown(2.0, seed=1).frame
    assert sorted(more["runtime"]) == sorted([*weeks.frame["runtime"], *weeks.frame["runtime"]])


def test_what_comes_again_comes_on_the_same_weekday(weeks):
    odd = weeks.frame.filter((pl.col("submit") // DAY) % 7 < 5).drop("job")
    more = Workload.of(odd, source="weekdays").grown(3.0, seed=1).frame
    assert set((more["submit"] // DAY % 7).to_list()) == {0, 1, 2, 3, 4}


def test_another_seed_draws_others(weeks):
    one, two = (weeks.grown(1.3, seed=k).frame["submit"].to_list() for k in (1, 2))
    assert one != two


# -- the population ---------------------------------------------------------------------------------------------------


def test_jobs_of_unknown_runtime_are_left_out_and_counted():
    runtime = [None if k % 4 == 0 else 1.0 for k in range(400)]
    jobs = work(submit=np.arange(400.0), runtime=runtime, gpu_milli=[1000] * 400)
    found = fleetlab.capacity(jobs, Cluster.uniform(1, 1), slo="p99 wait < 1", censored="drop", scope="log")
    said = "the 300 jobs that were replayed (of 400, 100 left out: runtime unknown)."
    assert found.findings[-1] == f"Measured on {said}"


def test_jobs_that_a_replica_does_not_draw_are_not_called_refused():
    jobs = work(submit=np.arange(400.0) * 10, runtime=[1.0 + k % 7 for k in range(400)], gpu_milli=[1000] * 400)
    found = fleetlab.capacity(jobs, Cluster.uniform(1, 1), slo="p90 wait < 60", replicas=5)
    assert "quota" not in " ".join(found.findings)


# -- words and mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "goal"),
    [
        ("p90 wait < 600", ServiceGoal(0.9, "wait", 600.0)),
        ("P99  Slowdown<3", ServiceGoal(0.99, "slowdown", 3.0)),
        ("mean JCT < 2h", ServiceGoal(None, "JCT", 7200.0)),
        ("p95 bounded slowdown < 2", ServiceGoal(0.95, "bounded slowdown", 2.0)),
        ("p90 wait < 3d", ServiceGoal(0.9, "wait", 259_200.0)),
        ("p50 wait < 1.5m", ServiceGoal(0.5, "wait", 90.0)),
        ("p99.9 wait < 30 s", ServiceGoal(0.999, "wait", 30.0)),
    ],
)
def test_a_goal_is_read(words, goal):
    read = ServiceGoal.read(words)
    assert (read.metric, read.limit) == (goal.metric, goal.limit)
    assert read.quantile == pytest.approx(goal.quantile)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"slo": "p90 wait"}, "not a goal: `p90 wait`"),
        ({"slo": "p90 fun < 3"}, "not a goal"),
        ({"slo": "p90 wait < 0"}, "a limit of wait is a duration above 0, not: `0`"),
        ({"slo": "p90 wait < 1e999"}, "a limit of wait is a duration above 0"),
        ({"slo": "p0 wait < 1"}, "a percentile lies between 0 and 100"),
        ({"slo": "p90 wait < 3y"}, "a limit of wait is a duration above 0, not: `3y`"),
        ({"slo": "p90 slowdown < 3s"}, "a limit of slowdown is a number above 0, not: `3s`"),
        ({"slo": "p90 response < 10"}, "not a goal"),
        ({"slo": "p90 JCT < 10"}, "without any wait the P90 JCT is 50 s"),
        ({"slo": "mean slowdown < 1"}, "without any wait the mean slowdown is 1"),
        ({"slo": "p90 wait < 1", "pool": "V10"}, "no pool or GPU type by that name: `V10`; did you mean V100?"),
        ({"slo": "p90 wait < 1", "growth": 0.0}, "growth is a number above 0"),
        ({"slo": "p90 wait < 1", "growth": math.nan}, "growth is a number above 0"),
        ({"slo": "p90 wait < 1", "until": 9.0}, "leave `until` out"),
        ({"slo": "p90 wait < 1", "replicas": 0}, "from 1 to 1,000 replicas: 0"),
        ({"slo": "p90 wait < 1", "probability": 0.0}, "probability is a number above 0, at most 1"),
        ({"slo": "p90 wait < 1", "scope": "all"}, "no scope by that name: `all`"),
    ],
)
def test_a_mistake_is_said(settings, error):
    jobs = work(submit=[0.0, 1.0], runtime=[50.0, 50.0], gpu_milli=[1000, 1000])
    with pytest.raises(WorkloadError) as e:
        fleetlab.capacity(jobs, Cluster.uniform(1, 8, gpu_type="V100"), **settings)
    assert error in str(e.value)


@pytest.mark.parametrize(
    ("columns", "pool", "error"),
    [
        ({"submit": []}, None, "no job has a known runtime"),
        ({"submit": [0.0], "gpu_milli": [1000]}, None, "no job has a known runtime"),
        ({"submit": [0.0], "runtime": [1.0]}, "V100", "no job may run on `V100`"),
        ({"submit": [0.0], "runtime": [1.0], "gpu_milli": [9000]}, None, "no job can run on such nodes"),
    ],
)
def test_nobody_to_measure_is_said(columns, pool, error):
    frame = pl.DataFrame(columns, schema_overrides={"submit": pl.Float64})
    with pytest.raises(WorkloadError, match=error):
        fleetlab.capacity(
            Workload.of(frame, source="none"), Cluster.uniform(1, 8, gpu_type="V100"), slo="p90 wait < 1", pool=pool
        )


def test_a_goal_that_no_number_of_nodes_meets_says_what_they_wait_for():
    # Everybody waits behind jobs that want the other pool, which does not grow.
    n = 300
    types = [["T4"] if k % 2 else ["V100"] for k in range(n)]
    jobs = work(submit=np.arange(n) * 1.0, runtime=[50.0] * n, gpu_milli=[1000] * n, gpu_types=types)
    frames = [Cluster.uniform(1, 1, gpu_type=t).frame.with_columns(node=pl.lit(t)) for t in ("V100", "T4")]
    with pytest.raises(WorkloadError, match=r"no number of nodes up to .* the main wait reason is `head_of_line`"):
        fleetlab.capacity(
            jobs, Cluster.of(pl.concat(frames), source="two"), slo="p90 wait < 60", pool="V100", backfill="none"
        )


def test_the_command_is_the_function(capsys, tmp_path):
    jobs = work(submit=np.arange(1000.0), runtime=[3.5] * 1000, gpu_milli=[1000] * 1000)
    trace = Trace(jobs, cluster=Cluster.uniform(1, 1), provenance=fleetlab.Provenance("make", "clockwork"))
    trace.save(tmp_path / "t")
    with pytest.raises(SystemExit, match="0"):
        cli.main(["capacity", str(tmp_path / "t"), "--slo", "p99 wait < 1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["summary"][0]["value"] == 4
    assert found["provenance"]["settings"]["slo"] == "p99 wait < 1"
