"""What a replay is said to have found: laws of its tables, on schedules made by hand and by a plain greedy loop."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, Workload, WorkloadError
from fleetlab.core import Provenance, as_json
from fleetlab.core.prices import Prices
from fleetlab.sim import nodes as on_nodes
from fleetlab.sim import placements
from fleetlab.sim.codes import BEST_FIT, REASONS
from fleetlab.sim.estimates import distribution, fairness, jain
from fleetlab.sim.layout import DONE, RUNNING, WAITING, NodeView, Scoring
from fleetlab.sim.result import SimResult
from fleetlab.sim.schedule import Schedule, Segments, Up
from fleetlab.sim.world import world
from fleetlab.stats import BlockBootstrap, paired_difference

CLUSTER = Cluster.of(
    pl.DataFrame(
        {
            "node": ["n0", "n1", "n2"],
            "gpu_type": ["A", "B", None],
            "gpus": [2, 3, 0],
            "gpu_memory_mib": [10, 10, 0],
            "cpu_milli": [4000, 4000, 2000],
            "memory_mib": [100, 100, 100],
        }
    ),
    source="three nodes",
)


@numba.njit
def pick(shapes, s, state, scoring):
    """Called from Python, what is meant for compiled code alone."""
    return placements.pick(BEST_FIT, shapes[s], state, scoring)


@numba.njit
def take(shapes, s, nodes, n, gpus, apps, at):
    return on_nodes.take(shapes[s], nodes[n], gpus, apps, at)


@numba.njit
def give_back(shapes, s, nodes, n, gpus, apps, bits):
    on_nodes.give_back(shapes[s], nodes[n], gpus, apps, bits)


def greedy(w):
    """Strictly in order of arrival, one job after the other: each starts at the first moment at which it fits."""
    nodes, gpus, apps = state = NodeView(w.nodes.copy(), w.gpus.copy(), w.apps.copy())
    scoring = Scoring(w.capacity, w.largest, w.typical, np.ones(1, dtype=np.int64))
    jobs = len(w.submit)
    start, end = np.zeros(jobs), np.zeros(jobs)
    where, got = np.full(w.first[-1], -1), np.zeros(w.first[-1], dtype=np.int64)
    now, running = 0.0, []

    def put(t):
        for i in range(w.first[t], w.first[t + 1]):
            n, at = pick(w.shapes, w.shape[t], state, scoring)
            if n < 0:
                for j in range(w.first[t], i):
                    give_back(w.shapes, w.shape[t], nodes, where[j], gpus, apps, got[j])
                return False
            where[i], got[i] = n, take(w.shapes, w.shape[t], nodes, n, gpus, apps, at)
        return True

    def free(upto):
        for end_at, t in [r for r in sorted(running) if r[0] <= upto]:
            running.remove((end_at, t))
            for i in range(w.first[t], w.first[t + 1]):
                give_back(w.shapes, w.shape[t], nodes, where[i], gpus, apps, got[i])

    for t in range(jobs):
        now = max(now, w.submit[t])
        free(now)
        while not put(t):
            now = min(running)[0]
            free(now)
        start[t], end[t] = now, now + w.runtime[t]
        running.append((end[t], t))
    return played(w, start, end, where, got)


def played(w, start, end, where, got, **more):
    """A schedule without accidents."""
    none = np.zeros(len(start), dtype=np.int64)
    status = np.where(~np.isnan(end), DONE, np.where(np.isnan(start), WAITING, RUNNING)).astype(np.int64)
    told = {"preemptions": none, "failures": none, "lost": np.zeros(len(start))} | more
    return Schedule(np.array(start), np.array(end), status, np.array(where), np.array(got), **told)


def made(frame, cluster=CLUSTER, *, schedule=greedy, **more):
    workload = Workload.of(pl.DataFrame(frame), source="made")
    w = world(workload, cluster)
    return SimResult.of(w, schedule(w), cluster, Provenance("simulate", "made", {"order": "fifo"}), **more)


def two(cluster=None, **columns):
    """Two jobs of one GPU each, one after the other on one GPU: 0 to 4 s, 4 to 10 s; the second waited 3 s."""
    frame = {"submit": [0.0, 1.0], "runtime": [4.0, 6.0], "gpu_milli": [1000, 1000], "user": ["u", "v"]} | columns
    return made(frame, cluster or Cluster.uniform(1, 1, gpu_type="T4", cpu_milli=1000))


def metric(result, name):
    return next(e for e in result.summary() if e.metric == name)


JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 12).map(float),
        "runtime": st.integers(0, 9).map(float),
        "instances": st.integers(1, 3),
        "cpu_milli": st.sampled_from([0, 500, 2000]),
        "gpu_milli": st.sampled_from([0, 250, 500, 700, 1000, 2000]),
        "gpu_memory_mib": st.sampled_from([0, 0, 6]),
        "gpu_types": st.sampled_from([[], ["A"], ["B"]]),
        "max_per_node": st.sampled_from([0, 0, 1]),
        "app": st.sampled_from(["x", "y"]),
        "user": st.sampled_from(["u", "v", None]),
    }
)


def small(rows):
    zero = min(row["submit"] for row in rows)
    return made([row | {"submit": row["submit"] - zero} for row in rows])


RESULTS = st.lists(JOB, min_size=1, max_size=14).map(small)


# -- laws --------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, derandomize=True)
@given(result=RESULTS)
def test_a_right_schedule_passes_the_audit_and_leaves_nothing_behind(result):
    last = result.timeline(every=1.0).filter(pl.col("time") >= result.played.stopped)
    assert last.select(pl.col("allocated", "used", "running", "waiting").sum()).row(0) == (0, 0, 0, 0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(result=RESULTS)
def test_what_is_allocated_over_time_is_service_times_gpus(result):
    # All times are whole seconds here, so the state at each of them holds until the next.
    held = result.timeline(every=1.0).filter(pl.col("gpu_type") == "all")["allocated"].sum()
    asked = (result.jobs["runtime"] * result.jobs["gpu_milli"] * result.jobs["instances"]).sum() / 1000
    assert held == pytest.approx(asked)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(result=RESULTS)
def test_the_integral_by_type_agrees_with_the_replay(result):
    line = result.timeline(every=1.0).group_by("gpu_type").agg(pl.col("allocated").sum() / 3600)
    both = result.tables()["allocation"].join(line, left_on="GPU type", right_on="gpu_type", suffix="_replayed")
    assert both["allocated"].to_list() == pytest.approx(both["allocated_replayed"].to_list())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(result=RESULTS)
def test_the_ledger_sums_to_the_wait(result):
    assert result.ledger.select(pl.sum_horizontal(REASONS)).to_series().to_list() == result.jobs["wait"].to_list()
    assert result.tables()["waiting"]["total wait"].sum() == pytest.approx(result.jobs["wait"].sum())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(result=RESULTS)
def test_every_way_to_class_jobs_counts_each_of_them_once(result):
    by = {name: frame["jobs"].sum() for name, frame in result.tables().items() if name.startswith("by ")}
    assert set(by.values()) == {result.jobs.height}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(result=RESULTS)
def test_every_instance_of_a_job_has_a_place(result):
    counted = result.placements.group_by("job").len().sort("job")["len"].to_list()
    assert counted == result.jobs["instances"].to_list()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(result=RESULTS)
def test_a_used_gpu_is_there_and_holds_at_least_what_is_allocated(result):
    line = result.timeline(every=0.5)
    assert (line["allocated"] <= line["used"]).all()
    assert (line["used"] <= line["up"]).all()
    assert (line["fragmented"] <= line["up"] - line["allocated"] + 1e-9).all()


# -- the audit ---------------------------------------------------------------------------------------------------------


def broken(**wrong):
    good = two()
    return replace(good, played=replace(good.played, **wrong))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"start": np.array([0.0, 3.0])}, "more of a GPU than is free"),
        ({"got": np.array([1, 2])}, "a GPU that the node does not have"),
        ({"got": np.array([1, 0])}, "not the number of GPUs"),
        ({"where": np.array([0, 1])}, "which is none at 4.0 s: the node is not up"),
        ({"up": Up(np.array([0]), np.array([0.0]), np.array([9.0]))}, "the node goes down with a job on it"),
        ({"up": Up(np.array([0]), np.array([1.0]), np.array([np.inf]))}, "the node is not up"),
    ],
)
def test_the_audit_finds_what_cannot_be(wrong, said):
    with pytest.raises(AssertionError, match=said):
        broken(**wrong).timeline()


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ({"gpu_milli": [500], "gpu_types": [["A"]]}, "not one of its GPU types"),
        ({"cpu_milli": [3000]}, "more CPU, memory, RDMA or disk"),
        ({"max_per_node": [1], "app": ["x"]}, "more of its app"),
    ],
)
def test_the_audit_knows_types_cores_and_limits(ask, said):
    frame = {"submit": [0.0], "runtime": [5.0], "instances": [2]} | ask
    gpu = 1 if "gpu_milli" in ask else 0
    result = made(frame, schedule=lambda w: played(w, [0.0], [5.0], [1, 1], [gpu, 2 * gpu]))
    with pytest.raises(AssertionError, match=said):
        result.timeline()


def test_a_job_that_takes_no_time_is_in_nobodys_way():
    frame = {"submit": [0.0, 0.0, 0.0], "runtime": [0.0, 5.0, 0.0], "gpu_milli": [1000] * 3, "instances": [1, 1, 1]}
    one = Cluster.uniform(1, 1)
    result = made(frame, one, schedule=lambda w: played(w, [0.0, 0.0, 5.0], [0.0, 5.0, 5.0], [0] * 3, [1] * 3))
    assert result.timeline(every=1.0).filter(pl.col("gpu_type") == "all")["allocated"].to_list() == [1, 1, 1, 1, 1, 0]
    assert result.jobs["slowdown"].to_list() == [None, 1.0, None]


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_two_jobs_on_one_gpu_are_told_as_one_would_by_hand():
    jobs = two().jobs
    assert jobs.select("start", "end", "wait", "jct", "slowdown", "bounded_slowdown").rows() == [
        (0.0, 4.0, 0.0, 4.0, 1.0, 1.0),
        (4.0, 10.0, 3.0, 9.0, 1.5, 1.0),
    ]


def test_allocation_is_weighed_by_time():
    frame = {"submit": [0.0, 4.0], "runtime": [2.0, 4.0], "gpu_milli": [1000, 500]}
    result = made(frame, Cluster.uniform(1, 1))
    assert metric(result, "GPU allocation while jobs arrive").value == pytest.approx(50)
    assert metric(result, "GPU allocation until the last job ends").value == pytest.approx(50)


def test_the_queue_is_told_in_jobs_instances_and_gpus():
    line = two(instances=[1, 1]).timeline(every=2.0).filter(pl.col("gpu_type") == "all")
    assert line["waiting"].to_list() == line["waiting_gpus"].to_list() == [0, 1, 0, 0, 0, 0]
    assert line["running"].to_list() == [1, 1, 1, 1, 1, 0]


def test_energy_is_that_of_the_model():
    prices = Prices(gpu_busy_watt={"T4": 100}, idle_share=0.1, node_watt=20, core_watt=0, pue=2, per_kwh=1.0)
    result = replace(two(), prices=prices)  # busy all of 10 s: 100 W and the node's 20 W, twice
    assert result.energy_kwh.value == pytest.approx(10 * 120 * 2 / 3.6e6)
    assert result.cost.value == pytest.approx(10 / 3600 + result.energy_kwh.value)


def test_an_hour_of_a_gpu_is_paid_only_while_the_node_is_up():
    up = Up(np.array([0, 0]), np.array([0.0, 4.0]), np.array([4.0, np.inf]))
    away = Up(np.array([0]), np.array([0.0]), np.array([5.0]))
    assert replace(two(), played=replace(two().played, up=up)).cost.value == pytest.approx(10 / 3600)
    assert replace(two(), played=replace(two().played, up=away)).cost.value == pytest.approx(5 / 3600)


def test_a_type_without_a_price_is_an_error_with_a_hint():
    with pytest.raises(WorkloadError, match="no price for an hour of a GPU of type: `T4`"):
        _ = replace(two(), prices=Prices(per_gpu_hour={"V100": 2.0})).cost


def test_jain_is_one_when_all_fare_alike_and_one_nth_when_one_has_all():
    assert jain([2.0, 2.0]) == 1.0
    assert jain([1.0, 3.0]) == pytest.approx(0.8)
    assert jain([0.0, 0.0, 0.0, 7.0]) == 0.25


def test_fairness_is_over_users_and_not_over_jobs():
    found = made(
        {"submit": [0.0, 0.0, 0.0], "runtime": [10.0, 10.0, 10.0], "gpu_milli": [1000] * 3, "user": ["u", "v", "v"]},
        Cluster.uniform(1, 1),
    )
    assert metric(found, "Jain index of users' mean bounded slowdown").value == pytest.approx(jain([1.0, 2.5]))


def test_an_unlucky_bootstrap_still_has_the_index_inside():
    found = fairness(np.random.default_rng(1).exponential(1.0, 50)).interval()
    assert found.low <= found.value <= found.high < 1


def test_lost_run_time_is_counted_on_every_gpu_of_the_gang():
    good = two(gpu_milli=[1000, 500], instances=[1, 2])
    lost = replace(good, played=replace(good.played, lost=np.array([3600.0, 7200.0])))
    assert metric(lost, "wasted GPU time").value == pytest.approx(1 + 2)


def test_the_reason_that_kept_most_jobs_is_counted():
    # A gets one of two GPUs until 3, B no GPU but most of the CPU until 9: C lacks first GPUs, then CPU.
    cluster = Cluster.uniform(1, 2, cpu_milli=4000)
    frame = {
        "submit": [0.0, 0.0, 1.0],
        "runtime": [3.0, 9.0, 1.0],
        "gpu_milli": [1000, 0, 2000],
        "cpu_milli": [0, 3000, 2000],
    }
    table = (
        fleetlab.simulate(Workload.of(pl.DataFrame(frame), source="three"), cluster).tables()["waiting"].drop("meaning")
    )
    assert table.rows() == [("cpu", 6.0, 0.75, 1), ("gpu", 2.0, 0.25, 0)]


# -- runs in pieces ----------------------------------------------------------------------------------------------------


def in_pieces(w):
    """Job 0 runs from 0 to 2, gives way to job 1, and runs on from 5; job 1 still runs at 9, job 2 never began."""
    pieces = Segments(
        job=np.array([0, 1, 0]),
        begin=np.array([0.0, 2.0, 5.0]),
        end=np.array([2.0, 9.0, 7.0]),
        first=np.array([0, 1, 2]),
        where=np.array([0, 0, 1]),
        got=np.array([1, 1, 1]),
    )
    return Schedule(
        start=np.array([0.0, 2.0, np.nan]),
        end=np.array([7.0, np.nan, np.nan]),
        status=np.array([DONE, RUNNING, WAITING]),
        where=np.array([1, 0, -1]),
        got=np.array([1, 1, 0]),
        preemptions=np.array([1, 0, 0]),
        failures=np.zeros(3, dtype=np.int64),
        lost=np.zeros(3),
        segments=pieces,
        until=9.0,
    )


@pytest.fixture(name="pieces")
def _pieces():
    frame = {"submit": [0.0, 2.0, 3.0], "runtime": [4.0, 20.0, 1.0], "gpu_milli": [1000, 1000, 1000]}
    return made(frame, Cluster.uniform(2, 1), schedule=in_pieces)


def test_a_job_that_gave_way_is_followed_to_where_it_went(pieces):
    line = pieces.timeline(every=1.0).filter(pl.col("gpu_type") == "all")
    assert line["allocated"].to_list() == [1, 1, 1, 1, 1, 2, 2, 1, 1, 1]
    assert line["waiting"].to_list() == [0, 0, 1, 2, 2, 1, 1, 1, 1, 1]


def test_what_is_not_done_is_null_and_said(pieces):
    assert pieces.jobs.select("end", "jct", "status").rows() == [
        (7.0, 7.0, "done"),
        (None, None, "running"),
        (None, None, "waiting"),
    ]
    assert metric(pieces, "jobs not completed").value == 2
    assert pieces.notes[0].startswith("1 running, 1 pending when the simulation stops")
    assert metric(pieces, "mean wait").value == 3.0  # of the one that is done


def test_only_what_ran_has_a_place(pieces):
    assert pieces.placements.select("job", "node").rows() == [(0, "node-1"), (1, "node-0")]


def test_a_run_still_going_on_counts_up_to_the_end(pieces):
    assert metric(pieces, "GPU allocation until the simulation stops").value == pytest.approx(100 * (2 + 7 + 2) / 18)


# -- corners -----------------------------------------------------------------------------------------------------------


def test_nothing_that_can_run_is_a_result_too():
    result = made({"submit": [0.0], "runtime": [1.0], "gpu_milli": [9000]}, Cluster.uniform(1, 1))
    assert repr(result) == "<SimResult 0 jobs, fifo, no job completed, 1 left out>"
    assert result.tables()["left out"].rows() == [("an instance fits on no node", 1)]
    assert result.timeline()["allocated"].to_list() == [0.0, 0.0]


@pytest.mark.parametrize("cluster", [Cluster.uniform(1, 0, cpu_milli=1000), Cluster.uniform(1, 1, cpu_milli=1000)])
def test_jobs_without_gpus_are_told_with_and_without_gpus_beside_them(cluster):
    result = made({"submit": [0.0, 0.0], "runtime": [2.0, 0.0], "cpu_milli": [1000, 1000]}, cluster)
    assert repr(result) == "<SimResult 2 jobs, fifo, mean wait 1 s>"
    assert as_json(result)


def test_one_job_without_a_user_is_told():
    result = made({"submit": [0.0], "runtime": [2.0], "gpu_milli": [500]})
    assert result.tables()["by user"]["user"].to_list() == ["unknown"]
    assert as_json(result)


@pytest.mark.parametrize("every", [0.0, -1.0, float("nan"), float("inf")])
def test_a_timeline_without_steps_is_refused(every):
    with pytest.raises(WorkloadError, match="above 0"):
        two().timeline(every=every)


def test_a_timeline_without_end_is_refused():
    with pytest.raises(WorkloadError, match="at most 100,000 points, not: 10,000,000"):
        two().timeline(every=1e-6)


def test_assumed_prices_are_said_and_own_ones_are_not():
    frame = {"submit": [0.0], "runtime": [1.0], "gpu_milli": [1000]}
    assert any("energy assumes" in note for note in made(frame).notes)
    assert made(frame, prices=Prices(per_gpu_hour=2.0)).notes == (
        "the cluster starts empty: waits early in the run are too low",
    )


@pytest.mark.parametrize("wrong", [{"pue": -1.0}, {"per_gpu_hour": {"T4": float("nan")}}, {"gpu_busy_watt": {"A": -3}}])
def test_a_power_or_price_below_nothing_is_refused(wrong):
    with pytest.raises(WorkloadError, match="not a number from 0 up"):
        Prices(**wrong)


def test_the_tables_stay_small():
    count = 400
    frame = {
        "submit": np.arange(count) * 1.0,
        "runtime": np.ones(count),
        "gpu_milli": np.full(count, 100),
        "user": [f"u{k % 50}" for k in range(count)],
    }
    tables = made(frame).tables()
    assert tables["by user"]["user"].to_list()[-1] == "others"
    assert max(frame.height for frame in tables.values()) <= 200


# -- intervals ---------------------------------------------------------------------------------------------------------


def test_quantiles_are_those_of_numpy():
    values = np.random.default_rng(3).exponential(1.0, 1234)
    found = distribution("x", values, BlockBootstrap.of_times(np.arange(1234.0)))
    assert [x.interval().value for x in found.values()] == pytest.approx(
        [values.mean(), *np.quantile(values, [0.5, 0.9, 0.99])]
    )


def test_few_values_have_no_interval():
    found = distribution("x", np.arange(199.0), BlockBootstrap.of_times(np.arange(199.0)))
    assert all(np.isnan(x.interval().low) and np.isnan(x.interval().high) for x in found.values())


def test_the_same_jobs_under_two_policies_are_compared_in_pairs():
    rng = np.random.default_rng(5)
    jobs = {"submit": np.linspace(0, 4000, 400), "runtime": rng.exponential(9.0, 400), "gpu_milli": [1000] * 400}
    few, many = (made(jobs, Cluster.uniform(n, 1)).replicates["mean wait"] for n in (1, 2))
    change = paired_difference(few, many)
    assert change.interval().high < 0
    assert paired_difference(few, few).interval() == (0.0, 0.0, 0.0)


@pytest.mark.validate
def test_compiled_and_plain_python_tell_the_same_timeline():
    code = (
        "from test_result import made\n"
        "import numpy as np\n"
        "rng = np.random.default_rng(4)\n"
        "n = 60\n"
        "frame = {'submit': np.floor(np.linspace(0, 30, n)), 'runtime': rng.integers(0, 9, n) * 1.0,\n"
        "         'gpu_milli': rng.choice([0, 250, 700, 1000, 2000], n), 'instances': rng.integers(1, 3, n)}\n"
        "result = made(frame)\n"
        "print(result.timeline(every=0.5).write_json(), result.tables()['allocation'].write_json())\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            cwd=Path(__file__).parent,
            env=os.environ | {"NUMBA_DISABLE_JIT": plain},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for plain in ("0", "1")
    ]
    assert said[0] == said[1]
