"""Quotas: the GPUs that a user, or a queue, group or app, may have allocated at once."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, Provenance, Trace, TraceError, Workload, WorkloadError

from .test_ledger import CLUSTER, Moment, read_again


def jobs(**columns):
    size = max(len(values) for values in columns.values())
    usual = {"submit": [0.0] * size, "runtime": [10.0] * size, "gpu_milli": [1000] * size}
    return Workload.of(pl.DataFrame(usual | columns), source="by hand")


def starts(workload, quota, gpus=4, **words):
    return fleetlab.simulate(workload, Cluster.uniform(1, gpus), quota=quota, **words).jobs["start"].to_list()


@pytest.mark.parametrize("column", ["queue", "group", "app"])
def test_a_quota_may_be_of_a_queue_a_group_or_an_app(column):
    work = jobs(**{column: ["a", "a", "b"]})
    assert starts(work, {f"{column}:a": 1}) == [0, 10, 0]


def test_a_job_counts_in_the_quota_of_its_user_and_in_that_of_its_queue():
    work = jobs(user=["ada", "ada", "bob", "bob"], queue=["x", "y", "x", "y"])
    assert starts(work, {"ada": 1, "queue:x": 1}) == [0, 10, 10, 0]


def test_a_name_with_a_colon_is_of_a_user_unless_a_column_comes_before_it():
    assert starts(jobs(user=["lab:ada", "lab:ada"]), {"lab:ada": 1}) == [0, 10]


def test_jobs_in_no_queue_have_no_quota():
    assert starts(jobs(queue=[None, None, "a", "a"]), {"queue:a": 1}) == [0, 0, 0, 10]


@pytest.mark.parametrize("backfill", ["greedy", "easy", "conservative", "none"])
def test_a_job_above_its_quota_waits_and_those_behind_it_pass(backfill):
    work = jobs(queue=["a"] * 3 + ["b"] * 3, submit=[0.0] * 3 + [5.0] * 3)
    assert starts(work, {"queue:a": 2}, backfill=backfill) == [0, 0, 10, 5, 5, 10]


def test_jobs_of_a_window_and_those_before_it_count_together():
    work = jobs(queue=["a"] * 3, submit=[0.0, 12.0, 13.0], runtime=[20.0, 5.0, 5.0])
    run = fleetlab.simulate(work, Cluster.uniform(1, 4), quota={"queue:a": 1}, window="11..", warm_up="11s")
    assert run.jobs["start"].to_list() == [9, 14]  # seconds of the window: the earlier job ends at 20 s of the log


def test_a_job_that_requests_more_than_its_quota_is_left_out_with_the_reason():
    work = jobs(queue=["a", None], gpu_milli=[3000, 1000])
    run = fleetlab.simulate(work, Cluster.uniform(1, 4), quota={"queue:a": 2}, min_coverage=0)
    assert dict(run.refused.select("job", "reason").iter_rows()) == {0: "requests more GPUs than its quota"}


@pytest.mark.parametrize(
    ("quota", "message"),
    [
        ({"queue:b": 1}, "a quota for a queue without jobs: `queue:b`"),
        ({"eve": 1}, "a quota for a user without jobs: `eve`"),
        ({"queue:a": -1}, "a quota is a number from 0 to"),
    ],
    ids=str,
)
def test_a_mistake_in_a_quota_is_said(quota, message):
    with pytest.raises(WorkloadError) as raised:
        starts(jobs(queue=["a"]), quota)
    assert message in str(raised.value)


def test_a_trace_that_was_saved_with_quotas_of_queues_is_refused(tmp_path):
    folder = tmp_path / "log"
    Trace(jobs(queue=["a"]), Provenance("test", "one"), Cluster.uniform(1, 2)).save(folder)
    about = json.loads((folder / "trace.json").read_text())
    (folder / "trace.json").write_text(json.dumps(about | {"queues": {"queue": [{"name": "a"}]}}))
    with pytest.raises(TraceError, match="quotas of queues"):
        Trace.load(folder)


JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 9).map(float),
        "runtime": st.integers(0, 8).map(float),
        "gpu_milli": st.sampled_from([0, 500, 1000, 1000, 2000]),
        "instances": st.sampled_from([1, 1, 2]),
        "priority": st.integers(0, 2),
        "queue": st.sampled_from([None, "a", "a", "b"]),
        "user": st.sampled_from(["u", "v"]),
    }
)
ALL = [
    {"submit": 0.0, "runtime": 1.0, "gpu_milli": 0, "instances": 1, "priority": 0, "queue": q, "user": u}
    for q, u in (("a", "u"), ("b", "v"))
]  # so that each name has a job
QUOTAS = st.dictionaries(
    st.sampled_from(["queue:a", "queue:b", "user:u", "v"]), st.sampled_from([0, 1, 1.5, 2, 3]), min_size=1
)


def owner(name):
    return name.split(":") if ":" in name else ("user", name)


def of_quota(jobs, name):
    column, value = owner(name)
    return (jobs[column].cast(pl.String) == value).fill_null(value=False).to_numpy()


@pytest.mark.parametrize("backfill", ["none", "greedy", "easy", "conservative"])
@settings(max_examples=60, derandomize=True)
@given(
    quota=QUOTAS,
    rows=st.lists(JOB, min_size=1, max_size=16),
    order=st.sampled_from(["fifo", "sjf", "fair", "priority"]),
    until=st.sampled_from([None, None, 7.0]),
)
def test_nobody_holds_more_than_the_quota_and_each_second_has_its_reason(backfill, quota, rows, order, until):
    work = Workload.of(pl.DataFrame(ALL + rows), source="small")
    words = {"quota": quota, "backfill": backfill, "order": order, "until": until, "min_coverage": 0}
    result = fleetlab.simulate(work, CLUSTER, **words)
    frame, runs, asks = result.world.frame, result.played.runs(result.world.first), result.world.gpu_milli
    held = {
        time: {name: asks[runs.job[live]][of_quota(frame[runs.job[live]], name)].sum() for name in quota}
        for time in {*runs.begin.tolist(), *runs.end[np.isfinite(runs.end)].tolist()}
        for live in [(runs.begin <= time) & (time < runs.end)]
    }
    assert all(gpus <= 1000 * quota[name] for now in held.values() for name, gpus in now.items())

    class QuotaMoment(Moment):
        def reason(self, j, blocked):
            live = (runs.begin <= self.time) & (self.time < runs.end)
            for name, most in quota.items():
                mine = asks[runs.job[live]][of_quota(frame[runs.job[live]], name)].sum()
                if asks[j] and of_quota(frame[[j]], name)[0] and mine + asks[j] > 1000 * most:
                    return "quota"
            return super().reason(j, blocked)

    blocked = {"none": "head_of_line", "greedy": "scheduler"}.get(backfill, "reservation")
    reasons, _, _ = read_again(result, [], None, blocked, QuotaMoment)
    np.testing.assert_array_equal(result.ledger.drop("job").to_numpy(), reasons)
