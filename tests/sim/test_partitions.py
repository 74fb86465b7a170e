"""Partitions: where jobs may run, a queue for each, and what stays the same where they say nothing."""

import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, Workload
from fleetlab.core.catalog import BACKFILLS, PLACEMENTS
from fleetlab.core.constraint import Constraint
from fleetlab.sim.components import joined, parts_of
from fleetlab.sim.engine import play as quick
from fleetlab.sim.reference import play as full
from fleetlab.sim.world import world

PARTITIONS = {
    "apart": [["x"], ["x"], ["y"], ["y"], ["y"], ["z"]],
    "shared": [["x"], ["x", "y"], ["y"], ["z", "y"], [], ["z"]],
}
FEATURES = [["ib"], ["ib", "big"], [], ["big"], ["big"], []]


def cluster(partitions):
    frame = pl.DataFrame(
        {
            "node": [f"n{k}" for k in range(6)],
            "gpu_type": ["A", "A", "B", "B", None, "A"],
            "gpus": [2, 2, 3, 1, 0, 2],
            "gpu_memory_mib": [10, 20, 10, 20, 0, 10],
            "cpu_milli": [4000, 4000, 9000, 4000, 4000, 2000],
            "memory_mib": [100, 100, 100, 90, 100, 100],
        }
    )
    lists = {"partitions": PARTITIONS.get(partitions), "features": FEATURES if partitions else None}
    return Cluster.of(frame.with_columns(**{k: pl.Series(v) for k, v in lists.items() if v}), source="six nodes")


JOB = {
    "submit": st.integers(0, 12).map(float),
    "runtime": st.integers(0, 9).map(float),
    "instances": st.sampled_from([1, 1, 1, 2, 3]),
    "cpu_milli": st.sampled_from([0, 500, 2000]),
    "memory_mib": st.sampled_from([0, 40]),
    "gpu_milli": st.sampled_from([0, 250, 700, 1000, 2000]),
    "gpu_types": st.sampled_from([[], [], ["A"], ["A", "B"]]),
    "max_per_node": st.sampled_from([0, 0, 1, 2]),
    "app": st.sampled_from(["p", "q"]),
    "priority": st.integers(0, 2),
    "user": st.sampled_from(["u", "v"]),
    "distinct_nodes": st.sampled_from([False, False, True]),
    "exclusive": st.sampled_from([False, False, False, True]),
    "constraint": st.sampled_from([None, None, "ib", "big|ib", "!big"]),
}
ONE = st.sampled_from([["x"], ["y"], ["z"]])  # a partition each
SOME = st.sampled_from([["x"], ["y"], ["z"], [], ["x", "y"], ["y", "z"]])
LISTS = pl.List(pl.String)
SCHEMA = {"gpu_types": LISTS, "partitions": LISTS, "constraint": pl.String}


def jobs_of(partitions, **fixed):
    columns = {name: st.just(fixed[name]) if name in fixed else of for name, of in JOB.items()}
    row = st.fixed_dictionaries(columns | {"partitions": partitions})
    return st.lists(row, min_size=1, max_size=24).map(workload)


def workload(rows):
    zero = min(row["submit"] for row in rows)
    rows = [row | {"submit": row["submit"] - zero} for row in rows]
    return Workload.of(pl.DataFrame(rows, schema_overrides=SCHEMA), source="small")


def same(one, two):
    for name in ("start", "end", "where", "got", "status"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("backfill", BACKFILLS.names)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    jobs=jobs_of(SOME),
    order=st.sampled_from(["fifo", "sjf", "priority", "fair"]),
    placement=st.sampled_from(PLACEMENTS.names),
    partitions=st.sampled_from(sorted(PARTITIONS)),
    preemption=st.booleans(),
)
def test_a_job_runs_where_it_may_and_no_node_holds_too_much(backfill, jobs, order, placement, partitions, preemption):
    words = {"preemption": True} if preemption and backfill in {"none", "greedy"} else {}
    result = fleetlab.simulate(jobs, cluster(partitions), order=order, backfill=backfill, placement=placement, **words)
    assert (result.jobs["status"] == "done").all()
    result.timeline()  # audits every run
    where = result.placements.join(result.cluster.frame.select("node", "partitions", "features"), on="node")
    for row in where.join(jobs.frame, on="job").iter_rows(named=True):
        assert not row["partitions_right"] or set(row["partitions_right"]) & set(row["partitions"])
        assert not row["constraint"] or Constraint.of(row["constraint"]).meets(row["features"])
    apart = jobs.frame.filter(pl.col("distinct_nodes") | pl.col("exclusive"))["job"].implode()
    assert not where.filter(pl.col("job").is_in(apart)).select("job", "node").is_duplicated().any()
    alone(result, jobs)


def alone(result, jobs):
    """Nobody runs beside a job with nodes of its own; a run without time may begin where another ends."""
    times = result.jobs.filter(pl.col("preemptions") == 0).select("job", "start", "end")
    runs = result.placements.join(times, on="job").filter(pl.col("end") > pl.col("start"))
    own = runs.filter(pl.col("job").is_in(jobs.frame.filter("exclusive")["job"].implode()))
    both = own.join(runs, on="node").filter(pl.col("job") != pl.col("job_right"))
    assert both.filter((pl.col("start") < pl.col("end_right")) & (pl.col("start_right") < pl.col("end"))).is_empty()


@pytest.mark.parametrize("loop", [quick, full])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(jobs=jobs_of(ONE, max_per_node=0, constraint=None), partitions=st.sampled_from(sorted(PARTITIONS)))
def test_without_backfill_jobs_of_a_partition_start_in_order(loop, jobs, partitions):
    if loop is quick:
        partitions = "apart"  # where they share nodes the reference loop plays
    result = fleetlab.simulate(jobs, cluster(partitions), backfill="none")
    for _, mine in result.jobs.join(jobs.frame.select("job", "partitions"), on="job").group_by("partitions"):
        assert mine.sort("job")["start"].is_sorted()


@pytest.mark.parametrize("backfill", BACKFILLS.names)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(jobs=jobs_of(ONE, constraint=None), order=st.sampled_from(["fifo", "sjf"]))
def test_partitions_that_share_no_nodes_are_separate_simulations(backfill, jobs, order):
    whole = fleetlab.simulate(jobs, cluster("apart"), order=order, backfill=backfill).jobs
    for name in ("x", "y", "z"):
        mine = jobs.frame.filter(pl.col("partitions").list.contains(name))
        nodes = cluster("apart").frame.filter(pl.col("partitions").list.contains(name))
        if mine.is_empty():
            continue
        zero = mine["submit"].min()
        times = pl.col("submit") - zero
        rest = Workload.of(mine.with_columns(submit=times).drop("parent", "job", "eligible"), source="one partition")
        alone = fleetlab.simulate(rest, Cluster.of(nodes, source=name), order=order, backfill=backfill).jobs
        numbers = mine["job"].gather(alone["job"])
        started = whole.filter(pl.col("job").is_in(mine["job"].implode()))
        assert started["job"].to_list() == numbers.to_list()
        assert started["start"].to_list() == (alone["start"] + zero).to_list()


@pytest.mark.parametrize("backfill", BACKFILLS.names)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(jobs=jobs_of(st.just(["all"]), constraint=None), placement=st.sampled_from(PLACEMENTS.names))
def test_one_partition_of_all_nodes_changes_nothing(backfill, jobs, placement):
    bare = cluster(None)
    one = Cluster.of(bare.frame.with_columns(partitions=pl.lit(["all"])), source="one")
    results = [fleetlab.simulate(jobs, c, backfill=backfill, placement=placement, seed=1) for c in (bare, one)]
    same(results[0].played, results[1].played)


@pytest.mark.parametrize("backfill", ["none", "greedy"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    jobs=jobs_of(ONE), order=st.sampled_from(quick.STATIC),
    placement=st.sampled_from([p for p in PLACEMENTS.names if p != "random"]), until=st.sampled_from([None, 7.0]),
)  # fmt: skip
def test_parts_by_themselves_are_what_the_reference_loop_plays(backfill, jobs, order, placement, until):
    found = world(jobs, cluster("apart"))
    rules = {"order": order, "backfill": backfill, "placement": placement, "until": until}
    two = full.play(found, **rules)
    if parts := parts_of(found):
        same(joined(found, parts, [quick.play(part.world, **rules) for part in parts]), two)
    if backfill == "greedy":
        same(quick.play(found, **rules), two)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    jobs=jobs_of(SOME), placement=st.sampled_from(PLACEMENTS.names), order=st.sampled_from(["fifo", "sjf"]),
    partitions=st.sampled_from(sorted(PARTITIONS)),
)  # fmt: skip
def test_both_loops_fill_overlapping_partitions_alike(jobs, placement, order, partitions):
    found = world(jobs, cluster(partitions))
    rules = {"order": order, "backfill": "greedy", "placement": placement, "seed": 3}
    same(quick.play(found, **rules), full.play(found, **rules))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(jobs=jobs_of(st.just([])), placement=st.sampled_from([p for p in PLACEMENTS.names if p != "random"]))
def test_both_loops_backfill_exclusive_and_distinct_nodes_alike(jobs, placement):
    found = world(jobs, cluster("shared"), estimate="user")
    rules = {"order": "fifo", "backfill": "easy", "placement": placement, "seed": 3}
    same(quick.play(found, **rules), full.play(found, **rules))


# -- by hand ---------------------------------------------------------------------------------------------------------


def starts(rows, backfill, partitions):
    """Start jobs of (submit, runtime, GPUs, partitions) on two nodes of 2 GPUs."""
    frame = pl.DataFrame(
        [{"submit": s, "runtime": r, "gpu_milli": 1000, "instances": g, "partitions": p} for s, r, g, p in rows],
        schema_overrides={"partitions": LISTS, "submit": pl.Float64, "runtime": pl.Float64},
    )
    nodes = pl.DataFrame({"node": ["a", "b"], "gpu_type": "T", "gpus": 2, "partitions": partitions})
    result = fleetlab.simulate(Workload.of(frame, source="by hand"), Cluster.of(nodes, source="two"), backfill=backfill)
    return result.jobs["start"].to_list(), result


@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_a_blocked_partition_does_not_block_another(backfill):
    rows = [(0, 10, 2, ["x"]), (1, 10, 2, ["x"]), (2, 5, 1, ["y"])]
    assert starts(rows, backfill, [["x"], ["y"]])[0] == [0, 10, 2]
    assert starts(rows, backfill, [["x"], ["x", "y"]])[0] == [0, 1, 11]


def test_without_backfill_a_job_of_several_partitions_uses_those_that_are_not_blocked():
    rows = [(0, 10, 2, ["x"]), (1, 10, 2, ["x"]), (2, 5, 2, ["x", "y"]), (3, 1, 1, ["y"])]
    assert starts(rows, "none", [["x"], ["y"]])[0] == [0, 10, 2, 7]


def test_easy_keeps_a_reservation_for_the_head_of_each_queue():
    # The head of x waits for one node, that of y for both; a long job of y would fit beside the head of x alone.
    first = [(0, 10, 2, ["x"]), (0, 20, 1, ["y"])]
    rows = [*first, (1, 10, 2, ["x"]), (1, 10, 4, ["y"]), (2, 50, 1, ["y"]), (2, 8, 1, ["y"])]
    found, _ = starts(rows, "easy", [["x", "y"], ["y"]])
    assert found == [0, 0, 10, 20, 30, 2]


def test_the_ledger_names_the_partition():
    _, result = starts([(0, 10, 2, ["x"]), (1, 10, 2, ["x"]), (2, 5, 1, ["x"])], "none", [["x"], ["y"]])
    ledger = result.ledger.select("partition", "head_of_line").rows()
    assert ledger == [(0, 0), (9, 0), (18, 0)]


EVERYTHING = """
import json, sys, numpy as np, polars as pl, fleetlab
t = fleetlab.synthesize('pai2020', jobs=int(sys.argv[1]), seed=3)
names = pl.Series([["x"], ["y"], ["x", "y"], []] * 40)[:len(t.workload)]
few = t.cluster.frame[::60]
few = few.with_columns(partitions=pl.Series([["x"], ["x", "y"], ["y"]] * len(few))[:len(few)])
c = fleetlab.Cluster.of(few, source='few')
w = t.workload.frame.with_columns(partitions=names)
w = w.with_columns(distinct_nodes=pl.col('job') % 3 == 0, exclusive=pl.col('job') % 7 == 0)
w = fleetlab.Workload.of(w.drop('job', 'parent'), source='some')
said = []
for words in ({'backfill': 'none'}, {'backfill': 'easy'}, {'backfill': 'conservative'}, {'backfill': 'greedy'},
              {'backfill': 'none', 'preemption': True, 'order': 'sjf'}):
    r = fleetlab.simulate(w, c, **words)
    said += [r.jobs['start'].to_list(), r.placements['node'].to_list(), r.ledger.rows(), r.holders.rows()]
print(json.dumps(said))
"""


@pytest.mark.parametrize("count", ["60", pytest.param("150", marks=pytest.mark.validate)])
def test_compiled_and_plain_python_agree_with_partitions(count):
    answers = []
    for off in ("0", "1"):
        env, words = os.environ | {"NUMBA_DISABLE_JIT": off}, [sys.executable, "-c", EVERYTHING, count]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]
