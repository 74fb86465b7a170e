"""The full loop: its laws on small random worlds, what each rule means by hand, and theory."""

import json
import os
import subprocess
import sys
from itertools import pairwise

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, PolicyError, Provenance, Speed, Workload, WorkloadError
from fleetlab.core.catalog import ORDERS
from fleetlab.core.events import Drain, Elastic, Faults, Outage, Recovery, Spot
from fleetlab.sim import nodes as on_nodes
from fleetlab.sim.codes import REASONS
from fleetlab.sim.layout import DONE, RUNNING, WAITING
from fleetlab.sim.ledger.ledger import ledger
from fleetlab.sim.quota import StatedQuotas
from fleetlab.sim.reference.play import Speeds, play, speeds_of
from fleetlab.sim.world import world

BUILT_IN = ORDERS.names


def jobs(**columns):
    """A world of jobs of one GPU each, where no column says otherwise, on `cluster`."""
    cluster = columns.pop("cluster", Cluster.uniform(1, 1))
    estimate = columns.pop("estimate", "oracle")
    count = max(len(v) for v in columns.values())
    frame = {"gpu_milli": [1000] * count, "submit": [0.0] * count} | columns
    return world(Workload.of(pl.DataFrame(frame), source="by hand"), cluster, estimate=estimate)


def reasons(w, played, job):
    """The seconds a job has waited, by reason."""
    return {name: s for name, s in zip(REASONS, ledger(w, played)[job].tolist(), strict=True) if s}


# -- laws ------------------------------------------------------------------------------------------------------------

JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 12).map(float),
        "runtime": st.integers(0, 9).map(float),
        "instances": st.integers(1, 3),
        "cpu_milli": st.sampled_from([0, 500, 2000]),
        "memory_mib": st.sampled_from([0, 40]),
        "gpu_milli": st.sampled_from([0, 250, 500, 700, 1000, 2000]),
        "gpu_memory_mib": st.sampled_from([0, 0, 6]),
        "gpu_types": st.sampled_from([[], ["A"], ["B"], ["A", "B"]]),
        "max_per_node": st.sampled_from([0, 0, 1]),
        "app": st.sampled_from(["x", "y"]),
        "priority": st.integers(0, 2),
        "user": st.sampled_from(["u", "v"]),
    }
)
CLUSTER = Cluster.of(
    pl.DataFrame(
        {
            "node": ["n0", "n1", "n2"],
            "pool": ["a", "b", "b"],
            "gpu_type": ["A", "B", None],
            "gpus": [2, 3, 0],
            "gpu_memory_mib": [10, 10, 0],
            "cpu_milli": [4000, 4000, 2000],
            "memory_mib": [100, 100, 100],
        }
    ),
    source="three nodes",
)


def small(rows):
    zero = min(row["submit"] for row in rows)
    rows = [row | {"submit": row["submit"] - zero} for row in rows]
    return Workload.of(pl.DataFrame(rows), source="small")


WORKLOADS = st.lists(JOB, min_size=1, max_size=14).map(small)


@numba.njit
def take_gpus(shapes, s, nodes, n, gpus, apps, bits):
    """Called from Python, what is meant for compiled code alone."""
    on_nodes.take_gpus(shapes[s], nodes[n], gpus, apps, bits)


@numba.njit
def slots(shapes, s, nodes, gpus, apps):
    """Instances that fit, on all nodes together."""
    count = 0
    for n in range(len(nodes)):
        count += on_nodes.node_slots(shapes[s], nodes[n], gpus, apps)
    return count


def held(w, runs, now):
    """What is held in an instant: CPU and memory of nodes, milli and memory of GPUs, places of apps with a limit."""
    nodes, cards, apps = np.zeros((len(w.nodes), 2), int), np.zeros((len(w.gpus), 2), int), {}
    for k in np.flatnonzero((runs.begin <= now) & (runs.end > now) & (runs.end > runs.begin)):
        t = runs.job[k]
        s = w.shapes[w.shape[t]]
        for i in range(runs.first[k], runs.first[k] + w.instances[t]):
            n, got = runs.where[i], int(runs.got[i])
            nodes[n] += (s.cpu, s.memory)
            first, last = w.nodes[n].first_gpu, w.nodes[n].end_gpu
            mine = [g for g in range(first, last) if got >> (g - first) & 1]
            assert len(mine) == s.gpus
            assert got >> (last - first) == 0
            assert not mine or s.types & w.nodes[n].gpu_type
            for g in mine:
                cards[g] += (s.milli, s.gpu_memory)
            if s.per_node:
                apps[n, s.app] = apps.get((n, s.app), 0) + 1
    return nodes, cards, apps


def obeys(w, played):
    """Nothing is given away twice, nobody starts early, gangs are whole, books balance."""
    runs = played.runs(w.first)
    assert (runs.begin >= w.submit[runs.job]).all()
    for now in sorted(set(runs.begin)):
        nodes, cards, apps = held(w, runs, now)
        assert (nodes <= np.stack([w.nodes.free_cpu, w.nodes.free_memory], axis=1)).all()
        assert (cards[:, 0] <= 1000).all()
        assert (cards[:, 1] <= w.gpus.free_memory).all()
        assert all(count <= 1 for count in apps.values())  # every limit of these worlds is 1
    stop = played.stopped if (played.status == DONE).all() else played.until
    waited = ledger(w, played)
    for t in range(len(w.submit)):
        mine = runs.job == t
        ran = (np.minimum(runs.end[mine], stop) - runs.begin[mine]).sum()
        last = played.end[t] if played.status[t] == DONE else max(stop, w.submit[t])
        assert waited[t].sum() == last - w.submit[t] - ran
    assert (waited >= 0).all()
    assert (np.isnan(played.end) == (played.status != DONE)).all()


def same(a, b):
    return all(np.array_equal(getattr(a, n), getattr(b, n), equal_nan=True) for n in ("start", "end", "where"))


WAYS = [
    *((o, d, False) for o in BUILT_IN if not ORDERS[o].preemptive for d in ("none", "greedy", "easy", "conservative")),
    *((o, d, True) for o in BUILT_IN for d in ("none", "greedy")),
]


@pytest.mark.parametrize(("order", "backfill", "preempt"), WAYS)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(workload=WORKLOADS, placement=st.sampled_from(["best_fit", "worst_fit", "fgd", "random"]))
def test_the_laws_hold_whatever_the_rules(order, backfill, preempt, workload, placement):
    w = world(workload, CLUSTER, estimate="user")
    played, again = (play(w, order=order, backfill=backfill, placement=placement, preempt=preempt) for _ in range(2))
    assert (played.status == DONE).all()
    assert same(played, again)
    obeys(w, played)
    runs = played.runs(w.first)
    assert np.array_equal(np.bincount(runs.job, runs.end - runs.begin, len(w.submit)), w.runtime)
    assert np.array_equal(np.bincount(runs.job, minlength=len(w.submit)), played.preemptions + 1)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(workload=WORKLOADS, order=st.sampled_from(["fifo", "sjf", "fair", "las"]), seed=st.integers(0, 99))
def test_the_laws_hold_when_nodes_come_and_go(workload, order, seed):
    w = world(workload, CLUSTER)
    events = [Faults(9, 2), Drain(3, 8, nodes=["n0"]), Elastic("b", least=1, boot=2, every=1, idle=3)]
    recovery = Recovery(every=2, save=0.5, restart=0.25)
    played = play(w, order=order, preempt=True, events=events, cluster=CLUSTER, recovery=recovery, seed=seed)
    obeys(w, played)
    runs, done = played.runs(w.first), played.status == DONE
    ran = np.bincount(runs.job, np.minimum(runs.end, played.stopped) - runs.begin, len(w.submit))
    assert np.array_equal(ran[done], (w.runtime + played.lost)[done])
    assert np.array_equal(
        np.bincount(runs.job, minlength=len(w.submit))[done], (played.preemptions + played.failures + 1)[done]
    )
    for n, begin, end in zip(
        runs.where, *(np.repeat(v, w.instances[runs.job]) for v in (runs.begin, runs.end)), strict=True
    ):
        ups = played.up
        assert any((ups.node == n) & (ups.begin <= begin) & (ups.end >= min(end, played.stopped)))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    workload=WORKLOADS,
    limit=st.sampled_from([0, 1000, 2500]),
    backfill=st.sampled_from(["none", "greedy", "easy", "conservative"]),
)
def test_no_user_ever_holds_more_than_the_quota(workload, limit, backfill):
    w = world(workload, CLUSTER)
    played = play(w, quotas=StatedQuotas({w.users[0]: limit / 1000}, w.frame), backfill=backfill)
    obeys(w, played)
    need = w.gpu_milli
    runs = played.runs(w.first)
    for now in set(runs.begin):
        live = runs.job[(runs.begin <= now) & (runs.end > now)]
        assert need[live][w.user[live] == 0].sum() <= limit
    never = (w.user == 0) & (need > limit)
    assert (played.status[never] == WAITING).all()
    waited = ledger(w, played)[never]
    assert waited.sum() == waited[:, REASONS.index("quota")].sum()
    assert (played.status[~never] == DONE).all()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(workload=WORKLOADS, order=st.sampled_from(["fifo", "sjf", "fair", "srpt", "priority"]), preempt=st.booleans())
def test_under_skip_nobody_waits_who_fits(workload, order, preempt):
    w = world(workload, CLUSTER)
    played = play(w, order=order, preempt=preempt)
    runs = played.runs(w.first)
    for now in sorted({*runs.begin, *runs.end}):
        nodes, gpus, apps = w.nodes.copy(), w.gpus.copy(), w.apps.copy()
        live = (runs.begin <= now) & (runs.end > now)
        for k in np.flatnonzero(live):
            t, s = runs.job[k], w.shape[runs.job[k]]
            for i in range(runs.first[k], runs.first[k] + w.instances[t]):
                take_gpus(w.shapes, s, nodes, runs.where[i], gpus, apps, runs.got[i])
        out = (w.submit > now) | (played.end <= now)
        out[runs.job[live]] = True
        for t in np.flatnonzero(~out):
            assert slots(w.shapes, w.shape[t], nodes, gpus, apps) < w.instances[t]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(workload=WORKLOADS, until=st.integers(0, 30))
def test_a_run_that_is_stopped_is_the_beginning_of_the_whole(workload, until):
    w = world(workload, CLUSTER)
    whole, part = play(w), play(w, until=until)
    before = whole.start <= until
    assert np.array_equal(part.start[before], whole.start[before])
    assert np.isnan(part.start[~before]).all()
    assert np.array_equal(part.status, np.where(whole.end <= until, DONE, np.where(before, RUNNING, WAITING)))
    obeys(w, part)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(workload=WORKLOADS, speed=st.sampled_from([0.3, 0.5, 0.9]))
def test_neighbours_slow_each_other_and_all_work_is_done(workload, speed):
    w = world(workload, CLUSTER)
    pair = np.full((1, 1), speed)
    played = play(w, speeds=Speeds(np.ones(1), pair, np.zeros(len(w.submit), int)))
    obeys(w, played)
    runs = played.runs(w.first)
    done = np.zeros(len(w.submit))
    times = sorted({*runs.begin, *runs.end})
    for now, then in pairwise(times):
        live = runs.job[(runs.begin <= now) & (runs.end > now)]
        on = {}
        for t in live:
            for i in range(w.first[t], w.first[t + 1]):
                if 0 < w.shapes[w.shape[t]].milli < 1000:
                    on.setdefault((played.where[i], played.got[i]), []).append(t)
        slow = {t: min((speed ** (len(c) - 1) for c in on.values() if t in c), default=1.0) for t in live}
        for t in live:
            done[t] += (then - now) * slow[t]
    assert np.allclose(done, w.runtime, atol=1e-6)


# -- backfills by hand ---------------------------------------------------------------------------------------------


def test_strict_blocks_and_charges_the_head_with_its_reason_and_the_others_with_the_head():
    w = jobs(submit=[0, 1, 2], runtime=[9, 9, 1], gpu_milli=[1000, 2000, 1000], cluster=Cluster.uniform(1, 2))
    played = play(w, backfill="none")
    assert played.start.tolist() == [0, 9, 18]
    assert [reasons(w, played, t) for t in range(3)] == [{}, {"gpu": 8}, {"head_of_line": 7, "gpu": 9}]


def test_skip_passes_over_who_does_not_fit():
    w = jobs(submit=[0, 1, 2], runtime=[9, 9, 1], gpu_milli=[1000, 2000, 1000], cluster=Cluster.uniform(1, 2))
    assert play(w).start.tolist() == [0, 9, 2]


def test_who_came_too_late_for_the_last_gpu_waits_for_a_gpu():
    w = jobs(runtime=[5, 5], gpu_milli=[1000, 1000])
    assert [reasons(w, play(w), t) for t in range(2)] == [{}, {"gpu": 5}]


def test_easy_lets_go_first_who_ends_before_the_reservation_and_nobody_else():
    w = jobs(
        submit=[0, 1, 2, 3], runtime=[10, 10, 8, 8], gpu_milli=[2000, 4000, 1000, 1000], cluster=Cluster.uniform(1, 4)
    )
    played = play(w, backfill="easy")
    assert played.start.tolist() == [0, 10, 2, 20]  # the last would end at 11, when the second has long begun
    assert reasons(w, played, 3) == {"reservation": 7, "gpu": 10}


def test_easy_lets_go_first_who_is_beside_the_reservation():
    w = jobs(
        submit=[0, 1, 2, 3], runtime=[10, 10, 99, 99], gpu_milli=[2000, 4000, 1000, 1000], cluster=Cluster.uniform(1, 5)
    )
    assert play(w, backfill="easy").start.tolist() == [0, 10, 2, 20]  # one GPU is beside it, not two


def second_in_line():
    return jobs(
        submit=[0, 1, 2, 3], runtime=[10, 10, 5, 30], gpu_milli=[2000, 3000, 4000, 1000], cluster=Cluster.uniform(1, 4)
    )


def test_easy_may_delay_the_second_in_line():
    assert play(second_in_line(), backfill="easy").start.tolist() == [0, 10, 33, 3]


def test_conservative_delays_nobody_in_line():
    w = second_in_line()
    played = play(w, backfill="conservative")
    assert played.start.tolist() == [0, 10, 20, 25]
    assert reasons(w, played, 3)["reservation"] == 7 + 10  # it fits, but it may not, until the third holds all


def test_a_reservation_reckons_with_estimates_and_an_overdue_job_ends_at_once():
    w = jobs(
        submit=[0, 1, 6], runtime=[10, 10, 3], gpu_milli=[1000, 2000, 1000],
        cluster=Cluster.uniform(1, 2), estimate=[5, 10, 3],
    )  # fmt: skip
    assert play(w, backfill="easy").start.tolist() == [0, 10, 20]


# -- orders by hand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("fifo", [0, 1, 2, 3]),
        ("sjf", [0, 3, 2, 1]),
        ("smallest", [0, 2, 1, 3]),
        ("largest", [0, 1, 3, 2]),
        ("priority", [0, 2, 3, 1]),
        ("wfp3", [0, 3, 1, 2]),
        ("unicef", [0, 3, 2, 1]),
    ],
)
def test_orders_rank_as_they_say(order, expected):
    w = jobs(
        submit=[0, 1, 1, 1], runtime=[5, 9, 8, 7], gpu_milli=[2000, 2000, 1000, 2000], priority=[0, 0, 2, 1],
        cpu_milli=[1000] * 4, cluster=Cluster.uniform(1, 2, cpu_milli=1000),
    )  # fmt: skip
    assert np.argsort(play(w, order=order).start, kind="stable").tolist() == expected


def test_aging_lets_the_long_go_once_it_has_waited_enough():
    w = jobs(submit=[0, 1, 8], runtime=[10, 20, 5])
    assert play(w, order="aging", weight=1.0).start.tolist() == [0, 15, 10]
    assert play(w, order="aging", weight=3.0).start.tolist() == [0, 10, 30]


def test_fair_serves_the_user_who_holds_least():
    w = jobs(runtime=[10] * 4, user=["u", "u", "u", "v"], cluster=Cluster.uniform(1, 2))
    assert play(w, order="fair").start.tolist() == [0, 10, 10, 0]


def test_fair_goes_by_the_dominant_resource():
    w = jobs(
        submit=[0, 0, 1, 1], runtime=[9, 8, 9, 9], user=["v", "u", "v", "u"], gpu_milli=[0, 1000, 1000, 1000],
        cpu_milli=[3000, 1000, 1000, 1000], cluster=Cluster.uniform(1, 4, cpu_milli=4000),
    )  # fmt: skip
    assert play(w, order="fair").start.tolist() == [0, 0, 9, 8]  # v holds three quarters of the CPU, u a quarter


def test_las_puts_off_who_has_had_enough():
    w = jobs(submit=[0, 1], runtime=[30, 5])
    played = play(w, order="las", preempt=True, levels=[10.0])
    assert (played.start.tolist(), played.end.tolist()) == ([0, 10], [35, 15])
    assert played.preemptions.tolist() == [1, 0]


def test_las_counts_gpus_times_seconds_through_all_its_queues():
    w = jobs(submit=[0, 1, 2], runtime=[30, 20, 5], gpu_milli=[2000, 2000, 2000], cluster=Cluster.uniform(1, 2))
    runs = play(w, order="las", preempt=True, levels=[10.0, 30.0]).runs(w.first)
    assert [(t, b, e) for t, b, e in zip(runs.job, runs.begin, runs.end, strict=True)] == [
        (0, 0, 5), (1, 5, 10), (2, 10, 15), (0, 15, 25), (1, 25, 35), (0, 35, 50), (1, 50, 55),
    ]  # fmt: skip


def test_srpt_puts_off_who_has_more_left():
    w = jobs(submit=[0, 4, 5], runtime=[10, 3, 9])
    played = play(w, order="srpt")
    assert (played.end.tolist(), played.preemptions.tolist()) == ([13, 7, 22], [1, 0, 0])
    assert reasons(w, played, 0) == {"gpu": 3}


def test_a_job_is_put_off_only_if_that_helps_and_the_best_of_the_worse_stays():
    w = jobs(
        submit=[0, 0, 0, 1], runtime=[9, 9, 9, 5], gpu_milli=[1000, 2000, 1000, 2000], priority=[2, 1, 0, 3],
        cluster=Cluster.uniform(1, 4),
    )  # fmt: skip
    played = play(w, order="priority", preempt=True)
    assert played.preemptions.tolist() == [0, 1, 0, 0]  # the last in rank would not be enough, so it stays


def test_who_does_not_fit_even_so_puts_nobody_off():
    cluster = Cluster.uniform(2, 1)
    w = jobs(submit=[0, 1], runtime=[9, 5], instances=[1, 2], priority=[0, 9], cluster=cluster)
    played = play(w, order="priority", preempt=True, events=[Outage(0, 20, nodes=["node-1"])], cluster=cluster)
    assert (played.end.tolist(), played.preemptions.tolist()) == ([9, 25], [0, 0])


def test_what_cannot_be_is_refused():
    with pytest.raises(PolicyError, match="needs no reservation: `easy` with preemption"):
        play(jobs(runtime=[1]), order="srpt", backfill="easy")


# -- what a break costs ----------------------------------------------------------------------------------------------


def test_an_evicted_job_keeps_its_work_and_pays_for_saving_and_restarting():
    w = jobs(submit=[0, 8], runtime=[20, 5], priority=[0, 1])
    played = play(w, order="priority", preempt=True, recovery=Recovery(save=2, restart=3))
    assert (played.end.tolist(), played.lost.tolist()) == ([8 + 5 + 5 + 12, 13], [5, 0])
    assert reasons(w, played, 0) == {"gpu": 5}


def test_a_failed_job_goes_on_from_its_last_checkpoint():
    cluster = Cluster.uniform(1, 1)
    w = jobs(runtime=[35])
    events, recovery = [Outage(25, 30, pool="default")], Recovery(every=10, save=1, restart=2)
    played = play(w, events=events, cluster=cluster, recovery=recovery)
    # Two checkpoints in 22 s keep 20 s of work; 2 s to load, 15 s of work, and one more checkpoint are left.
    assert (played.end.tolist(), played.lost.tolist(), played.failures.tolist()) == ([48], [8], [1])
    assert played.segments.begin.tolist() == [0, 30]
    assert [(n, b, e) for n, b, e in zip(played.up.node, played.up.begin, played.up.end, strict=True)] == [
        (0, 0, 25), (0, 30, 48),
    ]  # fmt: skip


def test_without_checkpoints_a_failed_job_starts_from_nothing():
    w = jobs(runtime=[35])
    played = play(w, events=[Outage(25, 30, pool="default")], cluster=Cluster.uniform(1, 1), recovery=Recovery())
    assert (played.end.tolist(), played.lost.tolist()) == ([65], [25])


def test_a_gang_loses_all_its_nodes_with_one():
    cluster = Cluster.uniform(2, 1)
    w = jobs(runtime=[10], instances=[2], cluster=cluster)
    played = play(w, events=[Outage(4, 6, nodes=["node-1"])], cluster=cluster)
    assert (played.segments.begin.tolist(), played.segments.end.tolist()) == ([0, 6], [4, 16])


def test_a_failure_comes_before_a_completion_at_the_same_instant():
    played = play(jobs(runtime=[5]), events=[Outage(5, 6, pool="default")], cluster=Cluster.uniform(1, 1))
    assert played.end.tolist() == [11]


def test_a_drained_node_finishes_what_it_has_and_takes_nothing_new():
    cluster = Cluster.uniform(1, 2)
    w = jobs(submit=[0, 6], runtime=[10, 3], cluster=cluster)
    played = play(w, events=[Drain(5, 20, pool="default")], cluster=cluster)
    assert (played.start.tolist(), played.failures.tolist()) == ([0, 20], [0, 0])
    assert played.up.begin.tolist() == [0]


def test_a_reclaimed_job_is_saved_only_with_enough_notice():
    cluster = Cluster.uniform(1, 1)
    w = jobs(runtime=[1000])
    for notice, per_break in ((5, 7), (4, None)):
        spot = Spot("default", every=400, away=10, notice=notice)
        recovery = Recovery(save=5, restart=2)
        played = play(w, events=[spot], cluster=cluster, recovery=recovery, seed=5, until=50_000)
        assert played.failures[0] > 0
        if per_break:
            assert played.lost[0] == per_break * played.failures[0]
        else:
            assert played.lost[0] > 7 * played.failures[0]


def test_a_pool_boots_for_who_waits_and_is_switched_off_when_idle():
    cluster = Cluster.uniform(3, 1)
    w = jobs(submit=[0, 2000], runtime=[100, 100], cluster=cluster)
    played = play(w, events=[Elastic("default", boot=300, every=60, idle=600)], cluster=cluster)
    assert played.start.tolist() == [360, 2340]  # seen at the next full minute, up after five
    assert list(zip(played.up.node, played.up.begin, played.up.end, strict=True)) == [(0, 360, 1060), (0, 2340, 2440)]


def test_a_pool_boots_as_many_nodes_as_a_gang_needs_and_keeps_the_least():
    cluster = Cluster.uniform(5, 2)
    w = jobs(submit=[0, 5000], runtime=[100, 10], instances=[5, 1], cluster=cluster)
    played = play(w, events=[Elastic("default", least=1, boot=300, every=60, idle=600)], cluster=cluster)
    assert played.start.tolist() == [360, 5000]
    assert sorted(zip(played.up.node, played.up.begin, played.up.end, strict=True)) == [
        (0, 0, 5010), (1, 360, 1060), (2, 360, 1060), (3, 360, 960),
    ]  # fmt: skip


def test_a_job_that_no_node_comes_back_for_waits_to_the_end():
    w = jobs(runtime=[5, 5])
    played = play(w, events=[Outage(3, 1e9, pool="default")], cluster=Cluster.uniform(1, 1), until=100)
    assert (played.status.tolist(), ledger(w, played).sum(axis=1).tolist()) == ([0, 0], [97, 100])


def test_a_world_without_jobs_or_gpus_is_played_too():
    w = jobs(runtime=[None, 3.0], gpu_milli=[0, 1000], cluster=Cluster.uniform(2, 0))
    assert len(w.submit) == 0
    assert ledger(w, play(w)).shape == (0, len(REASONS))
    w = jobs(runtime=[2.0, 3.0], gpu_milli=[0, 0], cpu_milli=[900, 900], cluster=Cluster.uniform(1, 0, cpu_milli=1000))
    played = play(w, order="server_filling_srpt")
    assert played.end.tolist() == [2, 5]
    assert reasons(w, played, 1) == {"cpu": 2}


# -- sharing ---------------------------------------------------------------------------------------------------------


def halves(classes):
    return Speeds(np.ones(2), np.array([[0.5, 0.25], [1.0, 0.5]]), np.array(classes))


def test_two_neighbours_slow_each_other_while_they_are_together():
    w = jobs(submit=[0, 4], runtime=[10, 10], gpu_milli=[500, 500])
    assert play(w, speeds=halves([0, 0])).end.tolist() == [16, 20]


def test_each_class_is_slowed_by_its_neighbours_in_its_own_way():
    w = jobs(submit=[0, 4], runtime=[10, 3], gpu_milli=[500, 500])
    assert play(w, speeds=halves([0, 1])).end.tolist() == [7 + (6 - 3 * 0.25), 7]


def test_a_gang_is_as_slow_as_its_slowest_instance():
    cluster = Cluster.uniform(2, 1)
    w = jobs(submit=[0, 0], runtime=[10, 4], gpu_milli=[500, 500], instances=[2, 1], cluster=cluster)
    played = play(w, speeds=halves([0, 0]), placement="spread")
    assert sorted(played.where.tolist()[:2]) == [0, 1]
    assert played.end.tolist() == [8 + 6, 8]


def test_the_shipped_profile_slows_by_the_share_that_is_asked_for():
    w = jobs(runtime=[10, 10, 10], gpu_milli=[300, 500, 900], cluster=Cluster.uniform(3, 1))
    found = speeds_of(Speed.default(), "time-slicing", w)
    names = ["heavy", "light", "medium"]
    assert [names[c] for c in found.of] == ["light", "medium", "heavy"]
    assert found.alone[0] * found.pair[0, 0] == Speed.default().speed("time-slicing", "heavy", "heavy").value


def test_by_mig_a_card_has_two_halves_and_who_has_it_whole_is_as_fast_as_ever():
    asks = {"gpu_milli": [100, 100, 100, 700, 4000], "submit": [0.0, 0.0, 0.0, 500.0, 1000.0]}
    work = Workload.of(pl.DataFrame({**asks, "runtime": [100.0] * 5}), source="five")
    light = 100 / Speed.default().speed("mig", "light").value
    # Two halves, of which each is slower, and the third waits for one; then a large share and four whole GPUs.
    one = fleetlab.simulate(work, Cluster.uniform(1, 1), sharing="mig").jobs
    assert one["end"].to_list() == pytest.approx([light, light, 2 * light, 600.0])
    four = fleetlab.simulate(work, Cluster.uniform(1, 4), sharing="mig").jobs
    assert four["end"].to_list()[3:] == [600.0, 1100.0]


def test_a_profile_of_other_classes_needs_to_be_told_them():
    rows = [("mps", a, b, 0.5, 0.4, 0.6) for a in ("bert", "gnn") for b in (None, "bert", "gnn")]
    frame = pl.DataFrame(rows, schema=["mode", "workload", "neighbour", "speed", "low", "high"], orient="row")
    profile = Speed.of(frame, device="card", provenance=Provenance("bench", "test", {}))
    w = jobs(runtime=[1, 1])
    with pytest.raises(WorkloadError, match="do not say which job is of which: bert, gnn"):
        speeds_of(profile, "mps", w)
    with pytest.raises(WorkloadError, match="not a class of the profile for each job: `gmm`"):
        speeds_of(profile, "mps", w, classes=["gmm", "bert"])
    with pytest.raises(WorkloadError, match="no mode of that name in the speed profile of card: `mig`"):
        speeds_of(profile, "mig", w)
    assert speeds_of(profile, "mps", w, classes=["gnn", "bert"]).of.tolist() == [1, 0]


def test_the_class_of_a_job_is_that_of_the_first_rule_that_applies_to_it():
    rows = [("mps", a, b, 0.5, 0.4, 0.6) for a in ("mine", "rest") for b in (None, "mine", "rest")]
    frame = pl.DataFrame(rows, schema=["mode", "workload", "neighbour", "speed", "low", "high"], orient="row")
    profile = Speed.of(frame, device="card", provenance=Provenance("bench", "test", {}))
    w = jobs(runtime=[1, 1, 1], app=["bert", "bert", "gnn"], user=["ada", "bob", "bob"])
    rules = {"user:ada": "rest", "app:bert": "mine", "other": "rest"}
    assert speeds_of(profile, "mps", w, rules=rules).of.tolist() == [1, 0, 1]
    with pytest.raises(WorkloadError, match="2 jobs are of no class"):
        speeds_of(profile, "mps", w, rules={"user:ada": "mine"})
    with pytest.raises(WorkloadError, match=r"no app by that name: `brt`; did you mean bert\?"):
        speeds_of(profile, "mps", w, rules={"app:brt": "mine"})
    with pytest.raises(WorkloadError, match="did you mean mine"):
        speeds_of(profile, "mps", w, rules={"other": "mnie"})


def test_without_a_rule_a_job_is_of_the_class_of_its_request():
    w = jobs(runtime=[10, 10], gpu_milli=[300, 900], app=["a", "b"])
    found = speeds_of(Speed.default(), "mps", w, rules={"app:b": "light"})
    assert [["heavy", "light", "medium"][c] for c in found.of] == ["light", "light"]


# -- policies of one's own -------------------------------------------------------------------------------------------


@fleetlab.sim.policy.order
def longest(s, job, now):
    return -s.estimate[job]


@fleetlab.sim.policy.order
def waited(s, job, now):
    return (s.submit[job] - now) * s.priority[job]


@fleetlab.sim.policy.order
def broken(s, job, now):
    return s.estimate[job] if now < 2 else float("nan")


@fleetlab.sim.policy.placement
def last(s, job, node):
    return -node


def test_an_order_of_ones_own_is_asked():
    w = jobs(submit=[0, 1, 1], runtime=[5, 6, 7])
    assert play(w, order=longest).start.tolist() == [0, 12, 5]


def test_an_order_that_moves_is_asked_in_every_pass():
    w = jobs(submit=[0, 1, 3], runtime=[5, 6, 7], priority=[1, 1, 3])
    assert play(w, order=waited).start.tolist() == [0, 12, 5]


def test_a_place_of_ones_own_is_asked():
    w = jobs(runtime=[5, 5, 5], cluster=Cluster.uniform(3, 1))
    assert play(w, placement=last).where.tolist() == [2, 1, 0]


def test_an_order_that_gives_no_number_stops_the_run():
    w = jobs(submit=[0, 1, 3], runtime=[5, 6, 7])
    with pytest.raises(PolicyError, match="`broken` returns NaN, asked for job"):
        play(w, order=broken)


# -- compiled or not -------------------------------------------------------------------------------------------------

EVERYTHING = """
import json, sys, numpy as np, fleetlab
from fleetlab.sim.world import world
from fleetlab.core.events import *
from fleetlab.sim.ledger.ledger import holders, ledger
from fleetlab.sim.engine import play as quick
from fleetlab.sim.quota import StatedQuotas
from fleetlab.sim.reference.play import play, speeds_of
from fleetlab import Speed
t, some = (fleetlab.synthesize('pai2020', jobs=n, seed=5, constrained=1.0) for n in (120, int(sys.argv[1])))
c = fleetlab.Cluster.of(t.cluster.frame[::60], source='few')
w, known = world(some.workload, c, estimate='group'), world(some.workload, c)
pool = c.frame['pool'][0]
events = [Faults(200000, 5000), Drain(1000, 5000, nodes=[c.frame['node'][0]]), Elastic(pool, least=20)]
speeds = speeds_of(Speed.default(), 'time-slicing', w)
quota = StatedQuotas(20, w.frame)
saves = Recovery(600, 10, 30)
runs = [
    play(w, order='las', preempt=True, events=events, cluster=c, speeds=speeds, quotas=quota, recovery=saves, seed=1),
    play(w, order='fair', backfill='conservative', placement='fgd', events=events, cluster=c, speeds=speeds, seed=2),
    play(w, order='sjf', backfill='easy', placement='random', quotas=quota, seed=3),
    play(w, backfill='easy'),
    play(known, order='sjf', backfill='conservative'),
    quick.play(w, order='fifo', backfill='easy', placement='best_fit'),
    quick.play(known, order='fifo', backfill='easy', placement='worst_fit'),
    play(w, order='server_filling_srpt', placement='worst_fit', recovery=saves),
    play(w, order='aging', backfill='none', placement='gpu_packing'),
]
names = ('start', 'end', 'where', 'lost')
said = [[np.nan_to_num(getattr(r, n), nan=-1).tolist() for n in names] for r in runs]
said += [[ledger(w, r).tolist(), holders(w, r).seconds.tolist()] for r in runs]
print(json.dumps(said))
"""


@pytest.mark.parametrize("count", ["50", pytest.param("120", marks=pytest.mark.validate)])
def test_compiled_and_plain_python_agree_bit_for_bit(count):
    answers = []
    for off in ("0", "1"):
        env, words = os.environ | {"NUMBA_DISABLE_JIT": off}, [sys.executable, "-c", EVERYTHING, count]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]


# -- how far it is -------------------------------------------------------------------------------------------------


def test_a_long_run_tells_how_far_it_is_and_plays_the_same():
    w = jobs(runtime=[1.0] * 700, submit=[float(k) for k in range(700)])
    told = []
    one = play(w, order="fair", progress=lambda what, done, share: told.append((what, done, share)))
    assert [what for what, _, _ in told] == ["simulating jobs"] * len(told)
    assert len(told) >= 2
    assert all(a[1] < b[1] <= 700 for a, b in pairwise(told))
    assert all(share == done / 700 for _, done, share in told)
    np.testing.assert_array_equal(one.start, play(w, order="fair").start)


def test_whoever_is_told_can_end_a_run():
    def enough(_what, _done, _share):
        raise TimeoutError

    w = jobs(runtime=[1.0] * 700, submit=[float(k) for k in range(700)])
    with pytest.raises(TimeoutError):
        play(w, order="fair", progress=enough)
