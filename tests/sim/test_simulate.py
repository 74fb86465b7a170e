"""The event loop: its laws on small random worlds, and small worlds worked out by hand."""

import json
import os
import re
import subprocess
import sys

import polars as pl
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, Workload, WorkloadError
from fleetlab.core.catalog import ESTIMATES, PLACEMENTS
from fleetlab.core.events import Recovery
from fleetlab.sim.engine.play import BACKFILLS
from fleetlab.sim.engine.play import STATIC as ORDERS
from fleetlab.sim.simulate import simulate

PLACES = PLACEMENTS.names


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


def small(rows):
    zero = min(row["submit"] for row in rows)
    rows = [row | {"submit": row["submit"] - zero} for row in rows]
    return Workload.of(pl.DataFrame(rows), source="small")


WORKLOADS = st.lists(JOB, min_size=1, max_size=14).map(small)
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


def overfull(result, frame):
    """Moments and nodes at which more is held than there is, by another way of adding up than the loop's."""
    held = result.placements.join(result.jobs.select("job", "start", "end"), on="job").join(
        frame.select("job", "cpu_milli", "memory_mib", "gpu_milli", "app", "max_per_node"), on="job"
    )
    moments = result.jobs.select(now="start").unique()
    live = held.join(moments, how="cross").filter((pl.col("start") <= pl.col("now")) & (pl.col("end") > pl.col("now")))
    sums = live.group_by("now", "node").agg(pl.col("cpu_milli", "memory_mib", "gpu_milli").cast(pl.Int64).sum())
    both = sums.join(CLUSTER.frame, on="node", suffix="_there")
    yield from both.filter(
        (pl.col("cpu_milli") > pl.col("cpu_milli_there"))
        | (pl.col("memory_mib") > pl.col("memory_mib_there"))
        | (pl.col("gpu_milli") > pl.col("gpus") * 1000)
    ).rows()
    alike = live.filter(pl.col("max_per_node") > 0).group_by("now", "node", "app").len()
    yield from alike.filter(pl.col("len") > 1).rows()


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=6, deadline=None, derandomize=True)
@given(workload=WORKLOADS)
def test_the_laws_hold_whatever_the_policy(order, backfill, workload):
    for placement in PLACES:  # all of them with the same jobs: to draw these takes time too
        note(f"place: {placement}")
        laws(workload, simulate(workload, CLUSTER, order=order, backfill=backfill, placement=placement))


def laws(workload, result):
    """Nobody is lost, early, cut short, unexplained or on what is not theirs, and nothing is given away twice."""
    frame, jobs = workload.frame, result.jobs
    assert jobs.height + result.refused.height == frame.height
    assert (jobs["start"] >= jobs["submit"]).all()
    assert jobs["end"].to_list() == (jobs["start"] + jobs["runtime"]).to_list()
    assert result.ledger.select(pl.sum_horizontal(pl.exclude("job"))).to_series().to_list() == jobs["wait"].to_list()
    result.timeline(every=5.0)  # audits: raises where anything is given away twice
    per_job = dict(result.placements.group_by("job").len().iter_rows())
    assert all(per_job[job] == count for job, count in jobs.select("job", "instances").iter_rows())
    typed = result.placements.join(frame.select("job", "gpu_types", "gpu_milli"), on="job").join(
        CLUSTER.frame, on="node"
    )
    for types, milli, kind in typed.select("gpu_types", "gpu_milli", "gpu_type").iter_rows():
        assert not milli or (kind is not None and (not types or kind in types))
    assert list(overfull(result, frame)) == []


@settings(max_examples=60, deadline=None, derandomize=True)
@given(workload=WORKLOADS)
def test_under_skip_a_job_that_fits_an_idle_cluster_never_waits_for_nobody(workload):
    jobs = simulate(workload, CLUSTER).jobs
    for row in jobs.iter_rows(named=True):
        if row["wait"] > 0:
            others = jobs.filter(pl.col("job") != row["job"])
            busy = others.filter((pl.col("start") < row["start"]) & (pl.col("end") >= row["start"]))
            assert busy.height, row


def test_gpus_are_freed_before_a_newcomer_asks_for_them():
    frame = pl.DataFrame({"submit": [0.0, 5.0], "runtime": [5.0, 1.0], "gpu_milli": [1000, 1000]})
    assert simulate(Workload.of(frame, source="two"), Cluster.uniform(1, 1)).jobs["wait"].to_list() == [0, 0]


def test_strict_blocks_behind_the_head_skip_passes_it_over_and_easy_does_not_delay_it():
    # The third is gone before the second could begin; the fourth is not.
    frame = pl.DataFrame(
        {"submit": [0.0, 1.0, 2.0, 3.0], "runtime": [9.0, 9.0, 1.0, 9.0], "gpu_milli": [1000, 2000, 1000, 1000]}
    )
    workload = Workload.of(frame, source="four")
    starts = {d: simulate(workload, Cluster.uniform(1, 2), backfill=d).jobs["start"].to_list() for d in BACKFILLS}
    assert starts == {"none": [0, 9, 18, 18], "greedy": [0, 12, 2, 3], "easy": [0, 9, 2, 18]}


def test_an_estimate_is_learnt_from_finished_jobs_only():
    frame = pl.DataFrame(
        {
            "submit": [0.0, 0.0, 20.0, 21.0, 22.0],
            "runtime": [1.0, 9.0, 10.0, 9.0, 1.0],
            "gpu_milli": [1000] * 5,
            "user": ["quick", "slow", "quick", "slow", "quick"],
        }
    )
    workload = Workload.of(frame, source="five")
    jobs = simulate(workload, Cluster.uniform(1, 1), order="sjf", estimate="user").jobs
    # Job 2 holds the GPU; of 3 and 4, whoever's finished jobs were shorter goes first.
    assert jobs["start"].to_list()[3:] == [31, 30]


@pytest.mark.parametrize("estimate", ESTIMATES.names)
def test_every_estimate_runs_the_built_in_trace(estimate):
    trace = fleetlab.synthesize("pai2020", jobs=1000, seed=2)
    result = simulate(trace.workload, trace.cluster, order="sjf", estimate=estimate)
    assert result.jobs.height == 1000
    known = trace.workload.frame["runtime"].is_not_null().sum()
    some = simulate(trace.workload, trace.cluster, order="sjf", estimate=estimate, censored="drop")
    assert some.jobs.height == known
    assert set(some.refused["reason"]) == {"runtime unknown"}


def test_a_job_that_can_never_run_is_refused_with_its_reason():
    frame = pl.DataFrame(
        {
            "submit": [0.0] * 4,
            "runtime": [1.0, 1.0, 1.0, None],
            "gpu_milli": [9000, 1000, 500, 500],
            "instances": [1, 17, 16, 1],
        }
    )
    result = simulate(Workload.of(frame, source="too big"), Cluster.uniform(2, 8), censored="drop")
    assert result.refused["reason"].to_list() == [
        "an instance fits on no node",
        "its instances do not all fit at once",
        "runtime unknown",
    ]


def test_a_job_that_asks_for_more_than_its_user_may_hold_is_refused_and_the_others_run():
    asks = {"gpu_milli": [1000, 700, 1000, 4000], "instances": [2, 3, 3, 1], "user": ["ada", "ada", "ada", "bob"]}
    work = Workload.of(pl.DataFrame({"submit": [0.0] * 4, "runtime": [1.0] * 4, **asks}), source="quota")
    for quota, refused in ((2, [1, 2, 3]), (3, [3]), ({"ada": 2}, [1, 2]), ({"bob": 0.5}, [3])):
        result = simulate(work, Cluster.uniform(2, 8), quota=quota)
        assert result.refused["job"].to_list() == refused
        assert set(result.refused["reason"]) == {"requests more GPUs than its quota"}
        assert sorted(result.jobs["job"]) == [k for k in range(4) if k not in refused]
        assert result.jobs["end"].is_not_null().all()


def test_checkpoints_cost_time_whatever_else_is_asked_for():
    work = Workload.of(pl.DataFrame({"submit": [0.0], "runtime": [10.0], "gpu_milli": [1000]}), source="one")
    saving = Recovery(every=3.0, save=1.0, restart=2.0)
    ends = [
        simulate(work, Cluster.uniform(1, 1), recovery=saving, **more).jobs["end"].item()
        for more in ({}, {"quota": 5}, {"order": "fair"}, {"backfill": "easy"}, {"preemption": True})
    ]
    assert ends == [13.0] * 5  # three checkpoints: after 3, 6 and 9 seconds of work


@pytest.mark.parametrize("until", [-5.0, float("nan")])
def test_a_clock_that_stops_before_it_starts_is_refused(until):
    work = Workload.of(pl.DataFrame({"submit": [0.0], "runtime": [10.0]}), source="one")
    with pytest.raises(WorkloadError, match="`until` is a time from 0 s up"):
        simulate(work, Cluster.uniform(1, 1), until=until)


def test_compiled_and_plain_python_agree_bit_for_bit():
    code = (
        "import json, fleetlab\n"
        "from fleetlab.sim.simulate import simulate\n"
        "t = fleetlab.synthesize('pai2020', jobs=150, seed=3)\n"
        "c = fleetlab.Cluster.of(t.cluster.frame[::60], source='few')\n"
        "runs = [simulate(t.workload, c, order='sjf', estimate='group', backfill=d) for d in ('none', 'greedy')]\n"
        "print(json.dumps([[r.jobs['start'].to_list(), r.placements['node'].to_list()] for r in runs]))\n"
    )
    answers = []
    for off in ("0", "1"):
        env = os.environ | {"NUMBA_DISABLE_JIT": off}
        answers.append(
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        )
    assert json.loads(answers[0].stdout) == json.loads(answers[1].stdout)


@pytest.mark.parametrize("word", ["order", "backfill", "placement", "estimate"])
def test_a_policy_that_does_not_exist_is_named_with_those_that_do(word):
    workload = Workload.of(pl.DataFrame({"submit": [0.0], "runtime": [1.0]}), source="one")
    with pytest.raises(fleetlab.PolicyError, match=rf"no {word}( policy)? by that name: `nonsense`"):
        simulate(workload, Cluster.uniform(1, 1), **{word: "nonsense"})


@pytest.mark.parametrize("estimate", ["user", "group", "group+gpu"])
def test_estimates_of_owners_are_refused_where_no_job_names_one(estimate):
    jobs = pl.DataFrame({"submit": [0.0, 1.0], "runtime": [9.0, 9.0], "gpu_milli": [1000, 1000]})
    cluster = Cluster.uniform(1, 1)
    with pytest.raises(fleetlab.PolicyError, match=f"`{re.escape(estimate)}`") as caught:
        simulate(Workload.of(jobs, source="no names"), cluster, estimate=estimate)
    assert "estimate=oracle" in caught.value.hint
    named = Workload.of(jobs.with_columns(user=pl.Series(["ann", None])), source="a name")
    assert simulate(named, cluster, estimate=estimate).completed.height == 2
