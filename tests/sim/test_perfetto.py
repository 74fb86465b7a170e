"""The trace for Perfetto: schedules by hand, laws on drawn ones, the official schema, the real trace processor."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, Workload
from fleetlab.core.events import Outage
from fleetlab.sim.perfetto.protobuf import Fixed, Message, Number, messages, varint

from .perfetto_reader import fields, one, read

SECOND = 1_000_000_000


def simulated(columns, cluster, **words):
    """A run of a few jobs."""
    count = len(columns["runtime"])
    frame = {"gpu_milli": [1000] * count, "submit": [0.0] * count} | columns
    return fleetlab.simulate(Workload.of(pl.DataFrame(frame), source="by hand"), cluster, **words)


def trace_of(result, folder):
    """What the trace of a run says."""
    result.write_perfetto(folder / "run.perfetto-trace")
    return read((folder / "run.perfetto-trace").read_bytes())


def drawn(trace):
    """Slices as (job, track, begin, end), in seconds."""
    return sorted((s.name, s.track, s.begin / SECOND, s.end / SECOND) for s in trace.slices)


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_jobs_are_slices_on_the_gpus_of_nodes(tmp_path):
    result = simulated({"runtime": [10.0, 5.0], "gpu_milli": [2000, 1000]}, Cluster.uniform(1, 2))
    trace = trace_of(result, tmp_path)
    node = next(iter(trace.processes.values()))
    assert drawn(trace) == [
        ("job 0", f"{node}/GPU 0", 0.0, 10.0), ("job 0", f"{node}/GPU 1", 0.0, 10.0),
        ("job 1", f"{node}/GPU 0", 10.0, 15.0),
    ]  # fmt: skip


def test_a_slice_tells_who_it_is_and_why_it_waited(tmp_path):
    result = simulated({"runtime": [10.0, 5.0], "user": ["ann", "bo"], "group": ["g", None]}, Cluster.uniform(1, 1))
    first, second = sorted(trace_of(result, tmp_path).slices, key=lambda s: s.begin)
    assert first.args == {
        "user": "ann", "group": "g", "job": 0, "GPUs of the job": 1.0, "share of the GPU": 1.0, "ended": "done",
    }  # fmt: skip
    assert second.args == {
        "user": "bo", "job": 1, "GPUs of the job": 1.0, "share of the GPU": 1.0, "wait, s": 10.0,
        "main reason": "gpu", "ended": "done",
    }  # fmt: skip


def test_jobs_that_share_a_gpu_lie_beside_each_other(tmp_path):
    result = simulated({"runtime": [10.0, 4.0, 4.0], "gpu_milli": [500, 500, 500]}, Cluster.uniform(1, 1))
    trace = trace_of(result, tmp_path)
    node = next(iter(trace.processes.values()))
    assert drawn(trace) == [
        ("job 0", f"{node}/GPU 0", 0.0, 10.0),
        ("job 1", f"{node}/GPU 0/GPU 0, shared", 0.0, 4.0),
        ("job 2", f"{node}/GPU 0/GPU 0, shared", 4.0, 8.0),
    ]


def test_a_job_without_gpus_is_a_slice_of_its_node(tmp_path):
    cluster = Cluster.uniform(1, 1, cpu_milli=4000)
    trace = trace_of(simulated({"runtime": [3.0], "gpu_milli": [0], "cpu_milli": [1000]}, cluster), tmp_path)
    assert [s.track.split("/")[-1] for s in trace.slices] == ["jobs without GPUs"]
    assert trace.slices[0].args.keys() == {"job", "ended"}


def test_counters_are_the_queue_by_reason_and_the_gpus(tmp_path):
    result = simulated({"runtime": [10.0, 5.0], "submit": [0.0, 2.0]}, Cluster.uniform(1, 1))
    assert trace_of(result, tmp_path).counters == {
        "waiting jobs by reason/gpu": [(0, 0.0), (2 * SECOND, 1.0), (10 * SECOND, 0.0)],
        "GPUs over time/GPUs allocated": [(0, 1.0), (15 * SECOND, 0.0)],
    }


def test_a_preempted_job_flows_to_the_one_that_took_its_gpu_and_to_its_next_run(tmp_path):
    result = simulated(
        {"runtime": [10.0, 2.0], "submit": [0.0, 3.0]}, Cluster.uniform(1, 1), order="srpt", preemption=True
    )
    trace = trace_of(result, tmp_path)
    assert [(s.name, s.begin // SECOND, s.end // SECOND, s.args["ended"]) for s in trace.slices] == [
        ("job 0", 0, 3, "preempted"), ("job 1", 3, 5, "done"), ("job 0", 5, 12, "done"),
    ]  # fmt: skip
    assert trace.flows() == [("job 0", "job 0"), ("job 0", "job 1")]


def test_a_job_that_passes_another_flows_to_it(tmp_path):
    columns = {"runtime": [10.0, 4.0, 3.0], "gpu_milli": [1000, 2000, 1000], "submit": [0.0, 1.0, 2.0]}
    trace = trace_of(simulated(columns, Cluster.uniform(1, 2)), tmp_path)
    assert trace.flows() == [("job 2", "job 1")]
    assert [s.args.get("passed job") for s in sorted(trace.slices, key=lambda s: s.name)] == [None, None, None, 1]


def test_a_node_that_fails_ends_its_slices(tmp_path):
    cluster = Cluster.uniform(1, 1)
    node = cluster.frame["node"][0]
    result = simulated({"runtime": [10.0]}, cluster, events=[Outage(4.0, 6.0, nodes=[node])])
    trace = trace_of(result, tmp_path)
    assert [(s.begin // SECOND, s.args["ended"]) for s in trace.slices] == [(0, "node down"), (6, "done")]
    assert trace.counters["GPUs over time/GPUs up"][:3] == [(0, 1.0), (4 * SECOND, 0.0), (6 * SECOND, 1.0)]


def test_what_still_runs_ends_where_the_simulation_stops(tmp_path):
    trace = trace_of(simulated({"runtime": [10.0]}, Cluster.uniform(1, 1), until=4.0), tmp_path)
    assert [(s.begin, s.end, s.args["ended"]) for s in trace.slices] == [(0, 4 * SECOND, "still running")]


# -- laws ------------------------------------------------------------------------------------------------------------


def integral(points):
    """A counter's sum over time, in its unit x seconds."""
    pairs = pairwise(points)
    return sum(value * (until - since) for (since, value), (until, _) in pairs) / SECOND


def overlaps(slices):
    """Whether two of them are on one track at once."""
    by_track = {}
    for s in slices:
        by_track.setdefault(s.track, []).append((s.begin, s.end))
    return any(b[0] < a[1] for runs in map(sorted, by_track.values()) for a, b in pairwise(runs))


def check_laws(result, trace):
    """What must hold of the trace of any run."""
    there = result.usage_over_time(np.array([0.0, result.played.stopped])).allocated.sum()
    seconds = sum(s.args.get("share of the GPU", 0.0) * (s.end - s.begin) for s in trace.slices) / SECOND
    assert seconds == pytest.approx(float(there), rel=1e-6, abs=1e-6)
    assert integral(trace.counters.get("GPUs over time/GPUs allocated", [])) == pytest.approx(
        seconds, rel=1e-6, abs=1e-6
    )
    waited = {name: total for name, total in result.ledger.drop("job").sum().row(0, named=True).items() if total}
    counted = {name.split("/")[1]: integral(points) for name, points in trace.counters.items() if "waiting" in name}
    assert counted == pytest.approx(waited, rel=1e-5, abs=1e-5)
    whole = [s for s in trace.slices if s.args.get("share of the GPU") == 1.0]
    assert not overlaps(whole)
    ids = [number for s in trace.slices for number in s.arrives]
    assert len(ids) == len(set(ids))
    assert set(ids) == {number for s in trace.slices for number in s.leaves}


JOBS = st.lists(
    st.tuples(
        st.integers(0, 20), st.integers(0, 9), st.sampled_from([0, 250, 500, 1000, 2000]), st.integers(1, 2),
        st.sampled_from(["u", "v", None]),
    ),
    min_size=1, max_size=25,
)  # fmt: skip
POLICIES = st.sampled_from(
    [{}, {"backfill": "easy"}, {"backfill": "none"}, {"order": "las", "preemption": True}, {"latency": "3"}]
)


@settings(max_examples=40)
@given(jobs=JOBS, words=POLICIES)
def test_slices_and_counters_add_up_to_the_schedule_and_the_ledger(tmp_path_factory, jobs, words):
    submit, runtime, milli, instances, user = zip(*jobs, strict=True)
    columns = {
        "submit": [float(x - min(submit)) for x in submit], "runtime": [float(x) for x in runtime], "gpu_milli": milli,
        "instances": instances, "user": user, "cpu_milli": [100] * len(jobs),
    }  # fmt: skip
    result = simulated(columns, Cluster.uniform(2, 2, cpu_milli=4000), **words)
    check_laws(result, trace_of(result, tmp_path_factory.mktemp("run")))


def test_the_laws_hold_with_earlier_jobs_and_a_long_queue(tmp_path):
    result = fleetlab.simulate("builtin:400", load=6.0, nodes="-80%")
    trace = trace_of(result, tmp_path)
    assert "earlier job" in {s.name for s in trace.slices}
    check_laws(result, trace)


@given(st.lists(st.integers(0, 2**35 - 1), min_size=1, max_size=20))
def test_many_messages_at_once_read_like_one_by_one(numbers):
    layout = Message(1, (Number(3, "n", 5), Fixed(4, "x")))
    columns = {"n": np.array(numbers), "x": np.array(numbers, dtype=float)}
    found = [one(value) for _, value in fields(messages(layout, columns))]
    assert [m[3] for m in found] == numbers
    assert one(b"\x08" + varint(numbers[0]))[1] == numbers[0]
