"""Slurm's loops: rules worked out by hand, laws, and compiled against plain."""

import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlab.core import Cluster, Scenario, Workload
from fleetlab.core.events import Drain, Outage
from fleetlab.core.queues import Limits, Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Priority, Reservation, Slurm, Weights
from fleetlab.sim.simulate import play_scenario, simulate, world_of
from fleetlab.sim.timeline import timeline

AT_ONCE = Slurm(main=MainLoop(delay=0.0), backfill=BackfillLoop(interval=1.0, resolution=1.0))
MAIN_ONLY = Slurm(main=MainLoop(delay=0.0), backfill=BackfillLoop(on=False))


def nodes(count=1, gpus=8, partitions=(), **columns):
    rows = {"node": [f"n{k}" for k in range(count)], "gpu_type": "a100", "gpus": gpus, "cpu_milli": 64_000}
    rows |= {"memory_mib": 512_000, "gpu_memory_mib": 80_000, **columns}
    lists = pl.Series(
        "partitions", [list(partitions[k]) if partitions else [] for k in range(count)], pl.List(pl.String)
    )
    return Cluster.of(pl.DataFrame(rows, strict=False).with_columns(lists), source="by hand")


def jobs(*rows, **columns):
    """(submit, runtime, GPUs, minutes of its limit)."""
    submit, runtime, gpus, minutes = zip(*rows, strict=True)
    frame = pl.DataFrame(
        {
            "submit": [float(t - min(submit)) for t in submit], "runtime": [float(t) for t in runtime],
            "gpu_milli": [1000 * g for g in gpus], "limit": [60.0 * m for m in minutes], "cpu_milli": 1000,
            "distinct_nodes": True, **columns,
        }
    )  # fmt: skip
    return Workload.of(frame, source="by hand")


def starts(workload, cluster, site, **words):
    s = Scenario.of(workload, cluster, scheduler=site, **words)
    world = world_of(s)
    played = play_scenario(s, world)
    order = np.argsort(world.frame["job"].to_numpy())
    return played.start[order].tolist()


# -- worked out by hand ----------------------------------------------------------------------------------------------


def test_the_main_loop_is_strict_and_backfill_fills_in():
    """A job of 8 GPUs waits for one of 4; the third, short and small, may pass it only by backfill."""
    log = jobs((0, 100, 4, 2), (10, 10, 8, 1), (20, 20, 2, 1))
    strict = starts(log, nodes(), MAIN_ONLY)
    assert strict[0] == 0
    assert 100 <= strict[1] <= 102
    assert strict[2] >= strict[1] + 10
    filled = starts(log, nodes(), AT_ONCE)
    assert 20 <= filled[2] <= 22
    assert 100 <= filled[1] <= 102


def test_backfill_goes_by_time_limits_not_by_run_times():
    """The head is planned when the first job's limit ends, at 120 s; a job whose limit is longer than that waits."""
    log = jobs((0, 50, 4, 2), (10, 10, 8, 1), (20, 20, 2, 3))
    found = starts(log, nodes(), AT_ONCE)
    assert 50 <= found[1] <= 52
    assert found[2] >= found[1] + 10


def test_partitions_do_not_wait_for_each_other():
    log = jobs((0, 100, 8, 5), (1, 10, 8, 5), (2, 10, 8, 5), partitions=[["a"], ["a"], ["b"]])
    site = Slurm(partitions=(Partition("a"), Partition("b")), main=MainLoop(delay=0.0), backfill=BackfillLoop(on=False))
    found = starts(log, nodes(2, partitions=(("a",), ("b",))), site)
    assert found[1] >= 100
    assert found[2] <= 4


def test_a_job_at_its_limit_is_passed_over():
    site = Slurm(
        qos=(Qos("few", per_user=Limits(resources={"gpu": 4})),), main=MainLoop(delay=0.0),
        backfill=BackfillLoop(on=False), enforce=("limits",),
    )  # fmt: skip
    log = jobs((0, 50, 4, 5), (1, 10, 4, 5), (2, 10, 4, 5), qos="few", user=["ann", "ann", "bob"])
    found = starts(log, nodes(), site)
    assert found[2] <= 4
    assert 50 <= found[1] <= 53


def test_limits_of_accounts_hold_for_all_below_them():
    queues = QueueTree(
        [Queue("root"), Queue("vision", "root", limits=Limits(jobs=1)), Queue("vision/ann", "vision", user="ann"),
         Queue("vision/bob", "vision", user="bob")]
    )  # fmt: skip
    site = Slurm(queues=queues, main=MainLoop(delay=0.0), backfill=BackfillLoop(on=False), enforce=("limits",))
    found = starts(jobs((0, 30, 1, 5), (1, 10, 1, 5), queue="vision", user=["ann", "bob"]), nodes(), site)
    assert 30 <= found[1] <= 33


@pytest.mark.parametrize(("rule", "status", "runs"), [("afterok", "completed", True), ("afternotok", "failed", True)])
def test_dependencies_wait_for_their_jobs(rule, status, runs):
    log = jobs((0, 40, 1, 5), (1, 5, 1, 5), depends_on=[[], [0]], dependency=[[], [rule]], status=[status, "completed"])
    assert (40 <= starts(log, nodes(), AT_ONCE)[1] <= 43) == runs


def test_of_an_array_only_so_many_run_at_once():
    log = jobs(*[(0, 20, 1, 5)] * 6, array=7, array_limit=2)
    found = sorted(starts(log, nodes(), AT_ONCE))
    assert found[1] <= 2
    assert found[2] >= 20
    assert found[4] >= 40


def test_parts_of_a_heterogeneous_job_start_together():
    log = jobs((0, 30, 8, 1), (1, 10, 8, 1), (1, 10, 2, 1), gang=[None, 3, 3])
    found = starts(log, nodes(2), AT_ONCE)
    assert found[1] == found[2]


def test_preemption_requeues_and_the_job_starts_over():
    qos = (Qos("low"), Qos("high", priority=10, preempts=("low",)))
    site = Slurm(qos=qos, preempt="qos", preempt_mode="requeue", main=MainLoop(delay=0.0), backfill=BackfillLoop(1.0))
    site = Slurm.from_values(site.to_values() | {"backfill": {"interval": 1.0, "resolution": 1.0}})
    log = jobs((0, 200, 8, 10), (50, 20, 8, 5), qos=["low", "high"])
    result = simulate(log, nodes(), scheduler=site)
    table = result.jobs.sort("job")
    assert 50 <= table["start"][1] <= 54
    assert table["preemptions"].to_list() == [1, 0]
    assert 49 <= table["lost"][0] <= 54
    assert table["lost"][1] == 0
    # Eligible again two minutes after it was requeued, and from its begin.
    assert 170 + 200 <= table["end"][0] <= 180 + 200


def test_nodes_complete_while_an_epilog_runs():
    site = Slurm(main=MainLoop(delay=0.0), backfill=BackfillLoop(on=False), epilog=30.0)
    found = starts(jobs((0, 20, 8, 5), (1, 20, 8, 5)), nodes(), site)
    assert 50 <= found[1] <= 53


def test_the_main_loop_looks_when_an_epilog_is_over_whatever_its_delay():
    log = jobs((0, 20, 8, 5), (1, 20, 8, 5), (31, 9, 8, 5))
    slow = Slurm(main=MainLoop(delay=40.0), backfill=BackfillLoop(on=False), epilog=5.0)
    assert 25 <= starts(log, nodes(), slow)[1] <= 27
    deferred = Slurm(main=MainLoop(delay=40.0, defer=True), backfill=BackfillLoop(on=False), epilog=5.0)
    assert starts(log, nodes(), deferred)[1] >= 40


def test_backfill_sleeps_from_the_start_of_the_daemon_to_its_first_cycle():
    """The main loop is kept from the third job by the second; the first cycle comes 30 s after the daemon's start."""
    log = jobs((0, 100, 4, 2), (1, 10, 8, 1), (2, 20, 2, 1))
    for boot, first in ((-10.0, 20), (-5.0, 25)):
        site = Slurm(main=MainLoop(delay=0.0), backfill=BackfillLoop(), boot=boot)
        assert first <= starts(log, nodes(), site)[2] <= first + 2


def test_reservations_keep_nodes_from_jobs_that_would_reach_into_them():
    kept = Slurm(
        reservations=(Reservation("r", 100.0, 200.0, ("n0",)),), main=MainLoop(delay=0.0),
        backfill=BackfillLoop(interval=1.0, resolution=1.0),
    )  # fmt: skip
    found = starts(jobs((0, 20, 1, 1), (50, 20, 1, 1), (60, 20, 1, 5)), nodes(), kept)
    assert found[0] <= 2
    assert found[1] >= 200
    assert found[2] >= 200


def test_drained_nodes_take_no_jobs_and_lost_nodes_requeue_theirs():
    events = (Drain(0.0, 100.0, ["n0"]), Outage(50.0, 60.0, ["n1"]))
    log = jobs((0, 20, 1, 5), (10, 200, 1, 5))
    s = Scenario.of(log, nodes(2), scheduler=AT_ONCE, events=events)
    result = simulate(s)
    table = result.jobs.sort("job")
    assert table["start"][0] < 10
    assert table["failures"].to_list()[1] == 1
    assert table["end"][1] >= 170 + 200


def test_fair_share_puts_who_used_less_first():
    queues = QueueTree([Queue("root"), Queue("a", "root", usage=1e6), Queue("b", "root"),
                        Queue("a/ann", "a", user="ann", usage=1e6), Queue("b/bob", "b", user="bob")])  # fmt: skip
    fair = Priority(multifactor=True, weights=Weights(fair_share=10_000.0), calc_period=60.0)
    site = Slurm(queues=queues, priority=fair, main=MainLoop(delay=0.0), backfill=BackfillLoop(on=False))
    log = jobs((0, 100, 8, 5), (10, 10, 8, 5), (20, 10, 8, 5), queue=["b", "a", "b"], user=["bob", "ann", "bob"])
    found = starts(log, nodes(), site)
    assert found[2] < found[1]


# -- laws --------------------------------------------------------------------------------------------------------------

ROW = st.tuples(st.integers(0, 200), st.integers(1, 90), st.integers(0, 8), st.integers(1, 3))
PARTS = st.sampled_from([["a"], ["b"], ["a", "b"]])


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(ROW, min_size=1, max_size=25), instances=st.integers(1, 2), data=st.data(),
    backfill=st.booleans(), delay=st.sampled_from([0.0, 3.0]),
)  # fmt: skip
def test_any_schedule_is_feasible_and_in_its_partitions(rows, instances, data, backfill, delay):
    parts = data.draw(st.lists(PARTS, min_size=len(rows), max_size=len(rows)))
    log = jobs(*rows, instances=instances, partitions=parts)
    site = Slurm(
        partitions=(Partition("a", tier=2), Partition("b")), main=MainLoop(delay=delay),
        backfill=BackfillLoop(on=backfill, interval=5.0, resolution=10.0),
    )  # fmt: skip
    cluster = nodes(4, partitions=(("a",), ("a", "b"), ("b",), ("b",)))
    result = simulate(log, cluster, scheduler=site)
    timeline(result.world, result.played, cluster, np.array([0.0, 100.0]))  # raises where a GPU is allocated twice
    done = result.jobs
    assert done.height == len(rows)
    assert (done["start"] >= done["submit"]).all()


SCRIPT = """
import json, sys
sys.path.insert(0, "tests/sim")
from test_slurm import AT_ONCE, jobs, nodes, starts
rows = [((k * 7) % 60, 5 + (k * 13) % 40, 1 + (k * 5) % 8, 1 + k % 3) for k in range(40)]
print(json.dumps(starts(jobs(*rows), nodes(3), AT_ONCE)))
"""


def test_compiled_equals_plain():
    found = []
    for off in ("0", "1"):
        env = os.environ | {"NUMBA_DISABLE_JIT": off}
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]


def test_a_trace_without_a_configuration_says_so():
    with pytest.raises(Exception, match="does not tell how its cluster is configured"):
        simulate(jobs((0, 1, 1, 1)), nodes(), scheduler="site")
