"""What Slurm does with running jobs, and what pending ones wait for: small worlds worked out by hand.

Loops look once a second, so a start is within two seconds of what causes it.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fleetlab.core import Cluster, Scenario, Workload
from fleetlab.core.events import Outage
from fleetlab.core.queues import Qos
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Priority, Reservation, Slurm, Weights
from fleetlab.sim.simulate import play_scenario, simulate, world_of
from fleetlab.sim.world import RunningJobs

AT_ONCE = Slurm(main=MainLoop(delay=0.0), backfill=BackfillLoop(interval=1.0, resolution=1.0), kill_wait=5.0)
LOOK = 2  # s until a loop has seen what happened


def nodes(count=1, *partitions):
    frame = pl.DataFrame(
        {
            "node": [f"n{k}" for k in range(count)], "gpu_type": "a100", "gpus": 8, "cpu_milli": 64_000,
            "memory_mib": 512_000, "gpu_memory_mib": 80_000, "partitions": [list(partitions)] * count,
        },
        schema_overrides={"partitions": pl.List(pl.String)},
    )  # fmt: skip
    return Cluster.of(frame, source="by hand")


def jobs(*rows, **columns):
    """(submit, runtime, GPUs), limits of ten minutes."""
    submit, runtime, gpus = zip(*rows, strict=True)
    frame = pl.DataFrame(
        {
            "submit": [float(t) for t in submit], "runtime": [float(t) for t in runtime],
            "gpu_milli": [1000 * g for g in gpus], "distinct_nodes": True,
            **({"limit": 600.0, "cpu_milli": 1000} | columns),
        }
    )  # fmt: skip
    return Workload.of(frame, source="by hand")


def played(log, cluster, site, **words):
    return simulate(log, cluster, scheduler=site, **words).jobs.sort("job")


def about(moment):
    """Within two seconds after a moment, however the loops lie within a second."""
    return pytest.approx(moment + LOOK / 2, abs=LOOK / 2 + 0.01)


# -- preemption ------------------------------------------------------------------------------------------------------

LOW_AND_HIGH = (Qos("low", preempt_mode="requeue"), Qos("high", priority=10, preempts=("low",)))
BY_QOS = replace(AT_ONCE, qos=LOW_AND_HIGH, preempt="qos", preempt_mode="requeue")


GRACE = replace(BY_QOS, qos=(replace(LOW_AND_HIGH[0], grace=20.0), LOW_AND_HIGH[1]))


def test_a_job_with_a_grace_time_goes_when_that_is_over_and_slurmctld_looks():
    """It is told to go at 50 and may stay until 70; slurmctld looks every half minute, at a time of its own."""
    log = jobs((0, 300, 8), (50, 20, 8), qos=["low", "high"])
    assert 70 <= played(log, nodes(), GRACE)["start"][1] <= 70 + 30 + LOOK


def test_a_job_whose_grace_is_over_goes_at_once_when_the_loops_look():
    """A third job is submitted at 72: the loops look, and who waits for the first may end it."""
    log = jobs((0, 300, 8), (50, 20, 8), (72, 20, 8), qos=["low", "high", "low"])
    assert 70 <= played(log, nodes(), GRACE)["start"][1] <= 72 + 2 * LOOK


def test_a_grace_time_of_a_partition_counts_where_partitions_preempt():
    parts = (Partition("low", tier=1, grace=30.0), Partition("high", tier=2))
    site = replace(AT_ONCE, partitions=parts, preempt="partition", preempt_mode="cancel")
    log = jobs((0, 300, 8), (50, 20, 8), partitions=[["low"], ["high"]])
    table = played(log, nodes(1, "low", "high"), site)
    assert 80 <= table["end"][0] <= 80 + 30 + LOOK
    assert table["preemptions"].to_list() == [1, 0]


def test_a_job_is_not_preempted_before_its_exempt_time_is_over():
    """The main loop looks at the whole queue every minute."""
    log = jobs((0, 300, 8), (50, 20, 8), qos=["low", "high"])
    assert played(log, nodes(), replace(BY_QOS, exempt=30.0))["start"][1] == about(50)
    assert 100 <= played(log, nodes(), replace(BY_QOS, exempt=100.0))["start"][1] <= 100 + 60 + LOOK


def test_the_exempt_time_of_a_class_counts_before_that_of_the_cluster():
    site = replace(BY_QOS, qos=(replace(LOW_AND_HIGH[0], exempt=70.0), LOW_AND_HIGH[1]), exempt=150.0)
    log = jobs((0, 300, 8), (50, 20, 8), qos=["low", "high"])
    assert 70 <= played(log, nodes(), site)["start"][1] <= 70 + 60 + LOOK


def test_no_more_jobs_are_preempted_than_necessary():
    """Two small jobs and then a large one would go, in order of their nodes: the large one is enough."""
    log = jobs((0, 300, 2), (0, 300, 2), (1, 300, 8), (50, 20, 8), qos=["low", "low", "low", "high"],
               instances=[1, 1, 2, 2])  # fmt: skip
    table = played(log, nodes(3), replace(BY_QOS, backfill=BackfillLoop(on=False)))
    assert table["preemptions"].to_list() == [0, 0, 1, 0]


def test_the_youngest_is_preempted_first_where_the_site_says_so():
    log = jobs((0, 300, 4), (20, 300, 4), (50, 20, 4), qos=["low", "low", "high"])
    site = replace(BY_QOS, parameters=("preempt_youngest_first", "preempt_reorder_count=0"))
    assert played(log, nodes(), site)["preemptions"].to_list() == [0, 1, 0]
    assert played(log, nodes(), BY_QOS)["preemptions"].sum() == 1


def test_within_a_class_a_higher_priority_preempts():
    qos = (Qos("low", preempt_mode="requeue", within=True),)
    priority = Priority(multifactor=True, weights=Weights(age=0.0, job_size=0.0))
    site = replace(AT_ONCE, qos=qos, preempt="qos", preempt_mode="requeue", priority=priority)
    log = jobs((0, 300, 8), (50, 20, 8), qos="low", nice=[100, -100])
    assert played(log, nodes(), site)["start"][1] == about(50)
    assert played(log, nodes(), replace(site, qos=(Qos("low"),)))["start"][1] >= 300


def test_a_job_that_may_not_be_requeued_ends_when_it_is_preempted():
    log = jobs((0, 300, 8), (50, 20, 8), qos=["low", "high"], requeue=[False, None])
    table = played(log, nodes(), BY_QOS)
    assert table["end"][0] == about(50)
    assert table["lost"].to_list() == [about(50), 0]


# -- nodes that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("requeue", "site", "end"), [
    (True, AT_ONCE, 40 + 121 + 100), (False, AT_ONCE, 40), (None, replace(AT_ONCE, requeue=False), 40),
])  # fmt: skip
def test_a_job_on_a_node_that_fails_runs_again_or_has_ended(requeue, site, end):
    log = jobs((0, 100, 8), requeue=[requeue])
    table = played(log, nodes(2), site, events=(Outage(40.0, 60.0, ["n0"]),))
    assert table["end"][0] == pytest.approx(end, abs=3)
    assert table["failures"][0] == 1


# -- suspension ------------------------------------------------------------------------------------------------------

TIERS = (Partition("low", tier=1), Partition("high", tier=2))
SUSPENDS = replace(AT_ONCE, partitions=TIERS, preempt="partition", preempt_mode="suspend", gang=True)


def test_a_suspended_job_goes_on_when_its_cpus_are_free():
    log = jobs((0, 100, 2), (10, 20, 2), cpu_milli=[48_000, 32_000], partitions=[["low"], ["high"]])
    table = played(log, nodes(1, "low", "high"), SUSPENDS)
    assert table["start"][1] == about(10)
    assert table["end"].to_list() == [about(120), about(30)]


def test_jobs_of_a_lower_tier_run_beside_as_far_as_cpus_are_left():
    """32 CPUs of the higher tier leave room for one of the two jobs of 32."""
    log = jobs((0, 100, 2), (0, 100, 2), (10, 20, 2), cpu_milli=32_000, partitions=[["low"], ["low"], ["high"]])
    table = played(log, nodes(1, "low", "high"), SUSPENDS)
    assert sorted(table["end"].to_list()) == [about(30), about(100), about(120)]


def test_a_suspended_job_keeps_its_gpus():
    log = jobs((0, 100, 6), (10, 20, 4), cpu_milli=32_000, partitions=[["low"], ["high"]])
    table = played(log, nodes(1, "low", "high"), SUSPENDS)
    assert table["start"][1] >= 100


def test_a_suspended_job_keeps_its_cpus_from_others_of_its_tier():
    log = jobs((0, 100, 2), (10, 20, 2), (12, 20, 2), cpu_milli=[64_000, 64_000, 16_000],
               partitions=[["low"], ["high"], ["low"]])  # fmt: skip
    assert played(log, nodes(1, "low", "high"), SUSPENDS)["start"][2] >= 120


# -- shared and whole nodes ------------------------------------------------------------------------------------------


def test_two_jobs_hold_a_cpu_where_a_partition_shares_by_two():
    site = replace(AT_ONCE, partitions=(Partition("s", oversubscribe=2),))
    log = jobs(*[(k, 100, 1) for k in range(5)], cpu_milli=32_000, partitions=[["s"]] * 5)
    starts = played(log, nodes(1, "s"), site)["start"].to_list()
    assert starts == [about(0), about(1), about(2), about(3), about(100)]


def test_gpus_are_not_shared():
    site = replace(AT_ONCE, partitions=(Partition("s", oversubscribe=4),))
    log = jobs((0, 100, 6), (1, 100, 6), cpu_milli=64_000, partitions=[["s"]] * 2)
    assert played(log, nodes(1, "s"), site)["start"][1] >= 100


def test_a_node_is_not_shared_with_a_partition_that_does_not_share():
    parts = (Partition("s", oversubscribe=2), Partition("p"))
    log = jobs((0, 100, 1), (1, 100, 1), partitions=[["s"], ["p"]])
    assert played(log, nodes(1, "s", "p"), replace(AT_ONCE, partitions=parts))["start"][1] >= 100


def test_jobs_of_an_exclusive_partition_have_their_nodes_to_themselves():
    site = replace(AT_ONCE, partitions=(Partition("w", oversubscribe=0), Partition("p")))
    log = jobs((0, 100, 1), (1, 100, 1), (2, 10, 1), partitions=[["w"], ["w"], ["p"]])
    starts = played(log, nodes(1, "w", "p"), site)["start"].to_list()
    assert starts[1] >= 100
    assert starts[2] >= 100


# -- what pending jobs wait for --------------------------------------------------------------------------------------


def depending(rules, on, runtimes=(40, 80, 5), **columns):
    count = len(runtimes)
    empty = [[]] * (count - 1)
    return jobs(*[(0, runtime, 1) for runtime in runtimes], depends_on=[*empty, on], dependency=[*empty, rules],
                **columns)  # fmt: skip


def test_one_of_several_dependencies_is_enough_where_they_are_alternatives():
    assert played(depending(["afterany?", "afterany?"], [0, 1]), nodes(), AT_ONCE)["start"][2] == about(40)
    assert played(depending(["afterany", "afterany"], [0, 1]), nodes(), AT_ONCE)["start"][2] == about(80)


def test_a_job_may_wait_for_some_minutes_after_another_has_started():
    assert played(depending(["after+2"], [0]), nodes(), AT_ONCE)["start"][2] == about(120)


def test_a_dependency_moves_with_the_job_that_it_is_on():
    """The first job is held up by another on a full node: what depends on it waits as long."""
    log = jobs((0, 50, 8), (1, 40, 8), (2, 5, 1), depends_on=[[], [], [1]], dependency=[[], [], ["afterany"]])
    assert 90 <= played(log, nodes(), AT_ONCE)["start"][2] <= 90 + 2 * LOOK


def test_a_dependency_that_can_never_be_met_cancels_the_job_or_keeps_it_waiting():
    log = depending(["afterok"], [0], status=["failed", "completed", "completed"])
    assert played(log, nodes(), AT_ONCE)["start"][2] is None
    killing = replace(AT_ONCE, parameters=("kill_invalid_depend",))
    after = jobs((0, 40, 1), (0, 5, 1), (0, 5, 1), depends_on=[[], [0], [1]],
                 dependency=[[], ["afterok"], ["afterany"]], status=["failed", "completed", "completed"])  # fmt: skip
    starts = played(after, nodes(), killing)["start"].to_list()
    assert starts[1] is None
    assert starts[2] == about(40)


def test_what_waits_for_ever_waits_until_the_last_job_has_ended():
    """Also where a reservation ends a year later, when the loops look once more."""
    log = depending(["afterok"], [0], status=["failed", "completed", "completed"])
    for site in (AT_ONCE, reserving((10.0, 3e7))):
        result = simulate(log, nodes(2), scheduler=site)
        assert result.played.stopped == result.jobs["end"].max() == about(80)
        assert result.ledger["not_eligible"].sum() == about(80)
        assert all(math.isfinite(estimate.value) for estimate in result.summary())


def test_tasks_of_a_throttled_array_start_as_others_of_it_end():
    log = jobs(*[(3 * k, 20, 1) for k in range(4)], array=7, array_limit=2)
    assert played(log, nodes(), AT_ONCE)["start"].to_list() == [about(0), about(3), about(20), about(23)]


def test_tasks_of_an_array_start_in_the_order_of_their_numbers_however_a_second_is_drawn():
    log = jobs(*[(0, 20, 1)] * 10, array=7, array_limit=2)
    for seed in range(5):
        starts = played(log, nodes(), AT_ONCE, seed=seed)["start"].to_list()
        assert starts == [about(20 * (k // 2)) for k in range(10)]
        assert starts == sorted(starts)


def test_jobs_of_one_second_come_in_the_order_of_their_numbers():
    """Two of them fit: the look that comes between them can only find the first ones."""
    log = jobs(*[(0, 20, 4)] * 6)
    for seed in range(10):
        assert played(log, nodes(), AT_ONCE, seed=seed)["start"].is_sorted()


def test_parts_of_a_heterogeneous_job_wait_for_each_other():
    """One part fits at once beside the first job, the other not before it ends by its time limit or earlier."""
    log = jobs((0, 30, 8), (1, 10, 8), (1, 10, 2), gang=[None, 3, 3])
    starts = played(log, nodes(2), AT_ONCE)["start"].to_list()
    assert starts[1] == starts[2]
    assert starts[1] == about(30)


# -- reservations ----------------------------------------------------------------------------------------------------


def reserving(*spans, flags=()):
    return replace(AT_ONCE, reservations=tuple(Reservation("r", *span, ("n0",), flags=flags) for span in spans))


def test_jobs_of_a_flexible_reservation_may_start_before_it_and_on_other_nodes():
    log = jobs((0, 20, 8), (0, 20, 8), reservation="r")
    assert played(log, nodes(2), reserving((1000.0, 2000.0), flags=("FLEX",)))["start"].max() <= LOOK
    kept = played(log, nodes(2), reserving((1000.0, 2000.0)))["start"].sort()
    assert kept.to_list() == [about(1000), about(1020)]


def test_jobs_of_a_reservation_wait_for_the_next_of_its_times():
    log = jobs((0, 20, 1), (250, 20, 1), reservation="r")
    site = reserving((0.0, 200.0), (1000.0, 2000.0))
    assert played(log, nodes(), site)["start"].to_list() == [about(0), about(1000)]


def test_a_daily_reservation_keeps_its_nodes_the_next_day_too():
    log = jobs((0, 20, 1), (86_400 + 150, 20, 1))
    site = reserving((100.0, 2000.0), flags=("DAILY", "MAINT"))
    assert played(log, nodes(), site)["start"][1] == about(86_400 + 2000)


# -- the loops -------------------------------------------------------------------------------------------------------


def test_the_main_loop_waits_for_nodes_that_complete():
    """The first job ends at 50 and its epilog at 60; the second would fit on the other node at 51."""
    log = jobs((0, 50, 8), (51, 20, 8), (52, 1, 0))
    site = replace(AT_ONCE, backfill=BackfillLoop(on=False), epilog=10.0)
    assert played(log, nodes(2), site)["start"][1] == about(51)
    assert played(log, nodes(2), replace(site, complete_wait=30.0))["start"][1] == about(60)


def test_a_cycle_of_backfill_tests_so_many_jobs_of_a_user_in_a_partition():
    log = jobs((0, 500, 4), (5, 20, 8), *[(10, 20, 1)] * 3, user="ann", limit=[600.0, 600.0, 60.0, 60.0, 60.0])
    site = replace(AT_ONCE, backfill=BackfillLoop(interval=30.0, resolution=1.0))
    assert len(set(played(log, nodes(), site)["start"].to_list()[2:])) == 1
    few = replace(site, backfill=replace(site.backfill, max_jobs_user_partition=2))  # the large one and one more
    starts = sorted(played(log, nodes(), few)["start"].to_list()[2:])
    assert starts[1] - starts[0] == pytest.approx(30, abs=1)
    assert starts[2] - starts[1] == pytest.approx(30, abs=1)


# -- compiled against plain ------------------------------------------------------------------------------------------

SCRIPT = """
import json, sys
sys.path.insert(0, "tests/schedulers/slurm")
from test_running_jobs import SUSPENDS, jobs, nodes, played
rows = [((k * 7) % 60, 5 + (k * 13) % 40, 1 + (k * 5) % 4) for k in range(40)]
parts = [["high"] if k % 3 == 0 else ["low"] for k in range(40)]
rows.sort(key=lambda row: row[0])
table = played(jobs(*rows, cpu_milli=[16_000 * (1 + k % 3) for k in range(40)], partitions=parts),
               nodes(3, "low", "high"), SUSPENDS)
print(json.dumps(table.select("start", "end").rows()))
"""


def test_suspension_compiled_equals_plain():
    found = []
    for off in ("0", "1"):
        env = os.environ | {"NUMBA_DISABLE_JIT": off}
        root = Path(__file__).parents[3]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True, cwd=root
        )
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]


# -- jobs that run when a simulation begins --------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 4])
def test_a_job_that_runs_when_the_simulation_begins_goes_on_where_it_is(rows):
    """Of two that run, one holds half of n2 and one all of n1, where no other job would be placed first."""
    site = replace(AT_ONCE, partitions=(Partition("batch", oversubscribe=rows),))
    s = Scenario.of(jobs((0, 100, 4), (0, 50, 8), (1, 30, 8)), nodes(3, "batch"), scheduler=site, warm_up="none")
    running = RunningJobs(np.array([2, 1]), np.array([15, 255]))
    found = play_scenario(s, replace(world_of(s), running=running), draws=1)
    assert found.where.tolist() == [2, 1, 0]
    assert found.start[:2].tolist() == [0.0, 0.0]
    assert found.end[:2].tolist() == [100.0, 50.0]
    assert found.start[2] == about(1)
