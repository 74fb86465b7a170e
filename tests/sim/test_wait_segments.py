"""The ledger of one job by time: its stretches sum to the ledger, and follow each other without a gap."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, Drain, Outage, Workload
from fleetlab.core.catalog import HOLDERS, REASONS

JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 12).map(float),
        "held": st.sampled_from([0.0, 0.0, 3.0]),
        "runtime": st.integers(0, 9).map(float),
        "instances": st.sampled_from([1, 1, 2, 3]),
        "cpu_milli": st.sampled_from([0, 500, 2000]),
        "gpu_milli": st.sampled_from([0, 250, 500, 1000, 2000]),
        "gpu_types": st.sampled_from([[], ["A"], ["B"], ["A", "B"]]),
        "priority": st.integers(0, 2),
        "user": st.sampled_from(["u", "v"]),
    }
)
CLUSTER = Cluster.of(
    pl.DataFrame(
        {"node": ["n0", "n1", "n2"], "gpu_type": ["A", "B", "A"], "gpus": [2, 3, 1], "cpu_milli": [4000, 3000, 2000]}
    ),
    source="three nodes",
)
EVENTS = {"none": [], "drain": [Drain(3, 9, nodes=["n0"])], "outage": [Outage(2, 8, nodes=["n1"])]}


def workload_of(rows):
    zero = min(row["submit"] for row in rows)
    table = [
        {name: v for name, v in row.items() if name != "held"}
        | {"submit": row["submit"] - zero, "eligible": row["submit"] - zero + row["held"]}
        for row in rows
    ]
    return Workload.of(pl.DataFrame(table, schema_overrides={"gpu_types": pl.List(pl.String)}), source="small")


def check_every_job(result):
    """Of each job: no gap but while it runs, one reason a stretch, and the sums of the ledger and of the holders."""
    ledger = {row["job"]: row for row in result.ledger.iter_rows(named=True)}
    holders = {row["job"]: row for row in result.holders.iter_rows(named=True)}
    for job, submit, wait, start in result.jobs.select("job", "submit", "wait", "start").iter_rows():
        segments = result.wait_segments(job)
        long = (segments["end"] - segments["begin"]).to_list()
        assert all(seconds > 0 for seconds in long)
        assert sum(long) == wait
        for reason in REASONS.names:
            mine = [s for s, name in zip(long, segments["reason"], strict=True) if name == reason]
            assert sum(mine) == ledger[job][reason]
        runs = result.runs(job).select("begin", "end").unique(maintain_order=True).rows()
        stops = {submit, *(end for _, end in runs)}
        follows = dict(segments.select("end", "begin").iter_rows())
        for begin in segments["begin"]:
            assert begin in stops or begin in follows
        if segments.height and start is not None:
            assert start in segments["end"].to_list() or start == submit
        held = result.blockers(job)
        for name in HOLDERS.names[:3]:
            seconds = held.filter(pl.col("holder") == name)["seconds"].sum()
            assert seconds == pytest.approx(holders[job][name], abs=1e-5)


@pytest.mark.parametrize("backfill", ["none", "greedy", "easy", "conservative"])
@settings(max_examples=20, derandomize=True)
@given(
    rows=st.lists(JOB, min_size=1, max_size=15),
    order=st.sampled_from(["fifo", "sjf", "fair", "priority"]),
    events=st.sampled_from(sorted(EVENTS)),
    quota=st.sampled_from([None, None, 2]),
    preemption=st.booleans(),
    until=st.sampled_from([None, None, 7.0]),
)
def test_stretches_of_one_reason_sum_to_the_ledger(backfill, rows, order, events, quota, preemption, until):
    words = {"order": order, "backfill": backfill, "events": EVENTS[events], "until": until}
    words |= {"quota": quota} if quota is not None else {}
    if preemption and backfill in {"none", "greedy"}:
        words["preemption"] = True
    check_every_job(fleetlab.simulate(workload_of(rows), CLUSTER, **words))


@settings(max_examples=20, derandomize=True)
@given(
    rows=st.lists(JOB, min_size=1, max_size=15),
    cycle=st.sampled_from([0, 5]),
    latency=st.sampled_from([0.0, 2.0]),
    order=st.sampled_from(["fifo", "sjf"]),
)
def test_so_they_do_with_cycles_and_start_up(rows, cycle, latency, order):
    check_every_job(fleetlab.simulate(workload_of(rows), CLUSTER, cycle=cycle, latency=latency, order=order))


def test_runs_tell_where_each_instance_was():
    rows = {"submit": [0.0, 1.0], "runtime": [4.0, 2.0], "gpu_milli": [2000, 1000], "instances": [1, 2]}
    result = fleetlab.simulate(Workload.of(pl.DataFrame(rows), source="two"), Cluster.uniform(1, 2))
    assert result.runs().select("job", "begin", "end", "gpus").rows() == [
        (0, 0.0, 4.0, 3), (1, 4.0, 6.0, 1), (1, 4.0, 6.0, 2),
    ]  # fmt: skip
    assert result.runs(within=(4.5, 5.0))["job"].to_list() == [1, 1]
    assert result.runs(0).height == 1


def test_a_job_that_is_not_simulated_says_why():
    rows = {"submit": [0.0, 1.0], "runtime": [4.0, 2.0], "gpu_milli": [2000, 9000]}
    result = fleetlab.simulate(Workload.of(pl.DataFrame(rows), source="two"), Cluster.uniform(1, 2))
    with pytest.raises(fleetlab.WorkloadError, match="job 1 is not simulated: an instance fits on no node"):
        result.wait_segments(1)
    with pytest.raises(fleetlab.WorkloadError, match="job 7 is not simulated"):
        result.blockers(7)
    assert np.isnan(result.played.start).sum() == 0
