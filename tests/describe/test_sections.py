"""What each section says of a small trace that can be worked out by hand."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab.core.censoring import past_mean
from fleetlab.describe.sections.services import request_classes
from fleetlab.report.draw.chart import ready
from fleetlab.report.figures import _points

DAY, HOUR = 86_400.0, 3600.0


def told(found, metric):
    (estimate,) = [e for e in found.summary() if e.metric == metric]
    return estimate


def missing(found):
    return found.missing["what"].to_list()


# -- time --------------------------------------------------------------------------------------------------------------


def test_poisson_arrivals_look_like_chance(traced):
    gaps = np.random.default_rng(3).exponential(60.0, 30_000)
    found = fleetlab.describe(traced(submit=np.cumsum(gaps) - gaps[0]), only=["arrivals"])
    for value, low, high in found.tables()["burstiness"].select("value", "low", "high").iter_rows():
        assert low <= 1.02
        assert high >= 0.98
        assert value == pytest.approx(1, abs=0.15)
    assert any("close to Poisson" in s for s in found.findings)


def test_clockwork_has_no_bursts(traced):
    found = fleetlab.describe(traced(submit=np.arange(0, 30 * DAY, 600.0)), only=["arrivals"])
    assert told(found, "CV² of inter-arrival times").value == pytest.approx(0, abs=1e-9)
    assert told(found, "arrival rate")[1:4] == pytest.approx((6, 6, 6))


def test_hours_and_weekdays_are_those_of_the_people_there(traced):
    # 2020-07-06 was a Monday. Two jobs at 9 h in Shanghai every day for two weeks, three on Sundays.
    days = np.arange(14) * DAY
    submit = np.sort(np.concatenate((days, days + 60, days[6::7] + 120, [14 * DAY])))
    first = 1_593_997_200.0  # 2020-07-06 09:00 +08:00
    trace = traced(submit=submit, epoch=first, zone="Asia/Shanghai")
    tables = fleetlab.describe(trace, only=["arrivals"]).tables()
    by_hour = dict(tables["by hour of day"].select("hour", "P50").iter_rows())
    assert {hour: value for hour, value in by_hour.items() if value} == {9: 2}
    by_day = dict(tables["by weekday"].select("day", "jobs").iter_rows())
    assert (by_day["Tuesday"], by_day["Sunday"]) == (2, 3)


def test_a_part_of_an_hour_counts_as_a_part(traced):
    # 4,950 s are 1.375 hours: a whole one and a part, which tell nothing of how hours differ.
    found = fleetlab.describe(traced(submit=np.linspace(0, 4950, 200), runtime=[9.0] * 200), only=["arrivals"])
    rate = told(found, "arrival rate")
    assert rate.value == pytest.approx(200 / 1.375)
    assert np.isnan([rate.low, rate.high]).all()
    assert found.findings[0].startswith("The mean arrival rate is 145 jobs per hour; the log has less")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "Asia/Kathmandu"])
def test_a_job_a_minute_is_sixty_an_hour_on_every_clock(traced, zone):
    trace = traced(submit=np.arange(600) * 60.0, runtime=[9.0] * 600, epoch=1_593_993_600.0, zone=zone)
    found = fleetlab.describe(trace, only=["arrivals"])
    assert told(found, "arrival rate").value == pytest.approx(60)
    assert found.tables()["per hour"]["largest"][0] == 60


def test_jobs_older_than_the_log_are_no_arrivals(traced):
    columns = {"submit": [0.0, 0.0, 0.0, HOUR, 3 * HOUR], "start": [None, None, 1.0, HOUR, 3 * HOUR]}
    found = fleetlab.describe(traced(**columns, status=["running"] * 5), only=["arrivals"])
    assert missing(found)[0] == "submit times of 2 jobs"
    assert found.tables()["per hour"]["largest"].max() == 1


def test_a_long_series_is_drawn_with_few_points(traced):
    found = fleetlab.describe(traced(submit=np.arange(0, 400 * DAY, HOUR)), only=["arrivals"])
    frame = found.figures()["jobs per hour"].frame
    assert frame.height <= 1500
    assert frame["y"].to_list() == pytest.approx([1.0] * frame.height)


def test_data_below_a_figure_are_the_share_at_or_below(traced):
    # Half of the jobs run for 10 s: the curve is upright there, and its data have the upper end of the step only.
    found = fleetlab.describe(traced(submit=[0.0, 1.0, 2.0, 3.0], runtime=[5.0, 10.0, 10.0, 20.0]), only=["runtimes"])
    frame, _ = _points(ready(found.figures()["runtime"]))
    ours = frame.filter(pl.col("series") == "jobs") if "series" in frame.columns else frame
    assert ours.select("x", "y").rows() == [(5.0, 25.0), (10.0, 75.0), (20.0, 100.0)]


# -- runtimes and waits -----------------------------------------------------------------------------------------------


def test_waits_and_their_part_of_completion_come_from_starts(traced):
    columns = {"submit": [0.0, 0.0, 0.0, 0.0], "start": [0.0, 10.0, 30.0, None], "runtime": [10.0, 10.0, 10.0, None]}
    found = fleetlab.describe(traced(**columns, status=["completed"] * 3 + ["waiting"]), only=["runtimes"])
    assert told(found, "mean wait").value == pytest.approx(40 / 3)
    parts = found.tables()["wait over JCT"].filter(pl.col("jobs") == "all")
    assert (parts["count"].item(), parts["largest"].item()) == (3, 75)


def test_what_is_equal_is_not_more_and_all_is_a_hundred_percent(traced):
    at = np.arange(50) * 60.0
    rows = {"submit": at, "start": at + 900.0, "runtime": np.where(np.arange(50) % 2, 100.0, 101.0)}
    said = " ".join(fleetlab.describe(traced(**rows), only=["runtimes"]).findings)
    assert "Runtime: P50 100 s, P90 101 s" in said
    assert "Wait: P50 15 min, P90 15 min" in said
    assert "100 % of the short jobs and 100 % of the long ones wait longer than they run" in said


def test_starts_that_are_submissions_tell_no_waits(traced):
    trace = traced(submit=[0.0, 9.0], start=[0.0, 9.0], runtime=[3.0, 4.0])
    found = fleetlab.describe(trace, only=["runtimes"])
    assert "waits" in missing(found)
    assert "wait" not in found.tables()


def test_those_that_still_run_count_for_as_long_as_they_were_seen(traced):
    # By hand: 1 of 4 ends at 10; the second, seen for 20 s, is censored; then 1 of 2 at 30, and the last at 40.
    found = fleetlab.describe(
        traced(
            submit=[0.0, 0.0, 0.0, 20.0], start=[0.0, 0.0, 0.0, 20.0], runtime=[10.0, 30.0, 40.0, None],
            end=[10.0, 30.0, 40.0, None], status=["completed"] * 3 + ["running"],
        ),
        only=["runtimes"],
    )  # fmt: skip
    rows = found.tables()["runtime, Kaplan–Meier"].to_dicts()
    assert [(r["count"], r["ended"], r["still running"]) for r in rows] == [(3, 3, 0), (4, 3, 1)]
    assert [r["P50"] for r in rows] == [30, 30]
    assert rows[1]["restricted mean"] == pytest.approx(10 + 0.75 * 20 + 0.375 * 10)


def test_logs_that_were_never_closed_are_named(traced):
    work = fleetlab.synthesize("pai2020", jobs=20_000)
    found = fleetlab.describe(work, only=["runtimes"])
    assert "end of running jobs" in missing(found)
    assert any("likely not logged" in s for s in found.findings)


# -- requests, users, gangs --------------------------------------------------------------------------------------------


def test_requests_use_and_gangs_are_weighed_by_jobs_and_instances(traced):
    usage = pl.LazyFrame({"job": [0, 1, 1], "gpu_milli": [600.0, 100.0, 200.0], "cpu_milli": [500.0, 4000.0, 4000.0]})
    found = fleetlab.describe(
        traced(submit=[0.0, 1.0], instances=[1, 3], gpu_milli=[500, 1000], cpu_milli=[1000, 2000], usage=usage),
        only=["requests"],
    )
    tables = found.tables()
    assert dict(tables["by GPUs per instance"].select("GPUs per instance", "GPUs, %").iter_rows()) == pytest.approx(
        {"(0,1)": 100 * 0.5 / 3.5, "1": 100 * 3 / 3.5}
    )
    over = {(r["of"], r["weighted by"]): r["%"] for r in tables["usage above request"].to_dicts()}
    assert over == {("GPUs", "jobs"): 50, ("GPUs", "instances"): 25, ("CPUs", "jobs"): 50, ("CPUs", "instances"): 75}
    # Each of two sensor rows stands for one and a half of the three instances.
    used = tables["GPUs per instance"].filter(pl.col("what") == "used")
    assert used["mean"].item() == pytest.approx((0.6 + 1.5 * 0.1 + 1.5 * 0.2) / 4)
    assert dict(tables["gangs"].select("what", "%").iter_rows())["instances in gangs"] == 75


def test_users_are_ranked_by_what_they_have(traced):
    user = ["a"] * 81 + [f"u{k}" for k in range(19)]
    found = fleetlab.describe(traced(submit=np.arange(100.0), user=user), only=["requests"])
    row = found.tables()["users"].row(0, named=True)
    assert (row["users"], row["top 5 %, %"], row["top user, %"]) == (20, 81, 81)
    assert row["low"] <= 81 <= row["high"]


def test_gangs_on_one_node_are_local(traced):
    places = pl.LazyFrame({"job": [0, 0, 1, 1, 2], "node": ["n", "n", "n", "m", "n"]})
    found = fleetlab.describe(traced(submit=[0.0, 1.0, 2.0], instances=[2, 2, 1], placements=places), only=["requests"])
    assert dict(found.tables()["placement constraints"].iter_rows())["gangs on one node"] == 50


# -- machines and sharing ----------------------------------------------------------------------------------------------


@pytest.fixture
def half_full(traced):
    """One node of 4 GPUs for ten hours: two jobs of half a GPU each in the first five, one of two GPUs after."""
    cluster = fleetlab.Cluster.uniform(1, 4, gpu_type="T4", cpu_milli=8000, memory_mib=1024)
    return traced(
        submit=[0.0, 0.0, 5 * HOUR, 10 * HOUR], start=[0.0, 0.0, 5 * HOUR, 10 * HOUR],
        runtime=[5 * HOUR, 5 * HOUR, 5 * HOUR, 1.0], gpu_milli=[500, 500, 2000, 0], cpu_milli=[1000, 1000, 4000, 0],
        gpu_types=[["T4"], ["T4"], ["T4"], []], cluster=cluster,
    )  # fmt: skip


def test_what_is_held_is_told_of_what_there_is(half_full):
    rows = fleetlab.describe(half_full, only=["machines"]).tables()["allocation and utilization"].to_dicts()
    held = {(r["type"], r["of"]): r["mean, %"] for r in rows}
    assert held == pytest.approx(
        {("all", "GPUs"): 37.5, ("T4", "GPUs"): 37.5, ("all", "CPUs"): 37.5, ("T4", "CPUs"): 37.5}
    )


def test_cpus_a_gpu_are_counted_both_ways(half_full):
    row = fleetlab.describe(half_full, only=["machines"]).tables()["CPUs per GPU"].row(0, named=True)
    assert (row["offered"], row["requested, mean of instances"], row["requested, in total"]) == pytest.approx((2, 2, 2))


def test_shares_save_what_whole_gpus_would_take_more(half_full):
    found = fleetlab.describe(half_full, only=["sharing"])
    assert told(found, "requested GPUs saved by sharing").value == 25  # 3 asked for instead of 4
    assert found.tables()["allocated GPUs"].select("mean").to_series().to_list() == pytest.approx([1.5, 2.0])


def test_metrics_of_machines_are_weighed_by_time(fixtures):
    found = fleetlab.describe(fleetlab.read(fixtures / "pai2020" / "good", "pai2020"), only=["machines"])
    rows = {(r["type"], r["metric"]): r["P50"] for r in found.tables()["node metrics"].to_dicts()}
    assert (rows["T4", "cpu_iowait"], rows["V100", "net_receive"]) == (0.003, 300)
    beside = {r["metric"]: r["P50, published"] for r in found.tables()["node metrics"].to_dicts() if r["type"] == "all"}
    assert (beside["cpu_usr"], beside["net_receive"]) == (31, None)


@pytest.fixture
def measured(traced):
    """Three nodes of 8 GPUs and one of 2, measured for two hours."""
    nodes = pl.DataFrame(
        {"node": ["a", "b", "c", "d"], "gpu_type": ["V100"] * 3 + ["T4"], "gpus": [8, 8, 8, 2],
         "cpu_milli": [8000] * 4, "memory_mib": [1000] * 4},
    )  # fmt: skip
    metric = pl.LazyFrame(
        {"node": ["a", "a", "b", "c", "d", "x"], "start": [0.0, HOUR, 0.0, 0.0, 0.0, 0.0],
         "end": [HOUR, 2 * HOUR, 2 * HOUR, HOUR, HOUR, HOUR], "cpu": [10.0, 30.0, 20.0, 90.0, 5.0, 99.0],
         "net_receive": [1.0] * 6, "num_worker": [1.0, 3.0, 2.0, 2.0, 4.0, 9.0]},
    )  # fmt: skip
    return traced(
        submit=[0.0, 0.0], start=[0.0, 0.0], runtime=[HOUR, 2 * HOUR], gpu_milli=[1000, 1000], source="pai2020",
        cluster=fleetlab.Cluster.of(nodes, source="by hand"), series={"machine_metric": metric},
        usage=pl.LazyFrame(
            {"job": [0, 1], "worker": [7, 8], "memory_mib": [100.0, 300.0], "gpu_memory_mib": [1024.0, 3072.0],
             "max_gpu_memory_mib": [2048.0, 4096.0], "read_bytes": [1e9, 3e9]},
            schema_overrides={"worker": pl.UInt64},
        ),
        placements=pl.LazyFrame(
            {"job": [0, 1], "worker": [7, 8], "node": ["d", "d"], "start": [0.0, 0.0], "end": [HOUR, 2 * HOUR]},
            schema_overrides={"worker": pl.UInt64},
        ),
    )  # fmt: skip


def test_nodes_of_a_size_have_quantiles_over_nodes_and_over_hours(measured):
    found = fleetlab.describe(measured, only=["machines"])
    rows = {(r["nodes"], r["of"], r["quantile over"]): r for r in found.tables()["utilization by node size"].to_dicts()}
    # By hand: the first hour has 10, 20 and 90, the second 30 and 20.
    large = rows["8-GPU nodes", "CPU", "nodes in each hour"]
    assert (large["count"], large["mean of P50, %"], large["mean of P90, %"]) == (3, 22.5, pytest.approx((76 + 29) / 2))
    each = rows["8-GPU nodes", "CPU", "hours of each node"]
    assert (each["mean of P50, %"], each["mean of P90, %"]) == pytest.approx((130 / 3, (28 + 20 + 90) / 3))
    assert (large["P50, published"], large["P90, published"]) == (37, 77)
    # Two workers in the first hour use 400 of 1,000 MiB, one in the second 300.
    small = rows["2-GPU nodes", "memory", "nodes in each hour"]
    assert (small["from"], small["mean of P50, %"]) == ("sum of workers", pytest.approx(35))
    assert "GPU memory utilization of nodes" in missing(found)
    assert found.figures()["P90 utilization of nodes"].frame.height


def test_workers_of_a_node_are_told_by_its_type(measured):
    rows = fleetlab.describe(measured, only=["machines"]).tables()["node metrics"].to_dicts()
    workers = {r["type"]: (r["P50"], r["P95"], r["rows"]) for r in rows if r["metric"] == "num_worker"}
    # Seven node hours with 1, 2, 2, 2, 3, 4 and 9 workers; `x` is no node of the cluster, and of no type.
    assert workers == {"all": (2, 9, 6), "V100": (2, 3, 4), "T4": (4, 4, 1)}


def test_gpu_memory_of_workers_is_told_as_mean_and_peak(measured):
    rows = fleetlab.describe(measured, only=["requests"]).tables()["GPU memory used"].to_dicts()
    assert [(r["what"], r["count"], r["mean"]) for r in rows] == [("mean over the run", 2, 2), ("peak", 2, 3)]


# -- recurrence --------------------------------------------------------------------------------------------------------


def test_only_jobs_that_had_ended_teach():
    submit = [0.0, 5.0, 10.0, 40.0]
    jobs = pl.DataFrame({"submit": submit, "start": submit, "runtime": [10.0, 30.0, 20.0, None], "user": ["ann"] * 4})
    # The second comes before the first ends; the third as it ends; at 40 three have, of 10, 30 and 20 s.
    assert past_mean(jobs, ["user"]).to_list() == [None, None, 10, 20]
    assert past_mean(jobs, []).to_list() == [None, None, 10, 20]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(-1, 2)), min_size=1, max_size=25))
def test_predictions_are_those_of_a_plain_loop(jobs):
    jobs = sorted(jobs)
    submit, service = (np.array([t[k] for t in jobs], dtype=float) for k in (0, 1))
    key = np.array([t[2] for t in jobs])
    frame = pl.DataFrame({"submit": submit, "runtime": service, "group": [int(k) if k >= 0 else None for k in key]})
    frame = frame.with_columns(pl.col("group").cast(pl.Int64), start=pl.lit(None, dtype=pl.Float64))
    guess = past_mean(frame, ["group"]).fill_null(np.nan).to_numpy()
    for k in range(len(jobs)):
        known = [service[j] for j in range(len(jobs)) if key[j] == key[k] and submit[j] + service[j] <= submit[k]]
        expected = np.mean(known) if known and key[k] >= 0 else np.nan
        assert guess[k] == pytest.approx(expected, nan_ok=True)


def test_groups_that_run_five_times_are_told(traced):
    found = fleetlab.describe(
        traced(submit=np.arange(10.0), group=["g"] * 5 + list("abcd") + [None], runtime=[1.0] * 10), only=["recurrence"]
    )
    assert told(found, "jobs in groups with 5 or more runs").value == pytest.approx(100 * 5 / 9)
    assert "groups of 1 jobs" in missing(found)


# -- services ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def confounded(traced):
    """Role H waits 100 s and mostly has a rule, C waits 10 s and mostly has none: the rule itself does nothing."""
    roles = ["H"] * 40 + ["C"] * 40
    rule = [2] * 30 + [0] * 10 + [2] * 10 + [0] * 30
    wait = np.array([100.0] * 40 + [10.0] * 40)
    submit = np.arange(80.0)
    limits = pl.LazyFrame({"job": range(80), "disk_mib": [100] * 80})
    return traced(
        submit=submit, start=submit + wait, runtime=[1000.0] * 80, group=roles, max_per_node=rule, disk_mib=[80] * 80,
        app=[f"app-{k % 8}" for k in range(80)], series={"limits": limits},
    )  # fmt: skip


def test_a_rule_that_goes_with_a_role_is_held_against_the_same_role(confounded):
    rows = fleetlab.describe(confounded, only=["services"]).tables()["delay by rule"].to_dicts()
    none, two = rows
    assert (none["rule"], none["mean"], two["mean"]) == ("none", 32.5, 77.5)
    assert (two["vs others"], two["within role"]) == pytest.approx((45, 0))
    assert (two["within low"], two["within high"]) == pytest.approx((0, 0), abs=1e-9)


def test_requests_are_held_against_limits(confounded):
    (row,) = fleetlab.describe(confounded, only=["services"]).tables()["request over limit"].to_dicts()
    assert (row["of"], row["request over limit"], row["in total"]) == pytest.approx(("disk", 0.8, 0.8))


def test_in_a_trace_of_services_a_group_is_a_role(confounded):
    found = fleetlab.describe(confounded)
    assert found.tables()["delay by role"]["role"].to_list()[2:] == ["C", "H"]
    assert "recurring groups" in missing(found)


def test_duty_cycles_and_latencies_are_told_by_sample_and_container(fixtures):
    found = fleetlab.describe(fleetlab.read(fixtures / "genai2026" / "good", "genai2026"), only=["services"])
    rows = {r["metric"]: r for r in found.tables()["container metrics"].to_dicts()}
    assert (rows["pod_gpu_duty_cycle"]["mean"], rows["pod_gpu_duty_cycle"]["containers"]) == (20, 1)
    assert told(found, "P50 latency of requests").value == 20


@pytest.fixture
def censored(traced):
    """Until 40 s: rule 2 ends after 10 and 30 s, and one is seen for 20 s; without a rule one of another role ends."""
    return traced(
        submit=[0.0, 0.0, 20.0, 0.0], start=[0.0, 0.0, 20.0, 0.0], runtime=[10.0, 30.0, None, 40.0],
        end=[10.0, 30.0, None, 40.0], status=["completed", "completed", "running", "completed"],
        group=["H", "H", "H", "C"], app=["a", "a", "b", "a"], max_per_node=[2, 2, 2, 0],
        series={"limits": pl.LazyFrame({"job": range(4), "disk_mib": [100] * 4})},
    )  # fmt: skip


def test_run_times_by_rule_count_those_that_still_run(censored):
    tables = fleetlab.describe(censored, only=["services"]).tables()
    ended = {r["rule"]: (r["count"], r["P50"]) for r in tables["runtime by rule"].to_dicts()}
    assert ended == {"none": (1, 40), "2": (2, 20)}
    # By hand: two of three outlive 10 s, and nobody 30 s.
    row = {r["rule"]: r for r in tables["runtime by rule, Kaplan–Meier"].to_dicts()}["2"]
    assert (row["count"], row["ended"], row["still running"], row["P50"]) == (3, 2, 1, 30)
    assert row["restricted mean"] == pytest.approx(10 + 20 * 2 / 3)
    rows = tables["runtime by rule and role, Kaplan–Meier"].to_dicts()
    assert [(r["role"], r["rule"], r["count"], r["P50"]) for r in rows] == [("H", "2", 3, 30), ("C", "none", 1, 40)]


def test_an_application_of_which_none_has_ended_is_ranked_first(censored):
    found = fleetlab.describe(censored, only=["services"])
    rows = found.tables()["runtime by application, Kaplan–Meier"].to_dicts()
    assert [(r["application"], r["ended"], r["P50"]) for r in rows] == [("b", 0, None), ("a", 3, 30)]
    assert any(s.startswith("1 of 2 applications run so long") for s in found.findings)


def test_all_applications_are_ranked_and_fifteen_drawn(traced):
    wait = np.repeat(np.arange(20.0), 2)
    found = fleetlab.describe(
        traced(
            submit=np.zeros(40), start=wait, runtime=100 - wait, app=[f"app-{k:02}" for k in wait.astype(int)],
            series={"limits": pl.LazyFrame({"job": range(40), "disk_mib": [0] * 40})},
        ),
        only=["services"],
    )  # fmt: skip
    order = [f"app-{k:02}" for k in range(20)]
    assert found.tables()["delay by application"]["application"].to_list() == order[::-1]
    assert found.tables()["runtime by application"]["application"].to_list() == order
    assert found.figures()["delay by application"].frame["series"].n_unique() <= 15
    assert "delay by rule" not in found.tables()


@pytest.fixture
def opposed(traced):
    """In each role more RDMA goes with less delay; the role that asks for more waits longer."""
    return traced(
        submit=np.arange(4.0), start=np.arange(4.0) + np.array([20.0, 10.0, 40.0, 30.0]), runtime=[9.0] * 4,
        group=["C", "C", "H", "H"], app=["a", "b", "a", "b"], rdma_milli=[100, 200, 300, 400],
        disk_mib=[512, 512, 1024, 1024],
        series={"limits": pl.LazyFrame({"job": range(4), "disk_mib": [1024] * 4, "rdma_milli": [400] * 4})},
    )  # fmt: skip


def test_an_effect_of_a_request_that_is_the_role_s_is_told_apart(opposed):
    found = fleetlab.describe(opposed, only=["services"])
    rdma, disk = found.tables()["requests and delay"].to_dicts()
    # Ranks 1 2 3 4 and 2 1 4 3: 1 - 6·4/(4·15); in each role they are opposed.
    assert (rdma["rank correlation"], rdma["within role"]) == pytest.approx((0.6, -1))
    # Disk is the same for all of a role: nothing can be said within.
    assert disk["rank correlation"] > 0.8
    assert disk["within role"] is None
    assert any(s.startswith("disk requests do not differ within a role") for s in found.findings)
    rows = found.tables()["delay by RDMA request"].to_dicts()
    assert [r["RDMA request, cards"] for r in rows] == ["0.1", "0.2", "0.3", "0.4"]
    assert [r["mean"] for r in rows] == [20, 10, 40, 30]
    assert [r["within role"] for r in rows] == [10, -10, 10, -10]
    assert [(r["C, %"], r["H, %"]) for r in rows] == [(100, 0), (100, 0), (0, 100), (0, 100)]
    rows = found.tables()["delay by disk request and role"].to_dicts()
    assert [(r["role"], r["disk request"], r["mean"]) for r in rows] == [("C", "0.5", 15), ("H", "1", 35)]


def test_requests_over_limits_are_told_by_role(opposed):
    rows = fleetlab.describe(opposed, only=["services"]).tables()["request over limit by role"].to_dicts()
    found = {(r["of"], r["role"]): (r["request over limit"], r["instances"]) for r in rows}
    assert found == {("RDMA", "C"): (pytest.approx(0.375), 2), ("RDMA", "H"): (pytest.approx(0.875), 2),
                     ("disk", "C"): (0.5, 2), ("disk", "H"): (1, 2)}  # fmt: skip


def test_requests_of_many_values_are_cut_at_their_quartiles():
    values = np.arange(1.0, 13.0)
    code, names = request_classes(values, values < 13)
    assert names == ["3 or less", "4 to 6", "7 to 9", "above 9"]
    assert np.bincount(code).tolist() == [3, 3, 3, 3]


# -- parents and tags --------------------------------------------------------------------------------------------------


@pytest.fixture
def grouped(traced):
    """Four parents until 100 s: of two jobs that ended, of one that failed, of one that runs, of one that waits."""
    return traced(
        submit=[0.0, 5.0, 10.0, 20.0, 30.0], start=[10.0, 5.0, 10.0, 40.0, None], end=[50.0, 100.0, 40.0, None, None],
        runtime=[40.0, 95.0, 30.0, None, None], status=["completed", "completed", "failed", "running", "waiting"],
        parent=[0, 0, 1, 2, 3], instances=[1, 2, 1, 1, 1], gpu_milli=[0, 500, 1000, 0, 0],
        app=["bert", "bert", "ctr", None, None],
    )  # fmt: skip


def test_a_parent_lasts_from_its_first_submission_to_its_last_end(grouped):
    found = fleetlab.describe(grouped, only=["parents"])
    rows = {r["parents"]: r for r in found.tables()["JCT of parents"].to_dicts()}
    assert {name: (r["count"], r["mean"]) for name, r in rows.items()} == {
        "all": (2, 65), "1 job": (1, 30), "2 jobs": (1, 100),
    }  # fmt: skip
    waits = {r["parents"]: r["mean"] for r in found.tables()["wait of parents"].to_dicts()}
    assert waits == pytest.approx({"all": (5 + 0 + 20) / 3, "1 job": 10, "2 jobs": 5})
    sizes = {r["what"]: (r["mean"], r["largest"]) for r in found.tables()["size of parents"].to_dicts()}
    assert sizes == {"jobs": (1.25, 2), "instances": (1.5, 3), "GPUs": (0.5, 1)}
    # With the two that had not ended after 80 and 70 s: by hand, 3/4 outlive 30 s, nobody 100 s.
    every = found.tables()["JCT of parents, Kaplan–Meier"].row(0, named=True)
    assert (every["count"], every["still running"], every["P50"]) == (4, 2, 100)
    assert every["restricted mean"] == pytest.approx(30 + 0.75 * 70)


def test_a_parent_ends_as_the_worst_of_its_jobs(grouped):
    rows = fleetlab.describe(grouped, only=["parents"]).tables()["status of parents"].to_dicts()
    assert {r["status"]: (r["parents"], r["jobs"]) for r in rows} == {
        "completed": (1, 2), "failed": (1, 1), "running": (1, 1), "waiting": (1, 1),
    }  # fmt: skip


def test_what_the_log_says_of_a_parent_comes_first(fixtures):
    found = fleetlab.describe(fleetlab.read(fixtures / "pai2020" / "good", "pai2020"), only=["parents"])
    # Its own row lasts from 1000 to 2000; its tasks from 1005 to 1985.
    rows = {r["parents"]: r for r in found.tables()["JCT of parents"].to_dicts()}
    assert (rows["2 jobs"]["mean"], rows["1 job"]["mean"]) == (1000, 400)
    assert found.tables()["status of parents"]["parents"].to_list() == [1, 1, 1]


def test_jobs_are_told_by_tag(grouped):
    found = fleetlab.describe(grouped, only=["tags"])
    rows = {r["workload tag"]: r for r in found.tables()["jobs by workload tag"].to_dicts()}
    assert {name: (r["jobs"], r["instances"], r["ended"]) for name, r in rows.items()} == {
        "bert": (2, 3, 2), "ctr": (1, 1, 1), "none": (2, 2, 0),
    }  # fmt: skip
    assert (rows["bert"]["GPU hours"], rows["ctr"]["GPU hours"]) == pytest.approx((95 / HOUR, 30 / HOUR))
    assert rows["ctr"]["failed, % of ended"] == 100
    assert told(found, "instances with a workload tag").value == pytest.approx(100 * 4 / 6)
    assert "roles and frameworks" in missing(found)


def test_roles_name_frameworks_where_they_do(fixtures):
    trace = fleetlab.read(fixtures / "pai2020" / "good", "pai2020")
    tables = fleetlab.describe(trace, only=["tags"]).tables()
    assert dict(tables["jobs by role"].select("role", "jobs").iter_rows()) == {"worker": 2, "ps": 1, "tensorflow": 1}
    assert dict(tables["jobs by framework"].select("framework", "jobs").iter_rows()) == {
        "not named": 3,
        "TensorFlow": 1,
    }


def test_traces_without_parents_and_tags_have_no_such_tables(confounded):
    found = fleetlab.describe(confounded, only=["parents", "tags"])
    assert list(found.tables()) == ["missing"]
    assert missing(found) == ["parents", "workload tags"]
